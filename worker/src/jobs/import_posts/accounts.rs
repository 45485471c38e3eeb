//! The accounts of a brand by id, name and platform.

use crier_domain::platform::Platform;
use crier_imports::AccountName;
use crier_store::{Conn, PageRequest, Result, accounts};

/// The maximum number of accounts that are compared with names.
const MAX_ACCOUNTS: i64 = 1_000;

pub struct BrandAccounts(Vec<BrandAccount>);

struct BrandAccount {
    id: i64,
    platform: Platform,
    names: Vec<String>,
}

impl BrandAccounts {
    pub async fn load(conn: &mut Conn, brand_id: i64) -> Result<Self> {
        let page = PageRequest { page: 1, per_page: MAX_ACCOUNTS };
        let all = accounts::list(conn, brand_id, page).await?.rows.into_iter();
        let account = |account: crier_domain::account::SocialAccount| BrandAccount {
            id: account.id,
            platform: account.platform,
            names: [Some(account.name), account.username].into_iter().flatten().map(|name| comparable(&name)).collect(),
        };
        Ok(Self(all.map(account).collect()))
    }

    /// Returns the accounts that decide which account on a platform is meant: those that the row names, or else those of
    /// the import. Empty if the name is not a platform.
    pub fn chosen(&self, name: &AccountName, of_row: &[i64], of_import: &[i64]) -> Vec<i64> {
        let AccountName::On(platform) = name else { return Vec::new() };
        let on_platform = |ids: &[i64]| -> Vec<i64> {
            let accounts = self.0.iter().filter(|one| one.platform == *platform && ids.contains(&one.id));
            accounts.map(|one| one.id).collect()
        };
        let named = on_platform(of_row);
        if named.is_empty() { on_platform(of_import) } else { named }
    }

    /// Returns the id of an account. The error is a sentence.
    pub fn id(&self, name: &AccountName) -> std::result::Result<i64, String> {
        let (found, called): (Vec<&BrandAccount>, String) = match name {
            AccountName::Named(name) => {
                if let Some(account) = name.parse().ok().and_then(|id: i64| self.0.iter().find(|one| one.id == id)) {
                    return Ok(account.id);
                }
                let wanted = comparable(name);
                (self.0.iter().filter(|one| one.names.contains(&wanted)).collect(), format!("`{name}`"))
            }
            AccountName::On(platform) => {
                (self.0.iter().filter(|one| one.platform == *platform).collect(), format!("on {platform}"))
            }
        };
        match found[..] {
            [account] => Ok(account.id),
            [] => Err(format!("The brand has no account {called}.")),
            _ => Err(format!("The brand has {} accounts {called}. Use the id of one.", found.len())),
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
        let account = |id: i64, platform: Platform| BrandAccount { id, platform, names: Vec::new() };
        let all = BrandAccounts(vec![
            account(1, Platform::Bluesky),
            account(2, Platform::Bluesky),
            account(3, Platform::Threads),
        ]);
        let bluesky = AccountName::On(Platform::Bluesky);
        assert!(all.id(&bluesky).is_err());
        assert_eq!(all.chosen(&bluesky, &[2], &[1]), [2]);
        assert_eq!(all.chosen(&bluesky, &[3], &[1]), [1]);
        assert_eq!(all.chosen(&bluesky, &[3], &[3, 9]), [0_i64; 0]);
        assert_eq!(all.chosen(&AccountName::Named("2".to_owned()), &[2], &[2]), [0_i64; 0]);
    }
}
