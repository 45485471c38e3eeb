//! `/docs`: the reference and its examples, the guides, and the pages that errors link to.

use chrono::TimeDelta;
use crier_domain::event::EventName;
use serde_json::{Value, json};

use super::bio_http::raw;
use crate::support::app::{BASE, Tenant, TestApp, on_one_app, on_sqlite_app};
use crate::support::document::{assert_conforms, resolve};

on_one_app!("unlimited" => examples_work_on_a_fresh_installation);
on_sqlite_app!(
    the_reference_is_a_page_without_inline_scripts,
    assets_are_compressed_and_cached,
    guides_are_rendered_for_this_server,
    the_document_has_the_public_url,
    each_status_has_examples_of_its_own_codes,
    examples_of_responses_match_their_schemas,
    every_event_is_a_webhook_with_its_sample,
    times_in_examples_are_in_the_future,
);
on_sqlite_app!("unlimited" => every_error_links_to_its_entry);

/// Returns the values of an attribute in a page.
fn values<'p>(page: &'p str, attribute: &str) -> Vec<&'p str> {
    let start = format!("{attribute}=\"");
    page.split(start.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

async fn the_reference_is_a_page_without_inline_scripts(app: TestApp) {
    for path in ["/docs", "/docs/"] {
        let reply = app.page(path).await;
        reply.assert_status(200);
        let policy = reply.header("content-security-policy").unwrap_or_default();
        assert!(policy.contains("script-src 'self';") && policy.contains("frame-ancestors 'none'"), "{policy}");
        let page = reply.text();
        assert!(page.contains("name=\"viewport\"") && page.contains("<h1>API reference"), "{page}");
        assert!(page.contains(env!("CARGO_PKG_VERSION")) && !page.contains("<script>"), "{page}");
        for link in ["/docs/getting-started", "/docs/errors", "/docs/webhooks", "/api/public/v1/openapi.json"] {
            assert!(values(&page, "href").contains(&link), "{link}: {page}");
        }
    }
    let document = app.request("GET", "/openapi.json").send().await.json();
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}

async fn assets_are_compressed_and_cached(app: TestApp) {
    let page = app.page("/docs").await.text();
    let mut files = values(&page, "src");
    files.extend(values(&page, "href"));
    files.retain(|file| file.starts_with("/docs/assets/"));
    assert_eq!(files.len(), 4, "{files:?}");
    for file in files {
        let (head, packed) = raw(&app, "GET", file, "gzip").await;
        assert!(head.starts_with("http/1.1 200 ") && head.contains("content-encoding: gzip"), "{file}: {head}");
        assert!(head.contains("cache-control: public, max-age=31536000, immutable"), "{file}: {head}");
        let (head, plain) = raw(&app, "GET", file, "identity").await;
        assert!(plain.len() > packed.len() && !head.contains("content-encoding"), "{file}: {head}");
    }
    app.page("/docs/assets/unknown.js").await.assert_status(404);
    let (head, _) = raw(&app, "GET", &format!("{BASE}/openapi.json"), "gzip").await;
    assert!(head.contains("content-encoding: gzip"), "{head}");
}

async fn guides_are_rendered_for_this_server(app: TestApp) {
    for (path, title) in [
        ("/docs/getting-started", "Getting started"),
        ("/docs/errors", "Errors"),
        ("/docs/webhooks", "Receiving webhooks"),
        ("/docs/mcp", "Agents (MCP)"),
    ] {
        let reply = app.page(path).await;
        reply.assert_status(200);
        assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
        let page = reply.text();
        assert!(page.contains(&format!("<h1>{title}</h1>")), "{page}");
        assert!(!page.contains("127.0.0.1:8080") && !page.contains("<!-- "), "{path}");
    }
    assert!(app.page("/docs/getting-started").await.text().contains(&format!("API={}/api/public/v1", app.url)));
    app.page("/docs/unknown").await.assert_status(404);
}

async fn the_document_has_the_public_url(app: TestApp) {
    let (replica, unconfigured) = (app.replica().await, app.replica_without_public_url().await);
    let document = async |url: &str| app.request_at_root("GET", url, "/api/public/v1/openapi.json").send().await;
    let (one, other) = (document(&app.url).await, document(&replica).await);
    assert_eq!(one.json()["servers"], json!([{ "url": format!("{}/api/public/v1", app.url) }]));
    assert_eq!(one.text(), other.text());
    assert_eq!(document(&unconfigured).await.json()["servers"], json!([{ "url": "/api/public/v1" }]));
}

async fn every_error_links_to_its_entry(t: Tenant<'_>) {
    let replies = [
        t.app.request("GET", "/brands").send().await,
        t.get("/unknown").await,
        t.app.page("/unknown").await,
        t.request("PATCH", "/brands").send().await,
        t.request("POST", "/brands").raw("{").send().await,
        t.post("/brands", json!({})).await,
        t.get("/brands/999999").await,
    ];
    let catalogue = t.app.page("/docs/errors").await.text();
    for reply in replies {
        let error = reply.json()["error"].take();
        let code = error["code"].as_str().unwrap();
        assert_eq!(error["doc_url"], format!("{}/docs/errors#{code}", t.app.url));
        assert!(values(&catalogue, "id").contains(&code), "{code}");
    }
}

async fn each_status_has_examples_of_its_own_codes(app: TestApp) {
    let document = app.request("GET", "/openapi.json").send().await.json();
    let mut examples = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for operation in operations.as_object().unwrap().values() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                if status.starts_with('2') {
                    continue;
                }
                let response = resolve(&document, response);
                let all = response["content"]["application/json"]["examples"].as_object().unwrap();
                assert!(!all.is_empty(), "{path} {status}");
                for (code, example) in all {
                    let error = &resolve(&document, example)["value"]["error"];
                    assert!(error["code"] == *code && response["description"].as_str().unwrap().contains(code));
                    assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{code}: {error}");
                    examples += 1;
                }
            }
        }
    }
    assert!(examples > 500, "{examples}");
}

async fn examples_of_responses_match_their_schemas(app: TestApp) {
    let document = app.request("GET", "/openapi.json").send().await.json();
    let mut examples = 0;
    for operations in document["paths"].as_object().unwrap().values() {
        for operation in operations.as_object().unwrap().values() {
            let id = operation["operationId"].as_str().unwrap();
            for response in operation["responses"].as_object().unwrap().values() {
                let content = &resolve(&document, response)["content"]["application/json"];
                if let Some(example) = content.get("example") {
                    assert_conforms(&document, &content["schema"], example, id);
                    examples += 1;
                }
            }
        }
    }
    assert!(examples > 70, "{examples}");
}

async fn every_event_is_a_webhook_with_its_sample(app: TestApp) {
    let document = app.request("GET", "/openapi.json").send().await.json();
    let webhooks = document["webhooks"].as_object().unwrap();
    let names = EventName::ALL.iter().map(|event| event.as_str());
    assert!(webhooks.keys().map(String::as_str).eq(names), "{:?}", webhooks.keys());
    for event in EventName::ALL {
        let operation = &webhooks[event.as_str()]["post"];
        let content = &operation["requestBody"]["content"]["application/json"];
        assert_eq!(content["example"], event.sample());
        assert_conforms(&document, &content["schema"], &event.sample(), event.as_str());
        let parameters = operation["parameters"].as_array().unwrap().iter().map(|p| resolve(&document, p));
        let headers: Vec<_> = parameters.filter(|p| p["in"] == "header").filter_map(|p| p["name"].as_str()).collect();
        let expected = ["Event", "Delivery-Id", "Event-Id", "Timestamp", "Signature"];
        assert_eq!(headers, expected.map(|name| format!("X-Webhook-{name}")));
    }
}

async fn times_in_examples_are_in_the_future(app: TestApp) {
    let scheduled_at = async || {
        let document = app.request("GET", "/openapi.json").send().await.json();
        let operation = &document["paths"]["/brands/{brand}/posts"]["post"];
        let time = operation["requestBody"]["content"]["application/json"]["example"]["scheduled_at"].as_str();
        time.unwrap().parse::<chrono::NaiveDateTime>().unwrap().and_utc()
    };
    let first = scheduled_at().await;
    assert!(first > app.now() + TimeDelta::days(5), "{first}");
    app.clock.advance(TimeDelta::days(30));
    assert_eq!(scheduled_at().await, first + TimeDelta::days(30));
}

/// Sends the examples of these operations, unchanged and in this order.
async fn examples_work_on_a_fresh_installation(t: Tenant<'_>) {
    assert_eq!(t.brand, 1, "the first brand");
    let document = t.get("/openapi.json").await.json();
    let operations: Vec<(&String, &String, &Value)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, all)| all.as_object().unwrap().iter().map(move |(method, value)| (path, method, value)))
        .collect();
    for id in [
        "createBrand",
        "connectSocialAccount",
        "createPost",
        "validatePost",
        "updatePost",
        "createContentPlan",
        "updateContentPlan",
        "createPlanItem",
        "createPlanItems",
        "updatePlanItem",
        "schedulePlanItem",
        "createLinkInBioPage",
        "updateLinkInBioPage",
        "createSnippet",
        "updateSnippet",
        "createReport",
        "createReportSchedule",
        "exportReport",
        "updateReport",
        "duplicatePost",
        "bulkUpdatePosts",
    ] {
        t.app.clock.advance(TimeDelta::minutes(1));
        let (path, method, operation) = operations
            .iter()
            .find(|(_, _, operation)| operation["operationId"] == id)
            .unwrap_or_else(|| panic!("there is no operation {id}"));
        let parameters = operation["parameters"].as_array().unwrap().iter().map(|p| resolve(&document, p));
        let path = parameters.filter(|p| p["in"] == "path").fold((*path).clone(), |path, p| {
            path.replace(&format!("{{{}}}", p["name"].as_str().unwrap()), &p["example"].to_string())
        });
        let body = &operation["requestBody"]["content"]["application/json"]["example"];
        let reply = t.request(&method.to_uppercase(), &path).json(body).send().await;
        assert!((200..300).contains(&reply.status), "{id}: {reply:?}");
        assert_eq!(reply.header("crier-ignored-fields"), None, "{id}");
    }
    let key = operations.iter().find_map(|(_, _, operation)| {
        let mut parameters = operation["parameters"].as_array()?.iter().map(|p| resolve(&document, p));
        parameters.find(|p| p["name"] == "Idempotency-Key")
    });
    assert!(key.unwrap()["example"].as_str().is_some_and(|key| key.starts_with("example-")));
}
