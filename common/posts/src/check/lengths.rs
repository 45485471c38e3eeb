//! The lengths of a post's texts, as platforms count them.

use std::collections::HashMap;

use crier_base::steps;
use crier_domain::platform::Descriptor;
use crier_domain::snippet::parts_with;
use crier_platforms::text::{self, TextCounting, TextMeasurements};

use crate::desired::{DesiredPost, DesiredTarget};

/// A text of the post itself, which its targets share.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SharedText {
    Content,
    /// The text before a signature.
    SignedContent,
    /// A part that follows the text, by its index.
    Part(usize),
    Comment,
}

/// The lengths of the post's own texts, measured only once for all accounts that count them in the same way.
#[derive(Default)]
pub struct TextLengthCache(HashMap<(TextCounting, SharedText), TextMeasurements>);

impl TextLengthCache {
    pub(super) fn of(
        &mut self,
        desired: &DesiredPost,
        target: &DesiredTarget,
        descriptor: &Descriptor,
    ) -> TextMeasurements {
        let own = &target.target_override;
        let [content, separator, signature] = parts_with(own.signature.as_deref(), desired.content_of(own));
        let shared = if own.signature.is_some() { SharedText::SignedContent } else { SharedText::Content };
        let measured = self.measure(descriptor, own.content.is_none().then_some(shared), content);
        match &own.signature {
            Some(_) => measured.with_signature(self.measure(descriptor, None, &[separator, signature].concat())),
            None => measured,
        }
    }

    /// `shared`: `None` for a text of one account only.
    pub(super) fn measure(
        &mut self,
        descriptor: &Descriptor,
        shared: Option<SharedText>,
        content: &str,
    ) -> TextMeasurements {
        let measure = || {
            steps::count_step();
            text::measure(descriptor, content)
        };
        match shared {
            Some(shared) => *self.0.entry((TextCounting::of(descriptor), shared)).or_insert_with(measure),
            None => measure(),
        }
    }
}
