//! An account on the page of a post: how far the post is there, with the parts of its thread and its first comment, and
//! what it publishes instead of the post's texts and images. Who approves the post reads it here.

use std::collections::HashMap;

use crier_domain::catalogue::descriptor;
use crier_domain::failure::{Category, Failure};
use crier_domain::post::{
    FirstCommentOverride, PartStatus, Post, PostStatus, StoredFirstComment, Target, TargetStatus,
};
use crier_platforms::link_card;
use crier_platforms::options::{BOARD, COVER_MEDIA_ID};
use serde_json::Value;

use super::composer_input::Stored;
use super::post_options::{label_and_hint, value_text};
use super::post_view::{Boards, Chips};
use super::shared::{AccountChip, Badge, Image, Link, Time, Tone};
use super::shell::Shell;
use super::visit::Visit;
use crate::numbers::counted;

/// The maximum length of a text that only one account publishes, in characters, unless all of it is requested.
const MAX_OWN_TEXT: usize = 500;
/// The maximum number of images that only one account publishes, and that are shown.
const MAX_OWN_IMAGES: usize = 20;
/// The maximum number of accounts that a question names.
const MAX_NAMED: usize = 20;

pub struct TargetRow {
    pub account_id: i64,
    pub account: AccountChip,
    pub status: Badge,
    /// The URL of the post on the platform.
    pub url: Option<String>,
    pub error: Option<String>,
    /// The link "Reconnect".
    pub fix: Option<Link>,
    /// The URL of the composer with the focus in the text for this account, if it can be changed and retried.
    pub edit: Option<String>,
    /// What only this account publishes.
    pub own: Vec<OwnPart>,
    /// The signature that is appended to the text.
    pub signature: Option<String>,
    /// Labels and values.
    pub options: Vec<(String, String)>,
    pub published: Option<Time>,
    pub next_attempt: Option<Time>,
    /// The number of attempts, if there are several.
    pub note: Option<String>,
    /// The parts of the thread. Empty if the post is not a thread here.
    pub parts: Vec<PartRow>,
    pub comment: Option<CommentRow>,
    /// The question before the post is deleted from this account only. `None` if it cannot be, or if the post is on no
    /// other account.
    pub unpublish: Option<String>,
}

/// A text, or images and videos, that an account publishes instead of those of the post.
pub struct OwnPart {
    /// "Part 2", "First comment", "Images and videos". Empty for the text.
    pub label: String,
    /// The text, or its beginning.
    pub text: String,
    pub images: Vec<Image>,
    /// The number of images and videos that are not shown.
    pub more_images: usize,
}

/// What the rows of a post's accounts have in common.
#[derive(Clone, Copy)]
pub struct RowContext<'a> {
    pub visit: &'a Visit,
    pub shell: &'a Shell,
    pub chips: &'a Chips,
    pub boards: &'a Boards,
    pub stored: &'a Stored,
    pub comments: &'a [StoredFirstComment],
    /// Those of [`own_media`], by ID.
    pub images: &'a HashMap<i64, Image>,
    /// Whether long texts are shown in full.
    pub is_full: bool,
}

impl RowContext<'_> {
    fn shown(&self, text: &str) -> String {
        match text.char_indices().nth(MAX_OWN_TEXT).filter(|_| !self.is_full) {
            Some((end, _)) => format!("{}…", text[..end].trim_end()),
            None => text.to_owned(),
        }
    }

    /// Returns the name of the board that an option names. `None` if it is unknown.
    fn board_name(&self, account_id: i64, option: &str, value: &Value) -> Option<String> {
        let boards = self.boards.get(&account_id).filter(|_| option == BOARD)?;
        let board = boards.iter().find(|board| value.as_str() == Some(board.id.as_str()))?;
        Some(board.name.clone())
    }

    fn part(&self, label: String, text: &str, media: &[i64]) -> OwnPart {
        let images: Vec<Image> = media.iter().filter_map(|id| self.images.get(id).cloned()).collect();
        let more_images = media.len() - images.len();
        OwnPart { label, text: self.shown(text), images, more_images }
    }

    /// Returns what only this account publishes.
    fn own_parts(&self, target: &Target) -> Vec<OwnPart> {
        let mut parts = Vec::new();
        parts.extend(target.content.as_deref().map(|text| self.part(String::new(), text, &[])));
        if let Some(media) = target.media.as_deref() {
            let label = if media.is_empty() { "No images or videos" } else { "Images and videos" };
            parts.push(self.part(label.to_owned(), "", media));
        }
        for (number, part) in (2..).zip(target.thread.iter().flatten()) {
            parts.push(self.part(format!("Part {number}"), &part.content, &part.media));
        }
        if let Some(FirstCommentOverride::Own(comment)) = &target.first_comment {
            parts.push(self.part("First comment".to_owned(), &comment.content, &[]));
        }
        for (name, image) in option_images(target) {
            parts.push(self.part(label_and_hint(name).0, "", &[image]));
        }
        parts
    }
}

/// Returns the images and videos that only this account publishes, as far as they are shown.
pub fn own_media(target: &Target) -> impl Iterator<Item = i64> {
    let parts = target.thread.iter().flatten().flat_map(|part| &part.media);
    let options = option_images(target).map(|(_, id)| id);
    options.chain(target.media.iter().flatten().chain(parts).copied()).take(MAX_OWN_IMAGES)
}

/// Returns the cover of the video and the image of the link card, with the names of their options.
fn option_images(target: &Target) -> impl Iterator<Item = (&'static str, i64)> {
    let cover = target.options.get(COVER_MEDIA_ID);
    let card = target.options.get(link_card::OPTION).and_then(|card| card.get("media_id"));
    let images = [(COVER_MEDIA_ID, cover), (link_card::OPTION, card)];
    images.into_iter().filter_map(|(name, id)| Some((name, id?.as_i64()?)))
}

/// Returns whether an account publishes a text that is shown in part only.
pub fn has_long_text(target: &Target) -> bool {
    let is_long = |text: &str| text.chars().nth(MAX_OWN_TEXT).is_some();
    let comment = match &target.first_comment {
        Some(FirstCommentOverride::Own(comment)) => Some(&comment.content),
        _ => None,
    };
    let parts = target.thread.iter().flatten().map(|part| &part.content);
    let mut texts = target.content.iter().chain(&target.signature).chain(parts).chain(comment);
    let mut options = target.options.iter();
    texts.any(|text| is_long(text)) || options.any(|(name, value)| is_long(&value_text(target.platform, name, value)))
}

/// A part of a thread.
pub struct PartRow {
    pub status: Badge,
    pub url: Option<String>,
}

/// The first comment on an account.
pub struct CommentRow {
    pub status: Badge,
    pub url: Option<String>,
    pub error: Option<String>,
    pub next_attempt: Option<Time>,
}

impl TargetRow {
    pub fn new(cx: &RowContext<'_>, target: &Target) -> Self {
        let RowContext { visit, shell, chips, stored, comments, .. } = *cx;
        let is_draft = stored.post.status == PostStatus::Draft;
        let failed = target.status == TargetStatus::Failed;
        let is_access = |error: &Failure| matches!(error.category, Category::AuthExpired | Category::Account);
        let needs_access = failed && target.error.as_ref().is_some_and(is_access);
        let may_edit = failed && !needs_access && visit.can_publish() && stored.can_save_and_retry();
        let edit = shell.post(stored.post.id, "edit");
        // The text is final if it is published as the first part of a thread.
        let edit = match target.published_parts.is_empty() {
            true => format!("{edit}?account={}", target.account_id),
            false => format!("{edit}#f-thread"),
        };
        let connect = shell.at(&format!("accounts/connect/{}?account={}", target.platform, target.account_id));
        let waits = target.status == TargetStatus::Pending && target.attempts > 0;
        let option = |(name, value): (&String, &Value)| {
            let board = cx.board_name(target.account_id, name, value);
            let text = board.unwrap_or_else(|| value_text(target.platform, name, value));
            (label_and_hint(name).0, cx.shown(&text))
        };
        let comment = comments.iter().find(|comment| comment.target_id == target.id);
        Self {
            account_id: target.account_id,
            account: chips.get(&target.account_id).cloned().unwrap_or_default(),
            status: if is_draft && target.status == TargetStatus::Pending {
                Badge::new(Tone::Plain, "Not published")
            } else {
                Badge::post(target.status.as_str())
            },
            url: web_url(target.url.as_ref()).filter(|_| target.status != TargetStatus::Unpublished),
            error: error_text(target),
            fix: (needs_access && visit.can_publish()).then(|| Link::new("Reconnect", &connect)),
            edit: may_edit.then_some(edit),
            own: cx.own_parts(target),
            signature: target.signature.as_ref().map(|signature| cx.shown(signature)),
            options: target.options.iter().map(option).collect(),
            published: target.published_at.map(|at| visit.time(at)),
            next_attempt: target.next_attempt_at.filter(|_| waits).map(|at| visit.time(at)),
            note: match target.attempts {
                0 | 1 => None,
                n => Some(counted(n, "attempt", "attempts")),
            },
            parts: if is_draft { Vec::new() } else { part_rows(&stored.post, target) },
            comment: comment_row(visit, &stored.post, target, comment),
            unpublish: (visit.can_publish() && can_unpublish(target) && deletable(stored).count() > 1)
                .then(|| unpublish_question(&[target], &[], chips)),
        }
    }
}

fn web_url(url: Option<&String>) -> Option<String> {
    url.filter(|url| url.starts_with("https://") || url.starts_with("http://")).cloned()
}

/// Returns the error of a target. That of a published one is of a failed unpublish.
fn error_text(target: &Target) -> Option<String> {
    let message = &target.error.as_ref()?.message;
    Some(match (target.status, target.published_parts.len()) {
        (TargetStatus::Published, _) => format!("Not deleted: {message}"),
        (TargetStatus::Failed, published) if published > 0 => format!("Stopped at part {}: {message}", published + 1),
        _ => message.clone(),
    })
}

fn part_rows(post: &Post, target: &Target) -> Vec<PartRow> {
    let count = target.published_parts.len().max(target.thread(post).len() + 1);
    let row = |index: usize| {
        let published = target.published_parts.get(index);
        let is_next = index == target.published_parts.len();
        let status = match (published, target.status) {
            (Some(part), _) if part.is_unpublished => PartStatus::Unpublished,
            (Some(_), _) => PartStatus::Published,
            (None, TargetStatus::Failed) if is_next => PartStatus::Failed,
            (None, TargetStatus::Publishing) if is_next => PartStatus::Publishing,
            (None, _) => PartStatus::Pending,
        };
        let url = web_url(published.and_then(|part| part.url.as_ref()));
        PartRow { status: Badge::post(status.as_str()), url: url.filter(|_| status == PartStatus::Published) }
    };
    if count == 1 { Vec::new() } else { (0..count).map(row).collect() }
}

/// Returns the first comment of an account. `None` if it has none, or if the post is not published there yet.
fn comment_row(visit: &Visit, post: &Post, target: &Target, stored: Option<&StoredFirstComment>) -> Option<CommentRow> {
    let Some(comment) = stored else {
        target.first_comment(post)?;
        let is_supported = descriptor(target.platform).capabilities.first_comment.is_some();
        let status = match is_supported {
            true if target.status != TargetStatus::Published => return None,
            true => "pending",
            false => "not_supported",
        };
        return Some(CommentRow { status: Badge::post(status), url: None, error: None, next_attempt: None });
    };
    Some(CommentRow {
        status: Badge::post(comment.status.as_str()),
        url: web_url(comment.url.as_ref()),
        error: comment.error.as_ref().map(|error| error.message.clone()),
        next_attempt: comment.next_attempt_at.map(|at| visit.time(at)),
    })
}

fn can_unpublish(target: &Target) -> bool {
    target.status == TargetStatus::Published && descriptor(target.platform).capabilities.unpublish
}

/// Returns the accounts from which the post can be deleted.
fn deletable(stored: &Stored) -> impl Iterator<Item = &Target> {
    stored.targets.iter().filter(|target| can_unpublish(target))
}

/// Returns the question before the post is deleted from all platforms. `None` if it can be deleted from none.
pub fn unpublish_all_question(stored: &Stored, chips: &Chips) -> Option<String> {
    let deleted: Vec<&Target> = deletable(stored).collect();
    let is_kept = |target: &&Target| target.status == TargetStatus::Published && !can_unpublish(target);
    let kept: Vec<&Target> = stored.targets.iter().filter(is_kept).collect();
    (!deleted.is_empty()).then(|| unpublish_question(&deleted, &kept, chips))
}

fn unpublish_question(deleted: &[&Target], kept: &[&Target], chips: &Chips) -> String {
    let delete = format!("Delete this post from {}? This cannot be undone.", names(deleted, chips));
    match kept.is_empty() {
        true => delete,
        false => format!("{delete} It stays on {}, because Crier cannot delete posts there.", names(kept, chips)),
    }
}

/// Returns the names of accounts with their platforms.
fn names(targets: &[&Target], chips: &Chips) -> String {
    let chip = |target: &&Target| chips.get(&target.account_id);
    let name = |chip: &AccountChip| format!("{} ({})", chip.name, chip.platform.name);
    let mut names: Vec<String> = targets.iter().filter_map(chip).take(MAX_NAMED).map(name).collect();
    if targets.len() > MAX_NAMED {
        names.push(format!("{} more", targets.len() - MAX_NAMED));
    }
    names.join(", ")
}
