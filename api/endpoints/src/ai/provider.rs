//! The protocol: requests, responses and errors.
//!
//! Based on OpenAI's API reference (chat completions, images, error codes) and its guide on structured outputs.
//! Compatible servers support less and report it in many ways: a server that does not know `response_format` or an
//! image parameter is called again without it. No token limit is sent: servers disagree about its name, and each has a
//! default.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use crier_http::{HttpClient, HttpResponse};
use crier_platforms::Clients;
use http::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{AiError, Result};

/// Maximum size of a text response.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Maximum length of an error message in the log.
const MAX_ERROR_CHARS: usize = 300;
/// Maximum size of an error body that is parsed.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Error codes for a rejected prompt: OpenAI's for text (two) and for images (one), and Azure's (three).
const REJECTION_CODES: [&str; 6] = [
    "content_policy_violation",
    "invalid_prompt",
    "moderation_blocked",
    "content_filter",
    "contentFilter",
    "ResponsibleAIPolicyViolation",
];
/// Strings in errors of servers that do not support response schemas.
const SCHEMA_UNSUPPORTED: [&str; 5] =
    ["response_format", "json_schema", "grammar", "structured output", "structured_output"];
/// LM Studio's error for an unknown path, sent with the status 200.
const UNKNOWN_PATH: &str = "unexpected endpoint";

#[derive(Clone, Debug)]
pub struct Provider {
    /// Without a trailing slash.
    base: String,
    key: Option<SecretString>,
    text_client: HttpClient,
    /// For responses that contain an image.
    image_client: HttpClient,
    /// For images at other URLs.
    download_client: HttpClient,
}

/// A chat request.
#[derive(Clone, Debug)]
pub struct Chat<'a> {
    pub model: &'a str,
    pub messages: Vec<Value>,
    /// The name and schema of the response.
    pub format: (&'a str, &'a Value),
}

/// An error response: `{"error": {…}}` like OpenAI, `{"error": "…"}` like Ollama, the same without the envelope like
/// vLLM and Mistral, or no JSON at all. OpenRouter and LM Studio send it with the status 200.
#[derive(Debug)]
struct ErrorResponse {
    status: StatusCode,
    error: Value,
    text: String,
}

impl ErrorResponse {
    /// Returns `None` if the response is a success.
    fn of(response: &HttpResponse) -> Option<Self> {
        #[derive(Deserialize)]
        struct Envelope {
            #[serde(default)]
            error: Value,
        }
        let wrapped = serde_json::from_slice::<Envelope>(&response.body).ok().map(|envelope| envelope.error);
        let wrapped = wrapped.filter(|error| !error.is_null());
        if response.status.is_success() && wrapped.is_none() {
            return None;
        }
        let error = wrapped.or_else(|| serde_json::from_slice(&response.body).ok()).unwrap_or_default();
        let text = String::from_utf8_lossy(&response.body[..response.body.len().min(MAX_ERROR_BYTES)]).into_owned();
        Some(Self { status: response.status, error, text })
    }

    /// Returns whether the prompt was rejected. OpenRouter reports this as `flagged_input`.
    fn is_prompt_rejection(&self) -> bool {
        let error = &self.error;
        let words = [&error["code"], &error["type"], &error["innererror"]["code"], &error["inner_error"]["code"]];
        let named = words.iter().any(|word| word.as_str().is_some_and(|word| REJECTION_CODES.contains(&word)));
        named || error["metadata"]["flagged_input"].is_string()
    }

    /// Returns whether the server rejects one of these parts of the request, rather than the key, the prompt or the
    /// request rate.
    fn is_about(&self, words: &[&str]) -> bool {
        let other = matches!(self.status.as_u16(), 401 | 403 | 429) || self.is_prompt_rejection();
        !other && self.mentions(words)
    }

    fn mentions(&self, words: &[&str]) -> bool {
        let text = self.text.to_lowercase();
        words.iter().any(|word| text.contains(word))
    }

    /// Returns whether the path does not exist on the server.
    fn is_unknown_path(&self) -> bool {
        matches!(self.status.as_u16(), 404 | 405) || self.mentions(&[UNKNOWN_PATH])
    }

    fn message(&self) -> &str {
        let error = &self.error;
        [&error["message"], error, &error["detail"]].into_iter().find_map(Value::as_str).unwrap_or(&self.text)
    }

    /// Returns a hint for the operator.
    const fn hint(&self) -> &'static str {
        match self.status.as_u16() {
            300..=399 => " (CRIER_AI_BASE_URL must be the final URL: redirects are not followed)",
            401 | 403 => " (check CRIER_AI_API_KEY)",
            404 | 405 => " (check CRIER_AI_BASE_URL and the model name)",
            _ => "",
        }
    }
}

impl Provider {
    pub fn new(
        base: &str,
        key: Option<SecretString>,
        clients: &Clients,
        max_image_bytes: u64,
        timeout: Duration,
    ) -> Self {
        let image = usize::try_from(max_image_bytes).unwrap_or(usize::MAX >> 2);
        // Base64 takes four characters for three bytes; `MAX_TEXT_BYTES` covers the surrounding JSON.
        let in_json = image.saturating_mul(4) / 3 + MAX_TEXT_BYTES;
        Self {
            base: base.trim_end_matches('/').to_owned(),
            key,
            text_client: clients.trusted.with_limits(timeout, MAX_TEXT_BYTES),
            image_client: clients.trusted.with_limits(timeout, in_json),
            download_client: clients.guarded.with_limits(timeout, image),
        }
    }

    /// Returns one response of a text model, as plain text.
    pub async fn chat(&self, chat: &Chat<'_>) -> Result<String> {
        let mut body = json!({ "model": chat.model, "messages": chat.messages });
        let plain = body.clone();
        let (name, schema) = chat.format;
        body["response_format"] =
            json!({ "type": "json_schema", "json_schema": { "name": name, "strict": true, "schema": schema } });
        let mut response = self.post(&self.text_client, "chat/completions", &body).await?;
        if ErrorResponse::of(&response).is_some_and(|error| error.is_about(&SCHEMA_UNSUPPORTED)) {
            // The instructions also contain the schema in words.
            response = self.post(&self.text_client, "chat/completions", &plain).await?;
        }
        completion_text(&self.check_response(response)?)
    }

    /// Returns one image. `options` (`size`, `quality`) are dropped if the server rejects them.
    pub async fn generate_image(&self, model: &str, prompt: &str, options: &[(&str, &str)]) -> Result<Bytes> {
        let body = |options: &[(&str, &str)]| {
            let mut body = json!({ "model": model, "prompt": prompt, "n": 1 });
            for (name, value) in options {
                body[*name] = (*value).into();
            }
            body
        };
        let mut options = options.to_vec();
        let response = loop {
            let response = self.post(&self.image_client, "images/generations", &body(&options)).await?;
            let error = ErrorResponse::of(&response)
                .filter(|error| matches!(error.status.as_u16(), 400 | 422) && !error.is_prompt_rejection());
            let Some(error) = error.filter(|_| !options.is_empty()) else { break response };
            // Drop the options that the error names, or all of them if it names none. Most servers name one at a time.
            let before = options.len();
            options.retain(|(name, _)| !error.mentions(&[*name]));
            if options.len() == before {
                options.clear();
            }
        };
        let response: ImagesResponse = parse_json(&self.check_response(response)?)?;
        let image = response.data.into_iter().next().ok_or_else(|| malformed("it contains no image"))?;
        match (non_empty(image.b64_json), non_empty(image.url)) {
            (Some(text), _) => decode_base64(&text),
            (None, Some(url)) if url.starts_with("data:") => decode_base64(&url),
            (None, Some(url)) => self.fetch(&url).await,
            (None, None) => Err(malformed("it contains neither an image nor its URL")),
        }
    }

    /// Fetches an image by URL: through the address guard, unless it is on the configured server itself.
    async fn fetch(&self, address: &str) -> Result<Bytes> {
        let origin = |text: &str| Url::parse(text).ok().map(|url| url.origin()).filter(url::Origin::is_tuple);
        let own = origin(address).is_some_and(|at| Some(at) == origin(&self.base));
        let client = if own { &self.image_client } else { &self.download_client };
        let response = client.send(client.request(Method::GET, address)).await.map_err(unreachable)?;
        match response.status.is_success() && !response.truncated {
            true => Ok(response.body),
            false if response.truncated => Err(malformed("its image is too large")),
            false => Err(AiError::Unavailable(format!("its image could not be fetched ({})", response.status))),
        }
    }

    /// Posts to the base URL, or to `/v1` below it: most servers use that path, and operators often omit it.
    async fn post(&self, client: &HttpClient, path: &str, body: &Value) -> Result<HttpResponse> {
        let response = self.post_to(client, &format!("{}/{path}", self.base), body).await?;
        let bare = Url::parse(&self.base).is_ok_and(|url| url.path() == "/");
        if bare && ErrorResponse::of(&response).is_some_and(|error| error.is_unknown_path()) {
            return self.post_to(client, &format!("{}/v1/{path}", self.base), body).await;
        }
        Ok(response)
    }

    async fn post_to(&self, client: &HttpClient, url: &str, body: &Value) -> Result<HttpResponse> {
        let mut request = client.request(Method::POST, url).json(body);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose_secret());
        }
        client.send(request).await.map_err(unreachable)
    }

    fn check_response(&self, response: HttpResponse) -> Result<HttpResponse> {
        let Some(error) = ErrorResponse::of(&response) else {
            return if response.truncated { Err(malformed("it is too long")) } else { Ok(response) };
        };
        let message = self.redact_key(error.message());
        let message: String = message.chars().filter(|c| !c.is_control()).take(MAX_ERROR_CHARS).collect();
        if error.is_prompt_rejection() {
            return Err(AiError::Rejected(message));
        }
        Err(AiError::Unavailable(format!("it returned {}: {message}{}", error.status.as_u16(), error.hint())))
    }

    /// Removes the key from a text; some servers quote a rejected key.
    fn redact_key(&self, text: &str) -> String {
        match self.key.as_ref().map(ExposeSecret::expose_secret).filter(|key| !key.is_empty()) {
            Some(key) => text.replace(key, "[REDACTED]"),
            None => text.to_owned(),
        }
    }
}

/// Returns the text unless it is empty.
fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// Decodes Base64, with or without a `data:` URL prefix.
fn decode_base64(text: &str) -> Result<Bytes> {
    let data = text.rsplit_once("base64,").map_or(text, |(_, data)| data);
    STANDARD.decode(data.trim()).map(Bytes::from).map_err(|_| malformed("its image is not base64"))
}

fn unreachable(error: crier_http::HttpError) -> AiError {
    AiError::Unavailable(error.to_string())
}

fn malformed(why: &str) -> AiError {
    AiError::Malformed(why.to_owned())
}

fn parse_json<'a, T: Deserialize<'a>>(response: &'a HttpResponse) -> Result<T> {
    serde_json::from_slice(&response.body)
        .map_err(|error| AiError::Malformed(format!("it does not match OpenAI's API: {error}")))
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<Content>,
    refusal: Option<String>,
}

/// A text or a list of parts. Reasoning is a part of another type (Mistral).
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Value>),
}

impl Content {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => {
                parts.iter().filter(|part| part["type"] == "text").filter_map(|part| part["text"].as_str()).collect()
            }
        }
    }
}

#[derive(Deserialize)]
struct ImagesResponse {
    data: Vec<ImageData>,
}

#[derive(Deserialize)]
struct ImageData {
    b64_json: Option<String>,
    url: Option<String>,
}

/// Returns the model's text. A truncated response is returned as is; parsing it fails later.
fn completion_text(response: &HttpResponse) -> Result<String> {
    let completion: Completion = parse_json(response)?;
    let choice = completion.choices.into_iter().next().ok_or_else(|| malformed("it contains no choice"))?;
    let refusal = non_empty(choice.message.refusal);
    if refusal.is_some() || choice.finish_reason.as_deref() == Some("content_filter") {
        let refusal: String =
            refusal.unwrap_or_default().chars().filter(|c| !c.is_control()).take(MAX_ERROR_CHARS).collect();
        return Err(AiError::Rejected(refusal));
    }
    choice.message.content.map(Content::text).ok_or_else(|| malformed("its message has no content"))
}

#[cfg(test)]
mod tests;
