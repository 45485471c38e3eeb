//! Google Business Profile, against a server that responds as its documentation specifies.

use std::sync::Arc;

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::{ConnectTarget, Platform};
use crier_platforms::oauth::ConnectRequest;
use crier_platforms::{CallError, ConnectError, Connector, ConnectorAccount, OutgoingPost, Published, ReconcileResult};
use serde_json::{Value, json};
use wiremock::{MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connect_choosing, connector, image, now, post, publish, shown, unpublish_post,
    unused_address,
};
use crate::support::google::{Google, error, no_quota};
use crate::support::request::assert_fields;

const REQUEST: ConnectRequest<'static> = ConnectRequest { target: ConnectTarget::Default, instance: "" };

fn bakery() -> ConnectorAccount {
    let secrets = json!({
        "access_token": "access-0", "refresh_token": "refresh-0", "client_id": "id", "client_secret": "secret",
        "location": "accounts/1/locations/11",
    });
    account("locations/11", secrets)
}

async fn start() -> (Google, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let (fake, server) = Google::start(&[(1, &[11, 12]), (2, &[12, 21])]).await;
    fake.oauth.add_token("access-0");
    fake.oauth.add_refresh_token("refresh-0");
    let connector = connector(Platform::GoogleBusiness, &server.uri());
    (fake, server, connector, bakery())
}

fn with_options(connector: &dyn Connector, options: Value) -> OutgoingPost {
    OutgoingPost { options: options.as_object().unwrap().clone(), ..post(connector, "Fresh bread") }
}

async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let (fake, _server, connector, account) = start().await;
    fake.script(response);
    let error = connector.publish(&account, &post(connector.as_ref(), "Hi")).await.unwrap_err();
    assert!(fake.posts().is_empty());
    error
}

#[tokio::test]
async fn a_location_is_chosen_from_all_accounts() {
    let (fake, _server, connector, _) = start().await;
    let (attempt, choices, connected) =
        connect_choosing(connector.as_ref(), &fake.oauth, REQUEST, "accounts/2/locations/21").await.unwrap();
    assert_eq!(attempt.server.authorize_url, "https://accounts.google.com/o/oauth2/v2/auth");
    assert!(attempt.server.pkce);
    // A location in two accounts is listed once.
    let listed: Vec<_> = choices.iter().map(|choice| (choice.id.as_str(), choice.detail.as_deref())).collect();
    assert_eq!(
        listed,
        [
            ("accounts/1/locations/11", Some("Main Street 11, Ryetown")),
            ("accounts/1/locations/12", Some("Main Street 12, Ryetown")),
            ("accounts/2/locations/21", Some("Main Street 21, Ryetown")),
        ]
    );
    assert_eq!((connected.external_id.as_str(), connected.name.as_str()), ("locations/21", "Bakery 21"));
    assert_eq!(connected.profile_url.as_deref(), Some("https://maps.example/21"));
    assert_eq!(connected.token_expires_at, Some(now() + TimeDelta::seconds(3_599)));
    let renewal = connected.renewal.unwrap();
    assert!(renewal.renewable && !renewal.rotates);
    assert_eq!(shown(&connected.secrets)["location"], "accounts/2/locations/21");
}

#[tokio::test]
async fn many_locations_are_listed_in_parts() {
    let (one, two): (Vec<u64>, Vec<u64>) = ((1..=250).collect(), (300..=310).collect());
    let mut accounts: Vec<(u64, &[u64])> = vec![(1, &one)];
    accounts.extend((2..=22).map(|id| (id, &[][..])));
    accounts.push((23, &two));
    let (fake, server) = Google::start(&accounts).await;
    let connector = connector(Platform::GoogleBusiness, &server.uri());
    let last = "accounts/23/locations/310";
    let (_, choices, _) = connect_choosing(connector.as_ref(), &fake.oauth, REQUEST, last).await.unwrap();
    assert_eq!((choices.len(), choices.last().unwrap().id.as_str()), (261, last));
}

#[tokio::test]
async fn an_application_without_quota_is_named() {
    let (fake, _server, connector, _) = start().await;
    fake.script(no_quota());
    let rejected = connect_choosing(connector.as_ref(), &fake.oauth, REQUEST, "x").await.unwrap_err();
    assert!(matches!(&rejected, ConnectError::Rejected(why) if why.contains("must apply for it")), "{rejected:?}");
}

#[tokio::test]
async fn a_post_has_a_text_an_image_and_a_button() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = with_options(connector.as_ref(), json!({ "link": "https://example.com", "language": "de" }));
    outgoing.images = vec![image("cat")];
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let name = "accounts/1/locations/11/localPosts/1";
    assert_eq!(published, Published::new(name, Some("https://search.example/1".to_owned())));
    let sent = fake.posts()[0].clone();
    assert_fields(&sent, json!({ "summary": "Fresh bread", "topicType": "STANDARD", "languageCode": "de" }));
    assert_fields(&sent, json!({ "callToAction": { "actionType": "LEARN_MORE", "url": "https://example.com" } }));
    let media = json!([{ "mediaFormat": "PHOTO", "sourceUrl": "https://crier.example/media/cat.png" }]);
    assert_eq!(sent["media"], media);

    connector.publish(&account, &with_options(connector.as_ref(), json!({ "action": "CALL" }))).await.unwrap();
    let plain = connector.publish(&account, &post(connector.as_ref(), "Plain")).await.unwrap();
    assert_eq!(plain.external_id, "accounts/1/locations/11/localPosts/3");
    let posts = fake.posts();
    assert_eq!(posts[1]["callToAction"], json!({ "actionType": "CALL" }));
    assert_eq!((posts[2].get("callToAction"), posts[2].get("media")), (None, None));
    assert_eq!(posts[2]["languageCode"], "en");
}

#[tokio::test]
async fn wrong_options_are_rejected() {
    let (fake, _server, connector, account) = start().await;
    for options in [
        json!({ "action": "BUY", "link": "https://example.com" }),
        json!({ "action": "BOOK" }),
        json!({ "link": 7 }),
        json!({ "language": "de&x=1" }),
    ] {
        let error = connector.publish(&account, &with_options(connector.as_ref(), options)).await.unwrap_err();
        assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent), "{error:?}");
    }
    assert!(fake.posts().is_empty());
}

#[tokio::test]
async fn a_post_that_google_rejects_immediately_has_failed() {
    let (fake, _server, connector, account) = start().await;
    fake.set_state("REJECTED");
    let rejected = connector.publish(&account, &post(connector.as_ref(), "Call 555-0100")).await.unwrap_err();
    assert!(matches!(&rejected, CallError::Permanent(f) if f.category == Category::InvalidContent), "{rejected:?}");
}

#[tokio::test]
async fn a_post_is_polled_until_google_has_reviewed_it() {
    let (fake, _server, connector, account) = start().await;
    fake.set_state("PROCESSING");
    let outgoing = post(connector.as_ref(), "Fresh bread");
    let CallError::Accepted { post: accepted, .. } = connector.publish(&account, &outgoing).await.unwrap_err() else {
        panic!("it is published later")
    };
    let accepted = OutgoingPost { marker: accepted.marker, ..outgoing.clone() };
    let minute = TimeDelta::minutes(1);
    // Found by its name, and after a lost response by its text.
    for known in [&accepted, &outgoing] {
        fake.judge("PROCESSING");
        assert_eq!(connector.reconcile(&account, known).await.unwrap(), ReconcileResult::Pending(minute));
        fake.judge("REJECTED");
        let rejected = connector.reconcile(&account, known).await.unwrap();
        assert!(
            matches!(&rejected, ReconcileResult::Rejected(CallError::Permanent(f)) if f.category == Category::InvalidContent),
            "{rejected:?}"
        );
        fake.judge("LIVE");
        let live = match connector.reconcile(&account, known).await.unwrap() {
            ReconcileResult::Found(live) => live,
            ReconcileResult::Matches(mut found) => found.remove(0),
            other => panic!("{other:?}"),
        };
        assert!(live.url.is_some(), "{live:?}");
    }
    // What an earlier call created is not the result of a later one whose response was lost.
    let later = OutgoingPost { called_at: Some(now() + TimeDelta::hours(1)), ..accepted.clone() };
    assert_eq!(connector.reconcile(&account, &later).await.unwrap(), ReconcileResult::Absent);
    // A post that a user deleted meanwhile is not reported as never created.
    let mut gone = accepted;
    gone.marker.insert("name".to_owned(), json!("accounts/1/locations/11/localPosts/7"));
    assert!(matches!(connector.reconcile(&account, &gone).await, Err(CallError::Permanent(_))));
}

#[tokio::test]
async fn reconcile_finds_the_post() {
    let (fake, _server, connector, account) = start().await;
    let outgoing = post(connector.as_ref(), "Fresh  bread");
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Absent);
    let published = connector.publish(&account, &outgoing).await.unwrap();
    connector.publish(&account, &post(connector.as_ref(), "Newer")).await.unwrap();
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Matches(vec![published]));
    let other = post(connector.as_ref(), "Fresh");
    assert_eq!(connector.reconcile(&account, &other).await.unwrap(), ReconcileResult::Absent);
    let mut later = outgoing.clone();
    later.called_at = Some(now() + TimeDelta::hours(1));
    assert_eq!(connector.reconcile(&account, &later).await.unwrap(), ReconcileResult::Absent);
    fake.script(error(503, "UNAVAILABLE", json!([])));
    assert!(matches!(connector.reconcile(&account, &outgoing).await, Err(CallError::Transient(_))));
}

#[tokio::test]
async fn a_post_is_deleted_and_a_deletion_can_be_repeated() {
    let (fake, server, connector, account) = start().await;
    let name = "accounts/1/locations/11/localPosts/1";
    fake.script(ResponseTemplate::new(200).set_body_json(json!({})));
    fake.script(error(404, "NOT_FOUND", json!([])));
    for _ in 0..2 {
        connector.unpublish(&account, &unpublish_post(name)).await.unwrap();
    }
    let requests = server.received_requests().await.unwrap();
    let calls: Vec<_> = requests.iter().map(|one| (one.method.as_str(), one.url.path())).collect();
    let path = format!("/v4/{name}");
    let (deletion, list) = (("DELETE", path.as_str()), ("GET", "/v4/accounts/1/locations/11/localPosts"));
    assert_eq!(calls, [deletion, deletion, list]);
}

#[tokio::test]
async fn a_post_of_a_lost_location_is_not_reported_as_deleted() {
    let (fake, _server, connector, account) = start().await;
    for _ in 0..2 {
        fake.script(error(404, "NOT_FOUND", json!([])));
    }
    let post = unpublish_post("accounts/1/locations/11/localPosts/1");
    let lost = connector.unpublish(&account, &post).await.unwrap_err();
    assert!(matches!(&lost, CallError::Permanent(f) if f.category == Category::Account), "{lost:?}");
}

#[tokio::test]
async fn failed_deletions_are_classified() {
    let (fake, _server, connector, account) = start().await;
    let post = unpublish_post("accounts/1/locations/11/localPosts/1");
    fake.script(error(403, "PERMISSION_DENIED", json!([])));
    let forbidden = connector.unpublish(&account, &post).await.unwrap_err();
    assert!(matches!(&forbidden, CallError::Permanent(f) if f.category == Category::Account), "{forbidden:?}");
    fake.script(error(429, "RESOURCE_EXHAUSTED", json!([])));
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::RateLimited { until: Some(_), .. })));
    fake.script(error(503, "UNAVAILABLE", json!([])));
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::Transient(_))));
    fake.oauth.revoke("access-0");
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::AuthExpired(_))));
}

#[tokio::test]
async fn an_expired_token_is_renewed_and_the_refresh_token_stays() {
    let (fake, _server, connector, account) = start().await;
    fake.oauth.revoke("access-0");
    let outgoing = post(connector.as_ref(), "Hi");
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
    let secrets = connector.refresh(&account).await.unwrap().secrets.unwrap();
    assert_eq!(shown(&secrets)["refresh_token"], "refresh-0");
    let renewed = ConnectorAccount { secrets, ..account.clone() };
    connector.publish(&renewed, &outgoing).await.unwrap();
    connector.refresh(&renewed).await.unwrap();
    let mut fields = shown(&account.secrets);
    fields["refresh_token"] = json!("revoked");
    let revoked = ConnectorAccount { secrets: super::support::secrets(fields), ..account };
    assert!(matches!(connector.refresh(&revoked).await, Err(CallError::Reauth(_))));
}

#[tokio::test]
async fn errors_are_classified() {
    let limited = publish_expecting_error(error(429, "RESOURCE_EXHAUSTED", json!([]))).await;
    let CallError::RateLimited { until, failure } = limited else { panic!("{limited:?}") };
    assert_eq!((until, failure.code != "misconfigured"), (Some(now() + TimeDelta::minutes(1)), true));
    let disabled = json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED" }]);
    for response in [no_quota(), error(403, "PERMISSION_DENIED", disabled)] {
        let operator = publish_expecting_error(response).await;
        let CallError::RateLimited { until, failure } = operator else { panic!("{operator:?}") };
        assert_eq!((until, failure.code.as_str()), (Some(now() + TimeDelta::hours(6)), "misconfigured"));
    }
    let media = json!([{
        "@type": "type.googleapis.com/google.mybusiness.v4.ValidationError",
        "errorDetails": [{ "code": 21, "field": "media[0].sourceUrl", "message": "Fetching image failed." }],
    }]);
    for (response, category, says) in [
        (error(400, "INVALID_ARGUMENT", media), Category::InvalidContent, "the image: Fetching image failed."),
        (error(400, "INVALID_ARGUMENT", json!([])), Category::InvalidContent, "this post: It is INVALID_ARGUMENT."),
        (error(403, "PERMISSION_DENIED", json!([])), Category::Account, "does not allow"),
        (error(404, "NOT_FOUND", json!([])), Category::Account, "location"),
    ] {
        let error = publish_expecting_error(response).await;
        let is_right = matches!(&error, CallError::Permanent(f) if f.category == category && f.message.contains(says));
        assert!(is_right, "{says}: {error:?}");
    }
    for (status, name) in [(500, "INTERNAL"), (503, "UNAVAILABLE"), (504, "DEADLINE_EXCEEDED")] {
        let unknown = publish_expecting_error(error(status, name, json!([]))).await;
        assert!(matches!(unknown, CallError::Unknown(_)), "{status}: {unknown:?}");
    }
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = connector(Platform::GoogleBusiness, &server.base);
    let unknown = broken.publish(&bakery(), &post(broken.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    let away = connector(Platform::GoogleBusiness, &unused_address().await);
    let passing = away.publish(&bakery(), &post(away.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(passing, CallError::Transient(_)), "{passing:?}");
}
