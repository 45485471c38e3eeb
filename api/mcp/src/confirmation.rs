//! What the user is asked before something is published.
//!
//! A question shows every text that others will see, and the message to which a reply responds. Its code changes with
//! each of them, with the arguments, with the caller and with the version of the post, and the answer has the code, so an
//! answer never counts for something else: another post, a text that was changed since, or the same post or reply a
//! second time. The write compares the version again, because two calls with one answer may run at the same time.

use crier_base::hexadecimal;
use crier_domain::access::Scope;
use crier_domain::account::AccountSummary;
use crier_domain::conversation::MessageDirection;
use crier_domain::failure::Category;
use crier_domain::post::{TargetStatus, option_media};
use crier_domain::snippet::signature_for;
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::response::Timestamp;
use crier_endpoints::routes::posts::thread::ThreadPartBody;
use crier_endpoints::routes::posts::{PostDetail, TargetBody};
use crier_endpoints::routes::{conversations, posts};
use crier_store::{accounts, media};
use serde_json::{Value, json};

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
    /// The version of the post or the conversation that it shows.
    pub version: Option<Timestamp>,
}

impl Question {
    /// Asks whether Crier may do what `verb` says.
    pub async fn of(call: &ToolCall<'_>, verb: &str, arguments: &CallArguments<'_>) -> Result<Self> {
        let field = |name: &str| arguments.fields.get(name).and_then(Value::as_str);
        let (text, subject, version) = match arguments.id("post") {
            None => {
                let body = field("body").ok_or_else(|| ApiError::field("body", "Must be the text of the reply."))?;
                let (to, newest, last_id, version) = conversation(call, arguments).await?;
                let text = format!("May Crier {verb} {to}?\n\n{}\n\n{newest}", quote(body)).trim_end().to_owned();
                // Not the version: a tag, or a colleague who reads the conversation, does not change what the user sees.
                (text, json!([newest, last_id]), version)
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
                let (post, subject, version) = post(call, arguments).await?;
                let texts = texts(&subject).join("\n\n");
                let text = format!("May Crier {verb} {post}{when}?\n\n{texts}").trim_end().to_owned();
                (text, json!([subject, version]), version)
            }
        };
        let (caller, fields) = (call.session.caller().key_id, arguments.sorted_fields());
        let hashed = json!([call.listed.tool.name, caller, arguments.ids, fields, subject]).to_string();
        let code = hexadecimal::sha256(hashed, CODE_LENGTH / 2);
        Ok(Self { text, code, version: Some(version) })
    }
}

/// Returns the post's name, what of it is published, and its version.
async fn post(call: &ToolCall<'_>, arguments: &CallArguments<'_>) -> Result<(String, Value, Timestamp)> {
    let id = arguments.id("post").unwrap_or_default();
    let post = call.in_process(arguments).await?.read(&posts::show::endpoint(), ()).await?;
    if post.targets.is_empty() {
        return Err(ApiError::field("accounts", "The post has no accounts. Add them with `save_draft` first."));
    }
    let brand_id = arguments.id("brand").unwrap_or_default();
    let account_ids: Vec<i64> = post.targets.iter().map(|target| target.account_id).collect();
    let mut conn = call.app.store.read().await?;
    let accounts = accounts::summaries(&mut conn, brand_id, &account_ids).await?;
    let media = media::find_many(&mut conn, brand_id, &media_ids(&post)).await?;
    drop(conn);
    let of = |record: Value, names: &[&str]| -> Value {
        names.iter().map(|name| ((*name).to_owned(), record[*name].clone())).collect()
    };
    // The status is not shown, but an answer is only for a post that still has it.
    const TEXTS: [&str; 5] = ["content", "media", "thread", "first_comment", "status"];
    const OF_TARGET: [&str; 9] =
        ["platform", "account_id", "content", "media", "thread", "first_comment", "options", "signature", "status"];
    let target = |target: &TargetBody| {
        let mut shown = of(serde_json::to_value(target).unwrap_or_default(), &OF_TARGET);
        let account = accounts.iter().find(|account| account.id == target.account_id);
        shown["new_signature"] = json!(new_signature(&post, target, account));
        // The comment of the post is shown once, so that it leaves room for other texts.
        if shown["first_comment"]["content"] == json!(post.fields.first_comment.as_ref().map(|own| &own.content)) {
            shown["first_comment"] = Value::Null;
        }
        shown
    };
    let targets: Value = post.targets.iter().map(target).collect();
    let mut subject = of(serde_json::to_value(&post).unwrap_or_default(), &TEXTS);
    subject["targets"] = targets;
    let mut descriptions: Vec<(i64, String)> =
        media.into_iter().filter_map(|asset| Some((asset.id, asset.alt_text?))).collect();
    descriptions.sort();
    subject["descriptions"] = json!(descriptions);
    let publishes = arguments.fields.contains_key("schedule_type");
    let unknown: Vec<i64> = post.targets.iter().filter(|t| may_be_published(t)).map(|t| t.account_id).collect();
    subject["maybe_published"] = if publishes { json!(unknown) } else { Value::Null };
    let has_names = call.session.caller().scopes.has(Scope::AccountsRead);
    let chosen = arguments.fields.get("accounts").and_then(Value::as_array);
    let is_chosen = |target: &&TargetBody| chosen.is_none_or(|ids| ids.contains(&target.account_id.into()));
    let names = post.targets.iter().filter(is_chosen).map(|target| {
        let name = accounts.iter().find(|account| has_names && account.id == target.account_id);
        let name = name.map(|account| format!(" {}", harmless(&account.name))).unwrap_or_default();
        format!("{} account {}{name}", target.platform, target.account_id)
    });
    let names = shorten(&names.collect::<Vec<_>>().join(", "));
    Ok((format!("post {id} on {names}"), subject, post.updated_at))
}

/// Returns whether a retry could publish the post a second time.
fn may_be_published(target: &TargetBody) -> bool {
    let is_unknown = target.error.as_ref().is_some_and(|error| error.category == Category::OutcomeUnknown);
    is_unknown && target.status == TargetStatus::Failed
}

/// Returns the images and videos of a post, of the parts of its thread and of its accounts, with covers and the images of
/// link cards.
fn media_ids(post: &PostDetail) -> Vec<i64> {
    let parts = |parts: &[ThreadPartBody]| -> Vec<i64> { parts.iter().flat_map(|part| part.media.clone()).collect() };
    let mut ids = [post.fields.media.clone(), parts(&post.fields.thread)].concat();
    for target in &post.targets {
        ids.extend(target.media.iter().flatten());
        ids.extend(option_media(&target.options));
        ids.extend(parts(target.thread.as_deref().unwrap_or_default()));
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Returns the signature that a target gets when the post is changed, if it differs from the stored one: the signature
/// of the account may have changed since the post was saved.
fn new_signature<'a>(post: &PostDetail, target: &TargetBody, account: Option<&'a AccountSummary>) -> Option<&'a str> {
    let text = target.content.as_deref().unwrap_or(&post.fields.content);
    let new = account?.signature.as_deref().and_then(|signature| signature_for(signature, text))?;
    (!target.status.was_published() && target.signature.as_deref() != Some(new)).then_some(new)
}

/// Returns the texts of a post, with what distinguishes its accounts.
fn texts(post: &Value) -> Vec<String> {
    let mut all = Vec::new();
    if post["maybe_published"].as_array().is_some_and(|accounts| !accounts.is_empty()) {
        all.push(format!(
            "The post may already be on account {}: the outcome of an earlier attempt is unknown. Check there first. If the \
             post is there, do not agree: it would be published twice.",
            list(&post["maybe_published"])
        ));
    }
    add_texts(post, "", &mut all);
    for target in post["targets"].as_array().into_iter().flatten() {
        let on = format!(" on {}, account {}", target["platform"].as_str().unwrap_or_default(), target["account_id"]);
        add_texts(target, &on, &mut all);
    }
    for description in post["descriptions"].as_array().into_iter().flatten() {
        let text = description[1].as_str().unwrap_or_default();
        all.push(format!("Description of the image or video {}:\n{}", description[0], quote(text)));
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
            all.push(format!("{what}{on}:\n{}", quote(text)));
        }
    };
    add("Text", of["content"].as_str().unwrap_or_default());
    for part in of["thread"].as_array().into_iter().flatten() {
        add("Next part of the thread", part["content"].as_str().unwrap_or_default());
        add("Images and videos of this part", &list(&part["media"]));
    }
    add("First comment", of["first_comment"]["content"].as_str().unwrap_or_default());
    add("Signature", of["signature"].as_str().unwrap_or_default());
    add("New signature", of["new_signature"].as_str().unwrap_or_default());
    add("Images and videos", &list(&of["media"]));
    if of["options"].as_object().is_some_and(|options| !options.is_empty()) {
        add("Options", &of["options"].to_string());
    }
}

fn list(ids: &Value) -> String {
    ids.as_array().into_iter().flatten().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the conversation's name, its newest message, the ID of the message that Crier stored last, and its version.
/// After the reply, that ID is another one.
async fn conversation(
    call: &ToolCall<'_>,
    arguments: &CallArguments<'_>,
) -> Result<(String, String, Option<i64>, Timestamp)> {
    let found = call.in_process(arguments).await?.read(&conversations::show::endpoint(), ()).await?;
    let participant = found.fields.participant;
    let name = participant.name.or(participant.username).unwrap_or_default();
    let to = format!("conversation {} with {} on {}", found.id, harmless(&name), found.fields.platform);
    // A message that was deleted, or is only an image, has no text.
    let newest = found.messages.last().filter(|message| !message.body.is_empty());
    let newest = newest.map(|message| match message.direction {
        MessageDirection::Inbound => format!("The newest message:\n{}", quote(&message.body)),
        MessageDirection::Outbound => format!("The newest message, from the account:\n{}", quote(&message.body)),
    });
    let last_id = found.messages.iter().map(|message| message.id).max();
    Ok((to, newest.unwrap_or_default(), last_id, found.updated_at))
}

/// Returns a name without characters with which it could pretend to be part of the question.
fn harmless(name: &str) -> String {
    let is_harmless = |c: &char| c.is_alphanumeric() || " .-_@".contains(*c);
    let name: String = name.chars().filter(is_harmless).take(MAX_NAME).collect();
    if name.trim().is_empty() { "someone".to_owned() } else { format!("“{name}”") }
}

/// Returns a text with a mark before each line, so that it cannot pretend to be part of the question.
fn quote(text: &str) -> String {
    const LINE_ENDS: [char; 7] = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];
    let (start, rest) = cut(text);
    let lines: Vec<String> = start.split(LINE_ENDS).map(|line| format!("> {line}")).collect();
    format!("{}{rest}", lines.join("\n"))
}

fn shorten(text: &str) -> String {
    let (start, rest) = cut(text);
    format!("{start}{rest}")
}

/// Returns the start of a text, and what says how much is not shown.
fn cut(text: &str) -> (String, String) {
    let start = text.chars().take(MAX_TEXT).collect();
    let rest = match text.chars().count().saturating_sub(MAX_TEXT) {
        0 => String::new(),
        more => format!("…\n({more} more characters are not shown. Look at them in Crier before you agree.)"),
    };
    (start, rest)
}
