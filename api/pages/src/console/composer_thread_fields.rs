//! The fields of the thread and of the first comment in the composer.

use crier_domain::account::SocialAccount;
use crier_domain::catalogue::descriptor;
use crier_domain::platform::{Capabilities, Platform};
use crier_domain::post::{MAX_THREAD, Target, ThreadPart};

use super::composer_images::{AccountImages, Offered};
use super::composer_input::{ComposerInput, Stored};
use super::composer_thread::{has_threads, thread_to_edit};
use super::shared::Choice;
use crate::numbers::counted;

/// The delays to choose from, in seconds.
const DELAYS: [(i64, &str); 5] = [
    (0, "Immediately"),
    (60, "After 1 minute"),
    (300, "After 5 minutes"),
    (900, "After 15 minutes"),
    (3_600, "After 60 minutes"),
];

/// Returns the delay of a comment as a label.
pub fn delay_label(seconds: i64) -> String {
    let known = DELAYS.iter().find(|(known, _)| *known == seconds).map(|(_, label)| (*label).to_owned());
    known.unwrap_or_else(|| format!("After {}", counted(seconds, "second", "seconds")))
}

/// The fields of the thread.
pub struct ThreadFields {
    /// Whether the form has them.
    pub is_offered: bool,
    pub parts: Vec<PartFields>,
    pub can_add: bool,
    /// A sentence about the platforms that publish only the first part. Empty if there are none.
    pub first_only: String,
    /// Whether the text is published: on an account that stopped at a later part, or on one that has no text of its own.
    pub is_text_published: bool,
}

/// The fields of a part.
pub struct PartFields {
    /// The position in the list. The names of the fields contain it: `thread.INDEX.content`.
    pub index: usize,
    pub content: String,
    pub images: AccountImages,
    /// Whether it is published on an account that publishes these parts, and stopped at a later one.
    pub is_published: bool,
    /// Whether the text has the focus when the page opens.
    pub has_focus: bool,
}

impl ThreadFields {
    pub fn new(input: &ComposerInput, stored: Option<&Stored>, accounts: &[SocialAccount], offered: &Offered) -> Self {
        let targets = stored.map_or(&[][..], |stored| &stored.targets);
        let shown = stored.map(thread_to_edit);
        let shows = |target: &Target| stored.map(|stored| target.thread(&stored.post)) == shown;
        let stopped = targets.iter().filter(|target| target.is_retried() && shows(target));
        let published = stopped.map(|target| target.published_parts.len()).max().unwrap_or_default();
        let part = |(index, part): (usize, &ThreadPart)| PartFields {
            index,
            content: part.content.clone(),
            images: offered.images(&part.media, input.picking_part == Some(index), input),
            is_published: index + 1 < published,
            has_focus: input.focused_part == Some(index),
        };
        // A text that was changed before it was published can still be copied and restored.
        let is_unchanged = stored.is_some_and(|stored| stored.post.content == input.content);
        let has_text = |target: &Target| match target.is_retried() {
            true => !target.published_parts.is_empty(),
            false => target.status.was_published() && target.content.is_none() && is_unchanged,
        };
        Self {
            is_offered: accounts.iter().any(|account| has_threads(account.platform)) || !input.thread.is_empty(),
            parts: input.thread.iter().enumerate().map(part).collect(),
            can_add: input.thread.len() < MAX_THREAD,
            first_only: match platforms_without(accounts, |capabilities| capabilities.thread.is_some()).as_slice() {
                [] => String::new(),
                [name] => format!("{name} publishes only the first part."),
                names => format!("{} publish only the first part.", listed(names)),
            },
            is_text_published: targets.iter().any(has_text),
        }
    }
}

impl PartFields {
    /// Returns the number of the part in the thread. The text of the post is part 1.
    pub fn number(&self) -> usize {
        self.index + 2
    }

    /// Returns the number with which the buttons name the part.
    pub fn position(&self) -> usize {
        self.index + 1
    }

    pub fn path(&self, field: &str) -> String {
        format!("thread.{}.{field}", self.index)
    }
}

/// The fields of the first comment.
pub struct CommentFields {
    /// Whether the form has them.
    pub is_offered: bool,
    pub content: String,
    pub delays: Vec<Choice>,
    /// The platforms on which Crier cannot comment. Empty if there are none.
    pub without: String,
}

impl CommentFields {
    pub fn new(input: &ComposerInput, accounts: &[SocialAccount]) -> Self {
        let has_comment = |capabilities: &Capabilities| capabilities.first_comment.is_some();
        let delay = input.comment.as_ref().map_or(0, |comment| comment.delay_seconds);
        let choice = |seconds: i64| Choice::new(&seconds.to_string(), &delay_label(seconds), seconds == delay);
        let mut delays: Vec<Choice> = DELAYS.iter().map(|(seconds, _)| choice(*seconds)).collect();
        if !delays.iter().any(|one| one.selected) {
            delays.push(choice(delay));
        }
        let offers = |account: &SocialAccount| has_comment(&descriptor(account.platform).capabilities);
        Self {
            is_offered: accounts.iter().any(offers) || input.comment.is_some(),
            content: input.comment.as_ref().map(|comment| comment.content.clone()).unwrap_or_default(),
            delays,
            without: listed(&platforms_without(accounts, has_comment)),
        }
    }
}

/// Returns the names of the accounts' platforms that lack a capability.
fn platforms_without(accounts: &[SocialAccount], has: impl Fn(&Capabilities) -> bool) -> Vec<&'static str> {
    let used = Platform::ALL.iter().filter(|platform| accounts.iter().any(|account| account.platform == **platform));
    let without = used.map(|platform| descriptor(*platform)).filter(|descriptor| !has(&descriptor.capabilities));
    without.map(|descriptor| descriptor.name).collect()
}

/// Returns names as a text, such as "Facebook, Reddit and TikTok".
fn listed(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed() {
        assert_eq!([&[][..], &["a"], &["a", "b", "c"]].map(listed), ["", "a", "a, b and c"]);
    }

    #[test]
    fn delays_have_labels() {
        assert_eq!([0, 60, 90].map(delay_label), ["Immediately", "After 1 minute", "After 90 seconds"]);
    }
}
