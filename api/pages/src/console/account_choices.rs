//! The accounts that a form offers to choose from.

use crier_domain::account::SocialAccount;
use crier_endpoints::error::Result;
use crier_store::{Conn, PageRequest, accounts};

use super::visit::Visit;

/// The maximum number of accounts, the newest ones, in addition to those that are chosen.
const MAX_ACCOUNTS: i64 = 100;

/// Returns the newest accounts of the brand, and all chosen ones that are connected: otherwise, saving the form would
/// remove those that are not among the newest.
pub async fn load(visit: &Visit, conn: &mut Conn, chosen: &[i64]) -> Result<Vec<SocialAccount>> {
    let brand = visit.brand()?.0.id;
    let mut found = accounts::list(conn, brand, PageRequest { page: 1, per_page: MAX_ACCOUNTS }).await?.rows;
    let missing = |id: &i64| !found.iter().any(|account| account.id == *id);
    let others: Vec<i64> = chosen.iter().copied().filter(missing).collect();
    found.extend(accounts::find_many(conn, brand, &others).await?);
    Ok(found)
}
