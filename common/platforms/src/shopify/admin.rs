//! Calls to the Admin API and their errors. An error also returns 200: `{data, errors: [{message, extensions:
//! {code}}]}`.

use crier_domain::failure::{Category, Failure};
use crier_http::HttpResponse;
use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::CallError;
use super::super::call::{Effect, PlatformClient, sanitize_message};

/// The pause, in seconds, if a response names none.
const THROTTLED_PAUSE: i64 = 2;
/// The pause, in seconds, after Shopify rejected a request as suspicious.
const SUSPICIOUS_PAUSE: i64 = 600;

/// A shop and its token.
pub(super) struct Admin<'a> {
    pub(super) client: &'a PlatformClient,
    pub(super) base: String,
    pub(super) version: &'a str,
    pub(super) token: SecretString,
}

#[derive(Deserialize)]
struct GraphQlResponse {
    data: Option<Value>,
    errors: Option<Vec<GraphError>>,
    #[serde(default)]
    extensions: Extensions,
}

#[derive(Deserialize)]
struct GraphError {
    #[serde(default)]
    message: String,
    #[serde(default)]
    extensions: ErrorExtensions,
}

#[derive(Deserialize, Default)]
struct ErrorExtensions {
    code: Option<String>,
}

#[derive(Deserialize, Default)]
struct Extensions {
    cost: Option<Cost>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cost {
    requested_query_cost: f64,
    throttle_status: ThrottleStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThrottleStatus {
    currently_available: f64,
    restore_rate: f64,
}

impl Cost {
    /// Returns the number of seconds until the rate limit admits the call.
    fn pause(&self) -> Option<i64> {
        let missing = self.requested_query_cost - self.throttle_status.currently_available;
        let seconds = (missing / self.throttle_status.restore_rate).ceil();
        // The cast saturates, and the client limits the pause.
        (seconds.is_finite() && seconds > 0.0).then_some(seconds as i64)
    }
}

impl Admin<'_> {
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        effect: Effect,
        query: &str,
        variables: Value,
    ) -> Result<T, CallError> {
        let url = format!("{}/admin/api/{}/graphql.json", self.base, self.version);
        let request = self
            .client
            .request(Method::POST, &url)
            .header("X-Shopify-Access-Token", self.token.expose_secret())
            .json(&json!({ "query": query, "variables": variables }));
        let response = self.client.send(effect, request).await?;
        if !response.status.is_success() {
            return Err(self.classify_status(effect, &response));
        }
        let GraphQlResponse { data, errors, extensions } = self.client.read(effect, &response)?;
        let data = data.unwrap_or_default();
        // With an error and an article, the article was created, and a field of the response could not be read.
        let is_created = data.pointer("/articleCreate/article/id").is_some_and(Value::is_string);
        if let Some(error) = errors.unwrap_or_default().first().filter(|_| !is_created) {
            return Err(self.classify(effect, error, &extensions));
        }
        let unreadable = |_| self.client.classify_unknown_effect(effect, "sent an unreadable response", None);
        serde_json::from_value(data).map_err(unreadable)
    }

    fn detail(&self, message: &str) -> Option<String> {
        sanitize_message(message, &[self.token.expose_secret()])
    }

    fn classify(&self, effect: Effect, error: &GraphError, extensions: &Extensions) -> CallError {
        let code = error.extensions.code.as_deref().unwrap_or("graphql");
        let failure = |category, what: &str| {
            let message = match self.detail(&error.message) {
                Some(detail) => format!("Shopify {what}: {detail}"),
                None => format!("Shopify {what}."),
            };
            Failure::of(category, message).from_platform(code)
        };
        match code {
            "THROTTLED" => {
                let pause = extensions.cost.as_ref().and_then(Cost::pause).unwrap_or(THROTTLED_PAUSE);
                self.client.rate_limited_for(pause)
            }
            "ACCESS_DENIED" => CallError::Permanent(failure(Category::Account, "does not allow this")),
            "SHOP_INACTIVE" => CallError::Permanent(failure(Category::Account, "reports that the shop is inactive")),
            "INTERNAL_SERVER_ERROR" | "TIMEOUT" => {
                self.client.classify_unknown_effect(effect, "had an internal error", Some(code))
            }
            // The call is invalid in this version of the API. Nothing was done.
            _ => {
                let text = self.detail(&error.message).unwrap_or_default();
                let version = self.version;
                let message = format!(
                    "Shopify does not support a request of Crier in version {version} of its API; the operator must \
                     set CRIER_SHOPIFY_API_VERSION: {text}"
                );
                self.client.misconfigured(&message, code)
            }
        }
    }

    fn classify_status(&self, effect: Effect, response: &HttpResponse) -> CallError {
        let code = response.status.as_str().to_owned();
        let failure = |category, text: &str| Failure::of(category, text).from_platform(&code);
        let account = |text| CallError::Permanent(failure(Category::Account, text));
        match response.status.as_u16() {
            401 => CallError::AuthExpired(failure(Category::AuthExpired, "Shopify rejected the access token.")),
            402 => account("Shopify has frozen this shop until its bill is paid."),
            403 => account("Shopify does not allow this; the application may lack a permission."),
            404 => account("Shopify no longer knows this shop or this version of its API."),
            423 => account("Shopify has locked this shop."),
            430 => self.client.rate_limited_for(SUSPICIOUS_PAUSE),
            _ => self.client.classify_status(effect, response, None, None),
        }
    }
}
