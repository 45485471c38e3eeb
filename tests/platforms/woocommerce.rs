//! WooCommerce, against a server that responds like its REST API v3.

use crier_domain::failure::Category;
use crier_domain::platform::{AccountKind, Platform};
use crier_platforms::{CallError, ConnectError, Connected, ConnectorAccount, OutgoingPost, Published, ReconcileResult};
use serde_json::{Value, json};
use wiremock::matchers::{basic_auth, body_json, method, path, query_param, query_param_is_missing};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connector, image, post, secrets, shown, unpublish_post, unused_address,
};

const SKU: &str = "crier-7-2r";

fn store_account(base: &str) -> ConnectorAccount {
    let root = format!("{base}/wp-json/");
    account(base, json!({ "consumer_key": "ck_1", "consumer_secret": "cs_1", "api_root": root, "store_url": base }))
}

fn rejected(status: u16, code: &str, message: &str) -> ResponseTemplate {
    ResponseTemplate::new(status)
        .set_body_json(json!({ "code": code, "message": message, "data": { "status": status } }))
}

fn product() -> Value {
    json!({ "id": 31, "permalink": "https://shop.example/product/x/", "sku": SKU })
}

async fn store(status: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(path("/wp-json/wc/v3/system_status"))
        .and(basic_auth("ck_1", "cs_1"))
        .respond_with(status)
        .mount(&server)
        .await;
    takes_batches(&server, ResponseTemplate::new(200).set_body_json(json!([]))).await;
    server
}

/// Sets the response to a batch without products, which a read-only key cannot send either.
async fn takes_batches(server: &MockServer, response: ResponseTemplate) {
    Mock::given(method("POST"))
        .and(path("/wp-json/wc/v3/products/batch"))
        .and(basic_auth("ck_1", "cs_1"))
        .and(body_json(json!({})))
        .respond_with(response)
        .mount(server)
        .await;
}

fn status() -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({ "environment": { "home_url": "https://shop.example" } }))
}

async fn connect_to(store_url: &str) -> Result<Connected, ConnectError> {
    let credentials = secrets(json!({ "store_url": store_url, "consumer_key": "ck_1", "consumer_secret": "cs_1" }));
    connector(Platform::Woocommerce, "http://unused.example").connect(1, &credentials).await
}

async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let server = MockServer::start().await;
    Mock::given(method("POST")).and(path("/wp-json/wc/v3/products")).respond_with(response).mount(&server).await;
    let woocommerce = connector(Platform::Woocommerce, "http://unused.example");
    woocommerce.publish(&store_account(&server.uri()), &post(woocommerce.as_ref(), "Hi")).await.unwrap_err()
}

#[tokio::test]
async fn connecting_checks_the_key() {
    let server = store(status()).await;
    let connected = connect_to(&format!("{}/", server.uri())).await.unwrap();
    assert_eq!((connected.external_id, connected.name.as_str()), (server.uri(), "127.0.0.1"));
    assert_eq!((connected.kind, connected.username), (AccountKind::Store, None));
    assert_eq!(shown(&connected.secrets)["api_root"], json!(format!("{}/wp-json/", server.uri())));

    let plain = MockServer::start().await;
    Mock::given(query_param("rest_route", "/wc/v3/system_status")).respond_with(status()).mount(&plain).await;
    let batch = Mock::given(query_param("rest_route", "/wc/v3/products/batch"));
    batch.respond_with(ResponseTemplate::new(200).set_body_json(json!([]))).mount(&plain).await;
    let connected = connect_to(&plain.uri()).await.unwrap();
    assert_eq!(shown(&connected.secrets)["api_root"], json!(format!("{}/?rest_route=/", plain.uri())));
}

#[tokio::test]
async fn invalid_stores_and_keys_are_rejected() {
    for (status, code) in [(401, "woocommerce_rest_cannot_view"), (403, "woocommerce_rest_cannot_view")] {
        let server = store(rejected(status, code, "Sorry, you cannot list resources.")).await;
        let rejection = connect_to(&server.uri()).await.unwrap_err();
        assert!(matches!(&rejection, ConnectError::Rejected(m) if m.contains("cannot list")), "{rejection:?}");
    }
    let empty = MockServer::start().await;
    assert!(matches!(connect_to(&empty.uri()).await, Err(ConnectError::Rejected(m)) if m.contains("No WooCommerce")));
    for url in ["shop", "http://rejected.example"] {
        let rejection = connect_to(url).await.unwrap_err();
        assert!(matches!(rejection, ConnectError::Field { field: "store_url", .. }), "{rejection:?}");
    }
    assert!(matches!(connect_to(&unused_address().await).await, Err(ConnectError::Unavailable(_))));
}

#[tokio::test]
async fn a_key_that_may_only_read_is_rejected() {
    let server = MockServer::start().await;
    Mock::given(path("/wp-json/wc/v3/system_status")).respond_with(status()).mount(&server).await;
    let message = "The API key provided does not have write permissions.";
    takes_batches(&server, rejected(401, "woocommerce_rest_authentication_error", message)).await;
    let rejection = connect_to(&server.uri()).await.unwrap_err();
    assert!(matches!(&rejection, ConnectError::Rejected(m) if m.contains("Read/Write")), "{rejection:?}");
}

#[tokio::test]
async fn a_post_becomes_a_simple_product() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path("/wp-json/wc/v3/products"))
        .and(basic_auth("ck_1", "cs_1"))
        .and(body_json(json!({
            "name": "Mug &amp; plate",
            "type": "simple",
            "status": "publish",
            "sku": SKU,
            "description": "<p>Made by hand.</p>",
            "images": [{ "src": "https://crier.example/media/mug.png", "alt": "a <mug>" }],
        })))
        .respond_with(ResponseTemplate::new(201).set_body_json(product()))
        .expect(1)
        .mount(&server)
        .await;
    let woocommerce = connector(Platform::Woocommerce, "http://unused.example");
    let outgoing =
        OutgoingPost { images: vec![image("mug")], ..post(woocommerce.as_ref(), "Mug & plate\nMade by hand.") };
    let published = woocommerce.publish(&store_account(&server.uri()), &outgoing).await.unwrap();
    assert_eq!(published, Published::new("31", Some("https://shop.example/product/x/".to_owned())));
}

#[tokio::test]
async fn a_product_that_is_held_back_is_not_published() {
    let mut held = product();
    held["status"] = json!("pending");
    let error = publish_expecting_error(ResponseTemplate::new(201).set_body_json(held)).await;
    let is_right = matches!(&error, CallError::Permanent(failure) if failure.message.contains("\"pending\""));
    assert!(is_right, "{error:?}");
}

#[tokio::test]
async fn a_post_without_text_is_named_after_its_image() {
    let server = MockServer::start().await;
    let response = ResponseTemplate::new(201).set_body_json(product());
    Mock::given(method("POST")).respond_with(response).mount(&server).await;
    let woocommerce = connector(Platform::Woocommerce, "http://unused.example");
    let mut outgoing = OutgoingPost { images: vec![image("mug")], ..post(woocommerce.as_ref(), "") };
    woocommerce.publish(&store_account(&server.uri()), &outgoing).await.unwrap();
    outgoing.images[0].alt_text = None;
    woocommerce.publish(&store_account(&server.uri()), &outgoing).await.unwrap();
    let names: Vec<Value> = server
        .received_requests()
        .await
        .unwrap()
        .iter()
        .map(|request| request.body_json::<Value>().unwrap()["name"].clone())
        .collect();
    assert_eq!(names, [json!("a &lt;mug&gt;"), json!("mug.png")]);
}

#[tokio::test]
async fn a_duplicate_sku_means_an_earlier_attempt_succeeded() {
    for found in [json!([product()]), json!([])] {
        let server = MockServer::start().await;
        let taken = rejected(400, "product_invalid_sku", "Invalid or duplicated SKU.");
        Mock::given(method("POST")).respond_with(taken).expect(1).mount(&server).await;
        Mock::given(method("GET"))
            .and(path("/wp-json/wc/v3/products"))
            .and(query_param("sku", SKU))
            .respond_with(ResponseTemplate::new(200).set_body_json(&found))
            .expect(1)
            .mount(&server)
            .await;
        let woocommerce = connector(Platform::Woocommerce, "http://unused.example");
        let result = woocommerce.publish(&store_account(&server.uri()), &post(woocommerce.as_ref(), "Hi")).await;
        match found.as_array().unwrap().is_empty() {
            false => assert_eq!(result.unwrap().external_id, "31"),
            true => assert!(matches!(result, Err(CallError::Permanent(_)))),
        }
    }
}

#[tokio::test]
async fn errors_are_classified_by_code() {
    let no_write = "The API key provided does not have write permissions.";
    let error = publish_expecting_error(rejected(401, "woocommerce_rest_authentication_error", no_write)).await;
    assert!(matches!(&error, CallError::Reauth(f) if f.message.contains("write permissions")), "{error:?}");
    let error = publish_expecting_error(rejected(403, "woocommerce_rest_cannot_create", "Sorry")).await;
    assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::Account), "{error:?}");
    for code in ["woocommerce_product_image_upload_error", "product_image_upload_error"] {
        let error = publish_expecting_error(rejected(400, code, "Error getting remote image")).await;
        let CallError::Transient(failure) = error else { panic!("{error:?}") };
        assert!(failure.category == Category::Media && failure.message.contains("CRIER_PUBLIC_URL"), "{failure:?}");
        assert!(failure.message.ends_with("Error getting remote image"), "{failure:?}");
    }
    let error = publish_expecting_error(rejected(400, "rest_invalid_param", "Invalid parameter(s): name")).await;
    assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent), "{error:?}");
    assert!(matches!(publish_expecting_error(ResponseTemplate::new(502)).await, CallError::Unknown(_)));
    assert!(matches!(
        publish_expecting_error(ResponseTemplate::new(429)).await,
        CallError::RateLimited { until: None, .. }
    ));
    let echo = publish_expecting_error(rejected(403, "x", "The secret cs_1 is wrong")).await;
    assert!(!format!("{echo:?}").contains("cs_1"), "{echo:?}");
}

#[tokio::test]
async fn reconcile_finds_the_product_by_sku() {
    let longer = json!([{ "id": 32, "permalink": null, "sku": format!("{SKU}5") }]);
    for (found, expected) in [(json!([product()]), Some("31")), (json!([]), None), (longer, None)] {
        let script = ScriptedServer::start(vec![ScriptStep::HangUp, ScriptStep::Respond(200, found)]).await;
        let woocommerce = connector(Platform::Woocommerce, "http://unused.example");
        let (account, outgoing) = (store_account(&script.base), post(woocommerce.as_ref(), "Hi"));
        assert!(matches!(woocommerce.publish(&account, &outgoing).await, Err(CallError::Unknown(_))));
        let reconciled = woocommerce.reconcile(&account, &outgoing).await.unwrap();
        match (&reconciled, expected) {
            (ReconcileResult::Found(published), Some(id)) => assert_eq!(published.external_id, id),
            (ReconcileResult::Absent, None) => {}
            _ => panic!("{reconciled:?}"),
        }
        assert!(script.requests()[1].starts_with("GET /wp-json/wc/v3/products?sku=crier-7-2r "));
    }
}

#[tokio::test]
async fn a_product_goes_to_the_trash_and_a_deletion_can_be_repeated() {
    let server = MockServer::start().await;
    let deletion =
        || Mock::given(method("DELETE")).and(path("/wp-json/wc/v3/products/31")).and(basic_auth("ck_1", "cs_1"));
    let trashed = ResponseTemplate::new(200).set_body_json(json!({ "id": 31 }));
    deletion().and(query_param_is_missing("force")).respond_with(trashed).up_to_n_times(1).mount(&server).await;
    let again = rejected(410, "woocommerce_rest_already_trashed", "The product has already been deleted.");
    deletion().respond_with(again).up_to_n_times(1).mount(&server).await;
    let gone = rejected(404, "woocommerce_rest_product_invalid_id", "Invalid ID.");
    deletion().respond_with(gone).up_to_n_times(1).mount(&server).await;
    let woocommerce = connector(Platform::Woocommerce, "http://unused.example");
    let account = store_account(&server.uri());
    for _ in 0..3 {
        woocommerce.unpublish(&account, &unpublish_post("31")).await.unwrap();
    }
    assert_eq!(server.received_requests().await.unwrap().len(), 3);
}

async fn unpublish_expecting_error(response: ResponseTemplate) -> CallError {
    let server = MockServer::start().await;
    Mock::given(method("DELETE")).respond_with(response).mount(&server).await;
    let woocommerce = connector(Platform::Woocommerce, "http://unused.example");
    woocommerce.unpublish(&store_account(&server.uri()), &unpublish_post("31")).await.unwrap_err()
}

#[tokio::test]
async fn failed_deletions_are_classified() {
    let error = unpublish_expecting_error(rejected(403, "woocommerce_rest_cannot_delete", "Sorry")).await;
    assert!(matches!(&error, CallError::Permanent(f) if f.code == "missing_permission"), "{error:?}");
    let error = unpublish_expecting_error(rejected(501, "woocommerce_rest_trash_not_supported", "No trash")).await;
    assert!(matches!(&error, CallError::Permanent(f) if f.message.contains("turned off")), "{error:?}");
    let error = unpublish_expecting_error(rejected(404, "rest_no_route", "No route")).await;
    assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::Account), "{error:?}");
    let no_write = rejected(401, "woocommerce_rest_authentication_error", "No write permissions.");
    assert!(matches!(unpublish_expecting_error(no_write).await, CallError::Reauth(_)));
    assert!(matches!(unpublish_expecting_error(ResponseTemplate::new(502)).await, CallError::Transient(_)));
    assert!(matches!(unpublish_expecting_error(ResponseTemplate::new(429)).await, CallError::RateLimited { .. }));
    let script = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let woocommerce = connector(Platform::Woocommerce, "http://unused.example");
    let error = woocommerce.unpublish(&store_account(&script.base), &unpublish_post("31")).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
}

#[tokio::test]
async fn a_refresh_checks_the_key() {
    let woocommerce = connector(Platform::Woocommerce, "http://unused.example");
    let good = store(status()).await;
    assert!(woocommerce.refresh(&store_account(&good.uri())).await.unwrap().secrets.is_none());
    let bad = store(rejected(401, "woocommerce_rest_cannot_view", "x")).await;
    assert!(matches!(woocommerce.refresh(&store_account(&bad.uri())).await, Err(CallError::Reauth(_))));
    assert!(matches!(woocommerce.refresh(&store_account(&unused_address().await)).await, Err(CallError::Transient(_))));
}
