//! No endpoint gives access to the records of another tenant: neither through the other brand, nor with its ids below
//! one's own brand.

use chrono::TimeDelta;
use serde_json::json;

use super::{checks, conversations, feeds, imports, recurring_posts, snippets};
use crate::support::app::{Tenant, TestApp, on_both_apps};
use crate::support::{images, reports};

on_both_apps!(
    ids_of_another_tenant_return_403_or_404,
    lists_contain_only_own_records,
    records_are_not_found_under_another_own_brand
);

/// The id of one record of each kind.
pub struct TenantRecords {
    account: i64,
    pub post: i64,
    webhook: i64,
    delivery: i64,
    feed: i64,
    article: i64,
    media: i64,
    job: i64,
    bio: i64,
    plan: i64,
    item: i64,
    conversation: i64,
    report: i64,
    schedule: i64,
    report_delivery: i64,
    snippet: i64,
    recurring: i64,
    upload: i64,
    import: i64,
}

impl TenantRecords {
    pub async fn of(t: &Tenant<'_>) -> Self {
        let account = t.account(&format!("handle{}", t.brand)).await;
        let post = json!({ "content": "mine", "accounts": [account], "labels": ["mine"] });
        let post = t.post(&t.path("/posts"), post).await.data(201);
        let hook = json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"] });
        let webhook = t.post("/webhooks", hook).await.data(201)["id"].as_i64().unwrap();
        t.post("/brands", json!({ "name": "Told" })).await.expect(201);
        let deliveries = t.get(&format!("/webhooks/{webhook}/deliveries")).await.data(200);
        let delivery = deliveries[0]["id"].as_i64().expect("a delivery of brand.created");
        let feed = json!({ "url": "https://8.8.8.8/feed.xml" });
        let feed = t.post(&t.path("/feeds"), feed).await.data(201)["id"].as_i64().unwrap();
        let article = feeds::article(t, feed, "guid-1").await;
        let media = t.upload("a.png", &images::png(3, 2), &[]).await.data(201)["id"].as_i64().unwrap();
        let source = json!({ "url": "https://8.8.8.8/a.png" });
        let job = t.post(&t.path("/media/from-url"), source).await.data(202)["id"].as_i64().unwrap();
        let upload = t.app.request("POST", &t.path("/media/uploads")).key(&t.key).header("tus-resumable", "1.0.0");
        let upload = upload.header("upload-length", "1000").send().await;
        let upload =
            upload.header("location").and_then(|path| path.rsplit('/').next()?.parse().ok()).expect("an upload");
        let import = imports::dry_run(t, "content\nmine\n").await;
        let bio = json!({ "title": "mine", "links": [{ "title": "mine", "url": "https://example.com" }] });
        let bio = t.post(&t.path("/link-in-bio"), bio).await.data(201)["id"].as_i64().unwrap();
        let plan = json!({ "name": "mine", "items": [{ "title": "mine" }] });
        let plan = t.post(&t.path("/content-plans"), plan).await.data(201);
        let item = plan["items"][0]["id"].as_i64().unwrap();
        let snippet = snippets::snippet(t, "signature", "mine").await;
        let recurring = recurring_posts::rule(t, account).await;
        let conversation = conversations::received(t, account).await;
        let report = reports::create(t, "mine", json!([{ "type": "summary" }])).await;
        let schedule = json!({ "frequency": "daily", "recipients": ["ann@example.com"] });
        let schedule = t.post(&format!("{report}/schedules"), schedule).await.data(201)["id"].as_i64().unwrap();
        let export = t.post(&format!("{report}/export"), json!({ "format": "csv" })).await.data(202);
        let (report, report_delivery) = (export["report_id"].as_i64().unwrap(), export["id"].as_i64().unwrap());
        let (post, plan) = (post["id"].as_i64().unwrap(), plan["id"].as_i64().unwrap());
        Self {
            account,
            post,
            webhook,
            delivery,
            feed,
            article,
            media,
            job,
            bio,
            plan,
            item,
            conversation,
            report,
            schedule,
            report_delivery,
            snippet,
            recurring,
            upload,
            import,
        }
    }

    /// Returns the id for a parameter of a path.
    pub fn id(&self, path: &str, name: &str) -> i64 {
        match name {
            "delivery" if path.contains("/reports/") => self.report_delivery,
            "report" => self.report,
            "schedule" => self.schedule,
            "account" => self.account,
            "post" => self.post,
            "webhook" => self.webhook,
            "delivery" => self.delivery,
            "feed" => self.feed,
            "article" => self.article,
            "media" => self.media,
            "job" => self.job,
            "linkInBio" => self.bio,
            "plan" => self.plan,
            "item" => self.item,
            "conversation" => self.conversation,
            "snippet" => self.snippet,
            "recurring" => self.recurring,
            "upload" => self.upload,
            "import" => self.import,
            other => panic!("the test makes no {other} yet"),
        }
    }
}

async fn ids_of_another_tenant_return_403_or_404(app: TestApp) {
    let (victim, intruder) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let things = TenantRecords::of(&victim).await;
    let before = victim.get(&victim.path(&format!("/posts/{}", things.post))).await.data(200);
    for e in checks::all(&app).await {
        app.clock.advance(TimeDelta::minutes(1));
        let call = async |path: String| {
            let mut request = app
                .request(&e.method, &path)
                .header("tus-resumable", "1.0.0")
                .key(&intruder.key)
                .idempotency_key(&app.fresh_key());
            if let Some(body) = &e.body {
                request = request.json(body);
            }
            request.send().await
        };
        if e.is_nested() {
            call(e.at(victim.brand, |name| things.id(&e.path, name))).await.expect_error(403, "brand_forbidden");
        }
        if !e.ids().is_empty() {
            call(e.at(intruder.brand, |name| things.id(&e.path, name))).await.expect_error(404, "not_found");
        }
    }
    let after = victim.get(&victim.path(&format!("/posts/{}", things.post))).await.data(200);
    assert_eq!(before, after);
    let bio = victim.get(&victim.path(&format!("/link-in-bio/{}", things.bio))).await.data(200);
    assert_eq!((&bio["title"], &bio["links"][0]["title"]), (&json!("mine"), &json!("mine")));
    let plan = victim.get(&victim.path(&format!("/content-plans/{}", things.plan))).await.data(200);
    assert_eq!((&plan["name"], plan["items"][0]["id"].as_i64()), (&json!("mine"), Some(things.item)));
    victim.get(&format!("/webhooks/{}", things.webhook)).await.expect(200);
    assert_eq!(victim.get(&victim.path("/media")).await.data(200)[0]["alt_text"], json!(null));
    assert_eq!(victim.get(&victim.path("/social-accounts")).await.data(200)[0]["id"], things.account);
    assert_eq!(victim.get(&victim.path("/snippets")).await.data(200)[0]["content"], "mine");
    let feed = victim.get(&victim.path(&format!("/feeds/{}", things.feed))).await.data(200);
    assert_eq!((&feed["url"], &feed["status"]), (&json!("https://8.8.8.8/feed.xml"), &json!("pending")));
}

async fn lists_contain_only_own_records(app: TestApp) {
    let (victim, intruder) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    TenantRecords::of(&victim).await;
    assert_eq!(intruder.get("/brands").await.data(200).as_array().unwrap().len(), 1);
    let lists = [
        "/posts",
        "/posts/imports",
        "/labels",
        "/social-accounts",
        "/feeds",
        "/media",
        "/link-in-bio",
        "/content-plans",
        "/conversations",
        "/reports",
        "/snippets",
        "/recurring-posts",
    ];
    for path in lists.map(|list| intruder.path(list)).into_iter().chain(["/webhooks".to_owned()]) {
        assert_eq!(intruder.get(&path).await.data(200), json!([]), "{path}");
    }
}

async fn records_are_not_found_under_another_own_brand(app: TestApp) {
    let owner = app.tenant("unlimited").await;
    let things = TenantRecords::of(&owner).await;
    let second = owner.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].as_i64().unwrap();
    for path in [
        format!("/posts/{}", things.post),
        format!("/posts/{}/status", things.post),
        format!("/posts/imports/{}", things.import),
        format!("/posts/imports/{}/errors", things.import),
        format!("/media/{}", things.media),
        format!("/jobs/{}", things.job),
        format!("/feeds/{}/articles", things.feed),
        format!("/feeds/{}/posts", things.feed),
        format!("/content-plans/{}", things.plan),
        format!("/link-in-bio/{}", things.bio),
        format!("/conversations/{}", things.conversation),
        format!("/reports/{}", things.report),
        format!("/reports/{}/deliveries", things.report),
        format!("/reports/deliveries/{}", things.report_delivery),
    ] {
        owner.get(&format!("/brands/{second}{path}")).await.expect_error(404, "not_found");
    }
    owner.delete(&format!("/brands/{second}/social-accounts/{}", things.account)).await.expect_error(404, "not_found");
    let body = json!({ "content": "x", "schedule_type": "now", "accounts": [things.account] });
    assert_eq!(owner.post(&format!("/brands/{second}/posts"), body).await.invalid_fields(), ["accounts.0"]);
}
