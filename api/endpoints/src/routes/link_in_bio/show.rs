//! `GET /brands/{brand}/link-in-bio/{linkInBio}`

use crier_domain::access::Scope;
use crier_store::{Conn, bio_pages};

use super::{FEATURES, LinkInBioPage, TAG, no_such_page};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<LinkInBioPage>> {
    Endpoint::get("/brands/{brand}/link-in-bio/{linkInBio}", "getLinkInBioPage", Scope::LinkinbioRead)
        .tag(TAG)
        .summary("Get a link-in-bio page")
        .extension()
        .features(FEATURES)
        .serves_leftovers()
        .reads(show)
}

pub async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<LinkInBioPage>> {
    let page = bio_pages::find(conn, cx.brand()?.id, cx.id("linkInBio")?).await?.ok_or_else(no_such_page)?;
    Ok(Reply::from(LinkInBioPage::load(cx, conn, page).await?))
}
