//! An object out of a model that writes text: asked for by a schema and in words, parsed strictly, judged, and where
//! something is wrong with it the model is told once what.

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::provider::Chat;
use super::{AiError, Result, Writer};

/// What is to be had.
pub struct Ask<'a> {
    /// Of the object.
    pub name: &'a str,
    pub schema: Value,
    /// What the model is and does.
    pub instructions: String,
    /// What the user said.
    pub text: &'a str,
}

/// What an object is worth.
pub enum Verdict<T> {
    Good(T),
    /// It will do where no better one comes; with what is wrong with it.
    Usable(T, String),
    /// With what is wrong with it, in words for the model.
    Bad(String),
}

impl Writer<'_> {
    /// Asks until the object is good, twice at most.
    pub(super) async fn object<T>(&self, ask: &Ask<'_>, judge: impl Fn(&Value) -> Verdict<T>) -> Result<T> {
        let began = Instant::now();
        let mut messages = vec![
            json!({ "role": "system", "content": format!("{}\n\nAnswer with nothing but a JSON object by this schema: {}", ask.instructions, ask.schema) }),
            json!({ "role": "user", "content": ask.text }),
        ];
        let first = self.say(ask, &messages).await?;
        let (spare, wrong) = match judged(&first, &judge) {
            Verdict::Good(found) => return Ok(found),
            Verdict::Usable(found, wrong) => (Some(found), wrong),
            Verdict::Bad(wrong) => (None, wrong),
        };
        tracing::debug!(model = self.model, %wrong, "the model is asked once more");
        messages.push(json!({ "role": "assistant", "content": first }));
        messages.push(json!({ "role": "user", "content": format!("That cannot be used: {wrong} Answer again, with nothing but the whole JSON object.") }));
        let Some(spare) = spare else {
            let second = self.say(ask, &messages).await?;
            return match judged(&second, &judge) {
                Verdict::Good(found) | Verdict::Usable(found, _) => Ok(found),
                Verdict::Bad(wrong) => Err(AiError::Malformed(wrong)),
            };
        };
        // What is there already must not be lost to a second answer that comes too late.
        let left = self.patience.saturating_sub(began.elapsed()) / 2;
        Ok(match timeout(left, self.say(ask, &messages)).await {
            Ok(Ok(second)) => match judged(&second, &judge) {
                Verdict::Good(found) | Verdict::Usable(found, _) => found,
                Verdict::Bad(_) => spare,
            },
            _ => spare,
        })
    }

    async fn say(&self, ask: &Ask<'_>, messages: &[Value]) -> Result<String> {
        let chat = Chat { model: self.model, messages: messages.to_vec(), format: (ask.name, &ask.schema) };
        self.provider.chat(&chat).await
    }
}

fn judged<T>(text: &str, judge: impl Fn(&Value) -> Verdict<T>) -> Verdict<T> {
    match serde_json::from_str::<Value>(bare(text)) {
        Ok(value) if value.is_object() => judge(&value),
        Ok(_) => Verdict::Bad("It is no JSON object.".to_owned()),
        Err(error) => Verdict::Bad(format!("It is no JSON ({error}).")),
    }
}

/// What stands between a model's thoughts and what it says, where the server does not part them: most models, Mistral's,
/// and OpenAI's open ones. Some templates swallow what the thoughts begin with.
const THOUGHT: [&str; 3] = ["</think>", "[/THINK]", "<|channel|>final<|message|>"];

/// Without what models put around an object: their thoughts, and a fence of Markdown.
fn bare(text: &str) -> &str {
    let mut text = text.trim();
    if !text.starts_with(['{', '`'])
        && let Some((_, said)) = THOUGHT.iter().find_map(|end| text.split_once(end))
    {
        text = said.trim();
    }
    let Some(fenced) = text.strip_prefix("```") else { return text };
    let inner = fenced.split_once('\n').map_or(fenced, |(_, inner)| inner);
    inner.trim_end().strip_suffix("```").unwrap_or(inner).trim()
}

/// The texts of a list in the object; `None` where it is none.
pub fn texts<'a>(object: &'a Value, name: &str) -> Option<Vec<&'a str>> {
    object.get(name)?.as_array()?.iter().map(Value::as_str).collect()
}

/// The schema of an object with one list of texts. Strict schemas know no length of a list: the instructions say it.
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
    fn an_object_is_found_in_what_models_put_around_it() {
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
            assert_eq!(bare(text), "{\"a\":1}", "{text}");
        }
        assert_eq!(bare("{\"a\":\"</think>\"}"), "{\"a\":\"</think>\"}", "what is said is not looked into");
        for text in ["", "```", "Here it is: {\"a\":1}", "{\"a\":", "[1]", "<think>on and on", "\"a\""] {
            assert!(matches!(judged(text, |_| Verdict::Good(())), Verdict::Bad(_)), "{text}");
        }
    }
}
