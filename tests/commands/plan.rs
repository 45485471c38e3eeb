//! `crier plan`: what is used of the AI's credits, and where months begin.

use crier_common::domain::ai::Operation;
use crier_common::store::ai_credits::{self, Want};

use crate::support::command::crier;
use crate::support::store::{TestStore, on_both};

on_both!(credits_are_told_by_workspace_and_by_brand, a_time_zone_is_set_with_the_plan);

async fn credits_are_told_by_workspace_and_by_brand(s: TestStore) {
    let w = s.world().await;
    // Commands live by the clock of the machine.
    let now = crier_common::clock::Clock::system().now();
    s.clock.advance(now - s.now());
    for (operation, credits, paid) in
        [(Operation::Captions, 15, true), (Operation::Images, 240, true), (Operation::Hashtags, 12, false)]
    {
        let want = Want { workspace_id: w.workspace, brand_id: w.brand, operation, credits, cap: None };
        s.write(async |tx| {
            let id = ai_credits::reserve(tx, &want).await?.expect("there is no cap");
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
        (brands[0]["id"].as_i64(), brands[0]["operation"].as_str()),
        (Some(w.brand), Some("captions")),
        "{brands}"
    );
    assert_eq!((brands[1]["credits"].as_i64(), brands[1]["requests"].as_i64()), (Some(240), Some(1)), "{brands}");
    let table = crier(&s, &["plan", "usage"]);
    assert!(table.done().contains("AI_CREDITS_THIS_MONTH") && !table.done().contains("AI_BRANDS"), "{table:?}");
    assert!(crier(&s, &["plan", "usage", "--brands"]).done().contains("images"));
}

async fn a_time_zone_is_set_with_the_plan(s: TestStore) {
    let w = s.workspace().await;
    s.user(w, "ann@example.com").await;
    let set = |more: &[&str]| crier(&s, &[&["plan", "set", "--user", "ann@example.com", "pro"], more].concat());
    assert!(set(&["--timezone", "europe/berlin"]).refused(2).contains("IANA name"));
    set(&["--timezone", "Europe/Berlin"]).done();
    set(&[]).done();
    let zone: String = s.value(format!("SELECT timezone FROM workspaces WHERE id = {w}")).await;
    assert_eq!(zone, "Europe/Berlin", "what is not named stays");
}
