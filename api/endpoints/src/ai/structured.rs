//! Gets a JSON object from a text model. The schema is sent as a parameter and in the instructions. The response is
//! parsed strictly and validated. An invalid one is sent back to the model once, with the reason.

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::provider::Chat;
use super::{AiError, Result, TextModel};

/// The object to request.
pub struct StructuredRequest<'a> {
    /// The object's name.
    pub name: &'a str,
    pub schema: Value,
    /// The model's role and task.
    pub instructions: String,
    /// The user's text.
    pub text: &'a str,
}

/// The result of validating an object.
pub enum CheckResult<T> {
    Good(T),
    /// Acceptable if there is no better one. Contains the problem.
    Usable(T, String),
    /// Contains the problem, worded for the model.
    Bad(String),
}

impl TextModel<'_> {
    /// Requests an object. Retries once if it is not good.
    pub(super) async fn request_object<T>(
        &self,
        request: &StructuredRequest<'_>,
        validate: impl Fn(&Value) -> CheckResult<T>,
    ) -> Result<T> {
        let started = Instant::now();
        let instructions = format!(
            "{}\n\nRespond with only a JSON object that follows this schema: {}",
            request.instructions, request.schema
        );
        let mut messages = vec![
            json!({ "role": "system", "content": instructions }),
            json!({ "role": "user", "content": request.text }),
        ];
        let first = self.send_chat(request, &messages).await?;
        let (fallback, problem) = match parse_and_validate(&first, &validate) {
            CheckResult::Good(found) => return Ok(found),
            CheckResult::Usable(found, problem) => (Some(found), problem),
            CheckResult::Bad(problem) => (None, problem),
        };
        tracing::debug!(model = self.model, %problem, "retrying a model request");
        messages.push(json!({ "role": "assistant", "content": first }));
        let correction =
            format!("Your response cannot be used. {problem} Respond again with only the complete JSON object.");
        messages.push(json!({ "role": "user", "content": correction }));
        let Some(fallback) = fallback else {
            let second = self.send_chat(request, &messages).await?;
            return match parse_and_validate(&second, &validate) {
                CheckResult::Good(found) | CheckResult::Usable(found, _) => Ok(found),
                CheckResult::Bad(problem) => Err(AiError::Malformed(problem)),
            };
        };
        // A slow second response must not lose the usable first one.
        let left = self.timeout.saturating_sub(started.elapsed()) / 2;
        Ok(match timeout(left, self.send_chat(request, &messages)).await {
            Ok(Ok(second)) => match parse_and_validate(&second, &validate) {
                CheckResult::Good(found) | CheckResult::Usable(found, _) => found,
                CheckResult::Bad(_) => fallback,
            },
            _ => fallback,
        })
    }

    async fn send_chat(&self, request: &StructuredRequest<'_>, messages: &[Value]) -> Result<String> {
        let chat = Chat { model: self.model, messages: messages.to_vec(), format: (request.name, &request.schema) };
        self.provider.chat(&chat).await
    }
}

fn parse_and_validate<T>(text: &str, validate: impl Fn(&Value) -> CheckResult<T>) -> CheckResult<T> {
    match serde_json::from_str::<Value>(strip_wrapping(text)) {
        Ok(value) if value.is_object() => validate(&value),
        Ok(_) => CheckResult::Bad("It is not a JSON object.".to_owned()),
        Err(error) => CheckResult::Bad(format!("It is not JSON ({error}).")),
    }
}

/// The markers between a model's reasoning and its output, if the server does not separate them: most models,
/// Mistral's, and OpenAI's open ones. Some chat templates drop the opening marker.
const REASONING_END_MARKERS: [&str; 3] = ["</think>", "[/THINK]", "<|channel|>final<|message|>"];

/// Removes what models put around an object: reasoning and a Markdown code fence.
fn strip_wrapping(text: &str) -> &str {
    let mut text = text.trim();
    if !text.starts_with(['{', '`'])
        && let Some((_, response)) = REASONING_END_MARKERS.iter().find_map(|end| text.split_once(end))
    {
        text = response.trim();
    }
    let Some(fenced) = text.strip_prefix("```") else { return text };
    let inner = fenced.split_once('\n').map_or(fenced, |(_, inner)| inner);
    inner.trim_end().strip_suffix("```").unwrap_or(inner).trim()
}

/// Returns the strings of a list in the object; `None` if it is not a list of strings.
pub fn texts<'a>(object: &'a Value, name: &str) -> Option<Vec<&'a str>> {
    object.get(name)?.as_array()?.iter().map(Value::as_str).collect()
}

/// Returns the schema of an object with one list of strings. Strict schemas do not support list lengths, so the
/// instructions state the length.
pub fn list_schema(name: &str) -> Value {
    json!({
        "type": "object",
        "properties": { name: { "type": "array", "items": { "type": "string" } } },
        "required": [name],
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_object_is_extracted_from_model_output() {
        for text in [
            "{\"a\":1}",
            "  {\"a\":1}\n",
            "```json\n{\"a\":1}\n```",
            "```\n{\"a\":1}```",
            "<think>is {\"a\":2} right?</think>\n{\"a\":1}",
            "<think>x</think>```json\r\n{\"a\":1}\r\n```\n",
            "is it?\n</think>\n\n{\"a\":1}",
            "[THINK]x[/THINK]{\"a\":1}",
            "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>{\"a\":1}",
        ] {
            assert_eq!(strip_wrapping(text), "{\"a\":1}", "{text}");
        }
        assert_eq!(
            strip_wrapping("{\"a\":\"</think>\"}"),
            "{\"a\":\"</think>\"}",
            "markers within the object are kept"
        );
        for text in ["", "```", "Here it is: {\"a\":1}", "{\"a\":", "[1]", "<think>on and on", "\"a\""] {
            assert!(matches!(parse_and_validate(text, |_| CheckResult::Good(())), CheckResult::Bad(_)), "{text}");
        }
    }
}
