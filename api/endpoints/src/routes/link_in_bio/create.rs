//! `POST /brands/{brand}/link-in-bio`

use std::sync::Arc;

use crier_base::random;
use crier_domain::access::Scope;
use crier_domain::bio_page::{self, BioPage, MAX_LINKS, MAX_PAGES, Theme};
use crier_store::bio_pages::{self, LinkEntry, NewPage};
use crier_store::{Tx, brands};
use serde_json::json;

use super::fields::{self, BIO_LENGTH, NewBioLink, TITLE_LENGTH, slug};
use super::{FEATURES, LinkInBioPage, TAG, evict_after_commit, load_referenced, show, slug_taken};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::Fields;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The maximum length of the part of a slug derived from the title. It leaves room for a number suffix.
const MAX_TITLE_PART: usize = 56;
/// The last number suffix tried (the first is 2) before a random one.
const LAST_NUMBER_SUFFIX: u32 = 5;
const RANDOM_CHARS: usize = 8;

/// The link-in-bio page to create.
#[derive(Clone, Debug, Request)]
#[request(name = "NewLinkInBioPage", check = check)]
pub struct CreateLinkInBioPageRequest {
    // An `Option`, so that problems of other fields are reported together with those of the title.
    #[field(text(TITLE_LENGTH), required, example = "Acme Bakery")]
    pub title: Option<String>,
    /// The slug of the page. Default: derived from the title.
    #[field(slug())]
    pub slug: Option<String>,
    #[field(enum_value(), default = Theme::Light, example = Theme::Ocean)]
    pub theme: Theme,
    #[field(text(BIO_LENGTH), example = "Bread since 1920")]
    pub bio: Option<String>,
    /// The ID of an image in the brand's media library.
    #[field(id(), extension)]
    pub avatar: Option<i64>,
    #[field(objects(MAX_LINKS), example = json!([
        { "title": "Our shop", "url": "https://acme.example/shop", "icon": "shop", "is_primary": true },
        { "title": "Call us", "url": "tel:+4930123456" },
    ]))]
    pub links: Option<Vec<NewBioLink>>,
}

pub fn endpoint() -> Endpoint<CreateLinkInBioPageRequest, One<LinkInBioPage>> {
    Endpoint::post("/brands/{brand}/link-in-bio", "createLinkInBioPage", Scope::LinkinbioWrite)
        .tag(TAG)
        .for_publishers()
        .adds(Growth::Records)
        .summary("Create a link-in-bio page")
        .description(
            "The slug is unique within the installation. A brand can have at most 25 pages. The titles and URLs of a \
             page's links can have at most 256 KiB in total.",
        )
        .features(FEATURES)
        .status(201)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(create)
        .with_rerender("linkInBio", show::show)
}

fn check(request: &CreateLinkInBioPageRequest, fields: &Fields<'_>) {
    let links = request.links.iter().flatten();
    fields::check_size(fields.problems, 0, links.clone().map(|link| (link.title.as_str(), link.url.as_str())));
    fields::check_primary(fields.problems, links.map(|link| link.is_primary));
}

async fn create(
    cx: &Context,
    tx: &mut Tx,
    parsed: Arc<Parsed<CreateLinkInBioPageRequest>>,
) -> Result<Reply<LinkInBioPage>> {
    let brand = cx.brand()?.id;
    let (new, problems) = (parsed.partial()?, parsed.problems());
    let (slug, avatar) = (new.slug.as_deref(), new.avatar);
    load_referenced(cx, tx, slug, avatar, None).await?.check(slug, avatar, &problems);
    problems.into_result()?;
    brands::lock(tx, brand).await?;
    let count = bio_pages::count_of_brand(tx, brand).await?;
    ApiError::check_cap("A brand", MAX_PAGES, "link-in-bio pages", count, 1)?;
    let page = insert_with_free_slug(tx, brand, new).await?;
    let links: Vec<LinkEntry> = new.links.iter().flatten().cloned().map(Into::into).collect();
    bio_pages::set_links(tx, page.id, &links).await?;
    evict_after_commit(cx, tx, &page.slug);
    let path = format!("/brands/{brand}/link-in-bio/{}", page.id);
    let id = page.id;
    Ok(Reply::at(&path, LinkInBioPage::load(cx, tx, page).await?).with_records([id]))
}

/// Creates the page with the requested slug, or with the first free slug derived from its title.
async fn insert_with_free_slug(tx: &mut Tx, brand: i64, new: &CreateLinkInBioPageRequest) -> Result<BioPage> {
    let title = new.title.as_deref().unwrap_or_default();
    let page = NewPage { title, bio: new.bio.as_deref(), theme: new.theme, avatar_id: new.avatar };
    if let Some(slug) = &new.slug {
        return bio_pages::create(tx, brand, slug, &page).await?.ok_or_else(slug_taken);
    }
    for slug in slug_candidates(title)? {
        if let Some(created) = bio_pages::create(tx, brand, &slug, &page).await? {
            return Ok(created);
        }
    }
    Err(ApiError::bug("a random slug was taken"))
}

/// Returns the slugs to try: `fresh-bread`, `fresh-bread-2`, … and a random one.
fn slug_candidates(title: &str) -> Result<Vec<String>> {
    let random = random::text(RANDOM_CHARS).map_err(|e| ApiError::bug(format!("failed to generate a slug: {e}")))?;
    let base = bio_page::slug_of(title, MAX_TITLE_PART);
    let mut slugs: Vec<String> = Vec::new();
    if let Some(base) = &base {
        slugs.push(base.clone());
        slugs.extend((2..=LAST_NUMBER_SUFFIX).map(|n| format!("{base}-{n}")));
    }
    // A hyphen and the random part leave room for 54 characters of a long title.
    let short = base.as_deref().map_or("page", |base| base.get(..54).unwrap_or(base).trim_end_matches('-'));
    slugs.push(format!("{short}-{}", random.to_ascii_lowercase()));
    Ok(slugs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slug_candidate_is_valid() {
        for title in ["Fresh bread", "日本語", &"long ".repeat(24), "x", &"-a".repeat(60)] {
            let slugs = slug_candidates(title).unwrap();
            assert!(slugs.iter().all(|slug| bio_page::is_slug(slug)), "{slugs:?}");
        }
        assert_eq!(slug_candidates("Fresh bread").unwrap()[..2], ["fresh-bread", "fresh-bread-2"]);
        let nameless = slug_candidates("日本語").unwrap();
        assert!(nameless.len() == 1 && nameless[0].starts_with("page-"), "{nameless:?}");
    }
}
