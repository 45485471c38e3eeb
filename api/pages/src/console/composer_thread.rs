//! The thread and the first comment in the composer: reading them, and what each account publishes of the texts.
//!
//! The form has a field `thread.INDEX.content` for each part, and `thread.INDEX.media` for each of its images. The first
//! part is the text of the post, so index 0 is part 2. The buttons of the parts show the form again; the script then
//! replaces only the parts and the text.

use std::collections::BTreeMap;

use crier_domain::account::SocialAccount;
use crier_domain::catalogue::descriptor;
use crier_domain::platform::Platform;
use crier_domain::post::{FirstComment, Target, ThreadPart};
use crier_endpoints::routes::posts::request::MAX_MEDIA;

use super::composer_input::{ComposerInput, Stored};
use super::form::Form;

/// The maximum number of parts that are read. A split text may have more than the API accepts, and must not be lost.
const MAX_READ: usize = 500;
/// Reads the parts after the first one.
pub fn thread_of(form: &Form) -> Vec<ThreadPart> {
    let mut parts: BTreeMap<usize, ThreadPart> = BTreeMap::new();
    for (rest, value) in form.under("thread.") {
        let Some((index, field)) = rest.split_once('.') else { continue };
        let Ok(index) = index.parse() else { continue };
        let part = parts.entry(index).or_default();
        match field {
            "content" => part.content = value.to_owned(),
            "media" => {
                let media = &mut part.media;
                // Keep one more than the maximum, so that the API rejects the request.
                media.extend(value.parse::<i64>().ok().filter(|id| media.len() <= MAX_MEDIA && !media.contains(id)));
            }
            _ => {}
        }
    }
    parts.into_values().take(MAX_READ).collect()
}

/// Reads the first comment. `None` if it has no text.
pub fn comment_of(form: &Form) -> Option<FirstComment> {
    let content = form.get("first_comment.content");
    let delay_seconds = form.get("first_comment.delay_seconds").parse().unwrap_or_default();
    (!content.trim().is_empty()).then(|| FirstComment { content: content.to_owned(), delay_seconds })
}

pub fn has_threads(platform: Platform) -> bool {
    descriptor(platform).capabilities.thread.is_some()
}

/// Returns the parts that the form shows. After publishing has begun, these are the parts of the first account that is
/// retried with more than the text, because it may have its own.
pub fn thread_to_edit(stored: &Stored) -> &[ThreadPart] {
    let publishes_parts = |target: &&Target| {
        let is_first_only = target.thread.as_ref().is_some_and(Vec::is_empty);
        target.is_retried() && has_threads(target.platform) && !is_first_only
    };
    let retried = stored.targets.iter().find(publishes_parts);
    retried.map_or(&stored.post.thread[..], |target| target.thread(&stored.post))
}

/// Returns whether a retry publishes the first comment on the account.
fn is_comment_retried(target: &Target) -> bool {
    target.is_retried() && descriptor(target.platform).capabilities.first_comment.is_some()
}

/// Returns the comment that the form shows. After publishing has begun, this is the comment of the first account that
/// is retried, because it may have its own.
pub fn comment_to_edit(stored: &Stored) -> Option<&FirstComment> {
    let retried = stored.targets.iter().find(|target| is_comment_retried(target));
    retried.map_or(stored.post.first_comment.as_ref(), |target| target.first_comment(&stored.post))
}

impl ComposerInput {
    pub fn add_part(&mut self) {
        self.focused_part = Some(self.thread.len());
        self.thread.push(ThreadPart::default());
    }

    /// Removes the part with this index.
    pub fn remove_part(&mut self, index: usize) {
        if index < self.thread.len() {
            self.thread.remove(index);
        }
        self.picking_part = None;
        self.focused_part = index.checked_sub(1);
    }

    /// Replaces the text with these parts. The parts of the form follow them.
    pub fn fill_parts(&mut self, texts: Vec<String>) {
        let mut texts = texts.into_iter();
        let Some(first) = texts.next() else { return };
        self.content = first;
        let added = texts.map(|content| ThreadPart { content, media: Vec::new() });
        self.thread = added.chain(std::mem::take(&mut self.thread)).collect();
        self.picking_part = None;
        self.focused_part = Some(0);
    }

    /// Removes the parts without text and images.
    pub fn drop_empty_parts(&mut self) {
        self.thread.retain(|part| !part.content.trim().is_empty() || !part.media.is_empty());
        self.picking_part = None;
    }

    /// Returns the parts for an account. `None` for those of the post.
    pub fn own_thread(&self, id: i64, platform: Option<Platform>, stored: Option<&Stored>) -> Option<Vec<ThreadPart>> {
        let target = stored.and_then(|stored| stored.target(id));
        if let Some(published) = target.filter(|target| target.status.was_published()) {
            return published.thread.clone();
        }
        if platform.is_some_and(|platform| !has_threads(platform)) {
            // After publishing has begun, the post keeps its parts even if the form has none.
            let keeps_parts = stored.is_some_and(|stored| self.has_begun() && !stored.post.thread.is_empty());
            return (keeps_parts || !self.thread.is_empty()).then(Vec::new);
        }
        let own = self.override_for(id);
        if own.is_some_and(|own| own.is_first_only) {
            return Some(Vec::new());
        }
        if let (Some(stored), Some(target)) = (stored.filter(|_| self.has_begun()), target) {
            return self.retried_thread(stored, target);
        }
        // The form has no fields for other parts, which the API can set.
        target.and_then(|target| target.thread.clone()).filter(|parts| own.is_none() || !parts.is_empty())
    }

    /// Returns the parts for an account that is not published, after publishing has begun. `None` for those of the
    /// post, which stay as they are published on other accounts. An account whose parts differ from those that the form
    /// shows keeps them.
    fn retried_thread(&self, stored: &Stored, target: &Target) -> Option<Vec<ThreadPart>> {
        let shown = thread_to_edit(stored);
        // The user cleared the choice of only the first part.
        let gets_parts =
            target.thread.as_ref().is_some_and(Vec::is_empty) && self.override_for(target.account_id).is_some();
        let is_changed = self.thread != shown && target.thread(&stored.post) == shown;
        if gets_parts || is_changed {
            return (self.thread != stored.post.thread).then(|| self.thread.clone());
        }
        target.thread.clone()
    }

    /// Returns the text on an account, without its signature.
    pub fn text_on(&self, id: i64) -> &str {
        let own = self.override_for(id).map(|own| own.content.as_str());
        own.filter(|text| !text.trim().is_empty()).unwrap_or(&self.content)
    }

    /// Returns the parts that follow the text on an account.
    pub fn thread_on(&self, account: &SocialAccount, stored: Option<&Stored>) -> Vec<ThreadPart> {
        let own = self.own_thread(account.id, Some(account.platform), stored);
        let begun = stored.filter(|_| self.has_begun());
        own.unwrap_or_else(|| begun.map_or(&self.thread, |stored| &stored.post.thread).clone())
    }

    /// Returns the first comment of the post. After publishing has begun, the post keeps its comment, because other
    /// accounts may have published it.
    pub fn post_comment<'a>(&'a self, stored: Option<&'a Stored>) -> Option<&'a FirstComment> {
        match stored.filter(|stored| self.has_begun() && stored.targets.iter().any(is_comment_retried)) {
            Some(stored) => stored.post.first_comment.as_ref(),
            None => self.comment.as_ref(),
        }
    }

    /// Returns the comment for an account, as an override: `Some(None)` publishes none. `None` for that of the post.
    /// After publishing has begun, an account whose comment differs from the one that the form shows keeps it.
    pub fn own_comment<'a>(&'a self, id: i64, stored: Option<&'a Stored>) -> Option<Option<&'a FirstComment>> {
        let stored = stored?;
        let target = stored.target(id)?;
        let current = target.first_comment(&stored.post);
        if self.has_begun() && is_comment_retried(target) && current == comment_to_edit(stored) {
            return (self.comment != stored.post.first_comment).then_some(self.comment.as_ref());
        }
        target.first_comment.is_some().then_some(current)
    }

    /// Returns the first comment on an account, even if its platform has none.
    pub fn comment_on<'a>(&'a self, id: i64, stored: Option<&'a Stored>) -> Option<&'a FirstComment> {
        self.own_comment(id, stored).unwrap_or_else(|| self.post_comment(stored))
    }
}

#[cfg(test)]
mod tests;
