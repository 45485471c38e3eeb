//! The layout around each page: the brands, the navigation, the user.

use std::fmt::Display;

use askama::Template;

use super::shared::Tone;

/// The maximum number of unread conversations that the navigation shows. A larger number is shown as "99+".
pub const MAX_UNREAD: i64 = 99;

/// The data of the layout around a page.
#[derive(Clone, Debug, Default)]
pub struct Shell {
    pub title: String,
    pub user_name: String,
    pub user_email: String,
    /// The brands of which the user is a member.
    pub brands: Vec<BrandLink>,
    /// The section of the navigation that contains the page.
    pub section: Option<Section>,
    /// The CSRF token of the session, for the hidden field `_csrf`.
    pub csrf: String,
    /// A random text. The hidden field `_key` of a form is this text, a hyphen and the purpose of the form.
    pub key: String,
    pub flash: Option<Flash>,
    /// The name of the user's role in the current brand.
    pub role: Option<&'static str>,
    pub is_operator: bool,
    /// Whether the user can publish in the current brand.
    pub can_publish: bool,
    /// The number of the current brand's conversations with unread messages.
    pub unread: i64,
    /// The number of records of the current brand that need attention, which Home lists.
    pub problems: i64,
    /// The current brand's time zone, an IANA name.
    pub zone: String,
}

/// Returns a number, or "99+".
fn at_most(count: i64) -> String {
    if count > MAX_UNREAD { format!("{MAX_UNREAD}+") } else { count.to_string() }
}

#[derive(Clone, Debug, Default)]
pub struct BrandLink {
    pub id: i64,
    pub name: String,
    pub current: bool,
}

/// A message about the action of the last request, which is shown once.
#[derive(Clone, Debug)]
pub struct Flash {
    pub tone: Tone,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Home,
    Posts,
    Calendar,
    Media,
    Snippets,
    Inbox,
    Analytics,
    Reports,
    Bio,
    Plans,
    Feeds,
    Accounts,
    Developers,
    Settings,
    Operator,
}

impl Section {
    pub const ALL: &[Self] = &[
        Self::Home,
        Self::Posts,
        Self::Calendar,
        Self::Media,
        Self::Snippets,
        Self::Inbox,
        Self::Analytics,
        Self::Reports,
        Self::Bio,
        Self::Plans,
        Self::Feeds,
        Self::Accounts,
        Self::Developers,
        Self::Settings,
    ];

    pub const fn label(self) -> &'static str {
        match self {
            Self::Home => "Home",
            Self::Posts => "Posts",
            Self::Calendar => "Calendar",
            Self::Media => "Media",
            Self::Snippets => "Snippets",
            Self::Inbox => "Inbox",
            Self::Analytics => "Analytics",
            Self::Reports => "Reports",
            Self::Bio => "Link in bio",
            Self::Plans => "Plans",
            Self::Feeds => "Feeds",
            Self::Accounts => "Accounts",
            Self::Developers => "Developers",
            Self::Settings => "Settings",
            Self::Operator => "Operator",
        }
    }

    /// Returns the name of the icon in `console/base.html`, which is also the last segment of the path.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Posts => "posts",
            Self::Calendar => "calendar",
            Self::Media => "media",
            Self::Snippets => "snippets",
            Self::Inbox => "inbox",
            Self::Analytics => "analytics",
            Self::Reports => "reports",
            Self::Bio => "bio",
            Self::Plans => "plans",
            Self::Feeds => "feeds",
            Self::Accounts => "accounts",
            Self::Developers => "developers",
            Self::Settings => "settings",
            Self::Operator => "operator",
        }
    }

    /// Returns the classes of the number beside the section. The button of the closed menu shows all numbers without the
    /// names of their sections, so that of problems has a color of its own.
    pub const fn count_class(self) -> &'static str {
        match self {
            Self::Home => "count badge-bad",
            _ => "count",
        }
    }
}

impl Shell {
    /// Returns the sections of the navigation, in order.
    pub fn sections(&self) -> impl Iterator<Item = &'static Section> {
        let can_publish = self.can_publish;
        Section::ALL.iter().filter(move |section| can_publish || **section != Section::Bio)
    }

    pub fn brand(&self) -> Option<&BrandLink> {
        self.brands.iter().find(|brand| brand.current)
    }

    /// Returns a path within the current brand: `at("posts/new")`.
    pub fn at(&self, path: &str) -> String {
        let id = self.brand().map_or(0, |brand| brand.id);
        match path {
            "" => format!("/brands/{id}"),
            path => format!("/brands/{id}/{path}"),
        }
    }

    /// Returns the path of a post, or of an action on it: `post(5012, "edit")`.
    pub fn post(&self, id: impl Display, action: &str) -> String {
        self.record("posts", id, action)
    }

    pub fn account(&self, id: impl Display, action: &str) -> String {
        self.record("accounts", id, action)
    }

    pub fn key_action(&self, id: impl Display, action: &str) -> String {
        self.record("developers/keys", id, action)
    }

    pub fn webhook(&self, id: impl Display, action: &str) -> String {
        self.record("developers/webhooks", id, action)
    }

    pub fn delivery(&self, webhook: impl Display, id: impl Display, action: &str) -> String {
        self.record(&format!("developers/webhooks/{webhook}/deliveries"), id, action)
    }

    pub fn member(&self, id: impl Display, action: &str) -> String {
        self.record("settings/members", id, action)
    }

    /// Returns the path of any record, or of an action on it: `page("media", 7, "delete")`.
    pub fn page(&self, list: impl AsRef<str>, id: impl Display, action: &str) -> String {
        self.record(list.as_ref(), id, action)
    }

    fn record(&self, list: &str, id: impl Display, action: &str) -> String {
        let list = self.at(list);
        match action {
            "" => format!("{list}/{id}"),
            action => format!("{list}/{id}/{action}"),
        }
    }

    pub fn href(&self, section: &Section) -> String {
        match *section {
            Section::Home => self.at(""),
            Section::Operator => "/operator".to_owned(),
            section => self.at(section.slug()),
        }
    }

    pub fn is_in(&self, section: &Section) -> bool {
        self.section == Some(*section)
    }

    /// Returns the number that the navigation shows beside a section, and the button of its closed menu.
    pub fn count(&self, section: &Section) -> Option<String> {
        let count = match section {
            Section::Home => self.problems,
            Section::Inbox => self.unread,
            _ => 0,
        };
        (count > 0).then(|| at_most(count))
    }

    /// Returns what the number beside a section counts, for screen readers.
    pub const fn counted(&self, section: &Section) -> &'static str {
        match section {
            Section::Home if self.problems == 1 => "needs attention",
            Section::Home => "need attention",
            _ => "unread",
        }
    }

    pub fn is_in_operator(&self) -> bool {
        self.is_in(&Section::Operator)
    }

    pub const fn frame(&self) -> Frame<'_> {
        Frame { shell: self }
    }
}

/// The part of `console/base.html` that occurs twice. As a separate template it is compiled once; a macro would be
/// compiled twice for each page.
#[derive(Template)]
#[template(path = "console/frame.html")]
pub struct Frame<'a> {
    shell: &'a Shell,
}
