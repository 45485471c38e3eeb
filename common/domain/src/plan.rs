//! The limits of a workspace. A plan is a set of limits and features; [`Plans`] are the plans of this installation: the
//! built-in ones, or those of `CRIER_PLANS_FILE`.

use std::collections::{BTreeMap, BTreeSet};

crier_base::text_enum! {
    /// A feature that a plan can include. It makes its endpoints available.
    pub enum Feature {
        BasicAnalytics = "basic_analytics",
        Analytics = "analytics",
        LinkInBio = "link_in_bio",
        Webhooks = "webhooks",
        FeedReader = "feed_reader",
        ContentStrategy = "content_strategy",
        Reports = "reports",
        Inbox = "inbox",
        Approvals = "approvals",
    }
}

/// The limit of plans that set none. The rate limit headers need a value, and it stops a runaway client.
pub const MAX_REQUESTS_PER_MINUTE: u32 = 1_000_000;

/// The history of analytics of plans that set none, in days: ten years.
pub const MAX_ANALYTICS_DAYS: u64 = 3_650;

/// The limits of a workspace. `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub name: String,
    pub brands: Option<u64>,
    /// Per brand.
    pub social_accounts: Option<u64>,
    pub posts_per_month: Option<u64>,
    pub storage_mib: Option<u64>,
    /// Per month.
    pub ai_credits: Option<u64>,
    pub requests_per_minute: Option<u64>,
    /// How far back analytics go, in days.
    pub analytics_days: Option<u64>,
    /// Per UTC day; each recipient counts.
    pub report_mails_per_day: Option<u64>,
    pub features: BTreeSet<Feature>,
}

impl Plan {
    /// The keys of the limits in a plans file.
    pub const LIMITS: &'static [&'static str] = &[
        "brands",
        "social_accounts",
        "posts_per_month",
        "storage_mib",
        "ai_credits",
        "requests_per_minute",
        "analytics_days",
        "report_mails_per_day",
    ];

    /// Returns the storage limit in bytes.
    pub fn storage_bytes(&self) -> Option<u64> {
        self.storage_mib.map(|mib| mib.saturating_mul(1 << 20))
    }

    /// Returns the AI credits that are left this month if `used` are used; `None` if there is no limit.
    pub fn credits_left(&self, used: i64) -> Option<u64> {
        self.ai_credits.map(|cap| cap.saturating_sub(u64::try_from(used).unwrap_or(0)))
    }

    pub fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// Returns whether a workspace with this usage may store more texts.
    pub fn has_room_for_texts(&self, stored: StorageUsage) -> bool {
        self.storage_bytes()
            .is_none_or(|cap| stored.texts <= FREE_TEXTS || u64::try_from(stored.total()).unwrap_or_default() < cap)
    }

    /// Creates a plan. The limits are in the order of [`Plan::LIMITS`].
    fn built_in(name: &str, limits: [Option<u64>; 8], features: &[Feature]) -> Self {
        let [
            brands,
            social_accounts,
            posts_per_month,
            storage_mib,
            ai_credits,
            requests_per_minute,
            analytics_days,
            report_mails_per_day,
        ] = limits;
        Self {
            name: name.to_owned(),
            brands,
            social_accounts,
            posts_per_month,
            storage_mib,
            ai_credits,
            requests_per_minute,
            analytics_days,
            report_mails_per_day,
            features: features.iter().copied().collect(),
        }
    }
}

/// The texts that a workspace may always store, in bytes, even if its files use all of its storage: a full media
/// library does not prevent posts.
const FREE_TEXTS: i64 = 16 << 20;

/// The storage that a workspace uses, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageUsage {
    /// Images and reports, without thumbnails.
    pub files: i64,
    /// Posts and messages.
    pub texts: i64,
}

impl StorageUsage {
    pub const fn total(self) -> i64 {
        self.files.saturating_add(self.texts)
    }

    /// Returns the total in MiB. Files are rounded up, and texts down, so that a few posts do not count as a MiB.
    pub const fn mib(self) -> i64 {
        whole_mib(self.files) + (self.texts >> 20)
    }
}

/// Converts bytes to MiB, rounded up.
pub const fn whole_mib(bytes: i64) -> i64 {
    (bytes + (1 << 20) - 1) >> 20
}

/// The plans of this installation, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plans(BTreeMap<String, Plan>);

impl Plans {
    /// The plan of the workspace that the first start creates.
    pub const UNLIMITED: &'static str = "unlimited";

    pub fn new(plans: impl IntoIterator<Item = Plan>) -> Self {
        Self(plans.into_iter().map(|plan| (plan.name.clone(), plan)).collect())
    }

    pub fn get(&self, name: &str) -> Option<&Plan> {
        self.0.get(name)
    }

    /// Returns whether the plan of this name exists and includes the feature.
    pub fn include(&self, name: &str, feature: Feature) -> bool {
        self.get(name).is_some_and(|plan| plan.has(feature))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Plan> {
        self.0.values()
    }

    /// Returns the plans in use that are not in the set. The set must contain all of them.
    pub fn missing<'a>(&self, in_use: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        in_use.into_iter().filter(|name| !self.0.contains_key(*name)).collect()
    }
}

impl Default for Plans {
    /// Returns the built-in plans.
    fn default() -> Self {
        use Feature::{BasicAnalytics, LinkInBio};
        let pro: Vec<Feature> = Feature::ALL.iter().copied().filter(|feature| *feature != Feature::Approvals).collect();
        let some = |limits: [u64; 8]| limits.map(Some);
        let unlimited = [None, None, None, None, Some(1_000_000), Some(6_000), Some(1_825), None];
        Self::new([
            Plan::built_in("free", some([1, 3, 30, 500, 100, 60, 30, 20]), &[BasicAnalytics, LinkInBio]),
            Plan::built_in("pro", some([5, 15, 1_000, 20_480, 5_000, 300, 365, 500]), &pro),
            Plan::built_in("business", some([50, 100, 20_000, 512_000, 50_000, 1_200, 1_095, 5_000]), Feature::ALL),
            Plan::built_in(Self::UNLIMITED, unlimited, Feature::ALL),
        ])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn a_full_library_leaves_room_for_some_texts() {
        let plan = Plan { storage_mib: Some(100), ..Plan::default() };
        let fits = |files: i64, texts: i64| plan.has_room_for_texts(StorageUsage { files, texts });
        assert!(fits(100 << 20, FREE_TEXTS) && !fits(100 << 20, FREE_TEXTS + 4096));
        assert!(fits(0, (100 << 20) - 4096) && !fits(0, 100 << 20) && !fits(50 << 20, 50 << 20));
        assert!(Plan::default().has_room_for_texts(StorageUsage { files: 1 << 60, texts: 1 << 60 }));
        let none = Plan { storage_mib: Some(0), ..Plan::default() };
        assert!(none.has_room_for_texts(StorageUsage { files: 0, texts: FREE_TEXTS }));
    }

    #[test]
    fn storage_is_shown_in_mib() {
        let mib = |files: i64, texts: i64| StorageUsage { files, texts }.mib();
        assert_eq!([mib(0, 0), mib(1, 4096), mib(1 << 20, (1 << 20) - 1), mib(0, 1 << 20)], [0, 1, 1, 1]);
    }

    #[test]
    fn built_in_plans_match_the_contract() {
        let plans = Plans::default();
        assert_eq!(plans.names().collect::<Vec<_>>(), ["business", "free", "pro", "unlimited"]);
        let (free, pro, business) =
            (plans.get("free").unwrap(), plans.get("pro").unwrap(), plans.get("business").unwrap());
        assert_eq!((free.brands, free.storage_mib, free.analytics_days), (Some(1), Some(500), Some(30)));
        assert_eq!((pro.social_accounts, pro.ai_credits, pro.requests_per_minute), (Some(15), Some(5_000), Some(300)));
        assert_eq!((business.posts_per_month, business.storage_mib), (Some(20_000), Some(512_000)));
        let unlimited = plans.get(Plans::UNLIMITED).unwrap();
        let mails = [free, pro, business, unlimited].map(|plan| plan.report_mails_per_day);
        assert_eq!(mails, [Some(20), Some(500), Some(5_000), None]);
        assert_eq!((unlimited.brands, unlimited.ai_credits), (None, Some(1_000_000)));
        assert_eq!(free.features.len(), 2);
        assert!(pro.has(Feature::Inbox) && !pro.has(Feature::Approvals));
        assert!(business.has(Feature::Approvals) && unlimited.has(Feature::Approvals));
    }
}
