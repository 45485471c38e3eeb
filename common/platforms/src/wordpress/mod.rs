//! WordPress, via its REST API with an application password. A text becomes a post of the site. `comments.rs` writes its
//! first comment, and `video.rs` uploads its videos.
//!
//! The post's slug is its marker. It is unguessable, stored before the first call, and looked up before every retry,
//! because WordPress appends `-2` to a slug that is taken and silently publishes a duplicate.
//!
//! Sources: REST API handbook, "Discovery", "Posts", "Media", "Users"; `WP_REST_Posts_Controller` for the permissions
//! of a status filter. A public GET returns 200 even with invalid credentials, so only `/users/me` is used to check
//! them.

mod comments;
mod inbox;
mod video;

use std::sync::Arc;

use async_trait::async_trait;
use crier_base::clock::Clock;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{AccountKind, Descriptor, Platform};
use http::{HeaderMap, Method, header};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use self::video::UploadedVideo;
use super::address::{self, UrlCheck};
use super::call::{Effect, PlatformClient, connect_error};
use super::wp::{Rest, RestError, WpBody, host_of, html, site_of, unique, visibility_error};
use super::{
    CallError, Clients, ConnectError, Connected, Connector, ConnectorAccount, Image, ImageTransfer, InboxConnector,
    Marker, MarkerSeed, OutgoingPost, Published, ReconcileResult, RefreshedTokens, Secrets, UnpublishPost, Video,
    VideoStep, VideoTransfer, marker_field, time_marker,
};

/// The maximum number of redirects followed from the typed URL (`http://` to `https://`, to `www.`).
const MAX_REDIRECTS: usize = 4;

/// The statuses in which posts are looked up.
const ANY_STATUS: &str = "publish,future,draft,pending,private";

pub(super) struct Wordpress {
    caller: PlatformClient,
    addresses: Arc<dyn UrlCheck>,
}

impl Wordpress {
    pub(super) fn new(clients: &Clients, clock: &Clock) -> Self {
        Self {
            caller: PlatformClient::new(Platform::Wordpress, clients.guarded.clone(), clock.clone()),
            addresses: clients.addresses.clone(),
        }
    }

    fn rest(&self, secrets: &Secrets) -> Result<Rest<'_>, CallError> {
        Ok(Rest {
            caller: &self.caller,
            root: secrets.require("api_root")?.expose_secret().to_owned(),
            user: secrets.require("username")?.expose_secret().to_owned(),
            password: secrets.require("application_password")?,
        })
    }

    /// Returns the possible roots of the site's REST API: the one that its front page links to, or else the two
    /// defaults.
    async fn roots(&self, site: &str) -> Result<Vec<String>, ConnectError> {
        let mut page = format!("{site}/");
        for _ in 0..MAX_REDIRECTS {
            let request = self.caller.request(Method::GET, &page);
            let response = self.caller.send(Effect::Repeatable, request).await;
            let response = response.map_err(|error| connect_error(error, Some("site_url")))?;
            if let Some(root) = linked_root(&response.headers, &page) {
                return Ok(vec![root]);
            }
            let next = response.status.is_redirection().then(|| location(&response.headers, &page)).flatten();
            let Some(next) = next else { break };
            page = next;
        }
        let site = page.split(['?', '#']).next().unwrap_or(&page).trim_end_matches('/');
        Ok(vec![format!("{site}/wp-json/"), format!("{site}/?rest_route=/")])
    }

    /// Logs in at the first of `roots` that is a REST API.
    async fn log_in(
        &self,
        roots: Vec<String>,
        user: &str,
        password: &SecretString,
    ) -> Result<(String, Me), ConnectError> {
        for root in roots {
            // The page may link to another host. Credentials are not sent to a URL that a user could not have typed.
            address::check_submitted_url(self.addresses.as_ref(), "site_url", &root).await?;
            let rest = Rest { caller: &self.caller, root, user: user.to_owned(), password: password.clone() };
            match me(&rest).await {
                Ok(me) => return Ok((rest.root, me)),
                // Not a REST API: 404, a redirect, or a page instead of JSON.
                Err(failed) if failed.status.is_some_and(|s| s == 404 || (300..400).contains(&s)) => {}
                Err(failed) if failed.status.is_none() && is_unreadable(&failed.error) => {}
                Err(failed) => return Err(connect_error(failed.error, Some("site_url"))),
            }
        }
        Err(ConnectError::Rejected("No WordPress REST API was found at this URL.".to_owned()))
    }

    /// Looks up the post of an earlier call.
    async fn look_up(&self, rest: &Rest<'_>, slug: &str) -> Result<Option<Post>, CallError> {
        let query = [("slug", slug), ("status", ANY_STATUS), ("_fields", "id,link,slug,status")];
        let found: Result<Vec<Post>, RestError> =
            rest.call(Effect::Repeatable, Method::GET, "wp/v2/posts", &query, WpBody::None).await;
        let found = found.map_err(|failed| match failed.code.as_str() {
            // Only users who may edit posts may filter by status, so the site treated Crier as a visitor.
            "rest_invalid_param" | "rest_forbidden_status" => CallError::Reauth(
                Failure::of(
                    Category::AuthExpired,
                    "WordPress no longer accepts the credentials; connect the account again.",
                )
                .from_platform(&failed.code),
            ),
            _ => failed.error,
        })?;
        Ok(found.into_iter().find(|post| post.slug == slug))
    }

    /// Looks up the image or video of an earlier attempt that crashed before its result was stored.
    async fn look_up_media(&self, rest: &Rest<'_>, name: &str) -> Result<Option<Media>, CallError> {
        let query = [("slug", name), ("_fields", "id,source_url,slug")];
        let found: Vec<Media> = rest.call(Effect::Repeatable, Method::GET, "wp/v2/media", &query, WpBody::None).await?;
        Ok(found.into_iter().find(|media| media.slug == name))
    }

    /// Returns the site's media for the post's images and for its videos. Checks that uploads of earlier attempts still
    /// exist, because WordPress silently creates a post without a deleted image.
    async fn media_of(
        &self,
        rest: &Rest<'_>,
        post: &OutgoingPost,
    ) -> Result<(Vec<Media>, Vec<UploadedVideo>), CallError> {
        let media: Vec<Media> = post.images.iter().map(Media::of).collect::<Result<_, _>>()?;
        let videos: Vec<UploadedVideo> = post.videos.iter().map(UploadedVideo::of).collect::<Result<_, _>>()?;
        let images = media.iter().zip(&post.images).filter(|(_, image)| !is_fresh(image)).map(|(media, _)| media.id);
        // A video may have been uploaded by an earlier attempt too.
        let earlier: Vec<i64> = images.chain(videos.iter().flat_map(UploadedVideo::ids)).collect();
        if earlier.is_empty() {
            return Ok((media, videos));
        }
        let include = earlier.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let query = [("include", include.as_str()), ("per_page", "100"), ("_fields", "id")];
        let found: Vec<MediaId> =
            rest.call(Effect::Repeatable, Method::GET, "wp/v2/media", &query, WpBody::None).await?;
        match earlier.iter().all(|id| found.iter().any(|item| item.id == *id)) {
            true => Ok((media, videos)),
            false => Err(CallError::UploadsMissing(Failure::of(
                Category::Media,
                "An image or video of this post was deleted on the WordPress site. Crier uploads it again.",
            ))),
        }
    }
}

/// Sets the alt text of an image.
async fn set_alt_text(rest: &Rest<'_>, media: &Media, image: &Image) -> Result<(), CallError> {
    let (path, body) = (format!("wp/v2/media/{}", media.id), json!({ "alt_text": alt_of(image) }));
    let _: Value = rest.call(Effect::Repeatable, Method::POST, &path, &[], WpBody::Json(&body)).await?;
    Ok(())
}

fn alt_of(image: &Image) -> &str {
    image.alt_text.as_deref().unwrap_or_default()
}

fn is_fresh(image: &Image) -> bool {
    image.uploaded.as_ref().is_some_and(|uploaded| uploaded.uploaded_in_this_run)
}

#[async_trait]
impl Connector for Wordpress {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Wordpress)
    }

    async fn connect(&self, _workspace_id: i64, credentials: &Secrets) -> Result<Connected, ConnectError> {
        let missing = |error| connect_error(error, None);
        let typed = credentials.require("site_url").map_err(missing)?;
        let user = credentials.require("username").map_err(missing)?;
        let password = credentials.require("application_password").map_err(missing)?;
        let user = user.expose_secret().trim();

        let site = address::check_submitted_url(self.addresses.as_ref(), "site_url", typed.expose_secret()).await?;
        let (root, me) = self.log_in(self.roots(&site).await?, user, &password).await?;
        if !me.may_publish() {
            let message =
                format!("The user {user} cannot publish posts on this site; give it the role Author or Editor.");
            return Err(ConnectError::Rejected(message));
        }
        let site = site_of(&root);
        let rest = Rest { caller: &self.caller, root, user: user.to_owned(), password };
        // The site's title is optional. Without it, the host is used.
        let query = [("_fields", "name")];
        let index: Option<Index> = rest.call(Effect::Repeatable, Method::GET, "", &query, WpBody::None).await.ok();
        let name = index.and_then(|index| index.name).filter(|name| !name.trim().is_empty());
        Ok(Connected {
            name: name.unwrap_or_else(|| host_of(&site)),
            username: Some(user.to_owned()),
            profile_url: Some(site.clone()),
            avatar_url: me.avatar(),
            kind: AccountKind::Site,
            token_expires_at: None,
            renewal: None,
            limits: None,
            application: None,
            secrets: credentials.with(&[("username", user), ("api_root", &rest.root)]),
            external_id: site,
        })
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        Some(self)
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        let me = me(&self.rest(&account.secrets)?).await?;
        if !me.may_publish() {
            let message = "The WordPress user can no longer publish posts; give it the role Author or Editor.";
            return Err(CallError::Permanent(Failure::of(Category::Account, message)));
        }
        Ok(RefreshedTokens { secrets: None, token_expires_at: None, refresh_expires_at: None })
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        // A comment has no slug.
        if seed.reply.is_some() {
            return time_marker(seed);
        }
        Marker::from_iter([("slug".to_owned(), Value::from(format!("post-{}", unique(seed))))])
    }

    fn image_transfer(&self) -> ImageTransfer {
        ImageTransfer::Uploaded
    }

    /// Uploads the image under a name derived from the slug, by which a retry finds it. Then sets the alt text.
    async fn upload(&self, account: &ConnectorAccount, post: &OutgoingPost, image: &Image) -> Result<Value, CallError> {
        let rest = self.rest(&account.secrets)?;
        let name = format!("{}-{}", marker_field(&post.marker, "slug")?, image.id);
        let existing = if post.has_earlier_attempt { self.look_up_media(&rest, &name).await? } else { None };
        let media = match existing {
            Some(media) => media,
            None => {
                let filename = format!("{name}.{}", extension(&image.mime_type));
                let file =
                    WpBody::File { bytes: image.bytes.clone(), mime_type: &image.mime_type, filename: &filename };
                // No post references it yet, so a duplicate does no harm.
                rest.call(Effect::Repeatable, Method::POST, "wp/v2/media", &[], file).await?
            }
        };
        if !alt_of(image).is_empty() {
            set_alt_text(&rest, &media, image).await?;
        }
        Ok(json!({ "id": media.id, "source_url": media.source_url, "alt": alt_of(image) }))
    }

    fn video_transfer(&self) -> VideoTransfer {
        VideoTransfer::Uploaded
    }

    async fn send_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        self.take_video_step(&self.rest(&account.secrets)?, post, video).await
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        if let Some(reply) = &post.reply_to {
            return self.comment_on(account, &reply.parent, &post.text).await;
        }
        let rest = self.rest(&account.secrets)?;
        let slug = marker_field(&post.marker, "slug")?;
        if post.has_earlier_attempt
            && let Some(found) = self.look_up(&rest, slug).await?
        {
            return found.published();
        }
        let (media, videos) = self.media_of(&rest, post).await?;
        for (media, image) in media.iter().zip(&post.images) {
            // The alt text has changed since the upload.
            if media.alt != alt_of(image) {
                set_alt_text(&rest, media, image).await?;
            }
        }
        let body = post_body(post, slug, &media, &videos);
        let created: Post = rest.call(Effect::Publishes, Method::POST, "wp/v2/posts", &[], WpBody::Json(&body)).await?;
        created.published()
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        if let Some(reply) = &post.reply_to {
            return self.find_comment(account, post, &reply.parent).await;
        }
        let rest = self.rest(&account.secrets)?;
        let found = self.look_up(&rest, marker_field(&post.marker, "slug")?).await?;
        Ok(match found.map(Post::published) {
            Some(Ok(published)) => ReconcileResult::Found(published),
            Some(Err(error)) => ReconcileResult::Rejected(error),
            None => ReconcileResult::Absent,
        })
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        let kind = if post.is_comment { "comments" } else { "posts" };
        self.rest(&account.secrets)?.trash(&format!("wp/v2/{kind}/{}", post.external_id)).await
    }
}

async fn me(rest: &Rest<'_>) -> Result<Me, RestError> {
    let query = [("context", "edit")];
    rest.call(Effect::Repeatable, Method::GET, "wp/v2/users/me", &query, WpBody::None).await
}

/// Builds the post. The first image is the featured one; the others form a gallery below the text and the videos.
/// Without images, that of a video is featured.
fn post_body(post: &OutgoingPost, slug: &str, media: &[Media], videos: &[UploadedVideo]) -> Value {
    let parts = html::split(&post.text);
    // With the option `title`, the whole text becomes the content.
    let title_option = post.options.get("title").and_then(Value::as_str).filter(|title| !title.trim().is_empty());
    let (title, text) = match title_option {
        Some(title) => (title, post.text.as_str()),
        None => (parts.title.as_str(), parts.body.as_str()),
    };
    let mut content = html::paragraphs(text);
    // WordPress rejects a post with neither title nor content. Without text, all images go into the content.
    let gallery = if content.is_empty() { 0 } else { 1 };
    content.extend(videos.iter().map(UploadedVideo::block));
    if media.len() > gallery {
        let figures: String = media.iter().zip(&post.images).skip(gallery).map(|(m, image)| figure(m, image)).collect();
        let class = "wp-block-gallery has-nested-images columns-default is-cropped";
        content.push_str(&format!(
            "\n<!-- wp:gallery {{\"linkTo\":\"none\"}} -->\n<figure class=\"{class}\">{figures}</figure>\n<!-- /wp:gallery -->"
        ));
    }
    let mut body =
        json!({ "title": html::escape(title), "content": content.trim_start(), "status": "publish", "slug": slug });
    let featured = media.first().map(|first| first.id).or_else(|| videos.iter().find_map(UploadedVideo::poster_id));
    if let Some(id) = featured {
        body["featured_media"] = Value::from(id);
    }
    body
}

fn figure(media: &Media, image: &Image) -> String {
    let (id, src) = (media.id, html::escape(&media.source_url));
    let alt = html::escape(alt_of(image));
    format!(
        "<!-- wp:image {{\"id\":{id}}} -->\n<figure class=\"wp-block-image\"><img src=\"{src}\" alt=\"{alt}\" \
         class=\"wp-image-{id}\"/></figure>\n<!-- /wp:image -->"
    )
}

/// Returns the root that a page links to: `Link: <https://example.com/wp-json/>; rel="https://api.w.org/"`.
fn linked_root(headers: &HeaderMap, page: &str) -> Option<String> {
    let page = Url::parse(page).ok()?;
    let values = headers.get_all(header::LINK).iter().filter_map(|value| value.to_str().ok());
    let target = values.flat_map(|value| value.split(',')).find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        parameters.contains("https://api.w.org/").then_some(target)
    })?;
    let mut root = page.join(target).ok()?;
    // A site behind a proxy may not know that it is served with https.
    if page.scheme() == "https" && root.scheme() == "http" && page.host_str() == root.host_str() {
        root.set_scheme("https").ok()?;
    }
    Some(root.into())
}

fn location(headers: &HeaderMap, page: &str) -> Option<String> {
    let target = headers.get(header::LOCATION)?.to_str().ok()?;
    let next = Url::parse(page).ok()?.join(target).ok()?;
    matches!(next.scheme(), "http" | "https").then(|| next.into())
}

fn is_unreadable(error: &CallError) -> bool {
    matches!(error, CallError::Transient(failure) if failure.category == Category::PlatformError)
}

fn extension(mime_type: &str) -> &'static str {
    match mime_type {
        "image/png" => "png",
        "image/gif" => "gif",
        "image/webp" => "webp",
        _ => "jpg",
    }
}

#[derive(Deserialize)]
struct Index {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Me {
    /// An object. PHP encodes an empty one as `[]`.
    #[serde(default)]
    capabilities: Value,
    #[serde(default)]
    avatar_urls: Value,
}

impl Me {
    /// Returns whether the user may publish. If the site hides the capabilities (a plugin may do so), returns true, and
    /// publishing shows whether it is allowed.
    fn may_publish(&self) -> bool {
        self.capabilities.is_null() || self.capabilities["publish_posts"] == Value::Bool(true)
    }

    fn avatar(&self) -> Option<String> {
        self.avatar_urls["96"].as_str().map(str::to_owned)
    }
}

#[derive(Deserialize)]
struct Post {
    id: i64,
    link: Option<String>,
    #[serde(default)]
    slug: String,
    #[serde(default)]
    status: String,
}

impl Post {
    fn published(self) -> Result<Published, CallError> {
        match visibility_error("WordPress", "post", &self.status) {
            Some(error) => Err(error),
            None => Ok(Published::new(self.id.to_string(), self.link)),
        }
    }
}

/// An image, as the site returns it and as it is stored.
#[derive(Deserialize)]
struct Media {
    id: i64,
    #[serde(default)]
    source_url: String,
    #[serde(default)]
    slug: String,
    /// The alt text that Crier set.
    #[serde(default)]
    alt: String,
}

impl Media {
    fn of(image: &Image) -> Result<Self, CallError> {
        serde_json::from_value(image.name()?.clone()).map_err(|_| {
            let message = "The stored data of an uploaded image cannot be read. Crier uploads it again.";
            CallError::UploadsMissing(Failure::of(Category::Media, message))
        })
    }
}

#[derive(Deserialize)]
struct MediaId {
    id: i64,
}
