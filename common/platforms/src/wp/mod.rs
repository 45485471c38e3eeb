//! Code shared by WordPress and WooCommerce: the root of the REST API, its errors, and the conversion of texts to HTML.
//!
//! Sources: WordPress REST API handbook, "Discovery", "Authentication" (application passwords), "Reference";
//! WooCommerce REST API documentation, "Authentication over HTTPS", "Errors"; `WP_REST_Posts_Controller`,
//! `WP_REST_Comments_Controller` and `WC_REST_CRUD_Controller` for the errors of a deletion.

pub mod deletions;
pub mod html;
pub mod oldest_first;

use crier_domain::failure::{Category, Failure};
use crier_http::RequestBuilder;
use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::call::{Effect, PlatformClient, sanitize_message};
use super::{CallError, MarkerSeed};

/// WooCommerce's error codes, in all versions, for an image that it could not download.
const FETCH_FAILED: [&str; 5] = [
    "woocommerce_product_image_upload_error",
    "woocommerce_rest_product_image_upload_error",
    "product_image_upload_error",
    "woocommerce_rest_invalid_remote_image_url",
    "woocommerce_rest_invalid_image_url",
];

/// The codes for a post, comment or product that no longer exists or is in the trash.
const GONE: [&str; 5] = [
    "rest_already_trashed",
    "rest_post_invalid_id",
    "rest_comment_invalid_id",
    "woocommerce_rest_already_trashed",
    "woocommerce_rest_product_invalid_id",
];

/// A site's REST API and the credentials to call it.
pub(super) struct Rest<'a> {
    pub caller: &'a PlatformClient,
    /// `https://example.com/wp-json/`, or `https://example.com/?rest_route=/` if the site has no pretty permalinks.
    pub root: String,
    pub user: String,
    pub password: SecretString,
}

/// A failed call.
pub(super) struct RestError {
    /// `None` if no response arrived.
    pub status: Option<u16>,
    /// The site's own error code, e.g. `rest_cannot_create`.
    pub code: String,
    pub error: CallError,
}

impl From<CallError> for RestError {
    fn from(error: CallError) -> Self {
        Self { status: None, code: String::new(), error }
    }
}

impl From<RestError> for CallError {
    fn from(failed: RestError) -> Self {
        failed.error
    }
}

/// The body of a request.
pub(super) enum WpBody<'a> {
    None,
    Json(&'a Value),
    File {
        bytes: bytes::Bytes,
        mime_type: &'a str,
        filename: &'a str,
    },
    /// A file of this length, in bytes, that is not in memory.
    Stream {
        body: crier_http::Body,
        length: u64,
        mime_type: &'a str,
        filename: &'a str,
    },
}

impl Rest<'_> {
    /// Calls `path` (`wp/v2/posts`) under the root.
    pub async fn call<T: DeserializeOwned>(
        &self,
        effect: Effect,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: WpBody<'_>,
    ) -> Result<T, RestError> {
        let url = route(&self.root, path, query).ok_or_else(|| {
            let message = format!("The stored URL of this {} account is not valid.", self.caller.name());
            CallError::Permanent(Failure::of(Category::Account, message))
        })?;
        let request = self.caller.request(method, url.as_str());
        let request = request.basic_auth(&self.user, Some(self.password.expose_secret()));
        let mut streamed = 0;
        let request = match body {
            WpBody::None => request,
            WpBody::Json(value) => request.json(value),
            WpBody::File { bytes, mime_type, filename } => with_file_headers(request, mime_type, filename).body(bytes),
            WpBody::Stream { body, length, mime_type, filename } => {
                streamed = length;
                with_file_headers(request, mime_type, filename).header(http::header::CONTENT_LENGTH, length).body(body)
            }
        };
        let response = self.caller.send_bytes(effect, request, streamed).await?;
        if response.status.is_success() {
            return Ok(self.caller.read(effect, &response)?);
        }
        let problem: WpErrorBody = serde_json::from_slice(&response.body).unwrap_or_default();
        let status = response.status.as_u16();
        let detail = sanitize_message(&problem.message, &[self.password.expose_secret()]);
        let error = self.classify_code(status, &problem.code, detail.as_deref()).unwrap_or_else(|| {
            let code = (!problem.code.is_empty()).then_some(problem.code.as_str());
            self.caller.classify_status(effect, &response, code, detail)
        });
        Err(RestError { status: Some(status), code: problem.code, error })
    }

    /// Moves a post, comment or product to the trash, from which the site's users can restore it. Succeeds if it is
    /// there already or no longer exists.
    pub async fn trash(&self, path: &str) -> Result<(), CallError> {
        let query = [("_fields", "id")];
        let deleted: Result<Value, RestError> =
            self.call(Effect::Repeatable, Method::DELETE, path, &query, WpBody::None).await;
        match deleted {
            Ok(_) => Ok(()),
            Err(failed) if GONE.contains(&failed.code.as_str()) => Ok(()),
            Err(failed) if failed.code.ends_with("rest_trash_not_supported") => {
                let message = format!(
                    "The trash of this {} site is turned off, and Crier deletes nothing permanently. Delete the post \
                     on the site.",
                    self.caller.name()
                );
                Err(CallError::Permanent(Failure::of(Category::PlatformRejected, message).from_platform(failed.code)))
            }
            Err(RestError { status: Some(403), error: CallError::Permanent(failure), .. }) => {
                Err(CallError::Permanent(Failure { code: "missing_permission".to_owned(), ..failure }))
            }
            Err(failed) => Err(failed.error),
        }
    }

    /// Classifies an error by its code, where the code is more precise than the status.
    fn classify_code(&self, status: u16, code: &str, detail: Option<&str>) -> Option<CallError> {
        let name = self.caller.name();
        let failure = |category, text: &str| {
            let message = detail.map_or_else(|| format!("{name} {text}."), |detail| format!("{name} {text}: {detail}"));
            let code = if code.is_empty() { status.to_string() } else { code.to_owned() };
            Failure::of(category, message).from_platform(code)
        };
        Some(match (status, code) {
            // Not logged in: everything that is not allowed is due to missing credentials
            // (rest_authorization_required_code).
            (401, _) => CallError::Reauth(failure(
                Category::AuthExpired,
                "rejected the credentials; check them and connect the account again",
            )),
            // The status is 500, but the same file would be rejected again.
            (_, "rest_upload_sideload_error") => {
                CallError::Permanent(failure(Category::InvalidContent, "does not accept this file"))
            }
            (500.., _) => return None,
            // The store could not download an image from Crier. A retry may succeed.
            (_, code) if FETCH_FAILED.contains(&code) => CallError::Transient(failure(
                Category::Media,
                "could not fetch an image; the store must be able to reach the URL of Crier (CRIER_PUBLIC_URL)",
            )),
            (403, _) => CallError::Permanent(failure(Category::Account, "does not allow this user to do that")),
            (_, code) if code.starts_with("rest_cannot_") || code.starts_with("woocommerce_rest_cannot_") => {
                CallError::Permanent(failure(Category::Account, "does not allow this user to do that"))
            }
            (400, _) => CallError::Permanent(failure(Category::InvalidContent, "does not accept this post")),
            (404, _) => CallError::Permanent(failure(Category::Account, "has no REST API at this URL")),
            _ => return None,
        })
    }
}

fn with_file_headers(request: RequestBuilder, mime_type: &str, filename: &str) -> RequestBuilder {
    request
        .header(http::header::CONTENT_TYPE, mime_type)
        .header(http::header::CONTENT_DISPOSITION, format!("attachment; filename=\"{filename}\""))
}

/// Returns the error for a post or comment that the site accepted and does not show, by its status: a plugin or the
/// site's settings hold it back. `None` if it is public, or if the site returns no status.
pub(super) fn visibility_error(platform: &str, what: &str, status: &str) -> Option<CallError> {
    if matches!(status, "" | "publish" | "approved") {
        return None;
    }
    let word: String =
        status.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(20).collect();
    let message = format!(
        "{platform} accepted the {what} but does not show it: its status there is \"{word}\". Approve or publish it \
         there, and do not send it again."
    );
    Some(CallError::Permanent(Failure::of(Category::PlatformRejected, message).from_platform(word)))
}

/// Returns the URL of `path` under `root`, followed by the query.
pub(super) fn route(root: &str, path: &str, query: &[(&str, &str)]) -> Option<Url> {
    let root = Url::parse(root).ok()?;
    let mut url = root.clone();
    if root.query_pairs().any(|(name, _)| name == "rest_route") {
        url.query_pairs_mut().clear().append_pair("rest_route", &format!("/{path}")).extend_pairs(query);
    } else {
        url.set_path(&format!("{}/{path}", root.path().trim_end_matches('/')));
        if !query.is_empty() {
            url.query_pairs_mut().clear().extend_pairs(query);
        }
    }
    Some(url)
}

/// Returns the URL of the site of an API root. It identifies the site, however its URL was typed.
pub(super) fn site_of(root: &str) -> String {
    let Ok(mut url) = Url::parse(root) else { return root.to_owned() };
    url.set_query(None);
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(path.strip_suffix("/wp-json").or_else(|| path.strip_suffix("/index.php")).unwrap_or(&path));
    url.as_str().trim_end_matches('/').to_owned()
}

/// Returns the host of a URL, for display.
pub(super) fn host_of(address: &str) -> String {
    Url::parse(address).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| address.to_owned())
}

/// Returns a string that is unique to one target, on any site: its id and 64 unguessable random bits.
pub(super) fn unique(seed: MarkerSeed) -> String {
    format!("{}-{}", base36(seed.target_id.unsigned_abs()), base36(seed.random))
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit((number % 36) as u32, 36));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WpErrorBody {
    code: String,
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_built_for_both_api_roots() {
        let url = |root, query| route(root, "wp/v2/posts", query).map(|u| u.to_string()).unwrap_or_default();
        assert_eq!(url("https://example.com/wp-json/", &[]), "https://example.com/wp-json/wp/v2/posts");
        assert_eq!(
            url("https://example.com/blog/wp-json", &[("slug", "a b")]),
            "https://example.com/blog/wp-json/wp/v2/posts?slug=a+b"
        );
        assert_eq!(
            url("https://example.com/?rest_route=/", &[("slug", "x")]),
            "https://example.com/?rest_route=%2Fwp%2Fv2%2Fposts&slug=x"
        );
    }

    #[test]
    fn a_site_is_identified_by_its_url() {
        for root in ["https://example.com/blog/wp-json/", "https://example.com/blog/?rest_route=/"] {
            assert_eq!(site_of(root), "https://example.com/blog");
        }
        assert_eq!(site_of("https://example.com/index.php?rest_route=/"), "https://example.com");
        assert_eq!(host_of("https://example.com/blog"), "example.com");
    }

    #[test]
    fn tokens_differ_by_target_and_random_part() {
        let seed = |target_id, random| MarkerSeed {
            target_id,
            at: chrono::DateTime::UNIX_EPOCH,
            random,
            reply: None,
            parts: 1,
        };
        assert_eq!(unique(seed(0, 0)), "0-0");
        assert_eq!(unique(seed(36, u64::MAX)), "10-3w5e11264sgsf");
        assert_ne!(unique(seed(1, 2)), unique(seed(2, 2)));
    }
}
