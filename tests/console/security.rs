//! Rules for all pages of the console: forged forms are rejected, records of other workspaces are not found, and
//! headers are strict.

use crier_domain::access::Role;

use crate::api::tenancy::TenantRecords;
use crate::support::app::{BARE, MISSING_ID, Tenant, TestApp, on_one_app, on_sqlite_app};
use crate::support::console::ConsoleUser;

on_one_app!(
    another_workspaces_brand_is_not_found,
    another_workspaces_records_are_not_found,
    records_are_not_found_below_another_record,
);
on_sqlite_app!(pages_of_features_outside_the_plan_are_not_shown, forged_forms_are_rejected);
on_sqlite_app!(console "unlimited" =>
    pages_have_strict_headers,
    forms_have_a_maximum_number_of_fields,
    pages_are_limited_by_session,
);

async fn another_workspaces_brand_is_not_found(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let person = ConsoleUser::sign_in(&t).await;
    for brand in [other.brand, MISSING_ID] {
        let page = person.get(&format!("/brands/{brand}")).await;
        page.expect(404, "Page not found");
        assert!(page.has("Bakery"), "the person's own brands are still offered");
    }
    let colleague = t.colleague(Role::Editor).await;
    ConsoleUser::sign_in(&colleague).await.get(&format!("/brands/{}", t.brand)).await.expect(200, "Editor");
}

/// Requests every page and action with the ids of another workspace's records, below the user's own brand and below the
/// other workspace's brand.
async fn another_workspaces_records_are_not_found(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let records = TenantRecords::of(&other).await;
    let person = ConsoleUser::sign_in(&t).await;
    let csrf = csrf(&person, &t).await;
    let before = snapshot(&app).await;
    for (method, path) in crier_api::console_paths() {
        let names: Vec<&str> = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        if !names.contains(&"brand") || names.contains(&"*") {
            continue;
        }
        for brand in [t.brand, other.brand] {
            if brand == t.brand && names.len() == 1 {
                continue;
            }
            app.clock.advance(chrono::TimeDelta::minutes(1));
            let filled = names.iter().fold(path.to_owned(), |path_so_far, name| {
                let id = if *name == "brand" { brand } else { id_of(&records, &other, path, name) };
                path_so_far.replace(&format!("{{{name}}}"), &id.to_string())
            });
            let page = match method.as_str() {
                "GET" => person.get(&filled).await,
                _ => person.post(&filled, &[("_csrf", &csrf), ("_key", "key")]).await,
            };
            // A form without its fields may be rejected before the record is looked up.
            let is_rejected = page.status == 404 || method == "POST" && page.status == 422;
            assert!(is_rejected, "{method} {filled}: {}: {}", page.status, page.text);
            assert!(!page.has("mine"), "{method} {filled}: {}", page.text);
        }
    }
    assert_eq!(snapshot(&app).await, before, "nothing changed");
}

/// Returns the token that a user's forms contain.
async fn csrf(person: &ConsoleUser<'_>, t: &Tenant<'_>) -> String {
    let hidden = person.get(&format!("/brands/{}", t.brand)).await.hidden_fields("/sign-out");
    hidden.into_iter().find(|(name, _)| name == "_csrf").expect("a token").1
}

async fn records_are_not_found_below_another_record(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (own, theirs) = (TenantRecords::of(&t).await, TenantRecords::of(&other).await);
    let person = ConsoleUser::sign_in(&t).await;
    let csrf = csrf(&person, &t).await;
    let path = |parent: &str, name: &str, child: &str, id: i64| {
        t.path(&format!("/{parent}/{}/{child}/{id}", own.id("", name)))
    };
    let item = path("plans", "plan", "items", theirs.id("", "item"));
    let link = path("bio", "linkInBio", "links", MISSING_ID);
    let delivery = path("developers/webhooks", "webhook", "deliveries", theirs.id("", "delivery"));
    let article = path("feeds", "feed", "articles", theirs.id("", "article"));
    for path in [&item, &link, &delivery] {
        person.get(path).await.expect(404, "not found");
    }
    for path in [&item, &format!("{item}/delete"), &format!("{item}/schedule"), &link, &format!("{article}/draft")] {
        person.post(path, &[("_csrf", &csrf), ("_key", "key")]).await.expect(404, "Page not found");
    }
}

async fn pages_of_features_outside_the_plan_are_not_shown(app: TestApp) {
    let t = app.tenant(BARE).await;
    let person = ConsoleUser::sign_in(&t).await;
    for path in [
        "/analytics",
        "/analytics?start=x",
        "/bio",
        "/bio/new",
        "/bio/1",
        "/developers/webhooks",
        "/feeds",
        "/feeds/1",
        "/feeds/1/publishing",
        "/inbox",
        "/plans",
        "/plans/new",
        "/plans/1",
        "/plans/1/items/1",
        "/reports",
        "/reports/new",
        "/reports/1",
    ] {
        let page = person.get(&t.path(path)).await;
        page.expect(402, "Not in your plan").expect(402, &format!("href=\"{}\"", t.path("/settings/plan")));
    }
    person.get(&t.path("/plans/1")).await.expect(402, "Your plan does not include content plans.");
}

/// Returns the id of another workspace's record, by the name of its parameter in the path.
fn id_of(records: &TenantRecords, other: &Tenant<'_>, path: &str, name: &str) -> i64 {
    match name {
        "page" => records.id(path, "linkInBio"),
        "member" => other.user,
        // These ids belong to no record: the API does not return them.
        "key" | "session" | "grant" | "link" | "invitation" => MISSING_ID,
        name => records.id(path, name),
    }
}

/// Returns what a wrong action could change.
async fn snapshot(app: &TestApp) -> Vec<i64> {
    let mut counts = Vec::new();
    for table in [
        "posts",
        "post_targets",
        "brand_accounts",
        "webhooks",
        "media",
        "feeds",
        "bio_pages",
        "reports",
        "snippets",
        "recurring_posts",
        "post_imports",
        "jobs",
        "brand_members",
        "api_keys",
        "oauth_grants",
    ] {
        counts.push(app.count_rows(table).await);
    }
    counts
}

async fn pages_have_strict_headers(t: Tenant<'_>, person: ConsoleUser<'_>) {
    for path in ["/sign-in".to_owned(), "/".to_owned(), format!("/brands/{}", t.brand), "/brands/999999".to_owned()] {
        let page = person.get(&path).await;
        let policy = page.reply.header("content-security-policy").unwrap_or_else(|| panic!("{path}: no policy"));
        assert!(policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("media-src 'self'") && policy.contains("connect-src 'self'"), "{policy}");
        for (name, value) in [("x-content-type-options", "nosniff"), ("cache-control", "no-store")] {
            assert_eq!(page.reply.header(name), Some(value), "{path}");
        }
        assert!(!page.text.contains(" style=\"") && !page.text.contains("<script>"), "{path}: inline");
    }
}

async fn forged_forms_are_rejected(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (person, other_user) = (ConsoleUser::sign_in(&t).await, ConsoleUser::sign_in(&other).await);
    let csrf = csrf(&other_user, &other).await;
    for fields in [vec![], vec![("_csrf", "")], vec![("_csrf", csrf.as_str())]] {
        let fields: Vec<_> = fields.into_iter().chain([("name", "Forged")]).collect();
        person.post("/brands/new", &fields).await.expect(403, "You cannot do this");
    }
    assert_eq!(app.count_rows("brands").await, 2);
}

async fn forms_have_a_maximum_number_of_fields(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let token = csrf(&person, &t).await;
    for (others, status) in [(9_999, 422), (10_000, 413)] {
        let fields: Vec<_> = std::iter::repeat_n(("a", ""), others).chain([("_csrf", token.as_str())]).collect();
        assert_eq!(person.post("/brands/new", &fields).await.status, status, "{others}");
    }
}

async fn pages_are_limited_by_session(_: Tenant<'_>, person: ConsoleUser<'_>) {
    let mut last = 200;
    for _ in 0..=600 {
        // A small page, because the limit is the same for all.
        last = person.get("/brands/new").await.status;
    }
    assert_eq!(last, 429);
}
