//! Applications whose ID is the URL of their metadata document.

use crier_oauth::authorize::AuthorizeError;
use serde_json::{Value, json};
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::{
    Allowed, REDIRECT, TOKEN, Tokens, allow, assert_error, caller, check, exchange_of, grants_of, refresh, request_of,
    send,
};
use crate::support::app::{TestApp, on_both_apps, on_one_app};

on_both_apps!(an_application_with_a_document_gets_tokens);
on_one_app!(
    documents_are_read_again_after_a_while,
    a_document_must_be_one_of_this_application,
    other_addresses_are_not_read,
    urls_of_documents_have_one_form,
);

/// Serves a response at a path, and returns the URL.
async fn serve(server: &MockServer, at: &str, response: ResponseTemplate) -> String {
    Mock::given(path(at)).respond_with(response).mount(server).await;
    format!("{}{at}", server.uri())
}

/// Serves the document of an application with these fields besides its ID and its redirect URI.
async fn serve_document(server: &MockServer, at: &str, more: Value) -> String {
    let mut document = json!({ "client_id": format!("{}{at}", server.uri()), "redirect_uris": [REDIRECT] });
    document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serve(server, at, ResponseTemplate::new(200).set_body_json(document)).await
}

async fn an_application_with_a_document_gets_tokens(app: TestApp) {
    let t = app.tenant("pro").await;
    let server = MockServer::start().await;
    let more =
        json!({ "client_name": "Agent", "token_endpoint_auth_method": "none", "logo_uri": "https://a.example/" });
    let id = serve_document(&server, "/client.json", more).await;
    let request = check(&app, &request_of(&app, &id)).await.unwrap();
    assert!(request.is_metadata_document && !request.is_loopback_only);
    assert_eq!((request.client_id.as_str(), request.client_name.as_str()), (id.as_str(), "Agent"));
    let code = allow(&t, &id, Allowed::default()).await;
    let tokens = Tokens::of(&send(&app, TOKEN, &exchange_of(&app, &id, &code)).await);
    assert!(caller(&app, &tokens.access, Some(t.brand)).await.unwrap().membership.is_some());
    Tokens::of(&refresh(&app, &id, &tokens.refresh).await);
    assert_eq!(grants_of(&t).await[0].client_id, id);
    assert_eq!(app.count_rows("oauth_clients").await, 0);
    // The document is only needed to ask the user.
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
}

async fn documents_are_read_again_after_a_while(app: TestApp) {
    let server = MockServer::start().await;
    let id = serve_document(&server, "/client.json", json!({})).await;
    let read = async || {
        check(&app, &request_of(&app, &id)).await.unwrap();
        server.received_requests().await.unwrap().len()
    };
    assert_eq!((read().await, read().await), (1, 1));
    app.advance(15 * 60);
    assert_eq!(read().await, 2);
    // A document that cannot be used is not kept.
    server.reset().await;
    serve(&server, "/client.json", ResponseTemplate::new(500)).await;
    app.advance(15 * 60);
    assert_page(&app, &id, "status 500").await;
    assert_page(&app, &id, "status 500").await;
    assert_eq!(server.received_requests().await.unwrap().len(), 2);
}

/// Asserts that the user sees a page with a message, and is not redirected.
async fn assert_page(app: &TestApp, client_id: &str, text: &str) {
    match check(app, &request_of(app, client_id)).await {
        Err(AuthorizeError::Page(message)) => assert!(message.contains(text), "{client_id}: {message}"),
        other => panic!("{client_id}: {other:?}"),
    }
}

async fn a_document_must_be_one_of_this_application(app: TestApp) {
    let server = MockServer::start().await;
    let json = |body: Value| ResponseTemplate::new(200).set_body_json(body);
    let text = |body: &str, kind: &str| ResponseTemplate::new(200).set_body_raw(body.to_owned(), kind);
    let other = json!({ "client_id": "https://claude.ai/oauth/client.json", "redirect_uris": [REDIRECT] });
    let id = |at: &str| format!("{}{at}", server.uri());
    let valid = json!({ "client_id": id("/text"), "redirect_uris": [REDIRECT] }).to_string();
    let redirect = ResponseTemplate::new(302).insert_header("location", id("/elsewhere").as_str());
    for (at, response, message) in [
        ("/other", json(other), "belongs to another application"),
        ("/array", json(json!([])), "is not valid"),
        ("/no-uris", json(json!({ "client_id": id("/no-uris") })), "is not valid"),
        ("/empty", json(json!({ "client_id": id("/empty"), "redirect_uris": [] })), "redirect URIs"),
        ("/missing", ResponseTemplate::new(404), "status 404"),
        ("/redirect", redirect, "status 302"),
        ("/large", text(&format!("\"{}\"", "x".repeat(70_000)), "application/json"), "larger than 64 KiB"),
        ("/many", json(json!({ "client_id": id("/many"), "redirect_uris": vec![""; 101] })), "more than 100 entries"),
        ("/text", text(&valid, "text/plain"), "content type"),
        ("/html", text("<html>", "application/json"), "is not valid"),
    ] {
        let id = serve(&server, at, response).await;
        assert_page(&app, &id, message).await;
    }
    let id = serve_document(&server, "/secret", json!({ "token_endpoint_auth_method": "private_key_jwt" })).await;
    assert_page(&app, &id, "does not support").await;
    let both = json!({
        "token_endpoint_auth_method": "private_key_jwt",
        "token_endpoint_auth_methods_supported": ["private_key_jwt", "none"],
    });
    let id = serve_document(&server, "/both", both).await;
    assert!(check(&app, &request_of(&app, &id)).await.is_ok());
    let id = serve_document(&server, "/elsewhere-only", json!({ "redirect_uris": ["https://other.example/"] })).await;
    assert_page(&app, &id, "has not registered").await;
    assert!(server.received_requests().await.unwrap().iter().all(|request| request.url.path() != "/elsewhere"));
}

/// The test permits only 127.0.0.1, as an operator can. Nothing listens at the other addresses.
async fn other_addresses_are_not_read(app: TestApp) {
    for id in [
        "https://10.0.0.1/client.json",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/client.json",
        "http://127.0.0.2:9/client.json",
        "https://metadata.internal.localhost/client.json",
    ] {
        let result = check(&app, &request_of(&app, id)).await;
        let Err(AuthorizeError::Page(message)) = result else { panic!("{id}: {result:?}") };
        assert!(message.contains("public address") || message.contains("could not be read"), "{id}: {message}");
    }
    assert_page(&app, "http://93.184.216.34/client.json", "https://").await;
    assert_page(&app, "ftp://agent.example/client.json", "https://").await;
}

async fn urls_of_documents_have_one_form(app: TestApp) {
    let server = MockServer::start().await;
    let host = server.uri();
    for at in ["", "/", "/a/../client.json", "/client.json#x", &format!("/{}", "a".repeat(600))] {
        assert_page(&app, &format!("{host}{at}"), "invalid URL").await;
    }
    let with_user = host.replace("http://", "http://user@");
    assert_page(&app, &format!("{with_user}/client.json"), "username").await;
    assert!(server.received_requests().await.unwrap().is_empty());
    assert_error(&send(&app, TOKEN, &exchange_of(&app, &format!("{host}/client.json"), "x")).await, "invalid_grant");
}
