//! How a post looks on each platform: the names of the account, the place where the text is cut, and the arrangement of
//! the images.

use crier_domain::account::SocialAccount;
use crier_domain::platform::Platform;
use crier_platforms::text::highlights;

use super::avatar::avatar_url;
use super::shared::Image;

/// Where every preview ends, which bounds the size of the page.
const END: Cut = Cut { characters: 600, lines: 40, label: "" };

/// The place where a platform cuts a text, whichever limit it reaches first, and the label after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    characters: usize,
    lines: usize,
    label: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// The name, and `@` with the username.
    NameAndHandle,
    /// The username after this text.
    Username(&'static str),
    Name,
}

/// The arrangement of the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grid {
    /// One image in full width, two beside each other, one beside two, or two rows of two.
    Mosaic,
    /// In a row, which continues to the right.
    Row,
    /// The first image. A reader opens or swipes to the others.
    First,
}

/// What distinguishes the posts of a platform.
struct Look {
    names: Names,
    cut: Option<Cut>,
    grid: Grid,
    /// Whether the images are above the text.
    images_first: bool,
}

impl Grid {
    /// Returns the last part of the CSS class.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Mosaic => "mosaic",
            Self::Row => "row",
            Self::First => "first",
        }
    }

    /// Returns the maximum number of images that are shown.
    pub const fn max(self) -> usize {
        match self {
            Self::Mosaic => 4,
            Self::Row => 3,
            Self::First => 1,
        }
    }
}

/// Returns the look of a platform's posts. Platforms without a cut show the whole text, or do not document what they
/// cut.
const fn look(platform: Platform) -> Look {
    use Grid::{First, Mosaic, Row};
    use Names::{Name, NameAndHandle, Username};
    let (names, cut, grid, images_first) = match platform {
        // `MAX_POST_LINES` of Bluesky's own app.
        Platform::Bluesky => (NameAndHandle, lines(25, "Show More"), Mosaic, false),
        // The web client: 706 pixels, which are 32 lines.
        Platform::Mastodon => (NameAndHandle, lines(32, "Read more"), Mosaic, false),
        Platform::Twitter | Platform::Sandbox => (NameAndHandle, None, Mosaic, false),
        Platform::Threads => (Username(""), None, Row, false),
        // Instagram's help, "Why doesn't my entire caption display in feed?": three lines, about 125 characters.
        Platform::Instagram => (Username(""), Some(Cut { characters: 125, lines: 3, label: "more" }), First, true),
        // Not documented; about the length that others measured on a desktop.
        Platform::Facebook => (Name, characters(480, "See more"), Mosaic, false),
        Platform::Linkedin => (Name, characters(210, "more"), Mosaic, false),
        Platform::Telegram => (Name, None, Mosaic, true),
        Platform::Tumblr => (Username(""), None, Mosaic, true),
        Platform::Reddit => (Username("u/"), None, First, false),
        Platform::Tiktok => (Username(""), None, First, true),
        Platform::Pinterest
        | Platform::Youtube
        | Platform::GoogleBusiness
        | Platform::Wordpress
        | Platform::Woocommerce
        | Platform::Shopify => (Name, None, First, true),
    };
    Look { names, cut, grid, images_first }
}

const fn lines(lines: usize, label: &'static str) -> Option<Cut> {
    Some(Cut { characters: usize::MAX, lines, label })
}

const fn characters(characters: usize, label: &'static str) -> Option<Cut> {
    Some(Cut { characters, lines: usize::MAX, label })
}

impl Cut {
    /// Returns the byte offset at which a text is cut. `None` if it is shown in full. Only line breaks begin a line.
    fn end(self, text: &str) -> Option<usize> {
        let mut lines = 1;
        for (count, (at, c)) in text.char_indices().enumerate() {
            if c == '\n' {
                lines += 1;
            }
            if count == self.characters || lines > self.lines {
                return Some(at);
            }
        }
        None
    }
}

/// A part of the text.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub text: String,
    pub is_link: bool,
}

/// A post as it looks on the platform of an account.
#[derive(Debug)]
pub struct PostPreview {
    pub name: String,
    pub handle: Option<String>,
    /// The initials of the name, in place of the avatar if there is none.
    pub initials: String,
    /// The URL of the avatar.
    pub avatar: Option<String>,
    pub text: Vec<Piece>,
    /// Set if the text continues: the label after it, which may be empty.
    pub more: Option<&'static str>,
    pub images: Vec<Image>,
    pub grid: Grid,
    pub images_first: bool,
    /// Whether the platform shows the video in 9:16, whatever its shape.
    pub is_upright: bool,
    platform: Platform,
}

impl PostPreview {
    pub fn new(brand: i64, account: &SocialAccount, text: &str, images: Vec<Image>) -> Self {
        let look = look(account.platform);
        let (name, handle) = names(look.names, account);
        let (shown, more) = shorten(look.cut, text);
        let text = pieces(account.platform, shown);
        let (grid, images_first) = (look.grid, look.images_first);
        let (initials, avatar) = (initials(&name), avatar_url(brand, account));
        let platform = account.platform;
        let preview = Self {
            name,
            handle,
            initials,
            avatar,
            text,
            more,
            images,
            grid,
            images_first,
            is_upright: false,
            platform,
        };
        preview.in_format("")
    }

    /// Returns the preview of a video in a format. An empty format is the platform's default.
    pub fn in_format(self, format: &str) -> Self {
        let is_upright = match (self.platform, self.images.as_slice()) {
            (Platform::Tiktok, _) => true,
            // A single video is a reel or a story, and several files are a carousel.
            (Platform::Instagram, files) => files.len() == 1,
            _ => matches!(format, "reel" | "story" | "short"),
        };
        Self { is_upright, ..self }
    }

    /// Returns the number of images and videos that are not shown.
    pub fn hidden(&self) -> usize {
        self.images.len().saturating_sub(self.grid.max())
    }
}

fn names(names: Names, account: &SocialAccount) -> (String, Option<String>) {
    let username = account.username.as_deref().map(|username| username.trim_start_matches('@'));
    match (names, username) {
        (Names::NameAndHandle, Some(username)) => (account.name.clone(), Some(format!("@{username}"))),
        (Names::Username(prefix), Some(username)) => (format!("{prefix}{username}"), None),
        _ => (account.name.clone(), None),
    }
}

fn initials(name: &str) -> String {
    let words = name.trim_start_matches("u/").split_whitespace();
    let letters = words.filter_map(|word| word.chars().find(|c| c.is_alphanumeric()));
    letters.take(2).flat_map(char::to_uppercase).collect()
}

/// Returns the part of a text that is shown, and the label after it if it continues.
fn shorten(cut: Option<Cut>, text: &str) -> (&str, Option<&'static str>) {
    let ends = cut.into_iter().chain([END]).filter_map(|cut| Some((cut.end(text)?, cut.label)));
    // If both are at the same place, the first is the platform's.
    match ends.min_by_key(|(end, _)| *end) {
        Some((end, label)) => (text[..end].trim_end(), Some(label)),
        None => (text, None),
    }
}

fn pieces(platform: Platform, text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut push = |text: &str, is_link| {
        if !text.is_empty() {
            pieces.push(Piece { text: text.to_owned(), is_link });
        }
    };
    let mut end = 0;
    for link in highlights::find(platform, text) {
        push(&text[end..link.start], false);
        push(&text[link.start..link.end], true);
        end = link.end;
    }
    push(&text[end..], false);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_the_first_limit() {
        let cut = Some(Cut { characters: 5, lines: 2, label: "more" });
        for (text, shown, more) in [
            ("12345", "12345", None),
            ("äöüß56", "äöüß5", Some("more")),
            ("1234 6", "1234", Some("more")),
            ("1\n2", "1\n2", None),
            ("1\n2\n3", "1\n2", Some("more")),
            ("", "", None),
        ] {
            assert_eq!(shorten(cut, text), (shown, more), "{text:?}");
        }
        let long = "x".repeat(700);
        assert_eq!(shorten(None, &long), (&long[..600], Some("")));
        assert_eq!(shorten(lines(25, "more"), &long), (&long[..600], Some("")));
        assert_eq!(shorten(characters(600, "more"), &long), (&long[..600], Some("more")));
    }

    #[test]
    fn the_pieces_are_the_text() {
        let text = "See https://a.example/ and #bread";
        let found = pieces(Platform::Mastodon, text);
        assert_eq!(found.iter().map(|piece| piece.text.as_str()).collect::<String>(), text);
        assert_eq!(found.iter().map(|piece| piece.is_link).collect::<Vec<_>>(), [false, true, false, true]);
        assert!(pieces(Platform::Mastodon, "").is_empty());
    }

    #[test]
    fn initials_are_of_two_words() {
        for (name, letters) in
            [("Ann's Bakery and Café", "AB"), ("bread", "B"), ("u/ann", "A"), ("(été)", "É"), ("…", "")]
        {
            assert_eq!(initials(name), letters, "{name}");
        }
    }
}
