//! `crier account connect` and `crier app`: the commands with which an operator sets up connections.

use crier_domain::application::{Application, Owner};
use crier_domain::platform::{ConnectTarget, Platform};
use crier_store::applications::{self, NewApplication};
use serde_json::json;

use crate::support::command::{CommandOutput, command, crier, run};
use crate::support::store::{TestStore, on_one};

on_one!(
    a_url_for_a_mastodon_server_is_printed,
    a_url_for_a_shop_is_printed,
    invalid_connections_are_rejected,
    applications_are_set_listed_and_deleted,
);

/// Runs a command with a secret on standard input.
fn run_with_secret(s: &TestStore, secret: &str, args: &[&str]) -> CommandOutput {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    std::fs::write(&file, secret).unwrap();
    let stdin = std::fs::File::open(&file).unwrap();
    run(command(s, args).stdin(stdin).env("CRIER_DATA_DIR", dir.path()).current_dir(dir.path()))
}

async fn a_url_for_a_mastodon_server_is_printed(s: TestStore) {
    let w = s.create_world().await;
    let brand = w.brand.to_string();
    // A public IP address needs no name server.
    let args = ["account", "connect", "mastodon", "--brand", &brand, "--instance", "8.8.8.8"];
    let printed = crier(&s, &args);
    let (start, token) = printed.expect_stdout().trim_end().rsplit_once('/').unwrap();
    assert_eq!((start, token.len()), ("http://127.0.0.1:8080/connect", 43));
    let instance: String = s.value("SELECT instance FROM authorizations").await;
    assert_eq!(instance, "https://8.8.8.8");
    s.account(w, "demo", "t").await;
    let listed = crier(&s, &["account", "list", "--json"]).json();
    assert_eq!((&listed[0]["platform"], &listed[0]["status"]), (&json!("sandbox"), &json!("active")));
    assert_eq!(listed[0]["workspace_id"], w.workspace, "{listed}");
    assert!(!listed.to_string().contains("token\":\"t"), "{listed}");
}

async fn a_url_for_a_shop_is_printed(s: TestStore) {
    let brand = s.create_world().await.brand.to_string();
    let args = ["account", "connect", "shopify", "--brand", &brand, "--shop", "https://Rye.myshopify.com/"];
    let half = run(command(&s, &args).env("CRIER_SHOPIFY_CLIENT_ID", "id"));
    assert!(half.expect_failure(1).contains("no application is set"), "{half:?}");
    let printed =
        run(command(&s, &args).env("CRIER_SHOPIFY_CLIENT_ID", "id").env("CRIER_SHOPIFY_CLIENT_SECRET", "shh"));
    assert!(printed.expect_stdout().contains("/connect/"), "{printed:?}");
    let instance: String = s.value("SELECT instance FROM authorizations").await;
    assert_eq!(instance, "https://rye.myshopify.com");
    let set = |platform: &str| run_with_secret(&s, "shh", &["app", "set", "--platform", platform, "--client-id", "id"]);
    assert!(set("shopify").expect_stdout().contains("/connect/callback/shopify"));
    assert!(set("mastodon").expect_failure(1).contains("does not need an application"));
}

async fn invalid_connections_are_rejected(s: TestStore) {
    let brand = s.create_world().await.brand.to_string();
    let connect = |args: &[&str]| crier(&s, &[&["account", "connect"], args].concat());
    for (args, reason) in [
        (vec!["mastodon", "--brand", &brand], "requires --instance"),
        (vec!["mastodon", "--brand", &brand, "--instance", "http://127.0.0.1"], "must"),
        (vec!["mastodon", "--brand", &brand, "--instance", "https://127.0.0.1"], "public"),
        (vec!["mastodon", "--brand", &brand, "--instance", "https://8.8.8.8/@ann"], "only the server"),
        (vec!["mastodon", "--brand", "999", "--instance", "8.8.8.8"], "there is no brand 999; see `crier brand list`"),
        (
            vec!["mastodon", "--brand", &brand, "--instance", "8.8.8.8", "--target", "page"],
            "does not support --target page",
        ),
        (vec!["shopify", "--brand", &brand], "requires --shop"),
        (vec!["shopify", "--brand", &brand, "--shop", "shop.example"], "own domain"),
        (vec!["shopify", "--brand", &brand, "--shop", "x.myshopify.com.evil.example"], "own domain"),
        (vec!["shopify", "--brand", &brand, "--shop", "x.myshopify.com"], "no application is set for shopify"),
        (vec!["telegram", "--brand", &brand], "with credentials"),
        (vec!["reddit", "--brand", &brand], "no application is set for reddit"),
        (vec!["linkedin", "--brand", &brand, "--target", "page"], "no application is set for linkedin"),
    ] {
        let output = connect(&args);
        assert!(output.expect_failure(1).contains(reason), "{args:?}: {output:?}");
    }
    assert_eq!(s.count_rows("authorizations").await, 0);
}

async fn applications_are_set_listed_and_deleted(s: TestStore) {
    let w = s.create_world().await;
    let (brand, workspace) = (w.brand.to_string(), w.workspace.to_string());
    let set = |secret: &str, args: &[&str]| {
        run_with_secret(&s, secret, &[&["app", "set", "--platform", "tumblr", "--client-id", "id-1"], args].concat())
    };
    let output = set("secret-1\n", &[]);
    assert!(output.expect_stdout().contains("http://127.0.0.1:8080/connect/callback/tumblr"), "{output:?}");
    set("secret-2", &["--workspace", &workspace]).expect_stdout();
    set("secret-3", &["--brand", &brand]).expect_stdout();
    set("secret-4", &["--brand", &brand]).expect_stdout();
    assert!(set("", &[]).expect_failure(1).contains("1 to"));
    assert!(set("x", &["--target", "page"]).expect_failure(1).contains("one application for all targets"));
    assert!(set("x", &["--brand", "999"]).expect_failure(1).contains("no brand 999"));
    let listed = crier(&s, &["app", "list", "--json"]);
    let list = listed.json();
    assert_eq!(list.as_array().unwrap().len(), 3, "the brand's was replaced: {list}");
    assert_eq!((&list[2]["brand_id"], &list[2]["client_id"]), (&json!(w.brand), &json!("id-1")));
    assert!(!listed.out.contains("secret"), "{listed:?}");
    let id = list[0]["id"].to_string();
    crier(&s, &["app", "delete", &id]).expect_stdout();
    assert!(crier(&s, &["app", "delete", &id]).expect_failure(1).contains("there is no application"));
    let new = NewApplication {
        platform: Platform::Mastodon,
        target: ConnectTarget::Default,
        owner: Owner::Installation,
        instance: "https://8.8.8.8",
        redirect_uri: "http://127.0.0.1:8080/connect/callback/mastodon",
        application: &Application::new("id-2", "secret-5"),
    };
    let own = s.write(async |tx| applications::set(tx, &new).await).await.to_string();
    let rejected = crier(&s, &["app", "delete", &own]);
    assert!(rejected.expect_failure(1).contains("automatically"), "{rejected:?}");
    let ciphertext: Vec<u8> = s.value("SELECT client_secret FROM applications LIMIT 1").await;
    assert!(!ciphertext.windows(6).any(|part| part == b"secret"));
}
