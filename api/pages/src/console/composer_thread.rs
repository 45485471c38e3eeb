//! The thread and the first comment in the composer: reading them, and what each account publishes of them.
//!
//! The form has a field `thread.INDEX.content` for each part, and `thread.INDEX.media` for each of its images. The first
//! part is the text of the post, so index 0 is part 2. The buttons of the parts show the form again; the script then
//! replaces only the parts and the text.

use std::collections::BTreeMap;

use crier_domain::account::SocialAccount;
use crier_domain::catalogue::descriptor;
use crier_domain::platform::Platform;
use crier_domain::post::{FirstComment, Target, ThreadPart};
use crier_endpoints::routes::posts::edit::MAX_MEDIA;

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
mod tests {
    use chrono::DateTime;
    use chrono_tz::Tz;
    use crier_domain::post::{FirstCommentOverride, Post, PostStatus, TargetOverride, TargetStatus};
    use serde_json::json;

    use super::*;
    use crate::console::composer_input::SaveMode;

    fn input(form: &str) -> ComposerInput {
        ComposerInput::of_form(&Form::parse(form.as_bytes()))
    }

    #[test]
    fn parts_are_read_in_order_and_empty_ones_are_dropped() {
        let form = "content=One&thread.2.content=Three&thread.0.content=Two&thread.0.media=7&thread.0.media=7\
            &thread.1.content=+&thread.x.content=no&thread.3.media=8";
        let mut input = input(form);
        input.drop_empty_parts();
        let part = |content: &str, media: Vec<i64>| ThreadPart { content: content.to_owned(), media };
        assert_eq!(input.thread, [part("Two", vec![7]), part("Three", vec![]), part("", vec![8])]);
    }

    #[test]
    fn a_split_text_precedes_the_other_parts() {
        let mut input = input("content=a+b&thread.0.content=c");
        input.fill_parts(vec!["a".to_owned(), "b".to_owned()]);
        let texts: Vec<&str> = input.thread.iter().map(|part| part.content.as_str()).collect();
        assert_eq!((input.content.as_str(), texts), ("a", vec!["b", "c"]));
        input.remove_part(0);
        input.remove_part(9);
        assert_eq!(input.thread.len(), 1);
    }

    #[test]
    fn platforms_without_threads_and_chosen_accounts_publish_only_the_first_part() {
        let input = input("content=a&thread.0.content=b&overrides.0.account_id=1&overrides.0.thread=none");
        let own = |id, platform| input.own_thread(id, Some(platform), None).map(|parts| parts.len());
        assert_eq!(own(1, Platform::Bluesky), Some(0));
        assert_eq!(own(2, Platform::Bluesky), None);
        assert_eq!(own(2, Platform::Facebook), Some(0));
        assert_eq!(ComposerInput::default().own_thread(2, Some(Platform::Facebook), None), None);
    }

    fn part(content: &str) -> ThreadPart {
        ThreadPart { content: content.to_owned(), media: Vec::new() }
    }

    /// Returns a post with the thread `p`. Each target has an account, a platform, a status and parts of its own.
    fn stored(targets: &[(i64, Platform, TargetStatus, Option<&[&str]>)]) -> Stored {
        let now = DateTime::UNIX_EPOCH;
        let target = |&(account, platform, status, own): &(i64, Platform, TargetStatus, Option<&[&str]>)| {
            let thread = own.map(|parts| parts.iter().map(|content| part(content)).collect());
            let own = TargetOverride { thread, ..TargetOverride::default() };
            Target { status, ..Target::new(account, 1, (account, platform), &own, now) }
        };
        let post = Post { status: PostStatus::Failed, thread: vec![part("p")], ..Post::draft(1, now) };
        Stored { post, targets: targets.iter().map(target).collect() }
    }

    /// Returns the parts that accounts get from the form of a failed post, with the fields of the thread.
    fn retried(stored: &Stored, fields: &str) -> Vec<Option<Vec<ThreadPart>>> {
        let input = input(&format!("_post=1&_keep=all&{fields}"));
        let own = |target: &Target| input.own_thread(target.account_id, Some(target.platform), Some(stored));
        stored.targets.iter().map(own).collect()
    }

    #[test]
    fn an_account_with_other_parts_keeps_them() {
        use Platform::Bluesky;
        use TargetStatus::{Failed, Published};
        let (x, y) = (Some(vec![part("x")]), Some(vec![part("y")]));
        let of_post =
            stored(&[(1, Bluesky, Published, None), (2, Bluesky, Failed, None), (3, Bluesky, Failed, Some(&["y"]))]);
        assert_eq!(thread_to_edit(&of_post), [part("p")]);
        assert_eq!(retried(&of_post, "thread.0.content=p"), [None, None, y.clone()]);
        assert_eq!(retried(&of_post, "thread.0.content=x"), [None, x.clone(), y]);
        let own = stored(&[(1, Bluesky, Failed, Some(&["x"])), (2, Bluesky, Failed, None)]);
        assert_eq!(thread_to_edit(&own), [part("x")]);
        assert_eq!(retried(&own, "thread.0.content=x"), [x, None]);
        assert_eq!(retried(&own, "thread.0.content=p"), [None, None]);
        let request = ComposerInput::of_post(&own, Tz::UTC).request(SaveMode::Check, &[], Some(&own));
        assert_eq!(request.body["thread"], json!([{ "content": "p" }]), "the preview of the other account");
    }

    #[test]
    fn all_parts_can_be_removed_after_a_failure() {
        let stored = stored(&[
            (1, Platform::Facebook, TargetStatus::Failed, Some(&[])),
            (2, Platform::Bluesky, TargetStatus::Failed, None),
        ]);
        assert_eq!(retried(&stored, "content=One"), [Some(vec![]), Some(vec![])]);
    }

    #[test]
    fn an_account_with_only_the_first_part_gets_the_others_if_the_choice_is_cleared() {
        let stored = stored(&[(1, Platform::Bluesky, TargetStatus::Failed, Some(&[]))]);
        assert_eq!(retried(&stored, "thread.0.content=p"), [Some(vec![])], "the form has no section for the account");
        let section = "overrides.0.account_id=1";
        assert_eq!(retried(&stored, &format!("thread.0.content=p&{section}")), [None]);
        assert_eq!(retried(&stored, &format!("thread.0.content=x&{section}")), [Some(vec![part("x")])]);
        assert_eq!(retried(&stored, &format!("thread.0.content=p&{section}&overrides.0.thread=none")), [Some(vec![])]);
    }

    #[test]
    fn a_comment_has_a_text_and_a_delay() {
        let read = |form: &str| comment_of(&Form::parse(form.as_bytes()));
        let comment = FirstComment { content: "More:".to_owned(), delay_seconds: 300 };
        assert_eq!(read("first_comment.content=More:&first_comment.delay_seconds=300"), Some(comment));
        assert_eq!(read("first_comment.content=+&first_comment.delay_seconds=300"), None);
    }

    #[test]
    fn a_comment_that_is_changed_after_a_failure_is_for_the_accounts_that_are_retried() {
        use Platform::{Bluesky, Tiktok};
        use TargetStatus::{Failed, Published};
        let comment = |content: &str| FirstComment { content: content.to_owned(), delay_seconds: 0 };
        let mut stored = stored(&[
            (1, Bluesky, Published, None),
            (2, Bluesky, Failed, None),
            (3, Bluesky, Failed, None),
            (4, Tiktok, Failed, None),
        ]);
        stored.post.first_comment = Some(comment("post"));
        stored.targets[2].first_comment = Some(FirstCommentOverride::Own(comment("own")));
        let own = |content: &str| -> Vec<Option<Option<String>>> {
            let input = input(&format!("_post=1&_keep=all&first_comment.content={content}"));
            assert_eq!(input.post_comment(Some(&stored)), Some(&comment("post")));
            let own = |id| input.own_comment(id, Some(&stored)).map(|own| own.map(|own| own.content.clone()));
            (1..=4).map(own).collect()
        };
        let text = |text: &str| Some(Some(text.to_owned()));
        assert_eq!(own("post"), [None, None, text("own"), None]);
        assert_eq!(own("new"), [None, text("new"), text("own"), None]);
        assert_eq!(own(""), [None, Some(None), text("own"), None]);
        assert_eq!(comment_to_edit(&stored), Some(&comment("post")));
        stored.targets.remove(1);
        assert_eq!(comment_to_edit(&stored), Some(&comment("own")));
    }
}
