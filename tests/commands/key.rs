//! `crier key`: the maximum number of keys of a user.

use crier_domain::access::MAX_KEYS;

use crate::support::command::crier;
use crate::support::store::{TestStore, on_both};

on_both!(a_key_beyond_the_maximum_is_rejected, a_key_has_a_name_and_scopes);

async fn a_key_has_a_name_and_scopes(s: TestStore) {
    s.create_world().await;
    let create = |name: &str| crier(&s, &["key", "create", "--user", "ann@example.com", "--name", name]);
    create(" Shop ").expect_stdout();
    crier(&s, &["key", "create", "--user", "ann@example.com"]).expect_stdout();
    let no_scope = crier(&s, &["key", "create", "--user", "ann@example.com", "--scopes", ","]);
    assert!(no_scope.expect_failure(1).contains("--scopes must name at least one scope"), "{no_scope:?}");
    assert!(create(&"x".repeat(101)).expect_failure(2).contains("Must be one line of 1 to 100 characters."));
    let keys = crier(&s, &["key", "list", "--json"]).json();
    let names: Vec<_> = keys.as_array().unwrap().iter().map(|key| key["name"].as_str()).collect();
    assert_eq!(names, [Some("Shop"), None]);
}

async fn a_key_beyond_the_maximum_is_rejected(s: TestStore) {
    let w = s.create_world().await;
    for _ in 0..MAX_KEYS - 1 {
        s.key(w.user).await;
    }
    let create = || crier(&s, &["key", "create", "--user", "ann@example.com"]);
    assert!(create().expect_stdout().starts_with("svc_live_"));
    let rejected = create();
    let message = rejected.expect_failure(1);
    assert!(message.contains("already has 50 API keys, the maximum"), "{message}");
    assert!(message.contains("crier key delete ID"), "{message}");
    let keys = crier(&s, &["key", "list", "--json"]).json();
    assert_eq!(keys.as_array().unwrap().len(), MAX_KEYS);
    crier(&s, &["key", "delete", &keys[0]["id"].to_string()]).expect_stdout();
    create().expect_stdout();
}
