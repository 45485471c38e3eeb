//! The accounts of a post, for the checks.

use std::collections::HashMap;

use crier_domain::account::AccountSummary;
use crier_store::{Conn, accounts};

use super::edit::DesiredPost;
use crate::context::Context;
use crate::error::Result;

/// The post's accounts that belong to the brand, by id.
pub type Accounts = HashMap<i64, AccountSummary>;

pub fn by_id(accounts: Vec<AccountSummary>) -> Accounts {
    accounts.into_iter().map(|account| (account.id, account)).collect()
}

/// Returns those of the desired accounts that belong to the brand.
pub async fn load(cx: &Context, conn: &mut Conn, desired: &DesiredPost) -> Result<Accounts> {
    let ids: Vec<i64> = desired.targets.iter().map(|target| target.account_id).collect();
    Ok(by_id(accounts::summaries(conn, cx.brand()?.id, &ids).await?))
}
