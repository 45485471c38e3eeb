//! What a page says about what was just done. The address has a known word, so that a link cannot put a text there.

use super::shared::{Flash, Tone};

/// Returns the text of a word in the query; `None`: it is unknown.
pub fn note(word: &str) -> Option<Flash> {
    let text = match word {
        "draft-saved" => "The draft is saved.",
        "post-saved" => "The changes are saved.",
        "post-scheduled" => "The post is scheduled.",
        "post-publishing" => "The post is being published. This page shows the result in a moment; load it again.",
        "post-submitted" => "The post waits for approval.",
        "post-approved" => "The post is approved.",
        "post-rejected" => "The post is rejected; its author sees the reason.",
        "post-deleted" => "The post is deleted.",
        "post-retried" => "The failed accounts are tried again.",
        "post-moved" => "The post is rescheduled.",
        "account-connected" => "The account is connected.",
        "account-disconnected" => "The account is disconnected.",
        "account-refreshed" => "The account's access is renewed.",
        "key-revoked" => "The key is revoked; it no longer works.",
        "webhook-created" => "The webhook is created.",
        "webhook-saved" => "The webhook is saved.",
        "webhook-deleted" => "The webhook is deleted.",
        "webhook-tested" => "A test event is on its way; it appears below in a moment.",
        "delivery-retried" => "The delivery is sent again.",
        "deliveries-recovered" => "The failed deliveries since then are sent again.",
        "brand-created" => "The brand is created.",
        "brand-saved" => "The brand is saved.",
        "member-added" => "The member is added.",
        "member-saved" => "The role is changed.",
        "member-removed" => "The member is removed.",
        "session-revoked" => "The session is ended.",
        "sessions-revoked" => "All other sessions are ended.",
        "media-uploaded" => "The picture is in the library.",
        "media-saved" => "The picture is saved.",
        "media-deleted" => "The picture is deleted.",
        "report-made" => "The report is made. Export it, or give it a schedule.",
        "report-renamed" => "The report is renamed.",
        "report-deleted" => "The report is deleted.",
        "report-exported" => "The file is being made. Load this page again in a moment.",
        "schedule-added" => "The schedule is added.",
        "schedule-deleted" => "The schedule is deleted.",
        "signed-out" => "You are signed out.",
        _ => return None,
    };
    Some(Flash { tone: Tone::Good, text: text.to_owned() })
}
