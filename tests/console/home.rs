//! The home page of a brand.

use chrono::TimeDelta;
use crier_domain::access::Role;
use crier_store::{feeds, webhooks};
use serde_json::json;

use crate::support::app::{Tenant, on_one_app};
use crate::support::console::ConsoleUser;

on_one_app!(console "unlimited" =>
    a_new_brand_has_a_checklist,
    the_time_zone_is_the_first_step,
    webhooks_are_a_step_for_developers,
    upcoming_and_failed_posts_are_shown,
    contributors_see_problems_that_others_can_solve,
    the_navigation_counts_every_kind_of_problem,
);

async fn a_new_brand_has_a_checklist(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let page = person.get(&format!("/brands/{}", t.brand)).await;
    page.expect(200, "Get started").expect(200, "No posts scheduled");
    assert!(page.has("Bakery") && page.has("Ann"), "{}", page.text);
}

/// As on the first start of an installation, whose brand has the time zone UTC.
async fn the_time_zone_is_the_first_step(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (home, set) = (t.path(""), t.path("/settings/timezone"));
    assert!(!person.get(&home).await.has("data-guess-zone"), "the zone was chosen with the brand");
    t.app.set_time_zone(t.brand, "UTC").await;
    let page = person.get(&home).await;
    page.expect(200, "Choose a time zone").expect(200, "data-guess-zone").expect(200, "\"UTC\" selected");
    assert!(page.reply.body.len() < 100_000, "{}", page.reply.body.len());
    let editor = ConsoleUser::sign_in(&t.colleague(Role::Editor).await).await;
    assert!(!editor.get(&home).await.has("data-guess-zone"), "an editor may not change it");
    person
        .submit_from(&page, &set, &[("timezone", "Mars/Base")])
        .await
        .expect(422, "Choose a time zone from the list.");
    let done = person.submit_from(&page, &set, &[("timezone", "Asia/Tokyo")]).await;
    done.expect(200, "Time zone saved.");
    assert!(!done.has("data-guess-zone"), "{}", done.text);
    assert_eq!(t.get(&t.path("")).await.data(200)["timezone"], "Asia/Tokyo");
    // The user can choose UTC, too.
    t.app.set_time_zone(t.brand, "UTC").await;
    t.app.clock.advance(TimeDelta::minutes(1));
    let done = person.submit(&home, &set, &[("timezone", "UTC")]).await;
    done.expect(200, "Get started");
    assert!(!done.has("data-guess-zone"), "{}", done.text);
}

async fn webhooks_are_a_step_for_developers(t: Tenant<'_>, person: ConsoleUser<'_>) {
    assert!(!person.get(&t.path("")).await.has("Create a webhook"));
    t.app.sql("UPDATE api_keys SET last_used_at = created_at WHERE prefix <> 'session'").await;
    person.get(&t.path("")).await.expect(200, "Create a webhook");
}

async fn upcoming_and_failed_posts_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let at = (t.app.now() + TimeDelta::hours(2)).to_rfc3339();
    let body = json!({ "content": "<b>Fresh</b> bread", "schedule_type": "scheduled", "scheduled_at": at, "accounts": [account] });
    t.post(&t.path("/posts"), body).await.expect(201);
    let body = json!({ "content": "Old bread", "schedule_type": "now", "accounts": [account] });
    let failed = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    t.app.fail_post(failed, "platform_rejected", "The oven is cold.").await;
    let page = person.get(&format!("/brands/{}", t.brand)).await;
    page.expect(200, "<b>Fresh</b> bread").expect(200, "The oven is cold.").expect(200, "Old bread");
    assert!(String::from_utf8_lossy(&page.reply.body).contains("&#60;b&#62;Fresh"), "texts are escaped");
}

/// The buttons of others would return 403.
async fn contributors_see_problems_that_others_can_solve(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let contributor = ConsoleUser::sign_in(&t.colleague(Role::Contributor).await).await;
    person.get(&t.path("")).await.expect(200, "Get started");
    assert!(!contributor.get(&t.path("")).await.has("Get started"), "a contributor cannot connect an account");
    let account = t.account("demo").await;
    let body = json!({ "content": "Old bread", "schedule_type": "now", "accounts": [account] });
    let failed = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    t.app.fail_post(failed, "auth_expired", "It was revoked.").await;
    t.app.expire_account(account).await;
    let (retry, post) = (format!("/posts/{failed}/retry\""), t.path(&format!("/posts/{failed}")));
    let reconnect = t.path(&format!("/accounts/connect/sandbox?account={account}"));
    for (user, can_publish) in [(&person, true), (&contributor, false)] {
        let home = user.get(&t.path("")).await;
        home.expect(200, "It was revoked.").expect(200, "Accounts that need attention");
        assert_eq!(home.has(&retry), can_publish, "{}", home.text);
        let post = user.get(&post).await;
        post.expect(200, "It was revoked.");
        for page in [home, post] {
            assert_eq!(page.has(&reconnect), can_publish, "{}", page.text);
        }
    }
}

/// There is one of each kind. A contributor cannot approve, and a webhook belongs to its user.
async fn the_navigation_counts_every_kind_of_problem(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let contributor = ConsoleUser::sign_in(&t.colleague(Role::Contributor).await).await;
    let accounts = [t.account("one").await, t.account("two").await];
    let mut posts = Vec::new();
    for schedule_type in ["now", "now", "draft"] {
        let body = json!({ "content": "x", "schedule_type": schedule_type, "accounts": accounts });
        posts.push(t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap());
    }
    t.app.end_post(posts[0], "failed", &["failed", "failed"]).await;
    t.app.end_post(posts[1], "partially_published", &["published", "failed"]).await;
    t.request("POST", &t.path(&format!("/posts/{}/submit", posts[2]))).send().await.expect(200);
    t.app.expire_account(accounts[1]).await;
    let url = json!({ "url": "https://8.8.8.8/feed.xml" });
    let feed = t.post(&t.path("/feeds"), url).await.data(201)["id"].as_i64().unwrap();
    let next = t.app.later(900);
    t.app.write(async |tx| feeds::record_failure(tx, feed, "It is gone.", false, next).await).await;
    let endpoint = json!({ "url": "https://8.8.8.8/hook", "events": ["post.failed"] });
    let webhook = t.post("/webhooks", endpoint).await.data(201)["id"].as_i64().unwrap();
    t.app.write(async |tx| webhooks::disable(tx, webhook, "no delivery succeeded for 5 days").await).await;
    for (user, count) in [(&person, 6), (&contributor, 4)] {
        let number = format!("<span class=\"count badge-bad\">{count}<span class=\"sr\"> need attention</span></span>");
        let home = user.get(&t.path("")).await;
        home.expect(200, &format!("Home{number}"));
        // On a phone, the navigation is behind this button.
        home.expect(200, &format!("Menu{number}"));
    }
}
