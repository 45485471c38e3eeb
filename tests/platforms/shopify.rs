//! Shopify, against a shop that responds as its documentation specifies.

use std::sync::Arc;

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::{ConnectTarget, Platform};
use crier_platforms::oauth::ConnectRequest;
use crier_platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, Published, ReconcileResult};
use serde_json::{Value, json};
use wiremock::{MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connect_choosing, connector, image, now, post, publish, shown, unpublish_post,
    unused_address,
};
use crate::support::shopify::{Shopify, blog_id, graphql_error, user_error};

const INSTANCE: &str = "https://rye.myshopify.com";

fn blog() -> ConnectorAccount {
    let secrets = json!({
        "access_token": "access-0", "refresh_token": "refresh-0", "client_id": "id", "client_secret": "secret",
        "instance": INSTANCE, "site": "https://rye.example", "author": "Rye & Co",
    });
    account(&blog_id(2), secrets)
}

async fn start() -> (Shopify, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let (fake, server) = Shopify::start(&["News", "Recipes"]).await;
    fake.oauth.add_token("access-0");
    fake.oauth.add_refresh_token("refresh-0");
    let connector = connector(Platform::Shopify, &server.uri());
    (fake, server, connector, blog())
}

fn with_options(connector: &dyn Connector, text: &str, options: Value) -> OutgoingPost {
    OutgoingPost { options: options.as_object().unwrap().clone(), ..post(connector, text) }
}

async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let (fake, _server, connector, account) = start().await;
    fake.script(response);
    let error = connector.publish(&account, &post(connector.as_ref(), "Hi")).await.unwrap_err();
    assert!(fake.articles().is_empty());
    error
}

#[tokio::test]
async fn a_blog_is_connected_with_tokens_that_rotate() {
    let (fake, _server, connector, _) = start().await;
    let request = ConnectRequest { target: ConnectTarget::Default, instance: INSTANCE };
    let (attempt, choices, connected) =
        connect_choosing(connector.as_ref(), &fake.oauth, request, &blog_id(2)).await.unwrap();
    assert_eq!(attempt.server.authorize_url, "https://rye.myshopify.com/admin/oauth/authorize");
    assert_eq!(choices.iter().map(|choice| choice.name.as_str()).collect::<Vec<_>>(), ["News", "Recipes"]);
    assert_eq!((connected.external_id, connected.name), (blog_id(2), "Rye & Co: Recipes".to_owned()));
    assert_eq!(connected.username.as_deref(), Some("rye.myshopify.com"));
    assert_eq!(connected.profile_url.as_deref(), Some("https://rye.example/blogs/recipes"));
    assert_eq!(connected.token_expires_at, Some(now() + TimeDelta::hours(1)));
    let renewal = connected.renewal.unwrap();
    assert!(renewal.renewable && renewal.rotates);
    let secrets = shown(&connected.secrets);
    assert_eq!((&secrets["instance"], &secrets["author"]), (&json!(INSTANCE), &json!("Rye & Co")));
}

#[tokio::test]
async fn many_blogs_are_listed_in_parts() {
    let titles: Vec<String> = (0..230).map(|number| format!("Blog {number}")).collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let (fake, server) = Shopify::start(&titles).await;
    let connector = connector(Platform::Shopify, &server.uri());
    let request = ConnectRequest { target: ConnectTarget::Default, instance: INSTANCE };
    let (_, choices, connected) =
        connect_choosing(connector.as_ref(), &fake.oauth, request, &blog_id(230)).await.unwrap();
    assert_eq!((choices.len(), connected.external_id), (230, blog_id(230)));
}

#[tokio::test]
async fn a_shop_is_named_by_its_own_domain() {
    let (_fake, _server, connector, _) = start().await;
    let oauth = connector.oauth().unwrap();
    for typed in ["rye.myshopify.com", " https://Rye.myshopify.com/ "] {
        assert_eq!(oauth.check_instance(typed).await.unwrap(), INSTANCE);
    }
    for typed in ["rye", "rye.example", "http://rye.myshopify.com", "https://rye.myshopify.com@evil.example"] {
        assert!(oauth.check_instance(typed).await.is_err(), "{typed}");
    }
}

#[tokio::test]
async fn an_article_has_a_title_paragraphs_and_one_image() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Fresh bread\n\nAt six <o'clock>.\nEvery day.");
    outgoing.images = vec![image("cat")];
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let handle = "post-7-0000000000000063";
    let url = format!("https://rye.example/blogs/news/{handle}");
    assert_eq!(published, Published::new("gid://shopify/Article/1", Some(url)));
    let expected = json!({
        "blogId": blog_id(2),
        "title": "Fresh bread",
        "author": { "name": "Rye & Co" },
        "body": "<p>At six &lt;o&#039;clock&gt;.<br />\nEvery day.</p>",
        "handle": handle,
        "isPublished": true,
        "image": { "url": "https://crier.example/media/cat.png", "altText": "a <cat>" },
    });
    assert_eq!(fake.articles(), [expected]);
}

#[tokio::test]
async fn options_set_title_author_summary_and_tags() {
    let (fake, _server, connector, account) = start().await;
    let options = json!({ "title": "Rye", "author": "Ann", "summary": "Short & good", "tags": "bread, rye ,," });
    let outgoing = with_options(connector.as_ref(), "One\nTwo", options);
    connector.publish(&account, &outgoing).await.unwrap();
    let article = fake.articles()[0].clone();
    assert_eq!((&article["title"], &article["author"]["name"]), (&json!("Rye"), &json!("Ann")));
    assert_eq!((&article["body"], &article["tags"]), (&json!("<p>One<br />\nTwo</p>"), &json!(["bread", "rye"])));
    assert_eq!(article["summary"], "<p>Short &amp; good</p>");
    for options in [json!({ "title": 7 }), json!({ "title": "x".repeat(256) })] {
        let outgoing = with_options(connector.as_ref(), "Hi", options);
        let error = connector.publish(&account, &outgoing).await.unwrap_err();
        assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent), "{error:?}");
    }
    assert!(matches!(connector.publish(&account, &post(connector.as_ref(), "")).await, Err(CallError::Permanent(_))));
    assert_eq!(fake.articles().len(), 1);
}

#[tokio::test]
async fn reconcile_finds_the_article_by_its_handle() {
    let (fake, _server, connector, account) = start().await;
    let outgoing = post(connector.as_ref(), "Hi");
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Absent);
    let published = connector.publish(&account, &outgoing).await.unwrap();
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Found(published.clone()));
    let mut other = outgoing.clone();
    other.marker.insert("handle".to_owned(), json!("post-8"));
    assert_eq!(connector.reconcile(&account, &other).await.unwrap(), ReconcileResult::Absent);
    // With more than fifty newer articles, the search finds it.
    fake.bury();
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Found(published));
    fake.script(ResponseTemplate::new(500));
    assert!(matches!(connector.reconcile(&account, &outgoing).await, Err(CallError::Transient(_))));
}

#[tokio::test]
async fn a_taken_handle_belongs_to_an_earlier_call_of_this_post() {
    let (fake, _server, connector, account) = start().await;
    let outgoing = post(connector.as_ref(), "Hi");
    let first = connector.publish(&account, &outgoing).await.unwrap();
    let again = OutgoingPost { has_earlier_attempt: true, ..outgoing };
    assert_eq!(connector.publish(&account, &again).await.unwrap(), first);
    assert_eq!(fake.articles().len(), 1);
    let elsewhere = publish_expecting_error(user_error("TAKEN")).await;
    assert!(matches!(&elsewhere, CallError::Permanent(f) if f.category == Category::DuplicateContent), "{elsewhere:?}");
}

#[tokio::test]
async fn an_error_beside_an_article_changes_nothing() {
    let (fake, _server, connector, account) = start().await;
    let made = json!({ "id": "gid://shopify/Article/9", "handle": "post-9", "blog": null });
    fake.script(ResponseTemplate::new(200).set_body_json(json!({
        "data": { "articleCreate": { "article": made, "userErrors": [] } },
        "errors": [{ "message": "Access denied for blog field.", "extensions": { "code": "ACCESS_DENIED" } }],
    })));
    let published = connector.publish(&account, &post(connector.as_ref(), "Hi")).await.unwrap();
    assert_eq!(published, Published::new("gid://shopify/Article/9", None));
}

fn deletion(payload: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({ "data": { "articleDelete": payload } }))
}

#[tokio::test]
async fn an_article_is_deleted_and_a_deletion_can_be_repeated() {
    let (fake, server, connector, account) = start().await;
    let id = "gid://shopify/Article/1";
    let not_found = json!({ "code": "NOT_FOUND", "field": ["id"], "message": "Article does not exist" });
    fake.script(deletion(json!({ "deletedArticleId": id, "userErrors": [] })));
    fake.script(deletion(json!({ "deletedArticleId": null, "userErrors": [not_found] })));
    for _ in 0..2 {
        connector.unpublish(&account, &unpublish_post(id)).await.unwrap();
    }
    for request in server.received_requests().await.unwrap() {
        let body: Value = request.body_json().unwrap();
        assert_eq!(body["variables"], json!({ "id": id }));
        assert!(body["query"].as_str().unwrap().contains("articleDelete(id: $id)"));
    }
}

#[tokio::test]
async fn failed_deletions_are_classified() {
    let (fake, _server, connector, account) = start().await;
    let post = unpublish_post("gid://shopify/Article/1");
    fake.script(graphql_error("ACCESS_DENIED", json!({})));
    let error = connector.unpublish(&account, &post).await.unwrap_err();
    assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::Account), "{error:?}");
    fake.script(graphql_error("THROTTLED", json!({})));
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::RateLimited { until: Some(_), .. })));
    for response in [
        graphql_error("INTERNAL_SERVER_ERROR", json!({})),
        ResponseTemplate::new(503),
        deletion(json!(null)),
        deletion(json!({ "deletedArticleId": null, "userErrors": [] })),
    ] {
        fake.script(response);
        let error = connector.unpublish(&account, &post).await.unwrap_err();
        assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    }
    fake.oauth.revoke("access-0");
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::AuthExpired(_))));
}

#[tokio::test]
async fn a_refresh_token_is_used_until_the_next_one_is() {
    let (fake, _server, connector, account) = start().await;
    fake.oauth.revoke("access-0");
    let outgoing = post(connector.as_ref(), "Hi");
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
    let refreshed = connector.refresh(&account).await.unwrap();
    assert_eq!(refreshed.token_expires_at, Some(now() + TimeDelta::hours(1)));
    assert_ne!(shown(&refreshed.secrets.unwrap())["refresh_token"], "refresh-0");
    // The response may be lost, so the old token can be renewed once more.
    let secrets = connector.refresh(&account).await.unwrap().secrets.unwrap();
    let renewed = ConnectorAccount { secrets, ..account.clone() };
    connector.publish(&renewed, &outgoing).await.unwrap();
    connector.refresh(&renewed).await.unwrap();
    let rejected = connector.refresh(&account).await;
    assert!(matches!(&rejected, Err(CallError::Reauth(_))), "{rejected:?}");
}

#[tokio::test]
async fn a_token_without_an_end_is_checked() {
    let (fake, _server, connector, account) = start().await;
    let mut fields = shown(&account.secrets);
    fields.as_object_mut().unwrap().remove("refresh_token");
    let account = ConnectorAccount { secrets: super::support::secrets(fields), ..account };
    assert!(connector.refresh(&account).await.unwrap().secrets.is_none());
    fake.oauth.revoke("access-0");
    assert!(matches!(connector.refresh(&account).await, Err(CallError::Reauth(_))));
}

#[tokio::test]
async fn errors_are_classified() {
    let cost = json!({ "cost": {
        "requestedQueryCost": 110, "actualQueryCost": null,
        "throttleStatus": { "maximumAvailable": 2000.0, "currentlyAvailable": 5, "restoreRate": 50.0 },
    } });
    let limited = publish_expecting_error(graphql_error("THROTTLED", cost)).await;
    let CallError::RateLimited { until, .. } = limited else { panic!("{limited:?}") };
    assert_eq!(until, Some(now() + TimeDelta::seconds(3)));
    let limited = publish_expecting_error(ResponseTemplate::new(429).insert_header("Retry-After", "2")).await;
    let CallError::RateLimited { until, .. } = limited else { panic!("{limited:?}") };
    assert_eq!(until, Some(now() + TimeDelta::seconds(2)));
    assert!(matches!(publish_expecting_error(ResponseTemplate::new(430)).await, CallError::RateLimited { .. }));
    for (response, category) in [
        (graphql_error("ACCESS_DENIED", json!({})), Category::Account),
        (graphql_error("SHOP_INACTIVE", json!({})), Category::Account),
        (user_error("NOT_FOUND"), Category::Account),
        (user_error("TOO_LONG"), Category::InvalidContent),
        (ResponseTemplate::new(402), Category::Account),
        (ResponseTemplate::new(403), Category::Account),
        (ResponseTemplate::new(404), Category::Account),
        (ResponseTemplate::new(423), Category::Account),
    ] {
        let error = publish_expecting_error(response).await;
        assert!(matches!(&error, CallError::Permanent(f) if f.category == category), "{category:?}: {error:?}");
    }
    let media = publish_expecting_error(user_error("UPLOAD_FAILED")).await;
    assert!(matches!(&media, CallError::Transient(f) if f.category == Category::Media), "{media:?}");
    let version = publish_expecting_error(graphql_error("undefinedField", json!({}))).await;
    let CallError::RateLimited { until, failure } = version else { panic!("{version:?}") };
    assert_eq!((until, failure.code.as_str()), (Some(now() + TimeDelta::hours(6)), "misconfigured"));
    assert!(failure.message.contains("CRIER_SHOPIFY_API_VERSION"), "{failure:?}");
    let nothing = ResponseTemplate::new(200).set_body_json(json!({ "data": { "articleCreate": null } }));
    for response in [
        graphql_error("INTERNAL_SERVER_ERROR", json!({})),
        ResponseTemplate::new(500),
        ResponseTemplate::new(503),
        ResponseTemplate::new(200).set_body_string("<html>"),
        nothing,
    ] {
        let unknown = publish_expecting_error(response).await;
        assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    }
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = connector(Platform::Shopify, &server.base);
    let unknown = broken.publish(&blog(), &post(broken.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    let away = connector(Platform::Shopify, &unused_address().await);
    let passing = away.publish(&blog(), &post(away.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(passing, CallError::Transient(_)), "{passing:?}");
}
