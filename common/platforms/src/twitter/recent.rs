//! The account's recent posts. X has no idempotency key, so after a call with an unknown outcome, the account's newest
//! posts since the first attempt are compared by text. X rewrites every link, so links are omitted from the comparison.

use chrono::{DateTime, Utc};
use http::Method;
use secrecy::ExposeSecret;
use serde::Deserialize;

use super::Twitter;
use crate::call::Effect;
use crate::text::comparable::comparable;
use crate::text::links::find as find_links;
use crate::{CallError, ConnectorAccount};

/// The maximum number of recent posts that are searched.
pub(super) const MAX_RECENT_POSTS: usize = 10;

#[derive(Deserialize)]
pub(super) struct Tweet {
    pub(super) id: String,
    text: String,
    pub(super) created_at: Option<DateTime<Utc>>,
    /// The complete text, if `text` is truncated.
    note_tweet: Option<NoteTweet>,
    /// The posts that it replies to or quotes. Missing if there are none.
    #[serde(default)]
    referenced_tweets: Vec<Reference>,
}

#[derive(Deserialize)]
struct NoteTweet {
    text: String,
}

#[derive(Deserialize)]
struct Reference {
    #[serde(rename = "type")]
    kind: String,
    id: String,
}

/// The account's recent posts, newest first.
#[derive(Deserialize)]
pub(super) struct Newest {
    /// Missing if there are no posts.
    #[serde(default, rename = "data")]
    pub(super) tweets: Vec<Tweet>,
    /// Missing if X returns an error instead of the list, which it may do with the status 200.
    meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    next_token: Option<String>,
}

impl Newest {
    /// Returns whether there are more posts. X counts the retweets that it leaves out, so a page may be short.
    pub(super) fn has_next_page(&self) -> bool {
        self.meta.next_token.is_some()
    }
}

impl Tweet {
    pub(super) fn whole_text(&self) -> &str {
        self.note_tweet.as_ref().map_or(&self.text, |note| &note.text)
    }

    /// Returns the id of the post that it replies to.
    pub(super) fn replied_to(&self) -> Option<&str> {
        let parent = self.referenced_tweets.iter().find(|reference| reference.kind == "replied_to");
        parent.map(|reference| reference.id.as_str())
    }
}

impl Twitter {
    pub(super) async fn newest(&self, account: &ConnectorAccount) -> Result<Newest, CallError> {
        let token = account.secrets.require("access_token")?;
        let path = format!("{}/tweets", Self::user_path(account));
        let request = self.request(Method::GET, &path, token.expose_secret()).query(&[
            ("max_results", MAX_RECENT_POSTS.to_string().as_str()),
            ("exclude", "retweets"),
            ("tweet.fields", "created_at,note_tweet,referenced_tweets"),
        ]);
        let response = self.client.send(Effect::Repeatable, request).await?;
        if !response.status.is_success() {
            return Err(self.classify(Effect::Repeatable, &response));
        }
        self.client.read(Effect::Repeatable, &response)
    }
}

/// Returns a text as it was written. X returns `&`, `<` and `>` escaped.
pub(super) fn plain(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// Returns a text for comparison without its links, which X replaces.
pub(super) fn without_links(text: &str) -> String {
    let plain = plain(text);
    let (mut without, mut from) = (String::new(), 0);
    for link in find_links(&plain, true) {
        without.push_str(&plain[from..link.start]);
        from = link.end;
    }
    without.push_str(&plain[from..]);
    comparable(&without)
}

/// Returns the text of a reply for comparison, without its leading mentions, because X prepends those of the users that
/// a post replies to.
pub(super) fn comparable_reply(text: &str) -> String {
    let words = text.split_whitespace().skip_while(|word| word.starts_with('@'));
    without_links(&words.collect::<Vec<_>>().join(" "))
}
