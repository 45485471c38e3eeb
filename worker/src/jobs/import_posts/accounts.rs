//! The accounts of a brand by id, name and platform.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crier_domain::platform::Platform;
use crier_imports::{AccountName, Row};
use crier_store::{Conn, PageRequest, Result, accounts};

/// The maximum number of accounts that are compared with names and platforms, the newest ones. Others are found by id.
const MAX_ACCOUNTS: i64 = 1_000;

#[derive(Default)]
pub struct BrandAccounts {
    /// The platforms of accounts by their ids.
    all: BTreeMap<i64, Platform>,
    /// The ids of accounts by their names and usernames. A file can have millions of names.
    by_name: HashMap<String, Vec<i64>>,
}

impl BrandAccounts {
    pub async fn load(conn: &mut Conn, brand_id: i64) -> Result<Self> {
        let page = PageRequest { page: 1, per_page: MAX_ACCOUNTS };
        let mut accounts = Self::default();
        for account in accounts::list(conn, brand_id, page).await?.rows {
            accounts.add(account.id, account.platform, [Some(account.name), account.username].into_iter().flatten());
        }
        Ok(accounts)
    }

    /// Also loads the accounts whose ids are in these rows or in the import.
    pub async fn load_named(&mut self, conn: &mut Conn, brand_id: i64, rows: &[Row], of_import: &[i64]) -> Result<()> {
        let names = rows.iter().filter_map(|row| row.post.as_ref().ok()).flat_map(|post| &post.accounts);
        let ids = names.filter_map(AccountName::id).chain(of_import.iter().copied());
        let unknown: BTreeSet<i64> = ids.filter(|id| !self.all.contains_key(id)).collect();
        let unknown: Vec<i64> = unknown.into_iter().collect();
        for account in accounts::summaries(conn, brand_id, &unknown).await? {
            self.add(account.id, account.platform, std::iter::empty());
        }
        Ok(())
    }

    fn add(&mut self, id: i64, platform: Platform, names: impl Iterator<Item = String>) {
        self.all.insert(id, platform);
        for name in names {
            let ids = self.by_name.entry(comparable(&name)).or_default();
            // The name and the username may be the same.
            if ids.last() != Some(&id) {
                ids.push(id);
            }
        }
    }

    /// Returns the accounts that decide which account on a platform is meant: those that the row names, or else those of
    /// the import. Empty if the name is not a platform.
    pub fn chosen(&self, name: &AccountName, of_row: &[i64], of_import: &[i64]) -> Vec<i64> {
        let AccountName::On(platform) = name else { return Vec::new() };
        let on_platform = |ids: &[i64]| -> Vec<i64> { self.on(*platform).filter(|id| ids.contains(id)).collect() };
        let named = on_platform(of_row);
        if named.is_empty() { on_platform(of_import) } else { named }
    }

    fn on(&self, platform: Platform) -> impl Iterator<Item = i64> {
        self.all.iter().filter(move |(_, of_account)| **of_account == platform).map(|(id, _)| *id)
    }

    /// Returns the id of an account. The error is a sentence.
    pub fn id(&self, name: &AccountName) -> std::result::Result<i64, String> {
        if let Some(id) = name.id().filter(|id| self.all.contains_key(id)) {
            return Ok(id);
        }
        let (found, called): (Vec<i64>, String) = match name {
            AccountName::Named(name) => {
                (self.by_name.get(&comparable(name)).cloned().unwrap_or_default(), format!("`{name}`"))
            }
            AccountName::On(platform) => (self.on(*platform).collect(), format!("on {platform}")),
        };
        match found[..] {
            [id] => Ok(id),
            [] => Err(format!("The brand has no account {called}.")),
            _ => Err(format!("The brand has {} accounts {called}. Use the ID of one.", found.len())),
        }
    }
}

/// Returns a name without case and without the sign before a username.
fn comparable(name: &str) -> String {
    name.trim().trim_start_matches('@').to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_account_decides_between_several_on_a_platform() {
        let mut all = BrandAccounts::default();
        for (id, platform) in [(1, Platform::Bluesky), (2, Platform::Bluesky), (3, Platform::Threads)] {
            all.add(id, platform, std::iter::empty());
        }
        let bluesky = AccountName::On(Platform::Bluesky);
        assert!(all.id(&bluesky).is_err());
        assert_eq!(all.chosen(&bluesky, &[2], &[1]), [2]);
        assert_eq!(all.chosen(&bluesky, &[3], &[1]), [1]);
        assert_eq!(all.chosen(&bluesky, &[3], &[3, 9]), [0_i64; 0]);
        assert_eq!(all.chosen(&AccountName::Named("2".to_owned()), &[2], &[2]), [0_i64; 0]);
    }

    #[test]
    fn accounts_are_found_by_id_name_and_username() {
        let mut all = BrandAccounts::default();
        for (id, names) in [(1, ["Bakery", "@bakery"]), (2, ["Café", "cafe"]), (3, ["Shop", "CAFE"]), (4, ["1", "one"])]
        {
            all.add(id, Platform::Bluesky, names.into_iter().map(str::to_owned));
        }
        let id = |name: &str| all.id(&AccountName::Named(name.to_owned()));
        assert_eq!((id("2"), id("bakery"), id(" @Bakery "), id("CAFÉ")), (Ok(2), Ok(1), Ok(1), Ok(2)));
        assert_eq!(id("1"), Ok(1), "an id is preferred to a name");
        assert_eq!(id("@cafe").unwrap_err(), "The brand has 2 accounts `@cafe`. Use the ID of one.");
        assert_eq!(id("9").unwrap_err(), "The brand has no account `9`.");
    }
}
