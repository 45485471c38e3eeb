//! `crier plan`: the usage of AI credits, the time zone of months, and errors in plans files.

use crier_domain::ai::Operation;
use crier_store::ai_credits::{self, CreditRequest};

use crate::support::command::{CommandOutput, command, crier, run};
use crate::support::process::program;
use crate::support::servers::{self, free_port};
use crate::support::store::{TestStore, on_both};

on_both!(
    credits_are_reported_by_workspace_and_by_brand,
    a_time_zone_is_set_with_the_plan,
    errors_in_a_plans_file_are_reported,
    startup_fails_if_a_plan_in_use_is_missing,
);

async fn credits_are_reported_by_workspace_and_by_brand(s: TestStore) {
    let w = s.create_world().await;
    // Commands use the machine's clock.
    let now = crier_base::clock::Clock::system().now();
    s.clock.advance(now - s.now());
    for (operation, credits, paid) in
        [(Operation::Captions, 15, true), (Operation::Images, 240, true), (Operation::Hashtags, 12, false)]
    {
        let request = CreditRequest { workspace_id: w.workspace, brand_id: w.brand, operation, credits, cap: None };
        s.write(async |tx| {
            let id = ai_credits::reserve(tx, &request).await?.expect("there is no cap");
            if paid {
                ai_credits::consume(tx, w.workspace, id).await?;
            }
            Ok(())
        })
        .await;
    }
    let usage = crier(&s, &["plan", "usage", "--json"]).json();
    let row = &usage[0];
    assert_eq!(
        (row["ai_credits_this_month"].as_i64(), row["ai_credits"].as_i64()),
        (Some(267), Some(5_000)),
        "{usage}"
    );
    assert_eq!(row["ai_brands"].as_array().map(Vec::len), Some(2), "{usage}");
    let brands = crier(&s, &["plan", "usage", "--brands", "--json"]).json();
    assert_eq!(
        (brands[0]["brand_id"].as_i64(), brands[0]["operation"].as_str()),
        (Some(w.brand), Some("captions")),
        "{brands}"
    );
    assert_eq!((brands[1]["credits"].as_i64(), brands[1]["requests"].as_i64()), (Some(240), Some(1)), "{brands}");
    let table = crier(&s, &["plan", "usage"]);
    assert!(
        table.expect_stdout().contains("AI_CREDITS_THIS_MONTH") && !table.expect_stdout().contains("AI_BRANDS"),
        "{table:?}"
    );
    assert!(crier(&s, &["plan", "usage", "--brands"]).expect_stdout().contains("images"));
}

async fn a_time_zone_is_set_with_the_plan(s: TestStore) {
    let w = s.workspace().await;
    s.user(w, "ann@example.com").await;
    let set = |args: &[&str]| crier(&s, &[&["plan", "set", "--user", "ann@example.com", "pro"], args].concat());
    assert!(set(&["--timezone", "europe/berlin"]).expect_failure(2).contains("IANA name"));
    set(&["--timezone", "Europe/Berlin"]).expect_stdout();
    set(&[]).expect_stdout();
    let zone: String = s.value(format!("SELECT timezone FROM workspaces WHERE id = {w}")).await;
    assert_eq!(zone, "Europe/Berlin", "what is not named stays");
}

/// Runs `crier` with these arguments and a plans file.
fn with_plans(s: &TestStore, plans: &std::path::Path, args: &[&str]) -> CommandOutput {
    let dir = tempfile::tempdir().unwrap();
    run(command(s, args)
        .env("CRIER_PLANS_FILE", plans)
        .env("CRIER_DATA_DIR", dir.path())
        .env("CRIER_OPS_ADDR", format!("127.0.0.1:{}", free_port()))
        .current_dir(dir.path()))
}

async fn errors_in_a_plans_file_are_reported(s: TestStore) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plans.toml");
    let error_of = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let output = with_plans(&s, &file, &["plan", "list"]);
        let err = output.expect_failure(2).to_owned();
        assert!(err.contains("CRIER_PLANS_FILE: ") && err.contains("plans.toml: "), "{err}");
        assert!(!err.contains("panicked"), "{err}");
        err
    };
    for (text, words) in [
        ("[plans.a]\nbrand = 1", "[plans.a] brand is unknown; the nearest known key is brands"),
        ("[plans.a]\nbrands = -1", "[plans.a] brands must be an integer of at least 0"),
        ("[plans.a]\nbrands = 1.5", "[plans.a] brands must be an integer"),
        ("[plans.a]\nbrands = 99999999999999999999", "line 2 is not TOML"),
        (
            "[plans.a]\nfeatures = [\"inbx\"]",
            "[plans.a] features: `inbx` is unknown; it must be one of: basic_analytics",
        ),
        ("[plans.a]\n[plans.a]", "line 2 is not TOML"),
        ("", "add at least one table such as [plans.unlimited]"),
    ] {
        let err = error_of(text.as_bytes());
        assert!(err.contains(words), "{text}: {err}");
    }
    assert!(error_of(b"[plans.a]\n# \xff\n").contains("UTF-8"));
    for path in [dir.path().to_owned(), dir.path().join("plans.toml/x"), dir.path().join("absent")] {
        let output = with_plans(&s, &path, &["plan", "list"]);
        let err = output.expect_failure(2);
        assert!(err.contains("CRIER_PLANS_FILE: ") && err.contains("name a TOML file"), "{err}");
    }
    std::fs::write(&file, "[plans.solo]\nbrands = 1\n").unwrap();
    let list = with_plans(&s, &file, &["plan", "list", "--json"]).json();
    assert_eq!(
        (list[0]["id"].as_str(), list[0]["brands"].as_i64(), list[0]["ai_credits"].is_null()),
        (Some("solo"), Some(1), true)
    );
}

async fn startup_fails_if_a_plan_in_use_is_missing(s: TestStore) {
    let w = s.workspace().await;
    s.user(w, "ann@example.com").await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plans.toml");
    std::fs::write(&file, "[plans.solo]\n").unwrap();
    let assert_rejected = |output: CommandOutput| {
        let err = output.expect_failure(2).to_owned();
        assert!(err.contains("CRIER_PLANS_FILE: it lacks plans that workspaces are on: pro."), "{err}");
    };
    for args in [["serve"], ["migrate"]] {
        assert_rejected(with_plans(&s, &file, &args));
    }
    if s.is_postgres() {
        let redis = servers::redis().await;
        for name in ["crier-api", "crier-worker", "crier-scheduler"] {
            let mut process = std::process::Command::new(program(name));
            process
                .env_clear()
                .envs([("CRIER_DATABASE_URL", s.place()), ("CRIER_REDIS_URL", redis.clone())])
                .env("CRIER_SECRET_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
                .env("CRIER_PLANS_FILE", &file)
                .env("CRIER_DATA_DIR", dir.path())
                .env("CRIER_HTTP_ADDR", "127.0.0.1:0")
                .env("CRIER_OPS_ADDR", format!("127.0.0.1:{}", free_port()));
            assert_rejected(run(&mut process));
        }
    }
    // The fix that the message names works.
    with_plans(&s, &file, &["plan", "set", "--user", "ann@example.com", "solo"]).expect_stdout();
    with_plans(&s, &file, &["migrate"]).expect_stdout();
}
