//! Permissions: the roles of a brand's members, and the modes and scopes of API keys.

use std::collections::BTreeSet;
use std::str::FromStr;

use crier_base::UnknownWord;

crier_base::text_enum! {
    pub enum Role { Owner = "owner", Admin = "admin", Editor = "editor", Contributor = "contributor" }
}

impl Role {
    /// Returns whether the member may approve and reject posts, and manage the brand's members, accounts and settings.
    pub const fn can_manage(self) -> bool {
        matches!(self, Self::Owner | Self::Admin)
    }

    /// Returns whether the member may publish. A contributor can only write drafts and submit them for approval.
    pub const fn can_publish(self) -> bool {
        !matches!(self, Self::Contributor)
    }
}

/// The maximum number of API keys of a user.
pub const MAX_KEYS: usize = 50;

crier_base::text_enum! {
    pub enum KeyMode { Live = "live", Test = "test" }
}

impl KeyMode {
    /// Returns the prefix of keys of this mode.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Live => "svc_live_",
            Self::Test => "svc_test_",
        }
    }
}

crier_base::text_enum! {
    pub enum Scope {
        BrandsRead = "brands:read",
        BrandsWrite = "brands:write",
        AccountsRead = "accounts:read",
        AccountsWrite = "accounts:write",
        PostsRead = "posts:read",
        PostsWrite = "posts:write",
        MediaRead = "media:read",
        MediaWrite = "media:write",
        AnalyticsRead = "analytics:read",
        LinkinbioRead = "linkinbio:read",
        LinkinbioWrite = "linkinbio:write",
        ContentRead = "content:read",
        ContentWrite = "content:write",
        FeedsRead = "feeds:read",
        FeedsWrite = "feeds:write",
        WebhooksRead = "webhooks:read",
        WebhooksWrite = "webhooks:write",
        AiWrite = "ai:write",
        ReportsRead = "reports:read",
        ReportsWrite = "reports:write",
        InboxRead = "inbox:read",
        InboxWrite = "inbox:write",
    }
}

/// The scopes of a key, separated by commas in the database and on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scopes(BTreeSet<Scope>);

impl Scopes {
    pub fn all() -> Self {
        Self(Scope::ALL.iter().copied().collect())
    }

    pub fn has(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }
}

impl FromStr for Scopes {
    type Err = UnknownWord;
    fn from_str(list: &str) -> Result<Self, UnknownWord> {
        if list.trim() == "all" {
            return Ok(Self::all());
        }
        list.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl std::fmt::Display for Scopes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(","))
    }
}
