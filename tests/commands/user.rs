//! `crier user operator` and `crier member`: an installation always has an operator, and a brand always has an owner.
//! `crier brand list`.

use serde_json::Value;

use crate::support::command::crier;
use crate::support::store::{TestStore, on_both};

on_both!(
    the_last_operator_cannot_be_removed,
    the_last_owner_cannot_be_removed,
    a_deletion_makes_nobody_an_operator,
    brands_that_a_deletion_leaves_without_members_are_named,
    brands_of_all_workspaces_are_listed,
);

fn emails(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|row| row["email"].as_str().expect("an address")).collect()
}

async fn the_last_operator_cannot_be_removed(s: TestStore) {
    let w = s.create_world().await;
    let member = s.user(w.workspace, "bob@example.com").await;
    assert!(member > 0);
    crier(&s, &["user", "operator", "add", "ann@example.com"]).expect_stdout();
    assert!(
        crier(&s, &["user", "operator", "add", "ann@example.com"]).expect_failure(1).contains("already an operator")
    );
    for args in [["user", "operator", "remove", "ann@example.com"].as_slice(), &["user", "delete", "ann@example.com"]] {
        let rejected = crier(&s, args);
        assert!(rejected.expect_failure(1).contains("the only operator"), "{rejected:?}");
    }
    let rejected = crier(&s, &["user", "operator", "remove", "bob@example.com"]);
    assert!(rejected.expect_failure(1).contains("is not an operator"), "{rejected:?}");
    crier(&s, &["user", "operator", "add", "bob@example.com"]).expect_stdout();
    crier(&s, &["user", "delete", "ann@example.com"]).expect_stdout();
    assert_eq!(emails(&crier(&s, &["user", "operator", "list", "--json"]).json()), ["bob@example.com"]);
    let history = crier(&s, &["user", "operator", "history", "--json"]).json();
    let changes: Vec<_> = history.as_array().expect("a list").iter().map(|row| row["change"].clone()).collect();
    assert_eq!(changes, ["deleted", "added", "added"], "{history}");
}

async fn the_last_owner_cannot_be_removed(s: TestStore) {
    let w = s.create_world().await;
    let brand = w.brand.to_string();
    s.user(w.workspace, "bob@example.com").await;
    let add = |user: &str, role: &str| crier(&s, &["member", "add", "--brand", &brand, "--user", user, "--role", role]);
    let remove = |user: &str| crier(&s, &["member", "remove", "--brand", &brand, "--user", user]);
    add("bob@example.com", "editor").expect_stdout();
    assert!(add("ann@example.com", "admin").expect_failure(1).contains("the only owner"));
    assert!(remove("ann@example.com").expect_failure(1).contains("the only owner"));
    let delete = |user: &str| crier(&s, &["user", "delete", user]);
    crier(&s, &["user", "operator", "add", "bob@example.com"]).expect_stdout();
    assert!(delete("ann@example.com").expect_failure(1).contains("the only owner"));
    add("ann@example.com", "owner").expect_stdout();
    add("bob@example.com", "owner").expect_stdout();
    add("ann@example.com", "admin").expect_stdout();
    remove("ann@example.com").expect_stdout();
    assert!(remove("bob@example.com").expect_failure(1).contains("the only owner"));
    // Ann owns no brand.
    delete("ann@example.com").expect_stdout();
}

async fn a_deletion_makes_nobody_an_operator(s: TestStore) {
    let w = s.create_world().await;
    s.user(w.workspace, "bob@example.com").await;
    crier(&s, &["user", "operator", "add", "ann@example.com"]).expect_stdout();
    s.sql("DELETE FROM users WHERE email = 'ann@example.com'").await;
    assert_eq!(emails(&crier(&s, &["user", "operator", "list", "--json"]).json()), Vec::<&str>::new());
}

async fn brands_that_a_deletion_leaves_without_members_are_named(s: TestStore) {
    let w = s.create_world().await;
    let brand = w.brand.to_string();
    s.world_of("eve@example.com").await;
    s.user(w.workspace, "bob@example.com").await;
    crier(&s, &["member", "add", "--brand", &brand, "--user", "bob@example.com", "--role", "owner"]).expect_stdout();
    let delete = |user: &str| crier(&s, &["user", "delete", user]).expect_stdout().to_owned();
    assert_eq!(delete("bob@example.com").trim(), "Deleted bob@example.com.");
    let deleted = delete("ann@example.com");
    let remedy = format!(
        "Brand {brand} has no members, and Crier still publishes its posts. Add another user of workspace {}: crier \
         member add --brand {brand} --user EMAIL --role owner",
        w.workspace
    );
    assert_eq!(deleted.lines().collect::<Vec<_>>(), ["Deleted ann@example.com.", &remedy]);
}

async fn brands_of_all_workspaces_are_listed(s: TestStore) {
    let (one, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let listed = crier(&s, &["brand", "list", "--json"]).json();
    let ids = |row: &Value| (row["id"].as_i64(), row["workspace_id"].as_i64());
    let found: Vec<_> = listed.as_array().expect("a list").iter().map(ids).collect();
    assert_eq!(found, [one, other].map(|w| (Some(w.brand), Some(w.workspace))));
    let table = crier(&s, &["brand", "list"]);
    let header = table.expect_stdout().lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>();
    assert_eq!(header, ["ID", "WORKSPACE_ID", "NAME", "TIMEZONE", "CREATED_AT"]);
    assert!(!table.expect_stdout().contains('.'), "times have no fractions of a second: {table:?}");
}
