//! Feeds that publish: the settings by which the new articles of a feed become posts.
//!
//! An article is posted at most once. [`ArticleKeys`] recognize it if the feed changes its guid, or moves to another
//! host.

use chrono::TimeDelta;
use crier_base::hexadecimal;
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization as _;
use url::Url;

use crate::words::is_unspaced;

crier_base::text_enum! {
    /// What an article becomes: a post that is published immediately, a post in the brand's queue, a draft, or a post
    /// pending approval.
    pub enum FeedDestination { Now = "now", Queue = "queue", Draft = "draft", Approval = "approval" }
}

impl FeedDestination {
    /// Returns whether the posts are published without another action of a member.
    pub const fn publishes(self) -> bool {
        matches!(self, Self::Now | Self::Queue)
    }
}

crier_base::text_enum! {
    /// The outcome of a new article. An article that the feed listed before it began to publish is only recorded.
    pub enum FeedPostStatus { Waiting = "waiting", Posted = "posted", Skipped = "skipped" }
}

crier_base::text_enum! {
    /// A variable of a template.
    pub enum Variable { Title = "title", Url = "url", Summary = "summary", Author = "author" }
}

/// Maximum length of a template, in characters.
pub const MAX_TEMPLATE: usize = 2_000;
/// Maximum number of accounts to which a feed publishes.
pub const MAX_FEED_ACCOUNTS: usize = 100;
/// Maximum number of words in each filter.
pub const MAX_FILTER_WORDS: usize = 50;
/// Maximum length of a word of a filter, in characters.
pub const MAX_FILTER_WORD: usize = 60;
/// Maximum value of the daily maximum.
pub const MAX_POSTS_PER_DAY: i64 = 100;
/// The maximum number of articles of a feed that Crier remembers, so that they are not posted again. Those that were
/// posted in the last [`MAX_ARTICLE_AGE`] are remembered in any case.
pub const MAX_REMEMBERED: i64 = 2_000;
/// The maximum age of an article that is posted when it first appears. An older one is an earlier article that the feed
/// lists again, for example after the site changed all of its links.
pub const MAX_ARTICLE_AGE: TimeDelta = TimeDelta::days(7);
/// Why an article is skipped that waits while the feed does not publish.
pub const TURNED_OFF: &str = "Publishing was turned off before the post was created.";
/// The length of the keys of an article, in bytes.
const KEY_LENGTH: usize = 16;

/// The settings by which a feed publishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoPost {
    pub is_active: bool,
    /// A valid [`Template`].
    pub template: String,
    pub accounts: Vec<i64>,
    pub destination: FeedDestination,
    /// Words of which an article must contain at least one, if there are any.
    #[serde(default)]
    pub include: Vec<String>,
    /// Words that an article must not contain.
    #[serde(default)]
    pub exclude: Vec<String>,
    pub max_per_day: i64,
}

impl AutoPost {
    /// Returns why the filters exclude an article, as a sentence. `None` if they do not.
    pub fn excluded(&self, article: &ArticleText) -> Option<String> {
        let text: String = format!("{}\n{}", article.title, article.summary).nfc().collect();
        let text = text.to_lowercase();
        let has = |word: &&String| contains_word(&text, &word.nfc().collect::<String>().to_lowercase());
        if let Some(word) = self.exclude.iter().find(has) {
            return Some(format!("The article contains the excluded word “{word}”."));
        }
        let is_missing = !self.include.is_empty() && !self.include.iter().any(|word| has(&word));
        is_missing.then(|| "The article contains none of the required words.".to_owned())
    }
}

/// Returns whether a text contains a word, which may consist of several: not as a part of a longer word.
fn contains_word(text: &str, word: &str) -> bool {
    let is_joined = |a: Option<char>, b: Option<char>| {
        let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() && !is_unspaced(c));
        is_part(a) && is_part(b)
    };
    let (first, last) = (word.chars().next(), word.chars().next_back());
    text.match_indices(word).any(|(at, found)| {
        let (before, after) = text.split_at(at);
        let next = after.get(found.len()..).and_then(|rest| rest.chars().next());
        !word.is_empty() && !is_joined(before.chars().next_back(), first) && !is_joined(last, next)
    })
}

/// The texts of an article for a template, as plain text. Empty if the article does not have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArticleText {
    pub title: String,
    pub url: String,
    pub summary: String,
    pub author: String,
}

impl ArticleText {
    /// `summary`: as plain text.
    pub fn new(title: Option<&str>, url: Option<&str>, summary: String, author: Option<&str>) -> Self {
        let text = |text: Option<&str>| text.unwrap_or_default().trim().to_owned();
        Self { title: text(title), url: text(url), summary, author: text(author) }
    }

    pub fn get(&self, variable: Variable) -> &str {
        match variable {
            Variable::Title => &self.title,
            Variable::Url => &self.url,
            Variable::Summary => &self.summary,
            Variable::Author => &self.author,
        }
    }

    /// Returns the article with another text.
    #[must_use]
    pub fn with(&self, variable: Variable, text: impl Into<String>) -> Self {
        let mut changed = self.clone();
        let field = match variable {
            Variable::Title => &mut changed.title,
            Variable::Url => &mut changed.url,
            Variable::Summary => &mut changed.summary,
            Variable::Author => &mut changed.author,
        };
        *field = text.into();
        changed
    }
}

/// Why a template is invalid. The text is returned to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("The variable {{{0}}} does not exist. Use {{title}}, {{url}}, {{summary}} and {{author}}.")]
    UnknownVariable(String),
    #[error("Use at least one of {{title}}, {{url}}, {{summary}} and {{author}}.")]
    NoVariable,
}

/// A parsed template. Braces that do not enclose a name are text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(Variable),
}

impl Template {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            match after.split_once('}').filter(|(name, _)| is_name(name)) {
                Some((name, following)) => {
                    let variable =
                        name.parse::<Variable>().map_err(|_| TemplateError::UnknownVariable(name.to_owned()))?;
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                    pieces.push(Piece::Variable(variable));
                    rest = following;
                }
                None => {
                    literal.push('{');
                    rest = after;
                }
            }
        }
        if pieces.is_empty() {
            return Err(TemplateError::NoVariable);
        }
        literal.push_str(rest);
        pieces.push(Piece::Text(literal));
        Ok(Self(pieces))
    }

    /// Returns the text of an article. Several empty lines, which a missing text leaves, become one.
    pub fn render(&self, article: &ArticleText) -> String {
        let text: String = self
            .0
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.as_str(),
                Piece::Variable(variable) => article.get(*variable),
            })
            .collect();
        let (mut out, mut empty_lines) = (String::with_capacity(text.len()), 0);
        for line in text.lines().map(str::trim) {
            if line.is_empty() {
                empty_lines += 1;
                continue;
            }
            if !out.is_empty() {
                out.push_str(if empty_lines > 0 { "\n\n" } else { "\n" });
            }
            empty_lines = 0;
            out.push_str(line);
        }
        out
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 40 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Hashes that recognize an article whose guid has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArticleKeys {
    /// Of the link, without what does not change the page: the scheme, `www.`, a default port, a slash at the end, and
    /// the parameters of campaigns. `None` if the article has no link.
    pub link: Option<String>,
    /// Of the path, the query, the fragment and the title: the same after the site has moved to another host. `None` if
    /// the article has no title, or links to the first page of a site.
    pub page: Option<String>,
}

impl ArticleKeys {
    pub fn of(url: Option<&str>, title: Option<&str>) -> Self {
        let Some(url) = url.filter(|url| !url.is_empty()) else { return Self::default() };
        let Some(parsed) = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
            return Self { link: Some(key(url)), page: None };
        };
        let path = path_of(&parsed);
        let host = parsed.host_str().unwrap_or_default();
        let mut link = host.strip_prefix("www.").unwrap_or(host).to_owned();
        if let Some(port) = parsed.port() {
            link += &format!(":{port}");
        }
        // A fragment may be an entry of a page, as in a list of changes, whose entries may have the same title.
        let fragment = parsed.fragment().filter(|fragment| !fragment.is_empty() && !is_campaign(fragment));
        let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
        link.push_str(&path);
        link.push_str(&fragment);
        let title = title.map(|title| title.trim().to_lowercase()).filter(|title| !title.is_empty());
        let page = title.filter(|_| !path.is_empty()).map(|title| key(&format!("{path}{fragment}\n{title}")));
        Self { link: Some(key(&link)), page }
    }
}

/// Returns the path and the query, without what does not change the page.
fn path_of(url: &Url) -> String {
    let mut path = url.path().trim_end_matches('/').to_owned();
    let mut parameters: Vec<&str> = url
        .query()
        .into_iter()
        .flat_map(|query| query.split('&'))
        .filter(|one| !one.is_empty() && !is_campaign(one))
        .collect();
    parameters.sort_unstable();
    if !parameters.is_empty() {
        path += &format!("?{}", parameters.join("&"));
    }
    path
}

/// Returns whether a parameter only says how a reader came to the page.
fn is_campaign(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default().to_ascii_lowercase();
    name.starts_with("utm_") || matches!(name.as_str(), "fbclid" | "gclid" | "mc_cid" | "mc_eid" | "xtor")
}

fn key(text: &str) -> String {
    hexadecimal::sha256(text, KEY_LENGTH)
}

#[cfg(test)]
mod tests;
