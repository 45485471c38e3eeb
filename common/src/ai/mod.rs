//! Captions, hashtags and pictures by any server of OpenAI's shape: OpenAI, Azure, Ollama, vLLM, llama.cpp, LocalAI.
//!
//! [`provider`] speaks the protocol, [`structured`] gets an object out of a model that writes text, and each operation has a
//! file that says what it asks for and what it takes for an answer. Two endpoints are called (`chat/completions` and
//! `images/generations`) and little of their answers is read, so this speaks HTTP by [`HttpClient`] itself: a library would
//! bring an HTTP client of its own, past our deadline, cap and guard, and types for all that OpenAI has.
//!
//! What comes back is judged as something that anybody may have written: it is parsed strictly, put into order, and what
//! breaks a rule after one try to mend it is [`AiError::Malformed`].
//!
//! **To add an operation:** its word and price in `domain/ai.rs` and in the `CHECK`s, a file here, an endpoint in
//! `api/src/routes/ai`.

use std::time::Duration;

use crate::config::AiConfig;
use crate::platforms::Clients;

pub mod captions;
pub mod hashtags;
pub mod images;
mod provider;
mod structured;

pub use captions::CaptionWish;
pub use images::PictureWish;
use provider::Provider;

/// How long the provider has for all that one request asks of it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum AiError {
    /// The provider, or its model, will not answer this prompt.
    #[error("the prompt is refused: {0}")]
    Refused(String),
    /// No answer, or one that says no: the operator's configuration, the provider's state.
    #[error("the provider is not available: {0}")]
    Unavailable(String),
    /// What came is not what was asked for.
    #[error("the answer is not usable: {0}")]
    Malformed(String),
}

type Result<T> = std::result::Result<T, AiError>;

/// The AI of an installation. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ai {
    provider: Option<Provider>,
    text_model: Option<String>,
    image_model: Option<String>,
    patience: Duration,
}

/// A model that writes.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    provider: &'a Provider,
    pub model: &'a str,
    patience: Duration,
}

/// A model that makes pictures.
#[derive(Clone, Copy, Debug)]
pub struct Painter<'a> {
    provider: &'a Provider,
    pub model: &'a str,
}

impl Ai {
    /// As configured. `max_picture`: the most bytes of a picture that are read.
    pub fn new(config: &AiConfig, clients: &Clients, max_picture: u64, patience: Duration) -> Self {
        let provider = config.base_url.as_deref();
        Self {
            provider: provider.map(|base| Provider::new(base, config.api_key.clone(), clients, max_picture, patience)),
            text_model: config.text_model.clone(),
            image_model: config.image_model.clone(),
            patience,
        }
    }

    /// An installation without AI.
    pub const fn none() -> Self {
        Self { provider: None, text_model: None, image_model: None, patience: PATIENCE }
    }

    pub const fn patience(&self) -> Duration {
        self.patience
    }

    /// `None` where no model is configured that writes.
    pub fn writer(&self) -> Option<Writer<'_>> {
        let (provider, model) = (self.provider.as_ref()?, self.text_model.as_deref()?);
        Some(Writer { provider, model, patience: self.patience })
    }

    /// `None` where no model is configured that makes pictures.
    pub fn painter(&self) -> Option<Painter<'_>> {
        Some(Painter { provider: self.provider.as_ref()?, model: self.image_model.as_deref()? })
    }
}
