//! Shared parts of the pages for developers: their tabs, and the page that shows a new secret.

use askama::Template;

use super::shared::{Choice, Link};
use super::shell::Shell;

/// Returns the tabs of the section; `current` is `keys`, `agents`, `webhooks` or `requests`.
pub fn tabs(shell: &Shell, current: &str) -> Vec<Choice> {
    let all = [
        ("keys", "developers", "API keys"),
        ("agents", "developers/agents", "Agents"),
        ("webhooks", "developers/webhooks", "Webhooks"),
        ("requests", "developers/requests", "Requests"),
    ];
    all.iter().map(|(key, path, label)| Choice::new(&shell.at(path), label, *key == current)).collect()
}

/// A new API key or signing secret.
#[derive(Template)]
#[template(path = "console/secret.html")]
pub struct NewSecret {
    pub shell: Shell,
    /// The purpose and usage of the secret.
    pub lead: String,
    pub label: &'static str,
    pub secret: String,
    /// An example command, without the secret.
    pub example: Option<String>,
    pub done: Link,
}
