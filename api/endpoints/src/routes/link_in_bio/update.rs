//! `PUT /brands/{brand}/link-in-bio/{linkInBio}`

use std::collections::HashSet;
use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::bio_page::{BioLink, LinkIcon, MAX_LINKS, Theme};
use crier_store::Tx;
use crier_store::bio_pages::{self, LinkEntry};

use super::fields::{self, BIO_LENGTH, TITLE_LENGTH, link_url, slug};
use super::{FEATURES, LinkInBioPage, TAG, evict_after_commit, load_referenced, no_such_page, show, slug_taken};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::Result;
use crate::fields::{Fields, PatchField, Problems, steps};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// Changes to a link-in-bio page. Omitted fields keep their values.
#[derive(Clone, Debug, Default, Request)]
pub struct LinkInBioPageChange {
    #[field(text(TITLE_LENGTH), example = "Acme Bakery & Café")]
    pub title: PatchField<String>,
    #[field(slug())]
    pub slug: PatchField<String>,
    #[field(enum_value(), example = Theme::Sunset)]
    pub theme: PatchField<Theme>,
    #[field(text(BIO_LENGTH), extension)]
    pub bio: PatchField<String>,
    /// The ID of an image in the brand's media library. Null removes the avatar.
    #[field(id(), extension)]
    pub avatar: PatchField<i64>,
    /// The complete list of links, in display order. A link with an `id` is updated and keeps its clicks, a link
    /// without one is created, and links that are not in the list are deleted.
    #[field(objects(MAX_LINKS), extension)]
    pub links: PatchField<Vec<BioLinkEntry>>,
}

/// A link in the complete list of a page's links.
#[derive(Clone, Debug, Default, Request)]
#[request(check = check_entry)]
pub struct BioLinkEntry {
    /// The ID of a link on the page. If omitted, a new link is created.
    #[field(id())]
    pub id: Option<i64>,
    /// The title. Required for a new link.
    #[field(text(TITLE_LENGTH))]
    pub title: PatchField<String>,
    /// An http, https, mailto or tel URL. Required for a new link.
    #[field(link_url())]
    pub url: PatchField<String>,
    #[field(enum_value(), extension)]
    pub icon: PatchField<LinkIcon>,
    /// Whether this is the primary link, which stands out. A page can have at most one primary link.
    #[field(flag(), extension)]
    pub is_primary: PatchField<bool>,
}

pub fn endpoint() -> Endpoint<LinkInBioPageChange, One<LinkInBioPage>> {
    Endpoint::put("/brands/{brand}/link-in-bio/{linkInBio}", "updateLinkInBioPage", Scope::LinkinbioWrite)
        .tag(TAG)
        .for_publishers()
        .adds(Growth::Records)
        .summary("Update a link-in-bio page")
        .description("Visitors see the changes within two seconds. The old slug is immediately available to others.")
        .features(FEATURES)
        .checks_then_writes(update)
        .with_rerender("linkInBio", show::show)
}

/// Requires the title and the URL of a new link.
fn check_entry(entry: &BioLinkEntry, fields: &Fields<'_>) {
    if entry.id.is_none() && !fields.problems.has(&fields.path("id")) {
        fields.required("title", entry.title.clone());
        fields.required("url", entry.url.clone());
    }
}

fn check_entries(problems: &Problems, entries: &[BioLinkEntry], current: &[BioLink]) {
    let before = fields::size_of(current.iter().map(|link| (link.title.as_str(), link.url.as_str())));
    fields::check_size(problems, before, entries.iter().map(|entry| texts(entry, current)));
    if problems.has("links") {
        return;
    }
    let existing = |entry: &BioLinkEntry| current.iter().find(|link| entry.id == Some(link.id));
    let is_primary =
        |entry: &BioLinkEntry| entry.is_primary.clone().apply_to(existing(entry).is_some_and(|l| l.is_primary), false);
    fields::check_primary(problems, entries.iter().map(is_primary));
    let ids: HashSet<i64> = current.iter().map(|link| link.id).collect();
    let mut seen = HashSet::with_capacity(entries.len());
    for (i, id) in entries.iter().enumerate().filter_map(|(i, entry)| Some((i, entry.id?))) {
        steps::count_step();
        if !ids.contains(&id) {
            problems.add(format!("links.{i}.id"), format!("Link {id} does not exist on this page."));
        } else if !seen.insert(id) {
            problems.add(format!("links.{i}.id"), format!("{id} is a duplicate. List each ID only once."));
        }
    }
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<LinkInBioPageChange>>) -> Result<Reply<LinkInBioPage>> {
    let page = bio_pages::find_for_update(tx, cx.brand()?.id, cx.id("linkInBio")?).await?;
    let mut page = page.ok_or_else(no_such_page)?;
    let current = bio_pages::links(tx, page.id).await?;
    let (change, problems) = (parsed.partial()?.clone(), parsed.problems());
    let (slug, avatar) = (change.slug.clone().value(), change.avatar.clone().value());
    load_referenced(cx, tx, slug.as_deref(), avatar, Some(page.id)).await?.check(slug.as_deref(), avatar, &problems);
    if let PatchField::Value(entries) = &change.links {
        check_entries(&problems, entries, &current);
    }
    problems.into_result()?;
    evict_after_commit(cx, tx, &page.slug);
    page.title = change.title.value().unwrap_or(page.title);
    page.slug = change.slug.value().unwrap_or(page.slug);
    page.theme = change.theme.value().unwrap_or(page.theme);
    page.bio = change.bio.map(Some).apply_to(page.bio, None);
    page.avatar_id = change.avatar.map(Some).apply_to(page.avatar_id, None);
    page.updated_at = tx.now;
    if !bio_pages::update(tx, &page).await? {
        return Err(slug_taken());
    }
    evict_after_commit(cx, tx, &page.slug);
    match change.links {
        PatchField::Omitted => {}
        PatchField::Null => bio_pages::set_links(tx, page.id, &[]).await?,
        PatchField::Value(entries) => {
            let entries: Vec<LinkEntry> = entries.into_iter().map(|entry| merge_entry(entry, &current)).collect();
            bio_pages::set_links(tx, page.id, &entries).await?;
        }
    }
    Ok(Reply::from(LinkInBioPage::load(cx, tx, page).await?))
}

/// Returns the title and the URL of the entry's link after the change.
fn texts<'t>(entry: &'t BioLinkEntry, current: &'t [BioLink]) -> (&'t str, &'t str) {
    let existing = current.iter().find(|link| entry.id == Some(link.id));
    let title = match &entry.title {
        PatchField::Value(title) => title.as_str(),
        PatchField::Omitted | PatchField::Null => existing.map_or("", |link| link.title.as_str()),
    };
    let url = match &entry.url {
        PatchField::Value(url) => url.as_str(),
        PatchField::Omitted | PatchField::Null => existing.map_or("", |link| link.url.as_str()),
    };
    (title, url)
}

/// Fills the omitted fields of an entry with those of the link with its id.
fn merge_entry(entry: BioLinkEntry, current: &[BioLink]) -> LinkEntry {
    let existing = current.iter().find(|link| entry.id == Some(link.id));
    let old = |field: fn(&BioLink) -> &String| existing.map(|link| field(link).clone()).unwrap_or_default();
    LinkEntry {
        id: entry.id,
        title: entry.title.value().unwrap_or_else(|| old(|link| &link.title)),
        url: entry.url.value().unwrap_or_else(|| old(|link| &link.url)),
        icon: entry.icon.map(Some).apply_to(existing.and_then(|link| link.icon), None),
        is_primary: entry.is_primary.apply_to(existing.is_some_and(|link| link.is_primary), false),
    }
}
