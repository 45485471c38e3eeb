//! What the user is asked before something is published.
//!
//! A question shows every text that others will see. Its code changes with each of them and with the arguments, and the
//! answer has the code, so an answer never counts for something else: another post, or a text that was changed since.

use crier_domain::access::Scope;
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::{conversations, posts};
use crier_endpoints::runner::call::InProcessCall;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::arguments::CallArguments;
use crate::call::ToolCall;

/// The maximum number of characters of one text in a question.
const MAX_TEXT: usize = 3_000;
/// The maximum number of texts in a question.
const MAX_TEXTS: usize = 40;
/// The maximum number of characters of a name, which the other person chose.
const MAX_NAME: usize = 40;
/// The maximum size of a time, in bytes.
const MAX_TIME: usize = 64;
/// The number of hexadecimal digits of a code.
const CODE_LENGTH: usize = 16;

pub struct Question {
    pub text: String,
    /// What an answer must contain.
    pub code: String,
}

impl Question {
    /// Asks whether Crier may do what `verb` says, as far as the caller may read what it is about.
    pub async fn of(call: &ToolCall<'_>, verb: &str, arguments: &CallArguments<'_>) -> Result<Self> {
        let field = |name: &str| arguments.fields.get(name).and_then(Value::as_str);
        let (text, subject) = match arguments.id("post") {
            None => {
                let body = field("body").ok_or_else(|| ApiError::field("body", "Must be the text of the reply."))?;
                let to = participant(call, arguments).await?;
                (format!("May Crier {verb} {to}?\n\n{}", shorten(body)), Value::Null)
            }
            Some(_) => {
                let when = match field("schedule_type") {
                    Some("scheduled") => {
                        let at = field("scheduled_at")
                            .filter(|at| (1..=MAX_TIME).contains(&at.len()) && !at.contains(char::is_control));
                        let problem =
                            || ApiError::field("scheduled_at", "Must be a time, such as 2030-01-31T10:00:00Z.");
                        format!(" for {}", at.ok_or_else(problem)?)
                    }
                    Some("queue") => " at the next free slot of the queue".to_owned(),
                    Some("now") => " now".to_owned(),
                    _ => String::new(),
                };
                let (post, subject) = post(call, arguments).await?;
                let texts = texts(&subject).join("\n\n");
                (format!("May Crier {verb} {post}{when}?\n\n{texts}").trim_end().to_owned(), subject)
            }
        };
        let hashed = json!([call.listed.tool.name, arguments.ids, arguments.fields, subject]).to_string();
        let code = hex::encode(Sha256::digest(hashed)).chars().take(CODE_LENGTH).collect();
        Ok(Self { text, code })
    }
}

/// Returns the post's name, and what of it is published.
async fn post(call: &ToolCall<'_>, arguments: &CallArguments<'_>) -> Result<(String, Value)> {
    let id = arguments.id("post").unwrap_or_default();
    if !call.session.caller().scopes.has(Scope::PostsRead) {
        return Ok((format!("post {id}"), Value::Null));
    }
    let post = read_call(call, arguments).await?.read(&posts::show::endpoint(), ()).await?;
    if post.targets.is_empty() {
        return Err(ApiError::field("accounts", "The post has no accounts. Add them with `save_draft` first."));
    }
    let platforms: Vec<&str> = post.targets.iter().map(|target| target.platform.as_str()).collect();
    let accounts = match platforms.len() {
        1 => "1 account".to_owned(),
        count => format!("{count} accounts"),
    };
    let name = format!("post {id} on {accounts} ({})", shorten(&platforms.join(", ")));
    let of = |record: Value, names: &[&str]| -> Value {
        names.iter().map(|name| ((*name).to_owned(), record[*name].clone())).collect()
    };
    const TEXTS: [&str; 4] = ["content", "media", "thread", "first_comment"];
    const OF_TARGET: [&str; 8] =
        ["platform", "account_id", "content", "media", "thread", "first_comment", "options", "signature"];
    let targets = post.targets.iter().filter_map(|target| serde_json::to_value(target).ok());
    let targets: Value = targets.map(|target| of(target, &OF_TARGET)).collect();
    let mut subject = of(serde_json::to_value(&post).unwrap_or_default(), &TEXTS);
    subject["targets"] = targets;
    Ok((name, subject))
}

/// Returns the texts of a post, with what distinguishes its accounts.
fn texts(post: &Value) -> Vec<String> {
    let mut all = Vec::new();
    add_texts(post, "", &mut all);
    for target in post["targets"].as_array().into_iter().flatten() {
        let on = format!(" on {}, account {}", target["platform"].as_str().unwrap_or_default(), target["account_id"]);
        add_texts(target, &on, &mut all);
    }
    if all.len() > MAX_TEXTS {
        let more = all.len() - MAX_TEXTS;
        all.truncate(MAX_TEXTS);
        all.push(format!("{more} more texts are not shown. Look at the post in Crier before you agree."));
    }
    all
}

/// Adds the texts of a post, or those that replace them on an account.
fn add_texts(of: &Value, on: &str, all: &mut Vec<String>) {
    let mut add = |what: &str, text: &str| {
        if !text.is_empty() {
            all.push(format!("{what}{on}:\n{}", shorten(text)));
        }
    };
    add("Text", of["content"].as_str().unwrap_or_default());
    for part in of["thread"].as_array().into_iter().flatten() {
        add("Next part of the thread", part["content"].as_str().unwrap_or_default());
    }
    add("First comment", of["first_comment"]["content"].as_str().unwrap_or_default());
    add("Signature", of["signature"].as_str().unwrap_or_default());
    if let Some(media) = of["media"].as_array().filter(|media| !media.is_empty()) {
        let ids: Vec<String> = media.iter().map(Value::to_string).collect();
        add("Images and videos", &ids.join(", "));
    }
    if of["options"].as_object().is_some_and(|options| !options.is_empty()) {
        add("Options", &of["options"].to_string());
    }
}

/// Returns the name of the other person in a conversation.
async fn participant(call: &ToolCall<'_>, arguments: &CallArguments<'_>) -> Result<String> {
    let id = arguments.id("conversation").unwrap_or_default();
    if !call.session.caller().scopes.has(Scope::InboxRead) {
        return Ok(format!("conversation {id}"));
    }
    let found = read_call(call, arguments).await?.read(&conversations::show::endpoint(), ()).await?;
    let name = found.fields.participant.name.or(found.fields.participant.username).unwrap_or_default();
    Ok(format!("conversation {id} with {} on {}", harmless(&name), found.fields.platform))
}

async fn read_call<'a>(call: &'a ToolCall<'_>, arguments: &CallArguments<'_>) -> Result<InProcessCall<'a>> {
    let authenticated = call.session.authenticate(call.app, arguments.id("brand")).await?;
    Ok(InProcessCall { app: call.app, authenticated, ids: arguments.ids.clone(), request_id: call.request_id })
}

/// Returns a name without characters with which it could pretend to be part of the question.
fn harmless(name: &str) -> String {
    let is_harmless = |c: &char| c.is_alphanumeric() || " .-_@".contains(*c);
    let name: String = name.chars().filter(is_harmless).take(MAX_NAME).collect();
    if name.trim().is_empty() { "someone".to_owned() } else { format!("“{name}”") }
}

fn shorten(text: &str) -> String {
    let count = text.chars().count();
    let start: String = text.chars().take(MAX_TEXT).collect();
    match count.saturating_sub(MAX_TEXT) {
        0 => start,
        more => {
            format!("{start}… ({more} more characters, which are not shown. Look at them in Crier before you agree.)")
        }
    }
}
