//! `GET /brands/{brand}/social-accounts`

use crier_domain::access::Scope;
use crier_store::{Conn, Page, accounts};

use super::{SocialAccount, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::pagination;
use crate::response::{Listed, Paged, Reply};

pub fn endpoint() -> Endpoint<QUERY, Paged<SocialAccount>> {
    Endpoint::get("/brands/{brand}/social-accounts", "listSocialAccounts", Scope::AccountsRead)
        .tag(TAG)
        .summary("List the accounts of a brand, newest first")
        .pages()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Listed<SocialAccount>>> {
    let mut problems = cx.name_problems();
    let page = pagination::requested_page(&cx.query, &mut problems);
    if !problems.is_empty() {
        return Err(ApiError::validation(problems));
    }
    let found = accounts::list(conn, cx.brand()?.id, page).await?;
    let rows = found.rows.into_iter().map(SocialAccount::from).collect();
    pagination::respond(cx, page, Page { rows, total: found.total })
}
