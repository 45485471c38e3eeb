//! Snippets: texts that members of a brand insert into posts. A snippet can be the signature of an account.

use chrono::{DateTime, Utc};

crier_base::text_enum! {
    pub enum SnippetKind { Text = "text", Hashtags = "hashtags", Signature = "signature" }
}

/// Maximum length of a name, in characters.
pub const MAX_SNIPPET_NAME: usize = 60;
/// Maximum length of a content, in characters.
pub const MAX_SNIPPET_CONTENT: usize = 5_000;
/// Maximum number of snippets of a brand. The list is not paginated; this and [`MAX_SNIPPETS_TEXT`] limit it.
pub const MAX_SNIPPETS: usize = 500;
/// Maximum total size of the contents of a brand's snippets, in bytes.
pub const MAX_SNIPPETS_TEXT: usize = 1 << 20;

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Snippet {
    pub id: i64,
    pub name: String,
    pub kind: SnippetKind,
    pub content: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Returns the part of an account's signature to append to a text: without the whitespace around it. `None` if the text
/// contains it already.
pub fn signature_for<'s>(signature: &'s str, text: &str) -> Option<&'s str> {
    Some(signature.trim()).filter(|signature| !text.contains(*signature))
}

/// Returns the parts of the text that is published: the text, a separator and the signature. The separator is a blank
/// line, so no character, link or mention spans two parts, and they can be measured one by one.
pub fn parts_with<'t>(signature: Option<&'t str>, text: &'t str) -> [&'t str; 3] {
    let Some(signature) = signature else { return [text, "", ""] };
    let text = text.trim_end();
    [text, if text.is_empty() { "" } else { "\n\n" }, signature]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_line_separates_a_signature() {
        for (text, signed) in [
            ("Fresh bread", "Fresh bread\n\n— Ann"),
            ("Fresh bread \r\n\n", "Fresh bread\n\n— Ann"),
            ("", "— Ann"),
            ("\n", "— Ann"),
        ] {
            assert_eq!(parts_with(Some("— Ann"), text).concat(), signed, "{text:?}");
        }
        assert_eq!(parts_with(None, "Fresh bread \n").concat(), "Fresh bread \n");
    }

    #[test]
    fn a_signature_is_appended_once() {
        assert_eq!(signature_for(" — Ann\n", "Fresh bread"), Some("— Ann"));
        assert_eq!(signature_for("— Ann", "Fresh bread — ann"), Some("— Ann"));
        assert_eq!(signature_for("— Ann\n", "Fresh bread\n— Ann\n#bread"), None);
        assert_eq!(signature_for("— Ann", &parts_with(Some("— Ann"), "Fresh bread").concat()), None);
        assert_eq!(signature_for(" \n", "Fresh bread"), None);
    }
}
