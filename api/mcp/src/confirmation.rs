//! What the user is asked before something is published.

use crier_domain::access::Scope;
use crier_endpoints::error::Result;
use crier_endpoints::routes::{conversations, posts};
use crier_endpoints::runner::call::InProcessCall;
use serde_json::Value;

use crate::arguments::CallArguments;
use crate::call::ToolCall;

/// The maximum number of characters of a text in a question.
const MAX_TEXT: usize = 500;
/// The maximum number of characters of a name in a question, which the other person chose.
const MAX_NAME: usize = 60;

/// Returns the question. It shows what it is about, if the caller may read that.
pub async fn question(call: &ToolCall<'_>, verb: &str, arguments: &CallArguments<'_>) -> Result<String> {
    let field = |name: &str| arguments.fields.get(name).and_then(Value::as_str);
    if let Some(body) = field("body") {
        let to = participant(call, arguments).await?;
        return Ok(format!("May Crier {verb} {to}?\n\n{}", shorten(body, MAX_TEXT)));
    }
    let when = match field("schedule_type") {
        Some("scheduled") => format!(" for {}", shorten(field("scheduled_at").unwrap_or_default(), MAX_NAME)),
        Some("queue") => " at the next free slot of the queue".to_owned(),
        Some("now") => " now".to_owned(),
        _ => String::new(),
    };
    let (post, text) = post(call, arguments).await?;
    Ok(format!("May Crier {verb} {post}{when}?\n\n{text}").trim_end().to_owned())
}

/// Returns the post and the beginning of its text.
async fn post(call: &ToolCall<'_>, arguments: &CallArguments<'_>) -> Result<(String, String)> {
    let id = arguments.id("post").unwrap_or_default();
    if !call.session.caller().scopes.has(Scope::PostsRead) {
        return Ok((format!("post {id}"), String::new()));
    }
    let post = read_call(call, arguments).await?.read(&posts::show::endpoint(), ()).await?;
    let platforms: Vec<&str> = post.targets.iter().map(|target| target.platform.as_str()).collect();
    let accounts = match platforms.len() {
        1 => "1 account".to_owned(),
        count => format!("{count} accounts"),
    };
    let post_name = format!("post {id} on {accounts} ({})", shorten(&platforms.join(", "), MAX_TEXT));
    Ok((post_name, shorten(&post.fields.content, MAX_TEXT)))
}

/// Returns the name of the other person in a conversation.
async fn participant(call: &ToolCall<'_>, arguments: &CallArguments<'_>) -> Result<String> {
    let id = arguments.id("conversation").unwrap_or_default();
    if !call.session.caller().scopes.has(Scope::InboxRead) {
        return Ok(format!("conversation {id}"));
    }
    let found = read_call(call, arguments).await?.read(&conversations::show::endpoint(), ()).await?;
    let name = found.fields.participant.name.or(found.fields.participant.username).unwrap_or_default();
    Ok(format!("conversation {id} with “{}” on {}", shorten(&name, MAX_NAME), found.fields.platform))
}

async fn read_call<'a>(call: &'a ToolCall<'_>, arguments: &CallArguments<'_>) -> Result<InProcessCall<'a>> {
    let authenticated = call.session.authenticate(call.app, arguments.id("brand")).await?;
    Ok(InProcessCall { app: call.app, authenticated, ids: arguments.ids.clone(), request_id: call.request_id })
}

fn shorten(text: &str, max: usize) -> String {
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(max).collect();
    if chars.next().is_some() { format!("{start}…") } else { start }
}
