//! Link-in-bio pages: a title, a short text and links, published at `/@{slug}`.

use chrono::{DateTime, Utc};
use unicode_normalization::UnicodeNormalization;

crier_base::text_enum! {
    /// The color scheme of a page; `api/pages/templates/bio.css` defines the colors.
    pub enum Theme { Light = "light", Dark = "dark", Ocean = "ocean", Sunset = "sunset", Forest = "forest" }
}

crier_base::text_enum! {
    /// The icon of a link; `api/pages/src/bio/icons.rs` contains the drawings.
    pub enum LinkIcon {
        Book = "book",
        Calendar = "calendar",
        Chat = "chat",
        Download = "download",
        Gift = "gift",
        Globe = "globe",
        Heart = "heart",
        Mail = "mail",
        Map = "map",
        Music = "music",
        Phone = "phone",
        Photo = "photo",
        Shop = "shop",
        Star = "star",
        Video = "video",
    }
}

/// Maximum number of links on a page.
pub const MAX_LINKS: usize = 100;
/// Maximum number of pages of a brand. The list is not paginated; this and [`MAX_LINKS_TEXT`] limit it.
pub const MAX_PAGES: usize = 25;
/// Maximum total size of the titles and URLs of a page's links, in bytes.
pub const MAX_LINKS_TEXT: usize = 256 << 10;
/// Maximum length of a slug.
pub const MAX_SLUG_LENGTH: usize = 63;

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct BioPage {
    pub id: i64,
    pub brand_id: i64,
    pub slug: String,
    pub title: String,
    pub bio: Option<String>,
    pub theme: Theme,
    /// An image in the brand's media library.
    pub avatar_id: Option<i64>,
    pub views: i64,
    /// Increases with each change.
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct BioLink {
    pub id: i64,
    pub page_id: i64,
    /// Starts at 1.
    pub position: i32,
    pub title: String,
    pub url: String,
    pub icon: Option<LinkIcon>,
    /// Whether the link stands out. A page has at most one primary link.
    pub is_primary: bool,
    pub clicks: i64,
}

/// Returns whether the text is a valid slug: `^[a-z0-9][a-z0-9-]{1,62}$`.
pub fn is_slug(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (2..=MAX_SLUG_LENGTH).contains(&text.len())
        && text.bytes().all(|b| plain(b) || b == b'-')
        && text.bytes().next().is_some_and(plain)
}

/// Returns a slug of at most `length` characters for a title, transliterated to `a-z0-9`; other characters become `-`
/// or are dropped. Returns `None` if the rest is too short.
pub fn slug_of(title: &str, length: usize) -> Option<String> {
    let mut slug = String::new();
    for c in title.nfkd().flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' => slug.push(c),
            'ß' => slug.push_str("ss"),
            'æ' => slug.push_str("ae"),
            'œ' => slug.push_str("oe"),
            'ø' => slug.push('o'),
            'ł' => slug.push('l'),
            'đ' | 'ð' => slug.push('d'),
            'þ' => slug.push_str("th"),
            'ı' => slug.push('i'),
            '\'' | '’' => {}
            // NFKD separates accents from their letters.
            c if unicode_normalization::char::is_combining_mark(c) => {}
            _ if slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    let trimmed = slug.trim_matches('-');
    // The text is ASCII, so every index is a character boundary.
    let cut = trimmed.get(..length).unwrap_or(trimmed).trim_end_matches('-');
    is_slug(cut).then(|| cut.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_valid_slugs_are_accepted() {
        for good in ["ab", "a-", "0-0", "a--b", &"a".repeat(63)] {
            assert!(is_slug(good), "{good}");
        }
        for bad in ["", "a", "-ab", "Ab", "a b", "a/b", "a_b", "ä1", "a.b", &"a".repeat(64), "ab\n"] {
            assert!(!is_slug(bad), "{bad}");
        }
    }

    #[test]
    fn titles_are_transliterated_to_ascii() {
        for (title, slug) in [
            ("Hello World", "hello-world"),
            ("  Café — Löwe!  ", "cafe-lowe"),
            ("Straße & Söhne", "strasse-sohne"),
            ("Ann’s cakes", "anns-cakes"),
            ("Ærøskøbing Łódź", "aeroskobing-lodz"),
            ("ﬁne ① ２０２６", "fine-1-2026"),
            ("東京 Bar 🍜", "bar"),
            ("İstanbul", "istanbul"),
        ] {
            assert_eq!(slug_of(title, 56).as_deref(), Some(slug), "{title}");
        }
        for nothing in ["", "日本語", "🥐", "a", "--", "مرحبا"] {
            assert_eq!(slug_of(nothing, 56), None, "{nothing}");
        }
        assert_eq!(slug_of("abc def", 4).as_deref(), Some("abc"));
    }

    proptest! {
        #[test]
        fn any_title_yields_a_valid_slug(title in "\\PC*") {
            if let Some(slug) = slug_of(&title, 56) {
                prop_assert!(is_slug(&slug) && slug.len() <= 56, "{}", slug);
            }
        }
    }
}
