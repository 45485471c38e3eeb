//! Shopify: an article on a blog of a shop, via the GraphQL Admin API. `connect.rs` connects accounts in the browser.
//!
//! Each article has a unique handle (slug), stored before the call. After a call with an unknown outcome, it is looked
//! up among the blog's newest articles, which is exact, and with Shopify's search, which may lag behind. Shopify
//! downloads the image itself.
//!
//! Sources: shopify.dev, Admin GraphQL 2026-10 (`articleCreate`, `ArticleCreateUserErrorCode`, `articleDelete`,
//! `ArticleDeleteUserErrorCode`, `articles`, `blogs`), "API limits", "Status and error codes", November 2026.

mod admin;
mod connect;

use async_trait::async_trait;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{Descriptor, Platform};
use http::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use self::admin::Admin;
use super::call::{Effect, PlatformClient, sanitize_message};
use super::oauth::{self, OAuthConnector};
use super::wp::html;
use super::{
    CallError, Clients, Connector, ConnectorAccount, Marker, MarkerSeed, OutgoingPost, Published, ReconcileResult,
    RefreshedTokens, UnpublishPost, marker_field, options,
};

/// The version of the API. A version is supported for a year (checked in November 2026).
const VERSION: &str = "2026-10";
/// The maximum length of a title.
const MAX_TITLE: usize = 255;

const CREATE: &str = "
    mutation Create($article: ArticleCreateInput!) {
      articleCreate(article: $article) {
        article { id handle blog { handle } }
        userErrors { code field message }
      }
    }";

const DELETE: &str = "
    mutation Delete($id: ID!) {
      articleDelete(id: $id) {
        deletedArticleId
        userErrors { code field message }
      }
    }";

/// The blog's newest articles, and those that the search finds.
const FIND: &str = "
    query Find($blog: ID!, $query: String!) {
      blog(id: $blog) {
        articles(first: 50, reverse: true) { nodes { id handle blog { handle } } }
      }
      articles(first: 10, query: $query) { nodes { id handle blog { handle } } }
    }";

const SHOP: &str = "query Shop { shop { name } }";

pub(super) struct Shopify {
    client: PlatformClient,
    config: PlatformsConfig,
    version: String,
    /// Replaces the shops' own hosts for the API and tokens, unless it is empty.
    base: String,
    /// Like `base`, for the authorization page.
    site: String,
}

impl Shopify {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let base = config.base_url(Platform::Shopify, "");
        // Users type shops' URLs; the operator sets the base URL.
        let http = if base.is_empty() { clients.guarded.clone() } else { clients.trusted.clone() };
        Self {
            client: PlatformClient::new(Platform::Shopify, http, clock.clone()),
            config: config.clone(),
            version: config.of(Platform::Shopify).api_version.clone().unwrap_or_else(|| VERSION.to_owned()),
            base,
            site: config.auth_url(Platform::Shopify, ""),
        }
    }

    fn base(&self, instance: &str) -> String {
        if self.base.is_empty() { instance.to_owned() } else { self.base.clone() }
    }

    fn site(&self, instance: &str) -> String {
        if self.site.is_empty() { instance.to_owned() } else { self.site.clone() }
    }

    fn admin(&self, instance: &str, token: SecretString) -> Admin<'_> {
        Admin { client: &self.client, base: self.base(instance), version: &self.version, token }
    }

    fn admin_of(&self, account: &ConnectorAccount) -> Result<Admin<'_>, CallError> {
        let instance = account.secrets.require("instance")?;
        Ok(self.admin(instance.expose_secret(), account.secrets.require("access_token")?))
    }

    async fn find(&self, account: &ConnectorAccount, handle: &str) -> Result<Option<Published>, CallError> {
        #[derive(Deserialize)]
        struct Found {
            blog: Option<BlogArticles>,
            articles: Articles,
        }
        #[derive(Deserialize)]
        struct BlogArticles {
            articles: Articles,
        }
        #[derive(Deserialize)]
        struct Articles {
            nodes: Vec<Article>,
        }
        let number = account.external_id.rsplit('/').next().unwrap_or_default();
        let variables = json!({
            "blog": account.external_id,
            "query": format!("handle:{handle} AND blog_id:{number}"),
        });
        let found: Found = self.admin_of(account)?.call(Effect::Repeatable, FIND, variables).await?;
        let newest = found.blog.map(|blog| blog.articles.nodes).unwrap_or_default();
        let mut all = newest.into_iter().chain(found.articles.nodes);
        Ok(all.find(|article| article.handle == handle).map(|article| article.published(account)))
    }
}

#[derive(Deserialize)]
struct Article {
    id: String,
    handle: String,
    blog: Option<ArticleBlog>,
}

#[derive(Deserialize)]
struct ArticleBlog {
    handle: String,
}

impl Article {
    fn published(self, account: &ConnectorAccount) -> Published {
        let site = account.secrets.get("site").unwrap_or_default();
        let blog = self.blog.map(|blog| blog.handle).filter(|_| !site.expose_secret().is_empty());
        let url = blog.map(|blog| format!("{}/blogs/{blog}/{}", site.expose_secret(), self.handle));
        Published::new(self.id, url)
    }
}

#[derive(Deserialize)]
struct UserError {
    code: Option<String>,
    #[serde(default)]
    message: String,
}

impl UserError {
    fn is_taken(&self) -> bool {
        self.code.as_deref() == Some("TAKEN")
    }

    fn is_not_found(&self) -> bool {
        self.code.as_deref() == Some("NOT_FOUND")
    }
}

/// Returns the error for an article that Shopify did not create or delete.
fn classify(error: &UserError) -> CallError {
    let code = error.code.as_deref().unwrap_or("user_error");
    let failure = |category, what: &str| {
        let message = match sanitize_message(&error.message, &[]) {
            Some(detail) => format!("Shopify {what}: {detail}"),
            None => format!("Shopify {what}."),
        };
        Failure::of(category, message).from_platform(code)
    };
    match code {
        // Nothing was created. The image may be reachable next time.
        "UPLOAD_FAILED" => CallError::Transient(failure(Category::Media, "could not fetch the image")),
        "NOT_FOUND" => CallError::Permanent(failure(Category::Account, "no longer knows this blog")),
        "TAKEN" => CallError::Permanent(failure(Category::DuplicateContent, "already has this article")),
        _ => CallError::Permanent(failure(Category::InvalidContent, "does not accept this article")),
    }
}

/// Returns the article of a post: the option `title`, or else the first line, and the text as paragraphs.
fn article(account: &ConnectorAccount, post: &OutgoingPost) -> Result<Value, CallError> {
    let parts = html::split(&post.text);
    let (title, body) = match options::text(post, "title")? {
        Some(title) => (title, post.text.as_str()),
        None => (parts.title.as_str(), parts.body.as_str()),
    };
    if title.is_empty() || title.chars().count() > MAX_TITLE {
        let message =
            format!("An article requires a title of at most {MAX_TITLE} characters: text, or the option title.");
        return Err(CallError::invalid(message));
    }
    let shop = account.secrets.get("author").unwrap_or_default();
    let author = options::text(post, "author")?.unwrap_or(shop.expose_secret());
    let mut article = json!({
        "blogId": account.external_id,
        "title": title,
        "author": { "name": author },
        "body": html::paragraphs(body),
        "handle": marker_field(&post.marker, "handle")?,
        "isPublished": true,
    });
    if let Some(summary) = options::text(post, "summary")? {
        article["summary"] = Value::from(html::paragraphs(summary));
    }
    if let Some(tags) = options::text(post, "tags")? {
        let tags: Vec<&str> = tags.split(',').map(str::trim).filter(|tag| !tag.is_empty()).collect();
        article["tags"] = json!(tags);
    }
    if let Some(image) = post.images.first() {
        article["image"] = json!({ "url": image.url, "altText": image.alt_text.as_deref().unwrap_or_default() });
    }
    Ok(article)
}

#[async_trait]
impl Connector for Shopify {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Shopify)
    }

    fn oauth(&self) -> Option<&dyn OAuthConnector> {
        Some(self)
    }

    /// Tokens of custom applications may have no expiry. These are only checked.
    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        let reauth = || CallError::Reauth(self.client.reconnect_required());
        if account.secrets.get("refresh_token").is_none() {
            let checked = self.admin_of(account)?.call::<Value>(Effect::Repeatable, SHOP, json!({})).await;
            return match checked {
                Ok(_) => Ok(RefreshedTokens { secrets: None, token_expires_at: None, refresh_expires_at: None }),
                Err(CallError::AuthExpired(_)) => Err(reauth()),
                Err(error) => Err(error),
            };
        }
        let application = oauth::application_of(account, &self.config, Platform::Shopify)?;
        let server = self.auth_server(account.secrets.require("instance")?.expose_secret());
        oauth::renew(&self.client, &server, account, &application).await.map_err(|failure| {
            // 401 `invalid_request`, "This request requires an active refresh_token".
            let names_token = failure.description.as_deref().is_some_and(|text| text.contains("active refresh_token"));
            match failure.status {
                Some(StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST) if names_token => reauth(),
                _ => failure.error,
            }
        })
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        let handle = format!("post-{}-{:016x}", seed.target_id, seed.random);
        Marker::from_iter([("handle".to_owned(), Value::from(handle))])
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Created {
            article_create: Option<Payload>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Payload {
            article: Option<Article>,
            #[serde(default)]
            user_errors: Vec<UserError>,
        }
        let variables = json!({ "article": article(account, post)? });
        let created: Created = self.admin_of(account)?.call(Effect::Publishes, CREATE, variables).await?;
        let payload = created.article_create;
        let (article, errors) = payload.map_or((None, Vec::new()), |payload| (payload.article, payload.user_errors));
        if let Some(article) = article {
            return Ok(article.published(account));
        }
        let Some(error) = errors.first() else {
            let what = "accepted the article but returned no ID";
            return Err(self.client.classify_unknown_effect(Effect::Publishes, what, None));
        };
        // The handle is unique to this post, so an earlier call created the article.
        if errors.iter().any(UserError::is_taken)
            && let Some(published) = self.find(account, marker_field(&post.marker, "handle")?).await?
        {
            return Ok(published);
        }
        Err(classify(error))
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        let found = self.find(account, marker_field(&post.marker, "handle")?).await?;
        Ok(found.map_or(ReconcileResult::Absent, ReconcileResult::Found))
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Deleted {
            article_delete: Option<Payload>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Payload {
            deleted_article_id: Option<String>,
            #[serde(default)]
            user_errors: Vec<UserError>,
        }
        let variables = json!({ "id": post.external_id });
        let deleted: Deleted = self.admin_of(account)?.call(Effect::Repeatable, DELETE, variables).await?;
        let payload = deleted.article_delete.unwrap_or_default();
        match (payload.user_errors.first(), payload.deleted_article_id) {
            (Some(error), _) if error.is_not_found() => Ok(()),
            (Some(error), _) => Err(classify(error)),
            (None, Some(_)) => Ok(()),
            (None, None) => {
                let what = "did not confirm the deletion";
                Err(self.client.classify_unknown_effect(Effect::Repeatable, what, None))
            }
        }
    }
}
