//! The lengths of a post's texts, as platforms count them.

use std::collections::HashMap;

use crier_base::steps;
use crier_domain::platform::Descriptor;
use crier_domain::snippet::parts_with;
use crier_platforms::text::{self, TextCounting, TextMeasurements};

use crate::desired::{DesiredPost, DesiredTarget};

/// A text of the post, or of the override for an account.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum PostText {
    Content,
    /// The text before a signature.
    SignedContent,
    /// The signature, with or without the separator before it.
    Signature {
        is_separated: bool,
    },
    /// A part that follows the text, by its index.
    Part(usize),
    Comment,
}

/// The lengths of texts. A text of the post itself is measured only once for all accounts that count it in the same way;
/// its key has no account.
#[derive(Default)]
pub struct TextLengthCache(HashMap<(TextCounting, Option<i64>, PostText), TextMeasurements>);

impl TextLengthCache {
    /// Forgets the texts of the post itself, and keeps those of single accounts, for another post with the same
    /// overrides.
    pub fn forget_shared(&mut self) {
        self.0.retain(|(_, account, _), _| account.is_some());
    }

    pub(super) fn of(
        &mut self,
        desired: &DesiredPost,
        target: &DesiredTarget,
        descriptor: &Descriptor,
    ) -> TextMeasurements {
        let own = &target.target_override;
        let [content, separator, signature] = parts_with(own.signature.as_deref(), desired.content_of(own));
        let text = if own.signature.is_some() { PostText::SignedContent } else { PostText::Content };
        let account = own.content.is_some().then_some(target.account_id);
        let measured = self.measure(descriptor, account, text, content);
        if own.signature.is_none() {
            return measured;
        }
        let text = PostText::Signature { is_separated: !separator.is_empty() };
        let signature = [separator, signature].concat();
        measured.with_signature(self.measure(descriptor, Some(target.account_id), text, &signature))
    }

    /// `account`: that of the override which has the text. `None` for a text of the post itself.
    pub(super) fn measure(
        &mut self,
        descriptor: &Descriptor,
        account: Option<i64>,
        text: PostText,
        content: &str,
    ) -> TextMeasurements {
        let measure = || {
            steps::count_step();
            text::measure(descriptor, content)
        };
        *self.0.entry((TextCounting::of(descriptor), account, text)).or_insert_with(measure)
    }
}
