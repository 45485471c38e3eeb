//! `GET /brands/{brand}/social-accounts`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_store::{Conn, accounts};

use super::{SocialAccount, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::request::{Pages, Parsed};
use crate::response::{Listed, Paged, Reply};

pub fn endpoint() -> Endpoint<Pages, Paged<SocialAccount>> {
    Endpoint::get("/brands/{brand}/social-accounts", "listSocialAccounts", Scope::AccountsRead)
        .tag(TAG)
        .summary("List a brand's accounts, newest first")
        .checks_then_reads(list)
}

async fn list(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<Pages>>) -> Result<Reply<Listed<SocialAccount>>> {
    let page = parsed.valid()?.request();
    let found = accounts::list(conn, cx.brand()?.id, page).await?;
    Ok(Listed::from_rows(page, found, SocialAccount::from).into())
}
