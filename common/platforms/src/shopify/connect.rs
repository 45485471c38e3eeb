//! Connecting a blog of a Shopify shop. The operator registers the application. The user types the shop's URL, so its
//! format is checked. Shopify signs the URL of the callback.
//!
//! Sources: shopify.dev, "Implement authorization code grant manually" (the format of the signature, checked with the
//! example there), "About offline access tokens" (`expiring=1`: one hour, with a refresh token of 90 days that is
//! replaced at each use), November 2026.

use async_trait::async_trait;
use crier_base::hexadecimal;
use crier_domain::platform::{AccountKind, ConnectTarget};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use sha2::Sha256;
use url::form_urlencoded;

use super::super::call::{Effect, connect_error};
use super::super::oauth::{
    AuthServer, Choice, Choices, ClientAuth, ConnectAttempt, ConnectRequest, Grant, MAX_CHOICES, OAuthConnector,
    Permission, protocol, renewal,
};
use super::super::{CallError, ConnectError, Connected};
use super::Shopify;

/// Writing includes reading, and Shopify returns only this scope.
const SCOPES: [&str; 1] = ["write_content"];

const PERMISSIONS: [Permission; 1] =
    [Permission { scopes: &["write_content"], purpose: "see the shop's blogs, and publish and read articles on them" }];

const DOMAIN: &str = ".myshopify.com";
/// The maximum length of a label of a domain name.
const MAX_LABEL: usize = 63;

const BLOGS: &str = "
    query Blogs($after: String) {
      blogs(first: 100, after: $after) {
        nodes { id handle title }
        pageInfo { hasNextPage endCursor }
      }
    }";

const CHOSEN: &str = "
    query Chosen($id: ID!) {
      shop { name primaryDomain { url } }
      blog(id: $id) { id handle title }
    }";

#[derive(Deserialize)]
struct ListedBlogs {
    blogs: Page,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    nodes: Vec<Blog>,
    page_info: PageInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_next_page: bool,
    end_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Blog {
    id: String,
    handle: String,
    #[serde(default)]
    title: String,
}

#[derive(Deserialize)]
struct Chosen {
    shop: Shop,
    blog: Option<Blog>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shop {
    name: String,
    primary_domain: PrimaryDomain,
}

#[derive(Deserialize)]
struct PrimaryDomain {
    url: String,
}

/// Returns whether the domain is that of a shop: `^[a-z0-9][a-z0-9-]*\.myshopify\.com$`.
fn is_shop(domain: &str) -> bool {
    let Some(name) = domain.strip_suffix(DOMAIN) else { return false };
    let is_label = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    is_label && !name.is_empty() && !name.starts_with('-') && name.len() <= MAX_LABEL
}

/// Returns whether Shopify signed the query of a callback for this shop. Compares in constant time.
fn is_signed(query: &str, shop: &str, secret: &SecretString) -> bool {
    let mut pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let value = |name: &str| {
        let mut all = pairs.iter().filter(|pair| pair.0 == name);
        all.next().filter(|_| all.next().is_none()).map(|pair| pair.1.clone())
    };
    let (sent, named) = (value("hmac"), value("shop"));
    let Some(sent) = sent.and_then(|text| hexadecimal::decode::<32>(&text)) else { return false };
    pairs.retain(|pair| pair.0 != "hmac");
    pairs.sort();
    let message = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()) else { return false };
    mac.update(message.as_bytes());
    mac.verify_slice(&sent).is_ok() && named.as_deref() == Some(shop)
}

/// Returns the shop's domain.
fn domain(instance: &str) -> &str {
    instance.strip_prefix("https://").unwrap_or(instance)
}

fn unavailable(error: CallError) -> ConnectError {
    connect_error(error, None)
}

impl Shopify {
    pub(super) fn auth_server(&self, instance: &str) -> AuthServer {
        let authorize = format!("{}/admin/oauth/authorize", self.site(instance));
        let token = format!("{}/admin/oauth/access_token", self.base(instance));
        let mut server = AuthServer::new(authorize, token, &SCOPES);
        server.separator = ',';
        server.client_auth = ClientAuth::Form;
        // Not documented.
        server.pkce = false;
        server.token_extra = vec![("expiring".to_owned(), "1".to_owned())];
        server
    }
}

#[async_trait]
impl OAuthConnector for Shopify {
    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    fn gate(&self, _target: ConnectTarget) -> Option<&'static str> {
        Some(
            "Shopify asks you to install the application on your shop. A custom application can be installed only on \
             the shops that were named when it was created. If Shopify rejects the installation, ask the operator of \
             Crier.",
        )
    }

    fn choice_noun(&self) -> &'static str {
        "blog"
    }

    async fn check_instance(&self, typed: &str) -> Result<String, ConnectError> {
        let shop = typed.trim().to_ascii_lowercase();
        let shop = shop.strip_prefix("https://").unwrap_or(&shop).trim_end_matches('/');
        if !is_shop(shop) {
            let message = "Enter the shop's own domain, such as example.myshopify.com.";
            return Err(ConnectError::Field { field: "instance", message: message.to_owned() });
        }
        Ok(format!("https://{shop}"))
    }

    async fn server(&self, request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(self.auth_server(request.instance))
    }

    fn is_authentic(&self, attempt: &ConnectAttempt, query: &str) -> bool {
        is_signed(query, domain(&attempt.instance), &attempt.application().client_secret)
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        Ok(protocol::exchange(&self.client, attempt, code).await?)
    }

    async fn choices(&self, grant: &Grant) -> Result<Choices, ConnectError> {
        let admin = self.admin(&grant.instance, grant.access_token().into());
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let variables = json!({ "after": after });
            let page =
                admin.call::<ListedBlogs>(Effect::Repeatable, BLOGS, variables).await.map_err(unavailable)?.blogs;
            let before = found.len();
            found.extend(page.nodes.into_iter().map(|blog| Choice {
                id: blog.id,
                name: blog.title,
                detail: Some(blog.handle),
            }));
            let next = page.page_info.end_cursor.filter(|_| page.page_info.has_next_page);
            // An empty page would be an endless loop.
            if next.is_none() || found.len() == before || found.len() >= MAX_CHOICES {
                return Ok(Choices::Of(found));
            }
            after = next;
        }
    }

    async fn finish(&self, grant: &Grant, choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        let gone = || ConnectError::Rejected("This blog is no longer one of the shop's blogs.".to_owned());
        let id = choice.ok_or_else(gone)?.id.as_str();
        let admin = self.admin(&grant.instance, grant.access_token().into());
        let chosen: Chosen = admin.call(Effect::Repeatable, CHOSEN, json!({ "id": id })).await.map_err(unavailable)?;
        let (shop, blog) = (chosen.shop, chosen.blog.filter(|blog| blog.id == id).ok_or_else(gone)?);
        let site = shop.primary_domain.url.trim_end_matches('/').to_owned();
        let title = if blog.title.trim().is_empty() { &blog.handle } else { &blog.title };
        let name = format!("{}: {title}", shop.name);
        Ok(Connected {
            username: Some(domain(&grant.instance).to_owned()),
            profile_url: Some(format!("{site}/blogs/{}", blog.handle)),
            renewal: grant.has_refresh_token().then(|| renewal(grant, true)),
            secrets: grant.secrets().with(&[("site", &site), ("author", &shop.name)]),
            ..grant.connected(AccountKind::Store, blog.id, name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_domain_of_a_shop_is_one() {
        for good in ["x.myshopify.com", "my-shop-2.myshopify.com", "0.myshopify.com"] {
            assert!(is_shop(good), "{good}");
        }
        let long = format!("{}.myshopify.com", "x".repeat(64));
        for bad in [
            "",
            ".myshopify.com",
            "-x.myshopify.com",
            "a.b.myshopify.com",
            "X.myshopify.com",
            "x.myshopify.com.evil.example",
            "x@evil.example/.myshopify.com",
            "evil.example?.myshopify.com",
            "x_y.myshopify.com",
            "x.myshopify.com:443",
            "shop.example",
            long.as_str(),
        ] {
            assert!(!is_shop(bad), "{bad}");
        }
    }

    /// Shopify's example, with the secret `hush`.
    const EXAMPLE: &str = "code=0907a61c0c8d55e99db179b68161bc00\
                           &hmac=700e2dadb827fcc8609e9d5ce208b2e9cdaab9df07390d2cbca10d7c328fc4bf\
                           &shop=some-shop.myshopify.com&state=0.6784241404160823&timestamp=1337178173";

    #[test]
    fn shopifys_example_is_signed() {
        let (secret, shop) = (SecretString::from("hush"), "some-shop.myshopify.com");
        assert!(is_signed(EXAMPLE, shop, &secret));
        assert!(!is_signed(EXAMPLE, "other.myshopify.com", &secret));
        assert!(!is_signed(EXAMPLE, shop, &SecretString::from("hus")));
        for (from, to) in [
            ("timestamp=1337178173", "timestamp=1337178174"),
            ("code=0907", "code=0908"),
            ("&state=", "&x=1&state="),
            ("hmac=700e", "hmac=700f"),
            ("&hmac=", "&hmac=00&hmac="),
            ("hmac=", "hmac2="),
        ] {
            let changed = EXAMPLE.replace(from, to);
            assert!(changed != EXAMPLE && !is_signed(&changed, shop, &secret), "{to}");
        }
    }
}
