//! `GET /brands/{brand}/link-in-bio`

use crier_domain::access::Scope;
use crier_store::{Conn, bio_pages, media};

use super::{FEATURES, LinkInBioPage, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Many, Reply};

pub fn endpoint() -> Endpoint<(), Many<LinkInBioPage>> {
    Endpoint::get("/brands/{brand}/link-in-bio", "listLinkInBioPages", Scope::LinkinbioRead)
        .tag(TAG)
        .summary("List a brand's link-in-bio pages, newest first")
        .features(FEATURES)
        .serves_leftovers()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<LinkInBioPage>>> {
    let brand = cx.brand()?.id;
    let pages = bio_pages::list(conn, brand).await?;
    let mut links = bio_pages::links_of_brand(conn, brand).await?.into_iter().peekable();
    let avatars: Vec<i64> = pages.iter().filter_map(|page| page.avatar_id).collect();
    let avatars = media::find_many(conn, brand, &avatars).await?;
    // Both lists are ordered by page, newest first. Links of a page created between the two queries are skipped.
    let records = pages.into_iter().map(|page| {
        while links.next_if(|link| link.page_id > page.id).is_some() {}
        let own: Vec<_> = std::iter::from_fn(|| links.next_if(|link| link.page_id == page.id)).collect();
        let avatar = avatars.iter().find(|asset| page.avatar_id == Some(asset.id)).cloned();
        LinkInBioPage::new(cx, page, own, avatar)
    });
    Ok(Reply::from(records.collect::<Vec<_>>()))
}
