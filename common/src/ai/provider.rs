//! The protocol: requests, answers, and what an error means.
//!
//! Facts from OpenAI's API reference (chat completions, images, error codes) and its guide on structured outputs. Servers
//! that copy it know less: one that does not know `response_format` or a parameter of a picture answers 400, and is asked
//! once more without.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{AiError, Result};
use crate::http::{Answer, HttpClient};
use crate::platforms::Clients;

/// The most of a text's answer that is read.
const MOST_TEXT: usize = 1 << 20;
/// The most of an error's message that is logged.
const MOST_SAID: usize = 300;
/// The words by which servers say that a prompt breaks their rules: OpenAI's for texts (two) and for pictures, Azure's (two).
const REFUSALS: [&str; 5] = [
    "content_policy_violation",
    "invalid_prompt",
    "moderation_blocked",
    "content_filter",
    "ResponsibleAIPolicyViolation",
];
/// The words in a 400 by which a server says that it cannot hold its model to a schema.
const NO_SCHEMA: [&str; 4] = ["response_format", "json_schema", "grammar", "structured output"];

#[derive(Clone, Debug)]
pub struct Provider {
    /// Without a slash at its end.
    base: String,
    key: Option<SecretString>,
    texts: HttpClient,
    /// For answers that hold a picture.
    pictures: HttpClient,
    /// For pictures that are elsewhere.
    elsewhere: HttpClient,
}

/// What a model is asked.
#[derive(Clone, Debug)]
pub struct Chat<'a> {
    pub model: &'a str,
    pub messages: Vec<Value>,
    /// The name and the schema of what it is to answer.
    pub format: (&'a str, &'a Value),
}

/// What a server answers that will not do it.
#[derive(Debug, Default, Deserialize)]
struct Said {
    #[serde(default)]
    error: Value,
}

impl Said {
    fn of(answer: &Answer) -> Self {
        serde_json::from_slice(&answer.body).unwrap_or_default()
    }

    fn is_refusal(&self) -> bool {
        let words = [&self.error["code"], &self.error["type"], &self.error["innererror"]["code"]];
        words.iter().any(|word| word.as_str().is_some_and(|word| REFUSALS.contains(&word)))
    }
}

impl Provider {
    pub fn new(base: &str, key: Option<SecretString>, clients: &Clients, max_picture: u64, patience: Duration) -> Self {
        let picture = usize::try_from(max_picture).unwrap_or(usize::MAX >> 2);
        // Four letters for three bytes, and what stands around them.
        let in_json = picture.saturating_mul(4) / 3 + MOST_TEXT;
        Self {
            base: base.trim_end_matches('/').to_owned(),
            key,
            texts: clients.trusted.with_limits(patience, MOST_TEXT),
            pictures: clients.trusted.with_limits(patience, in_json),
            elsewhere: clients.guarded.with_limits(patience, picture),
        }
    }

    /// One answer of a model that writes, as the text that it is.
    pub async fn chat(&self, chat: &Chat<'_>) -> Result<String> {
        let mut body = json!({ "model": chat.model, "messages": chat.messages });
        let plain = body.clone();
        let (name, schema) = chat.format;
        body["response_format"] =
            json!({ "type": "json_schema", "json_schema": { "name": name, "strict": true, "schema": schema } });
        let mut answer = self.post(&self.texts, "chat/completions", &body).await?;
        if answer.status == StatusCode::BAD_REQUEST && !Said::of(&answer).is_refusal() && mentions(&answer, &NO_SCHEMA)
        {
            // The instructions say in words what the schema says.
            answer = self.post(&self.texts, "chat/completions", &plain).await?;
        }
        written(&self.accepted(answer)?)
    }

    /// One picture. `options` (`size`, `quality`) go along as far as the server knows them.
    pub async fn paint(&self, model: &str, prompt: &str, options: &[(&str, &str)]) -> Result<Bytes> {
        let body = |options: &[(&str, &str)]| {
            let mut body = json!({ "model": model, "prompt": prompt, "n": 1 });
            for (name, value) in options {
                body[*name] = (*value).into();
            }
            body
        };
        let mut answer = self.post(&self.pictures, "images/generations", &body(options)).await?;
        if answer.status == StatusCode::BAD_REQUEST && !options.is_empty() && !Said::of(&answer).is_refusal() {
            // Without what it says it does not know; without any where it does not say.
            let named: Vec<&str> =
                options.iter().map(|(name, _)| *name).filter(|name| mentions(&answer, &[*name])).collect();
            let kept: Vec<_> =
                options.iter().copied().filter(|(n, _)| !named.is_empty() && !named.contains(n)).collect();
            answer = self.post(&self.pictures, "images/generations", &body(&kept)).await?;
        }
        let answer: Pictures = parsed(&self.accepted(answer)?)?;
        let picture = answer.data.into_iter().next().ok_or_else(|| malformed("it has no picture"))?;
        match (picture.b64_json, picture.url) {
            (Some(text), _) => {
                STANDARD.decode(text.trim()).map(Bytes::from).map_err(|_| malformed("its picture is no base64"))
            }
            (None, Some(url)) => self.fetch(&url).await,
            (None, None) => Err(malformed("its picture is neither there nor elsewhere")),
        }
    }

    /// A picture by its address: through the guard, unless it is on the very server that the operator named.
    async fn fetch(&self, address: &str) -> Result<Bytes> {
        let origin = |text: &str| Url::parse(text).ok().map(|url| url.origin()).filter(url::Origin::is_tuple);
        let own = origin(address).is_some_and(|at| Some(at) == origin(&self.base));
        let client = if own { &self.pictures } else { &self.elsewhere };
        let answer = client.send(client.request(Method::GET, address)).await.map_err(unreachable)?;
        match answer.status.is_success() && !answer.truncated {
            true => Ok(answer.body),
            false if answer.truncated => Err(malformed("its picture is too large")),
            false => Err(AiError::Unavailable(format!("its picture could not be fetched ({})", answer.status))),
        }
    }

    async fn post(&self, client: &HttpClient, path: &str, body: &Value) -> Result<Answer> {
        let mut request = client.request(Method::POST, &format!("{}/{path}", self.base)).json(body);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose_secret());
        }
        client.send(request).await.map_err(unreachable)
    }

    fn accepted(&self, answer: Answer) -> Result<Answer> {
        if answer.status.is_success() {
            return if answer.truncated { Err(malformed("it is too long")) } else { Ok(answer) };
        }
        let said = Said::of(&answer);
        let message = said.error["message"].as_str().or_else(|| said.error.as_str()).unwrap_or_default();
        let message: String = self.without_key(message).chars().filter(|c| !c.is_control()).take(MOST_SAID).collect();
        if said.is_refusal() {
            return Err(AiError::Refused(message));
        }
        Err(AiError::Unavailable(format!("it answers {}: {message}", answer.status.as_u16())))
    }

    /// Some servers repeat a key that they refuse.
    fn without_key(&self, text: &str) -> String {
        match self.key.as_ref().map(ExposeSecret::expose_secret).filter(|key| !key.is_empty()) {
            Some(key) => text.replace(key, "[REDACTED]"),
            None => text.to_owned(),
        }
    }
}

fn mentions(answer: &Answer, words: &[&str]) -> bool {
    let text = String::from_utf8_lossy(&answer.body).to_lowercase();
    words.iter().any(|word| text.contains(word))
}

fn unreachable(error: crate::http::HttpError) -> AiError {
    AiError::Unavailable(error.to_string())
}

fn malformed(why: &str) -> AiError {
    AiError::Malformed(why.to_owned())
}

fn parsed<'a, T: Deserialize<'a>>(answer: &'a Answer) -> Result<T> {
    serde_json::from_slice(&answer.body).map_err(|error| AiError::Malformed(format!("it is not OpenAI's: {error}")))
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
    content: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct Pictures {
    data: Vec<Picture>,
}

#[derive(Deserialize)]
struct Picture {
    b64_json: Option<String>,
    url: Option<String>,
}

/// What the model wrote. An answer that was cut off is given as far as it goes: whoever reads it finds it broken.
fn written(answer: &Answer) -> Result<String> {
    let completion: Completion = parsed(answer)?;
    let choice = completion.choices.into_iter().next().ok_or_else(|| malformed("it has no choice"))?;
    let refusal = choice.message.refusal.filter(|text| !text.is_empty());
    if refusal.is_some() || choice.finish_reason.as_deref() == Some("content_filter") {
        let said: String = refusal.unwrap_or_default().chars().filter(|c| !c.is_control()).take(MOST_SAID).collect();
        return Err(AiError::Refused(said));
    }
    choice.message.content.ok_or_else(|| malformed("its message is empty"))
}
