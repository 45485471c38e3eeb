//! Types that the pages of the console share: times, field errors, badges, links of lists.

use std::collections::BTreeMap;

use crier_domain::access::Role;
use crier_domain::plan::Feature;
use crier_domain::post::PostStatus;

use super::assets::version;
use super::post_options::label_and_hint;
use super::video::VideoFile;
use super::wording::in_quotes;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Info,
    Good,
    Warn,
    Bad,
}

impl Tone {
    /// Returns the last part of CSS classes such as `badge-good` and `notice-bad`.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Info => "info",
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// A point in time.
#[derive(Clone, Debug, Default)]
pub struct Time {
    /// RFC 3339 with `Z`.
    pub iso: String,
    /// The text to show, in the brand's time zone.
    pub text: String,
}

impl Time {
    pub fn new(iso: &str, text: &str) -> Self {
        Self { iso: iso.to_owned(), text: text.to_owned() }
    }
}

/// A status as a colored label.
#[derive(Clone, Debug, Default)]
pub struct Badge {
    pub tone: Tone,
    pub text: String,
}

impl Badge {
    pub fn new(tone: Tone, text: &str) -> Self {
        Self { tone, text: text.to_owned() }
    }

    /// Returns the badge for a status of a post, a target, a part or a first comment in the API.
    pub fn post(status: &str) -> Self {
        match status {
            "draft" => Self::new(Tone::Plain, "Draft"),
            "pending_approval" => Self::new(Tone::Warn, "Waiting for approval"),
            "scheduled" => Self::new(Tone::Info, "Scheduled"),
            "pending" => Self::new(Tone::Plain, "Waiting"),
            "publishing" => Self::new(Tone::Info, "Publishing"),
            "published" => Self::new(Tone::Good, "Published"),
            "partially_published" => Self::new(Tone::Warn, "Partly published"),
            "failed" => Self::new(Tone::Bad, "Failed"),
            "unpublishing" => Self::new(Tone::Info, "Unpublishing"),
            "unpublished" => Self::new(Tone::Plain, "Unpublished"),
            "not_supported" => Self::new(Tone::Plain, "Not supported"),
            other => Self::new(Tone::Plain, other),
        }
    }

    /// Returns the badge for a post as a whole. A queued post moves when the slots of the queue change.
    pub fn whole_post(status: PostStatus, is_queued: bool) -> Self {
        let badge = Self::post(status.as_str());
        if is_queued && status == PostStatus::Scheduled { Self { text: "Queued".to_owned(), ..badge } } else { badge }
    }

    /// Returns the badge for a status of a webhook delivery in the API.
    pub fn delivery(status: &str) -> Self {
        match status {
            "pending" => Self::new(Tone::Plain, "Waiting"),
            "retrying" => Self::new(Tone::Warn, "Retrying"),
            "succeeded" => Self::new(Tone::Good, "Delivered"),
            "failed" => Self::new(Tone::Bad, "Failed"),
            other => Self::new(Tone::Plain, other),
        }
    }
}

/// Returns the name of a plan's feature as a label.
pub const fn feature_label(feature: Feature) -> &'static str {
    match feature {
        Feature::BasicAnalytics => "Post analytics",
        Feature::Analytics => "Account analytics",
        Feature::LinkInBio => "Link in bio",
        Feature::Webhooks => "Webhooks",
        Feature::FeedReader => "Feeds",
        Feature::ContentStrategy => "Content plans",
        Feature::Reports => "Reports",
        Feature::Inbox => "Inbox",
        Feature::Approvals => "Approvals",
    }
}

/// Returns the name of a role as a label.
pub const fn role_label(role: Role) -> &'static str {
    match role {
        Role::Owner => "Owner",
        Role::Admin => "Admin",
        Role::Editor => "Editor",
        Role::Contributor => "Contributor",
    }
}

/// Returns the name of a role with its article.
pub const fn role_with_article(role: Role) -> &'static str {
    match role {
        Role::Owner => "an owner",
        Role::Admin => "an admin",
        Role::Editor => "an editor",
        Role::Contributor => "a contributor",
    }
}

/// A platform, shown as its mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    /// The key in the API.
    pub key: String,
    pub name: String,
}

impl Platform {
    /// Returns the platform with this key.
    pub fn of(key: &str) -> Self {
        let name = match key {
            "telegram" => "Telegram",
            "bluesky" => "Bluesky",
            "wordpress" => "WordPress",
            "woocommerce" => "WooCommerce",
            "sandbox" => "Sandbox",
            "mastodon" => "Mastodon",
            "shopify" => "Shopify",
            "facebook" => "Facebook",
            "instagram" => "Instagram",
            "threads" => "Threads",
            "twitter" => "X",
            "linkedin" => "LinkedIn",
            "pinterest" => "Pinterest",
            "tiktok" => "TikTok",
            "google_business" => "Google Business Profile",
            "reddit" => "Reddit",
            "tumblr" => "Tumblr",
            "youtube" => "YouTube",
            other => other,
        };
        Self { key: key.to_owned(), name: name.to_owned() }
    }

    /// Returns the URL of the mark.
    pub fn mark(&self) -> String {
        format!("/marks/{}.svg?{}", self.key, version())
    }
}

/// An account, shown as its name with the mark of its platform.
#[derive(Clone, Debug, Default)]
pub struct AccountChip {
    pub platform: Platform,
    pub name: String,
}

/// An image or a video of the library.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub id: i64,
    /// The path of the thumbnail. Empty for a deleted image, and for a video without a cover.
    pub src: String,
    pub filename: String,
    pub alt: String,
    /// `None` for an image.
    pub video: Option<VideoFile>,
}

impl Image {
    /// Returns the alt text, else the filename.
    pub fn label(&self) -> &str {
        if self.alt.is_empty() { &self.filename } else { &self.alt }
    }
}

/// A post in a list.
#[derive(Clone, Debug, Default)]
pub struct PostRow {
    pub id: i64,
    /// The beginning of the text, at most about 200 characters. Empty if the post has no text.
    pub text: String,
    pub status: Badge,
    /// "Scheduled for", "Published", "Planned for", "Updated".
    pub when_label: String,
    pub when: Option<Time>,
    pub accounts: Vec<AccountChip>,
    pub image: Option<Image>,
    /// Links to the posts with the same labels.
    pub labels: Vec<Link>,
    /// Whether it is an occurrence of a recurring post.
    pub is_recurring: bool,
    /// The page of that recurring post, unless it was deleted.
    pub recurring: Option<String>,
    /// The error of a failed post.
    pub error: Option<String>,
    /// Whether its checkbox is checked, in a list with checkboxes.
    pub is_selected: bool,
    /// The version of the post that the row shows ([`super::form::Form::seen`]).
    pub seen: i64,
}

/// A link, or a button that is a link.
#[derive(Clone, Debug, Default)]
pub struct Link {
    pub label: String,
    pub href: String,
}

impl Link {
    pub fn new(label: &str, href: &str) -> Self {
        Self { label: label.to_owned(), href: href.to_owned() }
    }
}

/// An entry of a select, a tab bar or a group of check boxes.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub value: String,
    pub label: String,
    pub hint: String,
    pub selected: bool,
}

impl Choice {
    pub fn new(value: &str, label: &str, selected: bool) -> Self {
        Self { value: value.to_owned(), label: label.to_owned(), hint: String::new(), selected }
    }
}

/// The page links below a list.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    pub from: i64,
    pub to: i64,
    pub total: i64,
    pub prev: Option<String>,
    pub next: Option<String>,
}

/// The errors of a submitted form: those of fields, and one of the form as a whole.
#[derive(Clone, Debug, Default)]
pub struct FieldErrors {
    /// An error of the form as a whole, such as a conflict or a limit of the plan.
    pub general: Option<String>,
    /// By the name of the field. The errors of list entries belong to the list: `accounts.0` to `accounts`.
    fields: BTreeMap<String, Vec<String>>,
}

impl FieldErrors {
    pub fn new<'a>(fields: impl IntoIterator<Item = (&'a str, Vec<String>)>) -> Self {
        let mut own: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (path, messages) in fields {
            let messages = messages.iter().map(|message| in_quotes(message));
            own.entry(anchor(path).to_owned()).or_default().extend(messages);
        }
        Self { general: None, fields: own }
    }

    pub fn general(message: &str) -> Self {
        Self { general: Some(in_quotes(message)), fields: BTreeMap::new() }
    }

    pub fn for_field(&self, path: &str) -> &[String] {
        self.fields.get(path).map_or(&[], Vec::as_slice)
    }

    pub fn has(&self, path: &str) -> bool {
        self.fields.contains_key(path)
    }

    /// Returns whether a field under this path has an error, such as `overrides.0.content` under `overrides.0`.
    pub fn has_under(&self, path: impl AsRef<str>) -> bool {
        self.fields.keys().any(|key| key.strip_prefix(path.as_ref()).is_some_and(|rest| rest.starts_with('.')))
    }

    /// Adds the errors of another part of the same form.
    pub fn merge(&mut self, other: Self) {
        self.general = self.general.take().or(other.general);
        for (field, messages) in other.fields {
            self.fields.entry(field).or_default().extend(messages);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.general.is_none() && self.fields.is_empty()
    }

    /// Returns the path, the label and the message of each error, for the summary above the form.
    pub fn summary(&self) -> Vec<(&str, String, &str)> {
        let all = self.fields.iter().flat_map(|(path, messages)| {
            messages.iter().map(move |message| (path.as_str(), label(path), message.as_str()))
        });
        all.collect()
    }
}

/// Returns the field that shows an error at this path: the path without the position in a list.
fn anchor(path: &str) -> &str {
    match path.rsplit_once('.') {
        Some((list, last)) if last.parse::<usize>().is_ok() => list,
        _ => path,
    }
}

/// Returns the label of a field, such as "Bot token" for `credentials.bot_token`.
fn label(path: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or(path);
    if path.starts_with("overrides.") && path.contains(".options.") {
        return label_and_hint(name).0;
    }
    if path.starts_with("first_comment.") {
        return "First comment".to_owned();
    }
    // The first part of a thread is the text of the post.
    let part = path.strip_prefix("thread.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    if let Some(index) = part {
        return format!("Part {}", index.saturating_add(2));
    }
    match name {
        "content" => "Text".to_owned(),
        "ids" => "Posts".to_owned(),
        "shift_minutes" => "Move by".to_owned(),
        "media" => "Images and videos".to_owned(),
        "alt_text" => "Description".to_owned(),
        "asset_type" => "Kind".to_owned(),
        "filename" => "Name".to_owned(),
        "role_limit" => "Role".to_owned(),
        "scheduled_at" => "Date and time".to_owned(),
        "timezone" => "Time zone".to_owned(),
        "slots" => "Slots".to_owned(),
        "weekday" => "Day".to_owned(),
        "client_id" => "Client ID".to_owned(),
        "post_id" | "before" => "Post".to_owned(),
        "schedule_type" => "Publishing".to_owned(),
        "email" => "Email address".to_owned(),
        "url" => "URL".to_owned(),
        "slug" => "Page URL".to_owned(),
        "avatar" => "Image".to_owned(),
        "bio" => "Text below the title".to_owned(),
        "body" => "Message".to_owned(),
        "user_id" => "Assigned to".to_owned(),
        "snoozed_until" => "Until".to_owned(),
        "planned_at" => "Date and time".to_owned(),
        "account_ids" => "Accounts".to_owned(),
        "start" | "starts_on" => "First day".to_owned(),
        "end" | "ends_on" => "Last day".to_owned(),
        "cron" => "Cron expression".to_owned(),
        "count" => "Maximum number of posts".to_owned(),
        "day" => "Day of the month".to_owned(),
        "variations" => "Texts".to_owned(),
        "weekdays" => "Days of the week".to_owned(),
        "widgets" => "Widgets".to_owned(),
        "signature_id" => "Signature".to_owned(),
        "max_per_day" => "Maximum per day".to_owned(),
        "include" => "Only articles with".to_owned(),
        "exclude" => "No articles with".to_owned(),
        _ if path == "auto_post.template" => "Text of the posts".to_owned(),
        _ if path == "auto_post.destination" => "What to do with a new article".to_owned(),
        "destination" => "Create as".to_owned(),
        other => {
            let spaced = other.replace('_', " ");
            let mut letters = spaced.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        }
    }
}
