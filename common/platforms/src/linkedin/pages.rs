//! Pages of organizations: those that a user may publish on, and their posts.
//!
//! Sources: learn.microsoft.com/linkedin ("Organization Access Control by role", "Organization Lookup", "Posts API",
//! "Find posts by authors"), January to August 2026.

use std::collections::BTreeMap;

use chrono::DateTime;
use http::Method;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;

use super::super::call::Effect;
use super::super::oauth::{Choice, MAX_CHOICES};
use super::super::{CallError, ConnectorAccount, OutgoingPost, ReconcileResult};
use super::comments::has_next_link;
use super::urn::encoded;
use super::{Linkedin, published};
use crate::text::comparable::is_same;
use crate::window::{CallWindow, Listed, find};

/// The prefix of the ids of page accounts. A user's id is not a URN.
pub(super) const URN: &str = "urn:li:organization:";

/// The roles that may publish for the organization. LinkedIn documents two spellings of one of them.
const ROLES: [&str; 3] = ["ADMINISTRATOR", "CONTENT_ADMINISTRATOR", "CONTENT_ADMIN"];
const PER_CALL: usize = 100;
/// The maximum number of organizations per lookup. Their ids are in the URL.
const IDS_PER_CALL: usize = 50;
/// The maximum number of recent posts that are searched.
const MAX_RECENT_POSTS: usize = 20;

#[derive(Deserialize)]
struct Elements<T> {
    elements: Vec<T>,
    #[serde(default)]
    paging: Value,
}

#[derive(Deserialize)]
struct Role {
    #[serde(default)]
    role: String,
    #[serde(default)]
    organization: String,
}

impl Role {
    /// Returns the organization's number if its role may publish. The number becomes part of URLs.
    fn publishable(&self) -> Option<&str> {
        let id = self.organization.strip_prefix(URN)?;
        let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && ROLES.contains(&self.role.as_str())).then_some(id)
    }
}

#[derive(Deserialize)]
struct Organizations {
    #[serde(default)]
    results: BTreeMap<String, Organization>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Organization {
    #[serde(default)]
    localized_name: String,
    vanity_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Post {
    id: String,
    #[serde(default)]
    commentary: String,
    /// Milliseconds.
    created_at: Option<i64>,
    published_at: Option<i64>,
    #[serde(default)]
    lifecycle_state: String,
}

impl Post {
    fn listed(self, post: &OutgoingPost) -> Listed {
        let is_there = !matches!(self.lifecycle_state.as_str(), "DRAFT" | "PUBLISH_FAILED");
        Listed {
            at: self.published_at.or(self.created_at).and_then(DateTime::from_timestamp_millis),
            is_same: is_there && is_same(&plain(&self.commentary), &post.text),
            published: published(&self.id),
        }
    }
}

impl Linkedin {
    /// Lists the pages that the user may publish on.
    pub(super) async fn pages(&self, token: &SecretString) -> Result<Vec<Choice>, CallError> {
        let (mut ids, mut start) = (Vec::<String>::new(), 0);
        loop {
            let path = format!("/rest/organizationAcls?q=roleAssignee&state=APPROVED&start={start}&count={PER_CALL}");
            let request = self.request(Method::GET, &path, token);
            let response = self.send(Effect::Repeatable, request).await?;
            let roles = self.client.read::<Elements<Role>>(Effect::Repeatable, &response)?.elements;
            let count = roles.len();
            ids.extend(roles.iter().filter_map(Role::publishable).map(str::to_owned));
            start += PER_CALL;
            if count < PER_CALL || start >= MAX_CHOICES {
                break;
            }
        }
        // A user may have several roles in one organization.
        ids.sort();
        ids.dedup();
        let mut found = Vec::new();
        for some in ids.chunks(IDS_PER_CALL) {
            // The parentheses and commas belong to the protocol, so they are not encoded.
            let path = format!("/rest/organizationsLookup?ids=List({})", some.join(","));
            let response = self.send(Effect::Repeatable, self.request(Method::GET, &path, token)).await?;
            let all = self.client.read::<Organizations>(Effect::Repeatable, &response)?.results;
            let requested = all.into_iter().filter(|(id, _)| some.contains(id));
            found.extend(requested.map(|(id, organization)| Choice {
                id: format!("{URN}{id}"),
                name: organization.localized_name,
                detail: organization.vanity_name,
            }));
        }
        Ok(found)
    }

    /// Searches the page's newest posts for a post.
    pub(super) async fn find(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
    ) -> Result<ReconcileResult, CallError> {
        let author = encoded(&account.external_id);
        let path = format!("/rest/posts?author={author}&q=author&count={MAX_RECENT_POSTS}&sortBy=LAST_MODIFIED");
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::GET, &path, &token).header("X-RestLi-Method", "FINDER");
        let response = self.send(Effect::Repeatable, request).await?;
        let newest: Elements<Post> = self.client.read(Effect::Repeatable, &response)?;
        let window = CallWindow::of(post.called_at).with_next_page(has_next_link(&newest.paging));
        let listed = newest.elements.into_iter().map(|one| one.listed(post)).collect();
        Ok(find(window, listed, MAX_RECENT_POSTS))
    }

    /// Returns whether the account is a page.
    pub(super) fn is_page(account: &ConnectorAccount) -> bool {
        account.external_id.starts_with(URN)
    }
}

fn single_spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the text that a commentary in the "little text format" displays, with single spaces.
fn plain(commentary: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(commentary.len()), commentary);
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let hashtag = (c == '{').then(|| rest.strip_prefix("hashtag|").and_then(|rest| rest.split_once('}'))).flatten();
        match (c, hashtag) {
            (_, Some((tag, after))) => {
                out.extend(tag.chars().filter(|c| !matches!(c, '\\' | '|')));
                rest = after;
            }
            ('\\', _) => {
                let escaped = rest.chars().next();
                out.extend(escaped);
                rest = &rest[escaped.map_or(0, char::len_utf8)..];
            }
            _ => out.push(c),
        }
    }
    single_spaced(&out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::escape;
    use super::*;

    #[test]
    fn hashtags_are_shown_as_they_were_written() {
        assert_eq!(plain(r"Fresh \(rye\) {hashtag|\#|bread} \@home {hashtag|#|x}"), "Fresh (rye) #bread @home #x");
        assert_eq!(plain(r"{hashtag|\#|open \\ \"), r"{hashtag|#|open \");
    }

    #[test]
    fn a_hashtag_contains_the_marks_of_its_letters() {
        assert_eq!(escape("#bread, #ข้าวใหม่ #हिन्दी!"), r"{hashtag|\#|bread}, {hashtag|\#|ข้าวใหม่} {hashtag|\#|हिन्दी}!");
        assert_eq!(escape("a#b #_ # c"), r"a\#b \#\_ \# c");
    }

    proptest! {
        #[test]
        fn an_escaped_text_is_shown_unchanged(text in r"[ab#@{}|\\()<>~_*\[\] ßข้\n]{0,40}") {
            prop_assert_eq!(plain(&escape(&text)), single_spaced(&text));
        }
    }
}
