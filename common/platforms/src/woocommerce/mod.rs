//! WooCommerce, via its REST API v3 with a consumer key. A post becomes a simple product of the store.
//!
//! The product's SKU is its marker. The store keeps SKUs unique, so it rejects a repeated call, and the first product
//! is looked up.
//!
//! Source: WooCommerce REST API documentation, "Authentication over HTTPS" (Basic), "Products", "System status". Plain
//! http would require OAuth 1.0a signatures, so it is accepted only for networks that the operator allowed.

mod inbox;

use std::sync::Arc;

use async_trait::async_trait;
use crier_base::clock::Clock;
use crier_domain::catalogue;
use crier_domain::platform::{AccountKind, Descriptor, Platform};
use http::Method;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::address::{self, UrlCheck};
use super::call::{Effect, PlatformClient, connect_error};
use super::wp::{Rest, RestError, WpBody, host_of, html, site_of, unique, visibility_error};
use super::{
    CallError, Clients, ConnectError, Connected, Connector, ConnectorAccount, InboxConnector, Marker, MarkerSeed,
    OutgoingPost, Published, ReconcileResult, RefreshedTokens, Secrets, UnpublishPost, marker_field,
};

pub(super) struct Woocommerce {
    caller: PlatformClient,
    addresses: Arc<dyn UrlCheck>,
}

impl Woocommerce {
    pub(super) fn new(clients: &Clients, clock: &Clock) -> Self {
        Self {
            caller: PlatformClient::new(Platform::Woocommerce, clients.guarded.clone(), clock.clone()),
            addresses: clients.addresses.clone(),
        }
    }

    fn rest(&self, secrets: &Secrets, root: String) -> Result<Rest<'_>, CallError> {
        Ok(Rest {
            caller: &self.caller,
            root,
            user: secrets.require("consumer_key")?.expose_secret().trim().to_owned(),
            password: secrets.require("consumer_secret")?,
        })
    }

    fn stored(&self, secrets: &Secrets) -> Result<Rest<'_>, CallError> {
        self.rest(secrets, secrets.require("api_root")?.expose_secret().to_owned())
    }

    /// Looks up the product of an earlier call. Stores match SKUs by prefix, so the complete SKU is compared.
    async fn look_up(&self, rest: &Rest<'_>, sku: &str) -> Result<Option<Product>, CallError> {
        let query = [("sku", sku)];
        let found: Vec<Product> =
            rest.call(Effect::Repeatable, Method::GET, "wc/v3/products", &query, WpBody::None).await?;
        Ok(found.into_iter().find(|product| product.sku == sku))
    }
}

#[async_trait]
impl Connector for Woocommerce {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Woocommerce)
    }

    async fn connect(&self, _workspace_id: i64, credentials: &Secrets) -> Result<Connected, ConnectError> {
        let to_connect_error = |error| connect_error(error, Some("store_url"));
        let typed = credentials.require("store_url").map_err(to_connect_error)?;
        let store = address::check_submitted_url(self.addresses.as_ref(), "store_url", typed.expose_secret()).await?;
        // The second root is for stores without pretty permalinks.
        for root in [format!("{store}/wp-json/"), format!("{store}/?rest_route=/")] {
            let rest = self.rest(credentials, root).map_err(to_connect_error)?;
            match status(&rest).await {
                Ok(()) => {}
                Err(failed) if failed.status == Some(404) => continue,
                Err(failed) => return Err(to_connect_error(failed.error)),
            }
            check_write_access(&rest).await?;
            let store = site_of(&rest.root);
            return Ok(Connected {
                name: host_of(&store),
                username: None,
                profile_url: Some(store.clone()),
                avatar_url: None,
                kind: AccountKind::Store,
                token_expires_at: None,
                renewal: None,
                limits: None,
                application: None,
                secrets: credentials.with(&[("api_root", &rest.root)]),
                external_id: store,
            });
        }
        Err(ConnectError::Rejected("No WooCommerce REST API was found at this URL.".to_owned()))
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        Some(self)
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        status(&self.stored(&account.secrets)?).await?;
        Ok(RefreshedTokens { secrets: None, token_expires_at: None, refresh_expires_at: None })
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        Marker::from_iter([("sku".to_owned(), Value::from(format!("crier-{}", unique(seed))))])
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        let rest = self.stored(&account.secrets)?;
        let sku = marker_field(&post.marker, "sku")?;
        if post.has_earlier_attempt
            && let Some(found) = self.look_up(&rest, sku).await?
        {
            return found.published();
        }
        let body = product(post, sku);
        let created: Result<Product, RestError> =
            rest.call(Effect::Publishes, Method::POST, "wc/v3/products", &[], WpBody::Json(&body)).await;
        match created {
            Ok(product) => product.published(),
            // The SKU is unique to this target, so an earlier call succeeded.
            Err(failed) if failed.code == "product_invalid_sku" => {
                self.look_up(&rest, sku).await?.ok_or(failed.error)?.published()
            }
            Err(failed) => Err(failed.error),
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        let rest = self.stored(&account.secrets)?;
        let found = self.look_up(&rest, marker_field(&post.marker, "sku")?).await?;
        Ok(match found.map(Product::published) {
            Some(Ok(published)) => ReconcileResult::Found(published),
            Some(Err(error)) => ReconcileResult::Rejected(error),
            None => ReconcileResult::Absent,
        })
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        self.stored(&account.secrets)?.trash(&format!("wc/v3/products/{}", post.external_id)).await
    }
}

/// Requests data that only a shop manager's key may read.
async fn status(rest: &Rest<'_>) -> Result<(), RestError> {
    // The response is long and not needed; `_fields` shortens it if the store supports that.
    let query = [("_fields", "environment.home_url")];
    let _: Value = rest.call(Effect::Repeatable, Method::GET, "wc/v3/system_status", &query, WpBody::None).await?;
    Ok(())
}

/// Checks that the key may write. WooCommerce checks the method before it reads the body, and a batch without products
/// changes nothing.
async fn check_write_access(rest: &Rest<'_>) -> Result<(), ConnectError> {
    let (path, body) = ("wc/v3/products/batch", json!({}));
    let response: Result<Value, RestError> =
        rest.call(Effect::Repeatable, Method::POST, path, &[], WpBody::Json(&body)).await;
    match response {
        Ok(_) => Ok(()),
        Err(failed) if matches!(failed.status, Some(401 | 403)) => Err(ConnectError::Rejected(
            "This key cannot write products. Give it the permission Read/Write, and its user the role Shop manager."
                .to_owned(),
        )),
        Err(failed) => Err(connect_error(failed.error, Some("store_url"))),
    }
}

/// Builds the product. A post without text is named after its first image.
fn product(post: &OutgoingPost, sku: &str) -> Value {
    let parts = html::split(&post.text);
    let first = post.images.first();
    let alt = first.and_then(|image| image.alt_text.as_deref()).filter(|alt| !alt.is_empty());
    let name = match parts.title.as_str() {
        "" => alt.or(first.map(|image| image.filename.as_str())).unwrap_or_default(),
        title => title,
    };
    let images: Vec<Value> = post
        .images
        .iter()
        .map(|image| json!({ "src": image.url, "alt": image.alt_text.as_deref().unwrap_or_default() }))
        .collect();
    json!({
        "name": html::escape(name),
        "type": "simple",
        "status": "publish",
        "sku": sku,
        "description": html::paragraphs(&parts.body),
        "images": images,
    })
}

#[derive(Deserialize)]
struct Product {
    id: i64,
    permalink: Option<String>,
    #[serde(default)]
    sku: String,
    #[serde(default)]
    status: String,
}

impl Product {
    fn published(self) -> Result<Published, CallError> {
        match visibility_error("WooCommerce", "product", &self.status) {
            Some(error) => Err(error),
            None => Ok(Published::new(self.id.to_string(), self.permalink)),
        }
    }
}
