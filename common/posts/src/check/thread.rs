//! Checks the thread and the first comment of a target against its platform's rules.

use crier_domain::account::AccountSummary;
use crier_domain::platform::{Capabilities, CommentRules, Descriptor, MediaRules, TextRules};
use crier_platforms::options;
use crier_platforms::text::{self, MediaCount};

use super::lengths::{PostText, TextLengthCache};
use super::part::CheckedPart;
use super::{LookupContext, TargetCheck, TargetProblem};
use crate::desired::{DesiredPost, DesiredTarget};

/// The length of a part of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartLength {
    /// The number of the part. Part 1 is the post itself.
    pub position: u32,
    pub length: u32,
    pub limit: Option<u32>,
}

/// A target, and what its checks need.
pub(super) struct Subject<'a> {
    pub desired: &'a DesiredPost,
    pub target: &'a DesiredTarget,
    pub account: &'a AccountSummary,
    /// The platform, with the limits of the account.
    pub descriptor: &'a Descriptor,
    pub lookup: &'a LookupContext,
}

impl Subject<'_> {
    /// `of`: the part that has the problem, after a comma. Empty for the whole target.
    fn problem(&self, field: String, code: &'static str, of: &str, message: &str) -> TargetProblem {
        let message = format!("Account {} ({}){of}: {message}", self.account.id, self.account.name);
        TargetProblem { field, code, message }
    }

    fn content_warning(&self) -> &str {
        options::content_warning(self.account.platform, &self.target.target_override.options)
    }

    /// Checks the parts that follow the text.
    pub fn check_thread(&self, measures: &mut TextLengthCache, checked: &mut TargetCheck) {
        let own = &self.target.target_override;
        let (thread, is_own) = (self.desired.thread_of(own), own.thread.is_some());
        if thread.is_empty() {
            return;
        }
        let (name, count) = (self.descriptor.name, thread.len() + 1);
        let field = self.target.path(is_own, "thread");
        let Some(rules) = self.descriptor.capabilities.thread else {
            let message =
                format!("{name} has no threads. Publish only the first part there with an override `thread: []`.");
            checked.problems.push(self.problem(field, "thread_not_supported", "", &message));
            return;
        };
        if count > rules.max_parts as usize {
            let message = format!("{name} accepts at most {} parts; this thread has {count}.", rules.max_parts);
            checked.problems.push(self.problem(field, "too_many_parts", "", &message));
        }
        checked.parts.push(PartLength { position: 1, length: checked.length, limit: checked.limit });
        for (position, (n, part)) in (2..).zip(thread.iter().enumerate()) {
            let account = is_own.then_some(self.account.id);
            let measured = measures.measure(self.descriptor, account, PostText::Part(n), &part.content);
            let measured = measured.with_warning(self.descriptor, self.content_warning());
            let found = CheckedPart::of(self.descriptor, &measured, &part.media, &own.options, self.lookup);
            checked.parts.push(PartLength { position, length: found.length, limit: found.limit });
            let path = |field: &str| self.target.path(is_own, &format!("thread.{n}.{field}"));
            let of = format!(", part {position}");
            let problems = found.problems.into_iter().map(|p| self.problem(path(p.field), p.code, &of, &p.message));
            checked.problems.extend(problems);
            let warnings = found.warnings.into_iter();
            checked.warnings.extend(warnings.map(|w| TargetProblem {
                field: path(w.field),
                code: w.code,
                message: w.message,
            }));
        }
    }

    /// Checks the first comment. The post's own comment is omitted where it is not supported.
    pub fn check_comment(&self, measures: &mut TextLengthCache, checked: &mut TargetCheck) {
        let own = &self.target.target_override;
        let Some(comment) = self.desired.first_comment_of(own) else { return };
        let (is_own, name) = (own.first_comment.is_some(), self.descriptor.name);
        let path = |field: &str| self.target.path(is_own, field);
        let Some(rules) = self.descriptor.capabilities.first_comment else {
            let (field, code) = (path("first_comment"), "first_comment_not_supported");
            if is_own {
                let message = format!("Crier cannot comment on {name}. Omit the comment there.");
                checked.problems.push(self.problem(field, code, "", &message));
            } else {
                let message =
                    format!("Crier cannot comment on {name}. The post is published there without the comment.");
                checked.warnings.push(TargetProblem { field, code, message });
            }
            return;
        };
        let descriptor = for_comment(self.descriptor, rules);
        let account = is_own.then_some(self.account.id);
        let measured = measures.measure(&descriptor, account, PostText::Comment, &comment.content);
        let measured = measured.with_warning(&descriptor, self.content_warning());
        let found = text::check_measured(&descriptor, &measured, MediaCount::NONE);
        let problem = |p: text::ContentProblem| {
            self.problem(path("first_comment.content"), p.code, ", first comment", &p.message)
        };
        checked.problems.extend(found.problems.into_iter().map(problem));
    }
}

/// Returns the platform with the rules of its comments.
fn for_comment(descriptor: &Descriptor, rules: CommentRules) -> Descriptor {
    let capabilities = &descriptor.capabilities;
    let text = match capabilities.thread {
        // A comment is a post.
        Some(_) => capabilities.text,
        None => TextRules { max: rules.max, unit: rules.unit, max_bytes: None, max_with_media: None, url_weight: None },
    };
    let media = MediaRules { required: false, ..capabilities.media.clone() };
    Descriptor { capabilities: Capabilities { text, media, ..capabilities.clone() }, ..descriptor.clone() }
}
