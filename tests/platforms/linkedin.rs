//! LinkedIn, against a server that responds as its documentation specifies.

use std::sync::Arc;

use chrono::{TimeDelta, TimeZone, Utc};
use crier_domain::failure::Category;
use crier_domain::platform::{ConnectTarget, Platform};
use crier_platforms::oauth::ConnectRequest;
use crier_platforms::{CallError, Connector, ConnectorAccount, ReconcileResult};
use serde_json::{Value, json};
use wiremock::{MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connect_choosing, connect_in_browser, connector, image, now, post, publish,
    shown, unused_address,
};
use crate::support::linkedin::Linkedin;

fn person() -> ConnectorAccount {
    let secrets = json!({ "access_token": "access-0", "client_id": "id", "client_secret": "secret" });
    account("782bbtaQ", secrets)
}

/// The page of an organization.
fn page() -> ConnectorAccount {
    ConnectorAccount { external_id: "urn:li:organization:7".to_owned(), ..person() }
}

async fn start() -> (Linkedin, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let (fake, server) = Linkedin::start(&[]).await;
    let connector = connector(Platform::Linkedin, &server.uri());
    (fake, server, connector, person())
}

fn error(status: u16, body: Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let (fake, _server, connector, account) = start().await;
    fake.scripted.lock().unwrap().push(response);
    let error = connector.publish(&account, &post(connector.as_ref(), "Hi")).await.unwrap_err();
    assert!(fake.posts.lock().unwrap().is_empty());
    error
}

#[tokio::test]
async fn a_person_is_connected_for_sixty_days() {
    let (fake, _server, connector, _) = start().await;
    let (attempt, connected) = connect_in_browser(connector.as_ref(), &fake.oauth).await.unwrap();
    assert_eq!(attempt.server.authorize_url, "https://www.linkedin.com/oauth/v2/authorization");
    assert_eq!((connected.external_id.as_str(), connected.name.as_str()), ("782bbtaQ", "Ann Baker"));
    assert_eq!(connected.token_expires_at, Some(now() + TimeDelta::days(60)));
    let renewal = connected.renewal.unwrap();
    assert_eq!(renewal.access_ends_at(connected.token_expires_at), connected.token_expires_at);
    assert_eq!(shown(&connected.secrets)["client_id"], "id");
}

#[tokio::test]
async fn a_text_is_published_escaped() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Fresh (rye) #bread @home <b> a_b #1 C# #");
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(published.external_id, "urn:li:share:1");
    assert_eq!(published.url.as_deref(), Some("https://www.linkedin.com/feed/update/urn:li:share:1"));
    let sent = fake.posts.lock().unwrap()[0].clone();
    let expected = r"Fresh \(rye\) {hashtag|\#|bread} \@home \<b\> a\_b {hashtag|\#|1} C\# \#";
    assert_eq!((&sent["commentary"], &sent["author"]), (&json!(expected), &json!("urn:li:person:782bbtaQ")));
    assert_eq!((&sent["visibility"], sent.get("content")), (&json!("PUBLIC"), None));
}

#[tokio::test]
async fn images_and_links_are_shown() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Two");
    outgoing.images = vec![image("cat"), image("dog")];
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let mut outgoing = post(connector.as_ref(), "One");
    outgoing.images = vec![image("cat")];
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let mut outgoing = post(connector.as_ref(), "Link");
    outgoing.options.insert("link".to_owned(), json!("https://example.com"));
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let posts = fake.posts.lock().unwrap().clone();
    let two = json!([
        { "id": "urn:li:image:0", "altText": "a <cat>" }, { "id": "urn:li:image:1", "altText": "a <dog>" },
    ]);
    assert_eq!(posts[0]["content"]["multiImage"]["images"], two);
    assert_eq!(posts[1]["content"]["media"], json!({ "id": "urn:li:image:2", "altText": "a <cat>" }));
    assert_eq!(posts[2]["content"]["article"]["source"], "https://example.com");
    assert_eq!(*fake.images.lock().unwrap(), ["bytes of cat", "bytes of dog", "bytes of cat"]);
}

#[tokio::test]
async fn an_upload_goes_to_linkedin_alone() {
    let (fake, _server, connector, account) = start().await;
    let outgoing = post(connector.as_ref(), "One");
    for evil in ["https://evil.example", "https://linkedin.com.evil.example", "http://www.linkedin.com", "file:///etc"]
    {
        *fake.base.lock().unwrap() = evil.to_owned();
        let error = connector.upload(&account, &outgoing, &image("cat")).await.unwrap_err();
        assert!(error.failure().message.contains("does not belong to LinkedIn"), "{evil}: {error:?}");
    }
}

#[tokio::test]
async fn a_duplicate_names_the_existing_post() {
    let share = |seconds| format!("urn:li:share:{}", (now() + TimeDelta::seconds(seconds)).timestamp_millis() << 22);
    let duplicate = |existing: &str| {
        error(
            422,
            json!({
                "message": format!("Content is a duplicate of {existing}"), "status": 422,
                "errorDetails": { "inputErrors": [{ "code": "DUPLICATE_POST" }] },
            }),
        )
    };
    let rejected = publish_expecting_error(duplicate(&share(5))).await;
    let CallError::Duplicate { existing, failure } = &rejected else { panic!("{rejected:?}") };
    assert_eq!((existing.external_id.clone(), failure.category), (share(5), Category::DuplicateContent));
    // A post that is older than the marker, one of an unknown age, and one without a name.
    let unnamed = error(422, json!({ "code": "DUPLICATE_POST" }));
    for other in [duplicate(&share(-3_600)), duplicate("urn:li:share:x"), unnamed] {
        let rejected = publish_expecting_error(other).await;
        let is_right = matches!(&rejected, CallError::Permanent(f) if f.category == Category::DuplicateContent);
        assert!(is_right, "{rejected:?}");
    }
}

#[tokio::test]
async fn posts_of_a_person_cannot_be_looked_up() {
    let (_fake, _server, connector, account) = start().await;
    let outgoing = post(connector.as_ref(), "Hi");
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Unsupported);
}

#[tokio::test]
async fn a_page_is_chosen_from_those_that_the_person_may_publish_on() {
    let roles = [(7, "ADMINISTRATOR"), (8, "ANALYST"), (9, "CONTENT_ADMINISTRATOR"), (7, "CONTENT_ADMIN")];
    let (fake, server) = Linkedin::start(&roles).await;
    let connector = connector(Platform::Linkedin, &server.uri());
    let request = ConnectRequest { target: ConnectTarget::Page, instance: "" };
    let (attempt, choices, connected) =
        connect_choosing(connector.as_ref(), &fake.oauth, request, "urn:li:organization:9").await.unwrap();
    assert_eq!(attempt.server.scopes, ["w_organization_social", "r_organization_social", "rw_organization_admin"]);
    let names: Vec<_> = choices.iter().map(|choice| (choice.id.as_str(), choice.name.as_str())).collect();
    assert_eq!(names, [("urn:li:organization:7", "Organisation 7"), ("urn:li:organization:9", "Organisation 9")]);
    assert_eq!((connected.external_id.as_str(), connected.name.as_str()), ("urn:li:organization:9", "Organisation 9"));
    assert_eq!(connected.profile_url.as_deref(), Some("https://www.linkedin.com/company/org-9"));
    assert_eq!(connected.token_expires_at, Some(now() + TimeDelta::days(60)));
}

#[tokio::test]
async fn many_pages_are_listed_in_parts() {
    let roles: Vec<_> = (1..=230).map(|id| (id, "ADMINISTRATOR")).collect();
    let (fake, server) = Linkedin::start(&roles).await;
    let connector = connector(Platform::Linkedin, &server.uri());
    let request = ConnectRequest { target: ConnectTarget::Page, instance: "" };
    let last = "urn:li:organization:230";
    let (_, choices, connected) = connect_choosing(connector.as_ref(), &fake.oauth, request, last).await.unwrap();
    assert_eq!((choices.len(), connected.external_id.as_str()), (230, last));
    assert_eq!(fake.lookups.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn a_page_publishes_in_its_own_name() {
    let (fake, _server, connector, _) = start().await;
    let mut outgoing = post(connector.as_ref(), "Fresh (rye) #bread");
    outgoing.images = vec![image("cat")];
    publish(connector.as_ref(), &page(), &mut outgoing).await.unwrap();
    assert_eq!(*fake.owners.lock().unwrap(), ["urn:li:organization:7"]);
    let sent = fake.posts.lock().unwrap()[0].clone();
    assert_eq!(sent["author"], "urn:li:organization:7");
    assert_eq!(sent["content"]["media"], json!({ "id": "urn:li:image:0", "altText": "a <cat>" }));
}

#[tokio::test]
async fn reconcile_finds_a_pages_post() {
    let (fake, _server, connector, _) = start().await;
    let mut outgoing = post(connector.as_ref(), "Fresh (rye)\n\n#bread @home");
    assert_eq!(connector.reconcile(&page(), &outgoing).await.unwrap(), ReconcileResult::Absent);
    let published = publish(connector.as_ref(), &page(), &mut outgoing).await.unwrap();
    publish(connector.as_ref(), &page(), &mut post(connector.as_ref(), "Newer")).await.unwrap();
    assert_eq!(connector.reconcile(&page(), &outgoing).await.unwrap(), ReconcileResult::Matches(vec![published]));
    let other = post(connector.as_ref(), "Fresh (rye)");
    assert_eq!(connector.reconcile(&page(), &other).await.unwrap(), ReconcileResult::Absent);
    let mut later = outgoing.clone();
    later.called_at = Some(now() + TimeDelta::hours(1));
    assert_eq!(connector.reconcile(&page(), &later).await.unwrap(), ReconcileResult::Absent);
    fake.scripted.lock().unwrap().push(error(500, json!({})));
    assert!(matches!(connector.reconcile(&page(), &outgoing).await, Err(CallError::Transient(_))));
}

#[tokio::test]
async fn an_expired_token_requires_a_person() {
    let (fake, _server, connector, account) = start().await;
    fake.oauth.revoke("access-0");
    let outgoing = post(connector.as_ref(), "Hi");
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
    assert!(matches!(connector.refresh(&account).await, Err(CallError::Reauth(_))));
}

#[tokio::test]
async fn errors_are_classified() {
    let limited = publish_expecting_error(error(429, json!({ "message": "Resource level throttle" }))).await;
    let CallError::RateLimited { until, .. } = limited else { panic!("{limited:?}") };
    assert_eq!(until, Some(Utc.with_ymd_and_hms(2026, 3, 2, 0, 0, 0).unwrap()));
    let dead = publish_expecting_error(error(426, json!({ "message": "NONEXISTENT_VERSION" }))).await;
    let CallError::RateLimited { until, failure } = dead else { panic!("{dead:?}") };
    assert_eq!((until, failure.code.as_str()), (Some(now() + TimeDelta::hours(6)), "misconfigured"));
    assert!(failure.message.contains("CRIER_LINKEDIN_API_VERSION"), "{failure:?}");
    let denied = publish_expecting_error(error(403, json!({ "serviceErrorCode": 100, "message": "Not enough" }))).await;
    assert!(matches!(&denied, CallError::Permanent(f) if f.category == Category::Account), "{denied:?}");
    let invalid = publish_expecting_error(error(422, json!({ "message": "too long" }))).await;
    assert!(matches!(&invalid, CallError::Permanent(f) if f.category == Category::InvalidContent), "{invalid:?}");
    let early = publish_expecting_error(error(422, json!({ "message": "Unable to obtain activity from URN" }))).await;
    assert!(matches!(early, CallError::Transient(_)), "{early:?}");
    for status in [500, 503, 504] {
        let unknown = publish_expecting_error(error(status, json!({}))).await;
        assert!(matches!(unknown, CallError::Unknown(_)), "{status}: {unknown:?}");
    }
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = connector(Platform::Linkedin, &server.base);
    let unknown = broken.publish(&person(), &post(broken.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    let away = connector(Platform::Linkedin, &unused_address().await);
    let passing = away.publish(&person(), &post(away.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(passing, CallError::Transient(_)), "{passing:?}");
}
