//! Checks whether the user's consent permits an account to publish a thread or a first comment.

use crier_domain::account::AccountSummary;
use crier_platforms::permissions::{self, Action};
use crier_platforms::text::ContentProblem;

/// Returns the missing permissions of an account. Their field is `thread` or `first_comment`.
pub fn check_permissions(account: &AccountSummary, has_thread: bool, has_comment: bool) -> Vec<ContentProblem> {
    let thread = has_thread.then_some(("thread", Action::Thread));
    let comment = has_comment.then_some(("first_comment", Action::FirstComment));
    let problem = |(field, action): (&'static str, Action)| {
        let failure = permissions::rejection(account.platform, account.granted_scopes.as_deref(), action)?;
        let message = format!("Account {} ({}): {}", account.id, account.name, failure.message);
        Some(ContentProblem { field, code: "missing_permission", message })
    };
    thread.into_iter().chain(comment).filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use crier_domain::account::AccountStatus;
    use crier_domain::platform::Platform;

    use super::*;

    fn account(platform: Platform, granted_scopes: Option<&[&str]>) -> AccountSummary {
        AccountSummary {
            id: 7,
            platform,
            name: "Bakery".to_owned(),
            status: AccountStatus::Active,
            limits: None,
            granted_scopes: granted_scopes.map(|scopes| scopes.iter().map(|scope| (*scope).to_owned()).collect()),
            signature: None,
        }
    }

    fn fields(account: &AccountSummary, has_thread: bool, has_comment: bool) -> Vec<&'static str> {
        check_permissions(account, has_thread, has_comment).into_iter().map(|problem| problem.field).collect()
    }

    #[test]
    fn only_what_the_post_has_is_checked() {
        let threads = account(Platform::Threads, Some(&["threads_basic"]));
        assert_eq!(fields(&threads, true, true), ["thread", "first_comment"]);
        assert_eq!(fields(&threads, true, false), ["thread"]);
        assert_eq!(fields(&threads, false, true), ["first_comment"]);
        assert!(fields(&threads, false, false).is_empty());
    }

    #[test]
    fn an_account_with_the_permission_or_with_unknown_ones_has_no_problem() {
        let granted = account(Platform::Threads, Some(&["threads_basic", "threads_manage_replies"]));
        assert!(fields(&granted, true, true).is_empty());
        assert!(fields(&account(Platform::Threads, None), true, true).is_empty());
        assert!(fields(&account(Platform::Sandbox, None), true, true).is_empty());
    }

    #[test]
    fn the_message_names_the_account_and_the_permission() {
        let problem = check_permissions(&account(Platform::Facebook, Some(&[])), false, true).remove(0);
        assert_eq!(problem.code, "missing_permission");
        assert!(problem.message.starts_with("Account 7 (Bakery): Facebook"), "{problem:?}");
        assert!(problem.message.contains("Missing: pages_manage_engagement."), "{problem:?}");
    }
}
