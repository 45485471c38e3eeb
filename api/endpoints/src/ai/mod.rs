//! Captions, hashtags and images from any server with OpenAI's API: OpenAI, Azure, Ollama, vLLM, llama.cpp, LocalAI.
//!
//! [`provider`] implements the protocol, [`structured`] gets a JSON object from a text model, and each operation has a
//! file with its instructions and its validation. Only two endpoints are called (`chat/completions` and
//! `images/generations`) and little of their responses is read, so this uses [`HttpClient`] directly: a library would
//! bring its own HTTP client, which bypasses our deadline, size limit and address guard, and types for all of OpenAI's
//! API.
//!
//! Responses are untrusted input: they are parsed strictly and normalized. A response that still breaks a rule after
//! one retry is [`AiError::Malformed`].
//!
//! **To add an operation:** add its name and price to `domain/ai.rs` and to the `CHECK`s, a file here, and an endpoint
//! to `api/endpoints/src/routes/ai`.

use std::time::Duration;

use crier_config::AiConfig;
use crier_platforms::Clients;

pub mod captions;
pub mod hashtags;
pub mod images;
mod provider;
mod structured;

pub use captions::CaptionRequest;
pub use images::ImageRequest;
use provider::Provider;

/// Total time for all calls to the provider in one request.
pub const PROVIDER_TIMEOUT: Duration = Duration::from_secs(20);

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum AiError {
    /// The provider or its model rejected the prompt.
    #[error("the prompt was rejected: {0}")]
    Rejected(String),
    /// There was no response or an error response, because of the operator's configuration or the provider's state.
    #[error("the provider is unavailable: {0}")]
    Unavailable(String),
    /// The response cannot be used.
    #[error("the response cannot be used: {0}")]
    Malformed(String),
}

type Result<T> = std::result::Result<T, AiError>;

/// The AI client of an installation. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ai {
    provider: Option<Provider>,
    text_model: Option<String>,
    image_model: Option<String>,
    timeout: Duration,
}

/// A text model.
#[derive(Clone, Copy, Debug)]
pub struct TextModel<'a> {
    provider: &'a Provider,
    pub model: &'a str,
    timeout: Duration,
}

/// An image model.
#[derive(Clone, Copy, Debug)]
pub struct ImageModel<'a> {
    provider: &'a Provider,
    pub model: &'a str,
}

impl Ai {
    /// Creates the client. `max_image_bytes`: the maximum size of a generated image.
    pub fn new(config: &AiConfig, clients: &Clients, max_image_bytes: u64, timeout: Duration) -> Self {
        let provider = config.base_url.as_deref();
        Self {
            provider: provider
                .map(|base| Provider::new(base, config.api_key.clone(), clients, max_image_bytes, timeout)),
            text_model: config.text_model.clone(),
            image_model: config.image_model.clone(),
            timeout,
        }
    }

    /// Returns a client for an installation without AI.
    pub const fn none() -> Self {
        Self { provider: None, text_model: None, image_model: None, timeout: PROVIDER_TIMEOUT }
    }

    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns `None` if no text model is configured.
    pub fn text_model(&self) -> Option<TextModel<'_>> {
        let (provider, model) = (self.provider.as_ref()?, self.text_model.as_deref()?);
        Some(TextModel { provider, model, timeout: self.timeout })
    }

    /// Returns `None` if no image model is configured.
    pub fn image_model(&self) -> Option<ImageModel<'_>> {
        Some(ImageModel { provider: self.provider.as_ref()?, model: self.image_model.as_deref()? })
    }
}
