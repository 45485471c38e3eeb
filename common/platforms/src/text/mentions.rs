//! Finds mentions as Mastodon does. In `@user@server`, the server does not count towards the length of a post.
//!
//! Source: Mastodon, `Account::MENTION_RE` and `StatusLengthValidator`.

use std::ops::Range;

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// Returns the `@server` of each mention in `text`, in order.
pub(super) fn servers(text: &str) -> Vec<Range<usize>> {
    let mut servers = Vec::new();
    let mut previous = None;
    for (at, c) in text.char_indices() {
        let may_start = c == '@' && !previous.is_some_and(|c| is_word(c) || matches!(c, '=' | '/'));
        if may_start && let Some(server) = server(&text[at + 1..]) {
            servers.push(at + 1 + server.start..at + 1 + server.end);
        }
        previous = Some(c);
    }
    servers
}

/// Returns the `@server` of the `user@server` at the start of `text`.
fn server(text: &str) -> Option<Range<usize>> {
    let user = name(text, |c| c.is_ascii_alphanumeric() || c == '_')?;
    let host = user + 1 + name(text[user..].strip_prefix('@')?, is_word)?;
    let is_whole = !text[host..].starts_with(['@', '\u{FF20}']) && !text[host..].starts_with("://");
    is_whole.then_some(user..host)
}

/// Returns the length of the name at the start of `text`, which may contain dots and hyphens between its other
/// characters.
fn name(text: &str, is_part: impl Fn(char) -> bool) -> Option<usize> {
    let mut end = None;
    for (at, c) in text.char_indices() {
        if is_part(c) {
            end = Some(at + c.len_utf8());
        } else if end.is_none() || !matches!(c, '.' | '-') {
            break;
        }
    }
    end
}

/// Returns whether `c` is in Ruby's `[[:word:]]`.
fn is_word(c: char) -> bool {
    use GeneralCategoryGroup::{Letter, Mark};
    matches!(c.general_category_group(), Letter | Mark)
        || matches!(c.general_category(), GeneralCategory::DecimalNumber | GeneralCategory::ConnectorPunctuation)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str) -> Vec<&str> {
        servers(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn the_server_of_a_mention_is_found() {
        assert_eq!(found("@ann@a.example, (@b.ob-1@例え.jp). @cy@x-y"), ["@a.example", "@例え.jp", "@x-y"]);
        for text in ["@ann", "ann@a.example", "/@ann@a.example", "=@ann@b", "@ann@", "@@b", "@é@b", "@a@b@c", "@a@b://"]
        {
            assert!(found(text).is_empty(), "{text}: {:?}", found(text));
        }
    }

    proptest! {
        #[test]
        fn servers_are_ordered_and_follow_a_name(text in r"([@a-z./= -]|\PC){0,60}") {
            let mut end = 0;
            for range in servers(&text) {
                prop_assert!(range.start > end && text[range.clone()].len() > 1);
                prop_assert!(text[range.clone()].starts_with('@'));
                prop_assert!(text[..range.start].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
                end = range.end;
            }
        }
    }
}
