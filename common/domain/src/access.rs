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

    /// Returns this role, or the limit of a key if that allows less.
    pub fn limited_to(self, limit: Option<Self>) -> Self {
        // The roles are declared in descending order of what they allow.
        limit.map_or(self, |limit| self.max(limit))
    }
}

/// The maximum number of API keys of a user.
pub const MAX_KEYS: usize = 50;

/// The name of an API key, by which its user recognizes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyName(String);

impl KeyName {
    /// The maximum length, in characters.
    pub const MAX: usize = 100;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let name = text.trim();
        let is_valid = (1..=Self::MAX).contains(&name.chars().count()) && !name.contains(char::is_control);
        if is_valid { Ok(Self(name.to_owned())) } else { Err("Must be one line of 1 to 100 characters.") }
    }
}

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

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the scopes in the order of their declaration.
    pub fn iter(&self) -> impl Iterator<Item = Scope> {
        self.0.iter().copied()
    }

    /// Returns the scopes that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        self.0.intersection(&other.0).copied().collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().collect())
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

crier_base::text_enum! {
    /// What a key or an OAuth grant of an agent allows.
    pub enum AgentPreset { ReadOnly = "read_only", Drafts = "drafts", Publish = "publish" }
}

impl AgentPreset {
    pub const fn label(self) -> &'static str {
        match self {
            Self::ReadOnly => "Read only",
            Self::Drafts => "Drafts only",
            Self::Publish => "Publish",
        }
    }

    pub fn scopes(self) -> Scopes {
        Scope::ALL.iter().copied().filter(|scope| self.includes(*scope)).collect()
    }

    /// Returns the scopes that at least one preset has.
    pub fn all_scopes() -> Scopes {
        Scope::ALL.iter().copied().filter(|scope| Self::ALL.iter().any(|preset| preset.includes(*scope))).collect()
    }

    /// Returns the role to which a key is limited. No scope forbids publishing, but a contributor cannot publish.
    pub const fn role_limit(self) -> Option<Role> {
        match self {
            Self::Drafts => Some(Role::Contributor),
            Self::ReadOnly | Self::Publish => None,
        }
    }

    /// Returns the preset with exactly these scopes and this limit.
    pub fn of(scopes: &Scopes, role_limit: Option<Role>) -> Option<Self> {
        Self::ALL.iter().copied().find(|preset| preset.role_limit() == role_limit && preset.scopes() == *scopes)
    }

    const fn includes(self, scope: Scope) -> bool {
        match scope {
            Scope::BrandsRead
            | Scope::AccountsRead
            | Scope::PostsRead
            | Scope::MediaRead
            | Scope::AnalyticsRead
            | Scope::LinkinbioRead
            | Scope::ContentRead
            | Scope::ReportsRead => true,
            // Texts of strangers may contain instructions, so an agent that reads them must not publish, and must not
            // import media: the URL could contain what it reads.
            Scope::FeedsRead | Scope::InboxRead => matches!(self, Self::ReadOnly),
            Scope::PostsWrite | Scope::MediaWrite | Scope::AiWrite => !matches!(self, Self::ReadOnly),
            // Webhooks and schedules of reports send data to other people.
            Scope::WebhooksRead
            | Scope::WebhooksWrite
            | Scope::ReportsWrite
            | Scope::BrandsWrite
            | Scope::AccountsWrite
            | Scope::LinkinbioWrite
            | Scope::ContentWrite
            | Scope::FeedsWrite
            | Scope::InboxWrite => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_never_raises_a_role() {
        assert_eq!(Role::Owner.limited_to(None), Role::Owner);
        assert_eq!(Role::Owner.limited_to(Some(Role::Contributor)), Role::Contributor);
        assert_eq!(Role::Editor.limited_to(Some(Role::Contributor)), Role::Contributor);
        assert_eq!(Role::Contributor.limited_to(Some(Role::Admin)), Role::Contributor);
        assert_eq!(Role::Owner.limited_to(Some(Role::Editor)), Role::Editor);
    }

    #[test]
    fn names_of_keys_are_one_line() {
        let name = |text: &str| text.parse::<KeyName>().ok();
        assert_eq!(name(" Claude Code ").unwrap().as_str(), "Claude Code");
        assert!(name(&"é".repeat(KeyName::MAX)).is_some());
        for text in ["", " ", "a\nb", "a\u{1b}[2Jb", &"é".repeat(KeyName::MAX + 1)] {
            assert_eq!(name(text), None, "{text:?}");
        }
    }

    #[test]
    fn presets_allow_what_their_names_say() {
        let read_only = AgentPreset::ReadOnly.scopes();
        let is_read = |scope: &Scope| scope.as_str().ends_with(":read");
        let reads = Scope::ALL.iter().copied().filter(|scope| is_read(scope) && *scope != Scope::WebhooksRead);
        assert_eq!(read_only, reads.collect::<Scopes>());
        let drafts = AgentPreset::Drafts.scopes();
        assert!(drafts.has(Scope::PostsWrite) && AgentPreset::Drafts.role_limit() == Some(Role::Contributor));
        let publish = AgentPreset::Publish.scopes();
        assert!(publish.has(Scope::PostsWrite) && AgentPreset::Publish.role_limit().is_none());
        // They differ by the role. Neither reads texts of strangers.
        assert_eq!(drafts, publish);
        let of_strangers: Scopes = [Scope::FeedsRead, Scope::InboxRead].into_iter().collect();
        assert!(publish.intersection(&of_strangers).is_empty());
        assert_eq!(read_only.intersection(&of_strangers), of_strangers);
        assert_eq!(AgentPreset::all_scopes(), read_only.iter().chain(drafts.iter()).collect::<Scopes>());
        for preset in AgentPreset::ALL {
            assert_eq!(AgentPreset::of(&preset.scopes(), preset.role_limit()), Some(*preset));
        }
        assert_eq!(AgentPreset::of(&read_only, Some(Role::Contributor)), None);
    }
}
