//! Endpoints to manage link-in-bio pages. The public pages are in `pages/bio`.

use crier_domain::bio_page::{self, LinkIcon, Theme};
use crier_domain::media::Asset;
use crier_domain::plan::Feature;
use crier_store::{Conn, Tx, bio_pages, media, post_media};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::media::MediaAsset;
use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, Result};
use crate::openapi::schema::TextEnum;
use crate::response::Timestamp;

pub mod create;
pub mod delete;
mod fields;
pub mod list;
pub mod show;
pub mod update;

pub const TAG: &str = "Link-in-bio";
const FEATURES: &[Feature] = &[Feature::LinkInBio];

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        create::endpoint().erase(),
        show::endpoint().erase(),
        update::endpoint().erase(),
        delete::endpoint().erase(),
    ]
}

/// A link of a page.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BioLink {
    pub id: i64,
    #[schemars(extend("examples" = ["Order for tomorrow"]))]
    pub title: String,
    /// The URL as submitted.
    #[schemars(url, extend("examples" = ["https://bakery.example/order"]))]
    pub url: String,
    #[schemars(with = "Option<TextEnum<LinkIcon>>", extend("examples" = ["shop"], "x-extension" = true))]
    pub icon: Option<LinkIcon>,
    /// Whether this is the primary link, which stands out.
    #[schemars(extend("x-extension" = true))]
    pub is_primary: bool,
    /// The position on the page, starting at 1.
    pub position: i32,
    /// The number of clicks, with a delay of a few seconds.
    #[schemars(extend("examples" = [17]))]
    pub clicks: i64,
}

/// A link-in-bio page.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LinkInBioPage {
    pub id: i64,
    #[schemars(extend("examples" = ["The Corner Bakery"]))]
    pub title: String,
    #[schemars(extend("examples" = ["corner-bakery"]))]
    pub slug: String,
    #[schemars(with = "TextEnum<Theme>")]
    pub theme: Theme,
    #[schemars(extend("examples" = ["Bread from six in the morning."]))]
    pub bio: Option<String>,
    /// The image above the title.
    #[schemars(extend("x-extension" = true))]
    pub avatar: Option<MediaAsset>,
    /// The links, in the order in which they are shown.
    pub links: Vec<BioLink>,
    /// The public URL of the page.
    #[schemars(url, extend("examples" = ["https://crier.example/@corner-bakery"]))]
    pub url: String,
    /// The number of views, excluding bots, with a delay of a few seconds.
    #[schemars(extend("examples" = [240]))]
    pub views: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<bio_page::BioLink> for BioLink {
    fn from(l: bio_page::BioLink) -> Self {
        Self {
            id: l.id,
            title: l.title,
            url: l.url,
            icon: l.icon,
            is_primary: l.is_primary,
            position: l.position,
            clicks: l.clicks,
        }
    }
}

impl LinkInBioPage {
    fn new(
        cx: &Context,
        page: bio_page::BioPage,
        links: impl IntoIterator<Item = bio_page::BioLink>,
        avatar: Option<Asset>,
    ) -> Self {
        Self {
            id: page.id,
            title: page.title,
            url: format!("{}/@{}", cx.app.public_url, page.slug),
            slug: page.slug,
            theme: page.theme,
            bio: page.bio,
            avatar: avatar.map(|asset| MediaAsset::new(&cx.app.library, asset)),
            links: links.into_iter().map(Into::into).collect(),
            views: page.views,
            created_at: page.created_at.into(),
            updated_at: page.updated_at.into(),
        }
    }

    /// Loads the page's links and avatar.
    async fn load(cx: &Context, conn: &mut Conn, page: bio_page::BioPage) -> Result<Self> {
        let links = bio_pages::links(conn, page.id).await?;
        let avatar = bio_pages::avatar(conn, &page).await?;
        Ok(Self::new(cx, page, links, avatar))
    }
}

/// Evicts the slug from this process's page cache after the commit.
fn evict_after_commit(cx: &Context, tx: &mut Tx, slug: &str) {
    let (app, slug) = (cx.app.clone(), slug.to_owned());
    tx.after_commit(move || app.bio.cache.invalidate(&slug));
}

/// Loads the records that the request refers to. Locks the image, so that it is not deleted before the commit. The page
/// with the id `page` may keep its slug.
async fn load_referenced(
    cx: &Context,
    tx: &mut Tx,
    slug: Option<&str>,
    avatar: Option<i64>,
    page: Option<i64>,
) -> Result<fields::ReferencedRows> {
    let slug_is_taken = match slug {
        Some(slug) => bio_pages::is_taken(tx, slug, page).await?,
        None => false,
    };
    let brand = cx.brand()?.id;
    let avatar = match avatar {
        Some(id) => {
            post_media::lock_media(tx, brand, &[id]).await?;
            media::find(tx, brand, id).await?
        }
        None => None,
    };
    Ok(fields::ReferencedRows { slug_is_taken, avatar })
}

fn no_such_page() -> ApiError {
    ApiError::not_found("link-in-bio page")
}

fn slug_taken() -> ApiError {
    ApiError::field("slug", fields::SLUG_TAKEN)
}
