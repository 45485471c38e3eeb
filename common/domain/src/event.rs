//! The events that an endpoint can subscribe to, each with a description and a sample payload.
//!
//! **To add one:** add its variant with its name, its arms in [`EventName::description`] and [`EventName::sample`], and
//! the schema of its data in `api/endpoints/src/routes/webhooks/payloads.rs`.

use serde_json::{Value, json};

crier_base::text_enum! {
    /// The name of an event, as in an endpoint's `events`, in the envelope and in `X-Webhook-Event`.
    pub enum EventName {
        PostPublished = "post.published",
        PostFailed = "post.failed",
        PostUnpublished = "post.unpublished",
        PostFirstCommentFailed = "post.first_comment_failed",
        PostRejectedByPlatform = "post.rejected_by_platform",
        AccountConnected = "account.connected",
        AccountDisconnected = "account.disconnected",
        AccountExpiring = "account.expiring",
        AccountExpired = "account.expired",
        BrandCreated = "brand.created",
        MediaCompleted = "media.completed",
        MediaFailed = "media.failed",
        ReportSent = "report.sent",
        ReportFailed = "report.failed",
        MessageSent = "message.sent",
        MessageFailed = "message.failed",
        MessageReceived = "message.received",
    }
}

impl EventName {
    /// Returns the description in the list of events: one or two sentences.
    pub const fn description(self) -> &'static str {
        match self {
            Self::PostPublished => "A post was published on an account. Sent once for each account of the post.",
            Self::PostFailed => "A post could not be published on an account and will not be retried automatically.",
            Self::PostUnpublished => "A post was deleted from an account. Sent once for each account.",
            Self::PostFirstCommentFailed => {
                "The first comment of a post could not be published on an account and will not be retried \
                 automatically. The post itself is published."
            }
            Self::PostRejectedByPlatform => {
                "The platform rejected a post after it had published it. The status of the post stays `published`. Sent \
                 once for each account."
            }
            Self::AccountConnected => "A social account was connected to a brand.",
            Self::AccountDisconnected => "A social account was disconnected from a brand.",
            Self::AccountExpiring => {
                "Access to a social account expires soon, and only a person can renew it. Sent 14 days before, 3 days \
                 before, and on the day of expiry."
            }
            Self::AccountExpired => "The platform no longer accepts a social account's credentials. Sent once.",
            Self::BrandCreated => "A brand was created.",
            Self::MediaCompleted => "A file was imported into the media library.",
            Self::MediaFailed => "A file could not be imported into the media library.",
            Self::ReportSent => "A report's file is ready.",
            Self::ReportFailed => "A report's file could not be created.",
            Self::MessageSent => "A reply in the inbox was sent.",
            Self::MessageFailed => "A reply in the inbox could not be sent.",
            Self::MessageReceived => "A message or comment arrived in the inbox.",
        }
    }

    /// Returns a complete sample envelope.
    pub fn sample(self) -> Value {
        json!({ "event": self, "data": self.sample_data() })
    }

    fn sample_data(self) -> Value {
        match self {
            Self::PostPublished => json!({
                "post_id": 5012, "brand_id": 17, "social_account_id": 88, "platform": "bluesky",
                "external_id": "at://did:plc:ewvi7nxzyoun6zhxrhs64oiz/app.bsky.feed.post/3l6oveex3ii2l",
                "url": "https://bsky.app/profile/acme.example/post/3l6oveex3ii2l",
            }),
            Self::PostFailed => json!({
                "post_id": 5012, "brand_id": 17, "social_account_id": 88, "platform": "bluesky",
                "error": {
                    "code": "account_expired",
                    "message": "The platform no longer accepts this account's credentials. Connect the account again.",
                },
            }),
            Self::PostUnpublished => json!({
                "post_id": 5012, "brand_id": 17, "social_account_id": 88, "platform": "bluesky",
                "external_id": "at://did:plc:ewvi7nxzyoun6zhxrhs64oiz/app.bsky.feed.post/3l6oveex3ii2l",
                "url": "https://bsky.app/profile/acme.example/post/3l6oveex3ii2l",
            }),
            Self::PostFirstCommentFailed => json!({
                "post_id": 5012, "brand_id": 17, "social_account_id": 88, "platform": "facebook",
                "error": { "code": "platform_rejected", "message": "Facebook did not accept the comment." },
            }),
            Self::PostRejectedByPlatform => json!({
                "post_id": 5012, "brand_id": 17, "social_account_id": 88, "platform": "youtube",
                "error": { "code": "rejected_later", "message": "YouTube rejected the video as a duplicate." },
            }),
            Self::AccountConnected => json!({ "brand_id": 17, "social_account_id": 88, "platform": "mastodon" }),
            Self::AccountDisconnected => json!({
                "brand_id": 17, "social_account_id": 88, "platform": "mastodon", "result": "revoked",
            }),
            Self::AccountExpiring => json!({
                "brand_id": 17, "social_account_id": 88, "platform": "linkedin", "expires_at": "2026-12-06T09:30:00Z",
            }),
            Self::AccountExpired => json!({
                "brand_id": 17, "social_account_id": 88, "platform": "linkedin",
                "error": { "code": "account_expired", "message": "LinkedIn rejected the token; connect the account again." },
            }),
            Self::BrandCreated => json!({ "brand_id": 17, "name": "Acme Bakery" }),
            Self::MediaCompleted => json!({ "job_id": 301, "brand_id": 17, "media_id": 942, "error": null }),
            Self::MediaFailed => json!({
                "job_id": 301, "brand_id": 17, "media_id": null,
                "error": { "code": "unsupported_media_type", "message": "The file is not a raster image." },
            }),
            Self::ReportSent => json!({
                "delivery_id": 64, "report_id": 9, "brand_id": 17, "format": "pdf", "error": null,
            }),
            Self::ReportFailed => json!({
                "delivery_id": 64, "report_id": 9, "brand_id": 17, "format": "pdf",
                "error": { "code": "internal_error", "message": "The report could not be created. Retry the export." },
            }),
            Self::MessageSent | Self::MessageFailed => json!({
                "message_id": 7741, "conversation_id": 430, "brand_id": 17, "platform": "mastodon", "type": "dm",
            }),
            Self::MessageReceived => json!({
                "message_id": 7742, "conversation_id": 431, "brand_id": 17, "platform": "facebook", "type": "comment",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's own data")]

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_sample_has_the_documented_fields() {
        assert_eq!(EventName::ALL.len(), 17);
        for event in EventName::ALL {
            let promised = match event.as_str() {
                "post.published" | "post.unpublished" => "post_id brand_id social_account_id platform external_id url",
                "post.failed" | "post.first_comment_failed" | "post.rejected_by_platform" => {
                    "post_id brand_id social_account_id platform error"
                }
                "account.connected" => "brand_id social_account_id platform",
                "account.disconnected" => "brand_id social_account_id platform result",
                "account.expiring" => "brand_id social_account_id platform expires_at",
                "account.expired" => "brand_id social_account_id platform error",
                "brand.created" => "brand_id name",
                "media.completed" | "media.failed" => "job_id brand_id media_id error",
                "report.sent" | "report.failed" => "delivery_id report_id brand_id format error",
                _ => "message_id conversation_id brand_id platform type",
            };
            let sample = event.sample();
            let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(keys(&sample), BTreeSet::from(["data".to_owned(), "event".to_owned()]));
            assert_eq!(keys(&sample["data"]), promised.split(' ').map(str::to_owned).collect(), "{event}");
            assert_eq!(sample["event"], event.as_str());
            assert_eq!(event.as_str().parse::<EventName>().unwrap(), *event);
            assert!(event.description().ends_with('.'));
            if let Some(error) = sample["data"]["error"].as_object() {
                assert!(error.len() == 2 && error["code"].is_string() && error["message"].is_string(), "{event}");
            }
        }
    }
}
