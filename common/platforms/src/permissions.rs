//! The permissions that publishing a post does not need, and that accounts are therefore connected without: those to
//! publish threads and first comments, and to delete posts. A missing one is reported before a post is accepted.
//!
//! Permissions that each consent includes are not listed. A consent without them connects no account.

use crier_domain::failure::Failure;
use crier_domain::platform::{ConnectTarget, Platform};

use crate::inbox::permission::missing_permission;
use crate::{instagram, youtube};

/// What an account does in addition to publishing posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Thread,
    FirstComment,
    Unpublish,
}

impl Action {
    pub const ALL: [Self; 3] = [Self::Thread, Self::FirstComment, Self::Unpublish];

    /// Completes "does not allow Crier to …".
    fn purpose(self) -> &'static str {
        match self {
            Self::Thread => "publish threads",
            Self::FirstComment => "comment on this account's posts",
            Self::Unpublish => "delete this account's posts",
        }
    }
}

/// Returns why an account's consent does not permit an action. `granted` has the granted scopes; with `None` they are
/// unknown, and the platform decides.
pub fn rejection(platform: Platform, granted: Option<&[String]>, action: Action) -> Option<Failure> {
    let granted = granted?;
    let has = |scope: &str| granted.iter().any(|one| one == scope);
    let target = match platform {
        // Each consent for a page, and no other, includes this scope.
        Platform::Instagram if has("instagram_basic") => ConnectTarget::Page,
        Platform::Linkedin if has("w_organization_social") => ConnectTarget::Page,
        _ => ConnectTarget::Default,
    };
    if (platform, target, action) == (Platform::Instagram, ConnectTarget::Default, Action::Unpublish) {
        return Some(instagram::cannot_delete());
    }
    let scope = required(platform, target, action).filter(|scope| !has(scope))?;
    Some(missing_permission(platform, target, action.purpose(), scope))
}

/// Returns the scope that an action requires. `None` if each consent permits the action.
fn required(platform: Platform, target: ConnectTarget, action: Action) -> Option<&'static str> {
    Some(match (platform, target, action) {
        (Platform::Threads, _, Action::Thread | Action::FirstComment) => "threads_manage_replies",
        (Platform::Threads, _, Action::Unpublish) => "threads_delete",
        (Platform::Instagram, ConnectTarget::Default, Action::FirstComment) => "instagram_business_manage_comments",
        (Platform::Instagram, ConnectTarget::Page, Action::FirstComment) => "instagram_manage_comments",
        (Platform::Instagram, ConnectTarget::Page, Action::Unpublish) => "instagram_manage_contents",
        (Platform::Facebook, _, Action::FirstComment) => "pages_manage_engagement",
        (Platform::Linkedin, ConnectTarget::Default, Action::FirstComment) => "w_member_social_feed",
        (Platform::Linkedin, ConnectTarget::Page, Action::FirstComment) => "w_organization_social_feed",
        (Platform::Youtube, _, Action::FirstComment | Action::Unpublish) => youtube::MANAGE,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection_of(platform: Platform, granted: &str, action: Action) -> Option<Failure> {
        let granted: Vec<String> = granted.split_whitespace().map(str::to_owned).collect();
        rejection(platform, Some(&granted), action)
    }

    #[test]
    fn a_missing_permission_is_named_with_its_variable() {
        use Action::{FirstComment, Thread, Unpublish};
        for (platform, granted, action, scope, variable) in [
            (Platform::Threads, "threads_basic", Thread, "threads_manage_replies", "THREADS"),
            (Platform::Threads, "threads_delete", FirstComment, "threads_manage_replies", "THREADS"),
            (Platform::Threads, "threads_manage_replies", Unpublish, "threads_delete", "THREADS"),
            (Platform::Instagram, "x", FirstComment, "instagram_business_manage_comments", "INSTAGRAM"),
            (Platform::Instagram, "instagram_basic", FirstComment, "instagram_manage_comments", "INSTAGRAM_PAGE"),
            (Platform::Instagram, "instagram_basic", Unpublish, "instagram_manage_contents", "INSTAGRAM_PAGE"),
            (Platform::Facebook, "", FirstComment, "pages_manage_engagement", "FACEBOOK"),
            (Platform::Linkedin, "w_member_social", FirstComment, "w_member_social_feed", "LINKEDIN"),
            (Platform::Linkedin, "w_organization_social", FirstComment, "w_organization_social_feed", "LINKEDIN_PAGE"),
        ] {
            let failure = rejection_of(platform, granted, action).unwrap();
            let end = format!("Missing: {scope}. Set it in CRIER_{variable}_SCOPES and connect the account again.");
            assert!(failure.message.ends_with(&end), "{failure:?}");
            assert_eq!(failure.code, "missing_permission");
            assert_eq!(rejection_of(platform, &format!("{granted} {scope}"), action), None);
        }
    }

    #[test]
    fn a_deselected_permission_of_youtube_needs_a_new_consent() {
        let upload = "https://www.googleapis.com/auth/youtube.upload";
        for action in [Action::FirstComment, Action::Unpublish] {
            let failure = rejection_of(Platform::Youtube, upload, action).unwrap();
            let end = format!("Missing: {}. Connect the account again and allow it.", youtube::MANAGE);
            assert!(failure.message.ends_with(&end), "{failure:?}");
            assert_eq!(rejection_of(Platform::Youtube, &format!("{upload} {}", youtube::MANAGE), action), None);
        }
    }

    #[test]
    fn an_account_of_instagrams_own_login_cannot_delete() {
        let failure = rejection_of(Platform::Instagram, "instagram_business_basic", Action::Unpublish).unwrap();
        assert_eq!(failure.code, "not_supported");
    }

    #[test]
    fn unknown_scopes_and_other_platforms_are_left_to_the_platform() {
        for action in Action::ALL {
            assert!(Platform::ALL.iter().all(|platform| rejection(*platform, None, action).is_none()), "{action:?}");
            assert_eq!(rejection_of(Platform::Mastodon, "write:statuses", action), None);
        }
    }
}
