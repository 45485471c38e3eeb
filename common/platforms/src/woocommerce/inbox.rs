//! The reviews of a store's products, each a thread. A consumer key cannot reply to them.
//!
//! Source: WooCommerce REST API documentation, "Product reviews".

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::ConversationType;
use crier_html::plain_text;
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Woocommerce;
use crate::call::Effect;
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread};
use crate::wp::WpBody;
use crate::wp::deletions::{self, CommentEndpoint};
use crate::wp::oldest_first::{Pass, parse_gmt};
use crate::{CallError, ConnectorAccount, InboxConnector, Published, ReconcileResult};

const REVIEWS: &str = "reviews";
const FIELDS: &str = "id,date_created_gmt,product_id,product_permalink,reviewer,reviewer_avatar_urls,review,rating";
const REJECTION: &str = "WooCommerce does not accept replies to reviews with a consumer key. Reply in the store.";

#[derive(Deserialize)]
struct Review {
    id: i64,
    date_created_gmt: String,
    product_id: i64,
    product_permalink: Option<String>,
    #[serde(default)]
    reviewer: String,
    #[serde(default)]
    reviewer_avatar_urls: Value,
    #[serde(default)]
    review: String,
    #[serde(default)]
    rating: u8,
}

impl Review {
    fn message(self) -> Option<FetchedMessage> {
        let (id, name) = (self.id.to_string(), plain_text(&self.reviewer));
        // The response contains the reviewer's email address, which must not be visible to everyone who replies.
        let participant = Participant {
            external_id: format!("name:{name}"),
            name: Some(name.clone()),
            username: None,
            avatar_url: self.reviewer_avatar_urls["96"].as_str().map(str::to_owned),
        };
        let text = plain_text(&self.review);
        let stars = usize::from(self.rating.min(5));
        let body = match stars {
            0 => text,
            _ => format!("{}{}\n{text}", "★".repeat(stars), "☆".repeat(5 - stars)),
        };
        Some(FetchedMessage {
            kind: ConversationType::Comment,
            thread_id: id.clone(),
            direction: MessageDirection::Inbound,
            participant: Some(participant),
            subject: Some(Subject { external_id: self.product_id.to_string(), url: self.product_permalink }),
            author_name: Some(name),
            body,
            sent_at: parse_gmt(&self.date_created_gmt)?,
            reply_context: Map::new(),
            external_id: id,
        })
    }
}

#[async_trait]
impl InboxConnector for Woocommerce {
    fn streams(&self) -> &'static [&'static str] {
        &[REVIEWS]
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        _stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        let rest = self.stored(&account.secrets)?;
        let pass = Pass::read(cursor, self.caller.now());
        let filter = pass.query();
        let mut query: Vec<(&str, &str)> = filter.iter().map(|(name, value)| (*name, value.as_str())).collect();
        query.extend([("status", "approved"), ("_fields", FIELDS)]);
        let path = "wc/v3/products/reviews";
        let found: Vec<Value> = rest.call(Effect::Repeatable, Method::GET, path, &query, WpBody::None).await?;
        let found = found.into_iter().take(100).filter_map(|review| serde_json::from_value(review).ok());
        let reviews: Vec<Review> = found.collect();
        let times: Vec<_> = reviews.iter().filter_map(|review| parse_gmt(&review.date_created_gmt)).collect();
        let messages = reviews.into_iter().filter_map(Review::message).collect();
        let (cursor, has_more) = pass.next(&times);
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    fn deletion_check_limit(&self) -> usize {
        deletions::IDS_PER_CALL
    }

    async fn deleted(&self, account: &ConnectorAccount, ids: &[String]) -> Result<Vec<String>, CallError> {
        let reviews = CommentEndpoint {
            path: "wc/v3/products/reviews",
            visible_status: "approved",
            no_such_id: "woocommerce_rest_review_invalid_id",
        };
        reviews.deleted(&self.stored(&account.secrets)?, ids).await
    }

    fn rejection(&self, _thread: &ReplyThread, _now: DateTime<Utc>) -> Option<String> {
        Some(REJECTION.to_owned())
    }

    fn check_text(&self, _thread: &ReplyThread, _text: &str) -> Result<(), String> {
        Err(REJECTION.to_owned())
    }

    fn can_reconcile(&self) -> bool {
        false
    }

    async fn reply(&self, _account: &ConnectorAccount, _reply: &OutgoingReply) -> Result<Published, CallError> {
        Err(CallError::Permanent(Failure::of(Category::PlatformRejected, REJECTION)))
    }

    async fn reconcile(
        &self,
        _account: &ConnectorAccount,
        _reply: &OutgoingReply,
    ) -> Result<ReconcileResult, CallError> {
        Ok(ReconcileResult::Unsupported)
    }
}
