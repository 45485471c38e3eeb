//! Imports from a URL: what the API accepts and how it reports them.

use crier_domain::media::{MediaError, MediaErrorCode, MediaJob};
use crier_media::import;
use crier_store::{Tx, media_jobs};
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::images;

on_both_apps!("unlimited" =>
    an_import_is_accepted_and_enqueued,
    a_repeated_key_creates_one_import,
    a_job_reports_its_status,
);
on_one_app!("unlimited" =>
    invalid_fields_are_reported_and_create_nothing,
    only_public_urls_are_accepted,
);

const SOURCE: &str = "https://8.8.8.8/bread.png?size=large#top";

async fn imports(app: &TestApp) -> (i64, i64) {
    let jobs = app.count_rows("jobs WHERE kind = 'import_media'").await;
    (app.count_rows("media_jobs").await, jobs)
}

async fn accepted(t: &Tenant<'_>, body: Value) -> Value {
    t.post(&t.path("/media/from-url"), body).await.data(202)
}

async fn an_import_is_accepted_and_enqueued(t: Tenant<'_>) {
    let body = json!({ "url": SOURCE, "asset_type": "icon", "alt_text": "Bread", "unknown": 1 });
    let reply = t.post(&t.path("/media/from-url"), body).await;
    let job = reply.data(202);
    let id = job["id"].as_i64().unwrap();
    let poll = format!("/api/public/v1{}", t.path(&format!("/jobs/{id}")));
    assert_eq!((reply.header("location"), job["poll_url"].as_str()), (Some(poll.as_str()), Some(poll.as_str())));
    let at = job["created_at"].clone();
    assert!(at.as_str().unwrap().ends_with(".000000Z"));
    assert_eq!(
        job,
        json!({ "id": id, "status": "pending", "asset_type": "icon", "source_url": SOURCE, "media": null, "error": null,
            "poll_url": poll, "created_at": at, "updated_at": at })
    );
    assert_eq!(t.get(&t.path(&format!("/jobs/{id}"))).await.data(200), job);
    let row = t.app.newest_job().await;
    assert_eq!((row.subject_id, row.lane, row.max_attempts), (id, Some(format!("brand:{}", t.brand)), 5));
    assert_eq!(row.trace.as_deref(), reply.header("x-request-id"));
    assert!(t.app.store.notifier.take().contains(&row.id), "workers are notified");
    let job = media_jobs::find(&mut t.app.conn().await, t.brand, id).await.unwrap().unwrap();
    assert_eq!(job.alt_text.as_deref(), Some("Bread"));
    let plain = accepted(&t, json!({ "url": SOURCE, "alt_text": "" })).await;
    assert_eq!(plain["asset_type"], "image");
    let job = media_jobs::find(&mut t.app.conn().await, t.brand, plain["id"].as_i64().unwrap()).await.unwrap().unwrap();
    assert_eq!(job.alt_text, None);
    assert_eq!(imports(t.app).await, (2, 2));
}

async fn a_repeated_key_creates_one_import(t: Tenant<'_>) {
    let send = async |body: Value| {
        t.request("POST", &t.path("/media/from-url")).idempotency_key("one").json(&body).send().await
    };
    let (first, again) = (send(json!({ "url": SOURCE })).await, send(json!({ "url": SOURCE })).await);
    assert_eq!((first.data(202), again.replayed()), (again.data(202), true));
    assert_eq!(first.header("location"), again.header("location"));
    send(json!({ "url": "https://8.8.8.8/other.png" })).await.expect_error(409, "idempotency_key_reused");
    assert_eq!(imports(t.app).await, (1, 1));
}

async fn invalid_fields_are_reported_and_create_nothing(t: Tenant<'_>) {
    for (body, field) in [
        (json!({}), "url"),
        (json!({ "url": null }), "url"),
        (json!({ "url": 5 }), "url"),
        (json!({ "url": ["https://8.8.8.8/"] }), "url"),
        (json!({ "url": format!("https://8.8.8.8/{}", "x".repeat(2_048)) }), "url"),
        (json!({ "url": SOURCE, "asset_type": "film" }), "asset_type"),
        (json!({ "url": SOURCE, "asset_type": 5 }), "asset_type"),
        (json!({ "url": SOURCE, "alt_text": 5 }), "alt_text"),
        (json!({ "url": SOURCE, "alt_text": "x".repeat(2_001) }), "alt_text"),
    ] {
        assert_eq!(t.post(&t.path("/media/from-url"), body.clone()).await.invalid_fields(), [field], "{body}");
    }
    assert_eq!(imports(t.app).await, (0, 0));
    accepted(&t, json!({ "url": format!("https://8.8.8.8/{}", "x".repeat(2_048 - 16)) })).await;
}

async fn only_public_urls_are_accepted(t: Tenant<'_>) {
    for url in [
        "",
        "nope",
        "bread.png",
        "//8.8.8.8/bread.png",
        "ftp://example.com/a.png",
        "file:///etc/passwd",
        "data:image/png;base64,AAAA",
        "javascript:alert(1)",
        "http:///a.png",
        "https://ann:hush@8.8.8.8/",
        "https://10.0.0.1/a.png",
        "http://127.0.0.1/a.png",
        "http://2130706433/",
        "http://localhost:8080/",
        "http://printer.local/",
        "http://169.254.169.254/a.png",
        "https://[::1]/",
        "http://[fd00::1]/a.png",
        "https://[::ffff:10.0.0.1]/",
        " https://8.8.8.8/",
        "https://8.8.8.8/\n",
        "https:\\\\8.8.8.8\\a.png",
    ] {
        let error =
            t.post(&t.path("/media/from-url"), json!({ "url": url })).await.expect_error(422, "invalid_source_url");
        assert!(error["message"].as_str().unwrap().contains("Use a public http"), "{url}: {error}");
    }
    assert_eq!(imports(t.app).await, (0, 0));
    accepted(&t, json!({ "url": "http://8.8.8.8/plain.png" })).await;
}

/// Performs a step of a worker on an import.
async fn step(app: &TestApp, id: i64, write: impl AsyncFnOnce(&mut Tx, &MediaJob) -> crier_store::Result<()>) {
    app.write(async |tx| {
        let import = media_jobs::lock(tx, id).await?.expect("the import is there");
        write(tx, &import).await
    })
    .await;
}

async fn a_job_reports_its_status(t: Tenant<'_>) {
    let asset = t.upload("bread.png", &images::png(9, 9), &[]).await.data(201);
    let path = async || {
        let id = accepted(&t, json!({ "url": SOURCE })).await["id"].as_i64().unwrap();
        (id, t.path(&format!("/jobs/{id}")))
    };
    let (good, shown) = path().await;
    t.app.clock.advance(chrono::TimeDelta::seconds(1));
    step(t.app, good, async |tx, import| import::begin(tx, import).await).await;
    let job = t.get(&shown).await.data(200);
    assert_eq!(
        (job["status"].as_str(), &job["media"], &job["error"]),
        (Some("processing"), &Value::Null, &Value::Null)
    );
    assert_ne!(job["created_at"], job["updated_at"]);
    let media = asset["id"].as_i64().unwrap();
    step(t.app, good, async |tx, import| import::complete(tx, import, media, None).await).await;
    let job = t.get(&shown).await.data(200);
    assert_eq!((job["status"].as_str(), &job["media"], &job["error"]), (Some("completed"), &asset, &Value::Null));
    // The asset is deleted afterwards.
    t.delete(&t.path(&format!("/media/{media}"))).await.expect(204);
    let job = t.get(&shown).await.data(200);
    assert_eq!((job["status"].as_str(), &job["media"]), (Some("completed"), &Value::Null));

    let (bad, shown) = path().await;
    let why = MediaError::new(MediaErrorCode::HttpError, "The server returned 404 Not Found.");
    step(t.app, bad, async |tx, import| import::begin(tx, import).await).await;
    step(t.app, bad, async |tx, import| import::retry_later(tx, import, &why).await).await;
    let error = json!({ "code": "http_error", "message": "The server returned 404 Not Found." });
    let job = t.get(&shown).await.data(200);
    assert_eq!((job["status"].as_str(), &job["error"]), (Some("pending"), &error), "the previous attempt's error");
    step(t.app, bad, async |tx, import| import::fail(tx, import, &why, None).await).await;
    let job = t.get(&shown).await.data(200);
    assert_eq!((job["status"].as_str(), &job["media"], &job["error"]), (Some("failed"), &Value::Null, &error));
    t.get(&t.path(&format!("/jobs/{MISSING_ID}"))).await.expect_error(404, "not_found");
}
