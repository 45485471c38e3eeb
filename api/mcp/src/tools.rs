//! The tools, in the order in which clients list them.
//!
//! **To add one:** a value here, and a line in the table of `docs/mcp.md`. Models read the descriptions: say what the tool
//! does, and which tool comes before or after it.

use std::sync::{Arc, LazyLock};

use crier_domain::access::Scope;
use crier_domain::post::ScheduleType;
use crier_endpoints::routes::{accounts, ai, analytics, brands, conversations, media, posts, queue, reports};
use crier_store::keys::Caller;
use serde_json::{Map, Value};

use crate::tool::{Arguments, Effect, Tool};

/// A tool with its schemas.
pub struct ListedTool {
    pub tool: Tool,
    pub input: Arc<Map<String, Value>>,
    pub output: Arc<Map<String, Value>>,
}

static TOOLS: LazyLock<Vec<ListedTool>> = LazyLock::new(|| {
    let tools = [planning(), writing(), publishing(), reading(), inbox(), texts_and_reports()].into_iter().flatten();
    let listed =
        |tool: Tool| ListedTool { input: tool.input_schema().into(), output: tool.output_schema().into(), tool };
    tools.map(listed).collect()
});

/// Returns all tools.
pub fn all() -> &'static [ListedTool] {
    &TOOLS
}

/// Returns the scope that the caller lacks for the tool that a message calls.
pub fn missing_scope(message: &Value, caller: &Caller) -> Option<Scope> {
    let name = (message["method"] == "tools/call").then(|| message["params"]["name"].as_str()).flatten()?;
    let mut scopes = all().iter().find(|listed| listed.tool.name == name)?.tool.scopes();
    scopes.find(|scope| !caller.scopes.has(*scope))
}

/// The fields of accounts, posts and messages that were written by people outside or by platforms. An account's names, IDs,
/// URLs and software are those that its server states, which may be anyone's.
const ACCOUNT_TEXTS: &[&str] = &["data[]"];
/// The content of a post may be that of an article in a feed, which the post does not tell, and part of an error is the
/// platform's.
const POST_TEXTS: &[&str] = &["data.content", "data.thread[]", "data.first_comment", "data.error", "data.targets[]"];
const POST_AND_ATTEMPT_TEXTS: &[&str] =
    &["data.content", "data.thread[]", "data.first_comment", "data.error", "data.targets[]", "attempts[].error"];
const LISTED_POST_TEXTS: &[&str] = &["data[].content", "data[].thread[]", "data[].first_comment", "data[].error"];
const CONVERSATION_TEXTS: &[&str] =
    &["data[].participant", "data[].last_message_preview", "data[].subject", "data[].tags"];
const MESSAGE_TEXTS: &[&str] = &["data.participant", "data.last_message_preview", "data.subject", "data.messages[]"];

/// Returns whether an account in the list is on this platform.
fn is_platform_of(accounts: &Value, platform: &Value) -> bool {
    accounts.as_array().is_some_and(|all| all.iter().any(|account| account["platform"] == platform["platform"]))
}

/// What an agent needs to know before it writes.
fn planning() -> Vec<Tool> {
    vec![
        Tool::new("list_brands", "List brands", Effect::Read, brands::list::endpoint())
            .description("Lists the brands that you can use. Most other tools need the ID of a brand."),
        Tool::new("list_accounts", "List accounts", Effect::Read, accounts::list::endpoint())
            .and_those("platforms", accounts::platforms::endpoint(), is_platform_of)
            .untrusted(ACCOUNT_TEXTS)
            .description(
                "Lists the social accounts of a brand. `platforms` has the limits, the options and the features of each \
                 platform; `limits` of an account replace those of its platform.",
            ),
        Tool::new("next_slots", "Get the next free slots", Effect::Read, queue::next::endpoint()).description(
            "Lists the next free slots of a brand's queue. `schedule_post` without `scheduled_at` takes the first one.",
        ),
    ]
}

fn writing() -> Vec<Tool> {
    vec![
        Tool::new("validate_post", "Check a post", Effect::Read, posts::validate::endpoint()).description(
            "Checks a post against the limits of its accounts, and changes nothing. Call it before `save_draft`.",
        ),
        Tool::new("save_draft", "Save a draft", Effect::Change, posts::create::endpoint())
            .with_id("post", posts::update::endpoint())
            .takes(Arguments::Without(&["schedule_type"]))
            .sets("schedule_type", |_| ScheduleType::Draft.as_str())
            // A failed post is not a draft again, but can be changed before it is retried.
            .or_omits("schedule_type")
            .untrusted(POST_TEXTS)
            .description(
                "Saves a post as a draft, which is not published. With `post_id`, changes that post and returns it to \
                 draft (a post that failed stays failed until it is published again); omitted fields keep their values. \
                 Publish it with `publish_post` or `schedule_post`.",
            ),
        Tool::new("import_media", "Import an image or video", Effect::Fetch, media::from_url::endpoint()).description(
            "Imports an image or a video from a public URL to a brand's library. Returns the ID of a job; \
             `get_media_import` says when the file can be used in a post.",
        ),
        Tool::new("get_media_import", "Get an import of media", Effect::Read, media::job::endpoint())
            // The name of a file is often part of its URL.
            .untrusted(&["data.error", "data.media"])
            .description("Gets the status of an import that `import_media` started, and the ID of the media."),
    ]
}

fn publishing() -> Vec<Tool> {
    vec![
        Tool::new("schedule_post", "Schedule a post", Effect::Publish, posts::update::endpoint())
            .takes(Arguments::Only(&["scheduled_at"]))
            .sets("schedule_type", |arguments| {
                let has_time = arguments.get("scheduled_at").is_some_and(|at| !at.is_null());
                let kind = if has_time { ScheduleType::Scheduled } else { ScheduleType::Queue };
                kind.as_str()
            })
            .asks("schedule")
            .untrusted(POST_TEXTS)
            .description(
                "Schedules a saved post at `scheduled_at` or, without it, at the next free slot of the brand's queue. \
                 The user must confirm it.",
            ),
        Tool::new("publish_post", "Publish a post now", Effect::Publish, posts::update::endpoint())
            .takes(Arguments::Only(&[]))
            .sets("schedule_type", |_| ScheduleType::Now.as_str())
            .asks("publish")
            .untrusted(POST_TEXTS)
            .description(
                "Publishes a saved post now, or retries the accounts on which it failed. The user must confirm it. \
                 Publishing takes a moment: `get_post` has the result.",
            ),
        Tool::new("unpublish_post", "Delete a published post", Effect::Publish, posts::unpublish::endpoint())
            .asks("delete from its platforms")
            .untrusted(POST_TEXTS)
            .description(
                "Deletes a published post from its platforms, where they allow it. The post stays in Crier. The user \
                 must confirm it.",
            ),
    ]
}

fn reading() -> Vec<Tool> {
    vec![
        Tool::new("list_posts", "List posts", Effect::Read, posts::list::endpoint())
            .untrusted(LISTED_POST_TEXTS)
            .description("Lists the posts of a brand, with search and filters. `get_post` has the accounts of each."),
        Tool::new("get_post", "Get a post", Effect::Read, posts::show::endpoint())
            .and("attempts", posts::attempts::endpoint())
            .untrusted(POST_AND_ATTEMPT_TEXTS)
            .description(
                "Gets a post with its status on each account, the reason it failed there, and all attempts to \
                 publish it.",
            ),
        Tool::new("get_analytics", "Get analytics", Effect::Read, analytics::posts::endpoint())
            .and("top_posts", analytics::top_posts::endpoint())
            .and("best_times", analytics::best_times::endpoint())
            .and("accounts", analytics::accounts::endpoint())
            .untrusted(&["top_posts.posts[].text"])
            .description(
                "Gets the metrics of a brand's posts and accounts, its best posts, and the hours of the week with \
                 the most engagement.",
            ),
    ]
}

fn inbox() -> Vec<Tool> {
    vec![
        Tool::new("list_conversations", "List conversations", Effect::Read, conversations::list::endpoint())
            .untrusted(CONVERSATION_TEXTS)
            .description("Lists the comments, mentions and messages that a brand received, as conversations."),
        Tool::new("get_conversation", "Get a conversation", Effect::Read, conversations::show::endpoint())
            .list("messages")
            .untrusted(MESSAGE_TEXTS)
            .description("Gets a conversation with its messages, newest first."),
        Tool::new("reply_to_conversation", "Reply", Effect::Publish, conversations::reply::endpoint())
            .asks("send this reply to")
            .description("Sends a reply in a conversation. The user must confirm it."),
    ]
}

fn texts_and_reports() -> Vec<Tool> {
    vec![
        Tool::new("generate_captions", "Generate captions", Effect::Fetch, ai::captions::endpoint())
            .untrusted(&["data.captions[]"])
            .description("Generates captions with the model that the operator configured. Uses AI credits of the plan."),
        Tool::new("generate_hashtags", "Generate hashtags", Effect::Fetch, ai::hashtags::endpoint())
            .untrusted(&["data.hashtags[]"])
            .description(
                "Generates hashtags for a text with the model that the operator configured. Uses AI credits of the plan.",
            ),
        Tool::new("get_reports", "Get reports", Effect::Read, reports::list::endpoint())
            .with_id("report", reports::show::endpoint())
            .and("exports", reports::deliveries::endpoint())
            .untrusted(&["exports[].error"])
            .description("Lists the reports of a brand. With `report_id`, gets that report and its exports."),
        Tool::new("export_report", "Export a report", Effect::Add, reports::export::endpoint())
            .description("Starts an export of a report. `get_reports` with its `report_id` says when it is finished."),
    ]
}
