//! `GET /brands/{brand}/link-in-bio/{linkInBio}`

use crier_domain::access::Scope;
use crier_store::{Conn, bio_pages};

use super::{FEATURES, LinkInBioPage, TAG, no_such_page};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::Result;
use crate::response::ApiResponse;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/brands/{brand}/link-in-bio/{linkInBio}", "getLinkInBioPage", Scope::LinkinbioRead)
        .tag(TAG)
        .summary("Get a link-in-bio page")
        .extension()
        .features(FEATURES)
        .serves_leftovers()
        .response::<LinkInBioPage>(200, ResponseShape::One)
        .reads(show)
}

pub async fn show(cx: &Context, conn: &mut Conn) -> Result<ApiResponse> {
    let page = bio_pages::find(conn, cx.brand()?.id, cx.id("linkInBio")?).await?.ok_or_else(no_such_page)?;
    ApiResponse::ok(LinkInBioPage::load(cx, conn, page).await?)
}
