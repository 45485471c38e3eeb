//! `crier post list | show | retry`.

use crate::support::process::Installation;

#[tokio::test]
async fn failed_posts_are_listed_and_retried() {
    let s = Installation::embedded().await;
    let (brand, account) = s.sandbox("demo").await;
    let failed = s.post(brand, account, "rejected [fail] \u{200f}\u{1b}[2J").await;
    assert_eq!(s.wait_for_post(brand, failed).await["status"], "failed");
    let published = s.post(brand, account, "fine").await;
    s.wait_for_post(brand, published).await;

    let listed = s.try_command(&["post", "list", "--status", "failed", "--json"], &[]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!((listed[0]["id"].as_i64(), listed[0]["failed"].as_i64()), (Some(failed), Some(1)), "{listed}");
    assert!(listed[0]["error"].is_string(), "{listed}");
    let table = s.command(&["post", "list"]);
    assert!(table.contains("fine") && !table.contains('…'), "{table}");

    let shown = s.try_command(&["post", "show", &failed.to_string(), "--json"], &[]).json();
    assert_eq!(shown["targets"][0]["status"], "failed", "{shown}");
    assert_eq!(shown["targets"][0]["account_id"], account, "{shown}");
    // JSON contains the text unchanged; text for a terminal contains no control characters.
    assert_eq!(shown["content"], "rejected [fail] \u{200f}\u{1b}[2J");
    assert!(!s.command(&["post", "show", &failed.to_string()]).contains(['\u{200f}', '\u{1b}']));
    assert!(s.command(&["post", "show", &failed.to_string()]).contains("status     failed"));

    s.execute("UPDATE posts SET content = 'accepted' WHERE content LIKE 'rejected%'").await;
    let output = s.command(&["post", "retry", &failed.to_string()]);
    assert!(output.contains("retrying 1 account."), "{output}");
    assert_eq!(s.wait_for_post(brand, failed).await["status"], "published");
    let page = s.page("demo").await;
    assert_eq!((page.matches("accepted").count(), page.matches("fine").count()), (1, 1), "{page}");

    let rejected = s.try_command(&["post", "retry", &published.to_string(), "999"], &[]);
    let error = rejected.expect_failure(1);
    assert!(error.contains("has not failed on any account") && error.contains("there is no post 999"), "{error}");
}

#[tokio::test]
async fn a_post_with_unknown_outcome_is_retried_only_on_request() {
    let s = Installation::split().await;
    let (brand, account) = s.sandbox("demo").await;
    let post = s.post(brand, account, "lost [fail]").await;
    s.wait_for_post(brand, post).await;
    s.execute(
        r#"
        UPDATE post_targets
        SET error =
            '{"code":"outcome_unknown","category":"outcome_unknown","message":"?","platform_code":null}'"#,
    )
    .await;
    s.execute("UPDATE posts SET content = 'lost'").await;
    let rejected = s.try_command(&["post", "retry", &post.to_string()], &[]);
    assert!(
        rejected.expect_failure(1).contains(&format!("may already be published on account {account}")),
        "{rejected:?}"
    );
    s.command(&["post", "retry", "--outcome-unknown", &post.to_string()]);
    assert_eq!(s.wait_for_post(brand, post).await["status"], "published");
}
