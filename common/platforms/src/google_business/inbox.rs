//! The reviews of a location, each with the owner's reply. A review is a thread.
//!
//! A review has one reply, and another one replaces it. So a call can be repeated, and after a lost response the review
//! shows the text of its reply. The time of a reply is part of its message's id, so an edited reply is a new message.
//!
//! Sources: developers.google.com/my-business, "My Business API v4": `accounts.locations.reviews` (list by
//! `updateTime`, `updateReply`: at most 4,096 bytes), "Usage limits": 300 calls per minute for all locations of a
//! project.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConversationType, Platform, TextRules, TextUnit};
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::GoogleBusiness;
use crate::call::Effect;
use crate::inbox::newest_first::Pass;
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, check_length};
use crate::text::comparable::is_same;
use crate::{CallError, ConnectorAccount, InboxConnector, Published, ReconcileResult};

const REVIEWS: &str = "reviews";
const PAGE: &str = "50";
/// The maximum number of reviews that are checked for deletion, one call each.
const MAX_CHECKED: usize = 10;
const TEXT: TextRules = TextRules {
    max: Some(4_096),
    unit: TextUnit::Utf8Bytes,
    max_bytes: Some(4_096),
    max_with_media: None,
    url_weight: None,
};
/// The characters that are percent-encoded in a review's id.
const ID_ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reviews {
    #[serde(default)]
    reviews: Vec<Value>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    review_id: String,
    #[serde(default)]
    reviewer: Reviewer,
    #[serde(default)]
    star_rating: String,
    #[serde(default)]
    comment: String,
    create_time: DateTime<Utc>,
    update_time: DateTime<Utc>,
    review_reply: Option<ReviewReply>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reviewer {
    display_name: Option<String>,
    profile_photo_url: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewReply {
    #[serde(default)]
    comment: String,
    update_time: DateTime<Utc>,
    #[serde(default)]
    review_reply_state: String,
}

impl ReviewReply {
    fn external_id(&self, review: &str) -> String {
        format!("{review}/reply/{}", self.update_time.timestamp_micros())
    }

    fn published(&self, review: &str) -> Published {
        Published::new(self.external_id(review), None)
    }
}

/// Returns the rating of a review as a line of stars.
fn stars(rating: &str) -> Option<&'static str> {
    Some(match rating {
        "ONE" => "★☆☆☆☆",
        "TWO" => "★★☆☆☆",
        "THREE" => "★★★☆☆",
        "FOUR" => "★★★★☆",
        "FIVE" => "★★★★★",
        _ => return None,
    })
}

impl Review {
    /// Returns the review, and the owner's reply if it has one.
    fn messages(self) -> impl Iterator<Item = FetchedMessage> {
        let name = self.reviewer.display_name.clone();
        let participant = Participant {
            // A review has its author's name, but no id.
            external_id: format!("review:{}", self.review_id),
            name: name.clone(),
            username: None,
            avatar_url: self.reviewer.profile_photo_url.clone(),
        };
        let body = match stars(&self.star_rating) {
            Some(stars) => format!("{stars}\n{}", self.comment),
            None => self.comment.clone(),
        };
        let review = FetchedMessage {
            external_id: self.review_id.clone(),
            kind: ConversationType::Comment,
            thread_id: self.review_id.clone(),
            direction: MessageDirection::Inbound,
            participant: Some(participant),
            subject: None,
            author_name: name,
            body,
            sent_at: self.create_time,
            reply_context: Map::new(),
        };
        let owner_reply = self.review_reply.map(|owner_reply| FetchedMessage {
            external_id: owner_reply.external_id(&self.review_id),
            direction: MessageDirection::Outbound,
            participant: None,
            author_name: None,
            body: owner_reply.comment,
            sent_at: owner_reply.update_time,
            ..review.clone()
        });
        [Some(review), owner_reply].into_iter().flatten()
    }
}

impl GoogleBusiness {
    fn reviews_path(account: &ConnectorAccount) -> Result<String, CallError> {
        Ok(format!("/v4/{}/reviews", account.secrets.require("location")?.expose_secret()))
    }

    fn review_path(account: &ConnectorAccount, thread: &ReplyThread) -> Result<String, CallError> {
        let id = utf8_percent_encode(&thread.thread_id, ID_ENCODED);
        Ok(format!("{}/{id}", Self::reviews_path(account)?))
    }

    async fn reviews(&self, account: &ConnectorAccount, pass: Pass) -> Result<InboxPage, CallError> {
        let token = account.secrets.require("access_token")?;
        let path = Self::reviews_path(account)?;
        let mut query = vec![("pageSize", PAGE), ("orderBy", "updateTime desc")];
        query.extend(pass.page.as_deref().map(|page| ("pageToken", page)));
        let request = self.request(Method::GET, &self.hosts.posts, &path, token.expose_secret()).query(&query);
        let found: Reviews = self.call(Effect::Repeatable, request).await?;
        // An unreadable entry must not hide the others.
        let readable = found.reviews.iter().take(100).filter_map(|review| Review::deserialize(review).ok());
        let reviews: Vec<Review> = readable.collect();
        let times: Vec<_> = reviews.iter().map(|review| review.update_time).collect();
        let wanted = reviews.into_iter().filter(|review| review.update_time >= pass.until);
        let messages = wanted.flat_map(Review::messages).collect();
        let next = found.next_page_token.filter(|token| !token.is_empty());
        let (cursor, has_more) = pass.after(&times, next);
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }
}

/// Converts "not found" to the error of a deleted review. Without it, the error would concern the location.
fn review_error(error: CallError) -> CallError {
    match error {
        CallError::Permanent(failure) if failure.platform_code.as_deref() == Some("NOT_FOUND") => {
            let message = "This review no longer exists at Google.";
            CallError::Permanent(Failure::of(Category::PlatformRejected, message).from_platform("NOT_FOUND"))
        }
        error => error,
    }
}

#[async_trait]
impl InboxConnector for GoogleBusiness {
    fn streams(&self) -> &'static [&'static str] {
        &[REVIEWS]
    }

    /// The quota is shared by all locations.
    fn interval(&self) -> TimeDelta {
        TimeDelta::minutes(5)
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        _stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        let pass = Pass::read(cursor, self.client.now());
        let (restart, has_page) = (pass.restart(), pass.page.is_some());
        match self.reviews(account, pass).await {
            // The page token is no longer valid.
            Err(CallError::Permanent(_)) if has_page => Ok(InboxPage { cursor: restart, ..InboxPage::default() }),
            read => read,
        }
    }

    fn deletion_check_limit(&self) -> usize {
        MAX_CHECKED
    }

    /// Checks each review. The location exists, because its reviews have just been listed.
    async fn deleted(&self, account: &ConnectorAccount, ids: &[String]) -> Result<Vec<String>, CallError> {
        let token = account.secrets.require("access_token")?;
        let reviews = Self::reviews_path(account)?;
        let mut deleted = Vec::new();
        for id in ids.iter().take(MAX_CHECKED) {
            let path = format!("{reviews}/{}", utf8_percent_encode(id, ID_ENCODED));
            let request = self.request(Method::GET, &self.hosts.posts, &path, token.expose_secret());
            match self.call::<Value>(Effect::Repeatable, request).await {
                Err(CallError::Permanent(failure)) if failure.platform_code.as_deref() == Some("NOT_FOUND") => {
                    deleted.push(id.clone());
                }
                found => drop(found?),
            }
        }
        Ok(deleted)
    }

    fn check_text(&self, _thread: &ReplyThread, text: &str) -> Result<(), String> {
        check_length(Platform::GoogleBusiness, &TEXT, text)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let token = account.secrets.require("access_token")?;
        let path = format!("{}/reply", Self::review_path(account, &reply.thread)?);
        let request = self.request(Method::PUT, &self.hosts.posts, &path, token.expose_secret());
        let request = request.json(&json!({ "comment": reply.text }));
        let owner_reply: ReviewReply = self.call(Effect::Publishes, request).await.map_err(review_error)?;
        if owner_reply.review_reply_state == "REJECTED" {
            let message = "Google rejected this reply: it violates the rules for replies to reviews.";
            return Err(CallError::Permanent(Failure::of(Category::InvalidContent, message).from_platform("REJECTED")));
        }
        Ok(owner_reply.published(&reply.thread.thread_id))
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        let token = account.secrets.require("access_token")?;
        let path = Self::review_path(account, &reply.thread)?;
        let request = self.request(Method::GET, &self.hosts.posts, &path, token.expose_secret());
        let review: Review = self.call(Effect::Repeatable, request).await.map_err(review_error)?;
        let id = &reply.thread.thread_id;
        let found = review.review_reply.filter(|owner_reply| is_same(&owner_reply.comment, &reply.text));
        Ok(found
            .map_or(ReconcileResult::Absent, |owner_reply| ReconcileResult::Matches(vec![owner_reply.published(id)])))
    }
}
