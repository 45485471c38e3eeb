//! The text and image models, behind an OpenAI-compatible API.

use secrecy::SecretString;

use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::values;

const BASE_URL: Key = Key::new(
    "AI_BASE_URL",
    "The base URL of an OpenAI-compatible API. If unset, AI features are unavailable.",
    DefaultValue::Unset,
    "https://api.openai.com/v1",
);
const API_KEY: Key = Key::new("AI_API_KEY", "The API key of the AI provider.", DefaultValue::Unset, "sk-…").secret();
const TEXT_MODEL: Key =
    Key::new("AI_TEXT_MODEL", "The model that generates text.", DefaultValue::Unset, "gpt-4.1-mini");
const IMAGE_MODEL: Key =
    Key::new("AI_IMAGE_MODEL", "The model that generates images.", DefaultValue::Unset, "gpt-image-1");
pub(super) const KEYS: &[Key] = &[BASE_URL, API_KEY, TEXT_MODEL, IMAGE_MODEL];

#[derive(Clone, Debug)]
pub struct AiConfig {
    /// Without a trailing slash.
    pub base_url: Option<String>,
    pub api_key: Option<SecretString>,
    pub text_model: Option<String>,
    pub image_model: Option<String>,
}

pub(super) fn read(reader: &mut Reader) -> AiConfig {
    AiConfig {
        base_url: reader.optional(&BASE_URL, values::base_url),
        api_key: reader.optional(&API_KEY, values::word).map(SecretString::from),
        text_model: reader.optional(&TEXT_MODEL, values::word),
        image_model: reader.optional(&IMAGE_MODEL, values::word),
    }
}
