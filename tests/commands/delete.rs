//! `crier brand delete` and `crier workspace delete`.

use serde_json::json;

use crate::support::command::crier;
use crate::support::store::{TestStore, on_both};

on_both!(a_brand_is_deleted_only_after_a_yes, a_workspace_is_deleted_with_its_users);

async fn a_brand_is_deleted_only_after_a_yes(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let account = s.account(w, "demo", "t").await;
    s.post(w, &[account.id]).await;
    s.post(other, &[]).await;
    let brand = w.brand.to_string();
    let rejected = crier(&s, &["brand", "delete", &brand]);
    assert!(rejected.expect_failure(1).contains("add --yes"), "{rejected:?}");
    assert_eq!(s.count_rows("posts").await, 2);
    let deleted = crier(&s, &["brand", "delete", &brand, "--yes", "--json"]).json();
    let expected = json!([{
        "id": w.brand, "name": "Bakery", "brands": 1, "posts": 1, "accounts": 1, "users": 1, "files": 0,
    }]);
    assert_eq!(deleted, expected);
    for (table, rows) in [("brands", 1), ("posts", 1), ("post_targets", 0), ("social_accounts", 0), ("users", 2)] {
        assert_eq!(s.count_rows(table).await, rows, "{table}");
    }
    let missing = crier(&s, &["brand", "delete", &brand, "--yes"]);
    assert!(missing.expect_failure(1).contains(&format!("there is no brand {brand}")), "{missing:?}");
}

async fn a_workspace_is_deleted_with_its_users(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    s.post(w, &[]).await;
    s.brand(w.workspace, w.user).await;
    let workspace = w.workspace.to_string();
    let delete = || crier(&s, &["workspace", "delete", &workspace, "--yes"]);
    crier(&s, &["user", "operator", "add", "ann@example.com"]).expect_stdout();
    let rejected = delete();
    assert!(rejected.expect_failure(1).contains("all operators are users of workspace"), "{rejected:?}");
    crier(&s, &["user", "operator", "add", "bob@example.com"]).expect_stdout();
    let deleted = delete();
    assert!(deleted.expect_stdout().starts_with(&format!("Deleted workspace {workspace} (Acme).")), "{deleted:?}");
    for (table, rows) in [("workspaces", 1), ("users", 1), ("brands", 1), ("posts", 0)] {
        assert_eq!(s.count_rows(table).await, rows, "{table}");
    }
    assert_eq!(s.number("SELECT id FROM workspaces").await, other.workspace);
    let history = crier(&s, &["user", "operator", "history", "--json"]).json();
    assert_eq!((&history[0]["email"], &history[0]["change"]), (&json!("ann@example.com"), &json!("deleted")));
    let missing = delete();
    assert!(missing.expect_failure(1).contains("there is no workspace"), "{missing:?}");
}
