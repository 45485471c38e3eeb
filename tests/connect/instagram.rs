//! Instagram: accounts connected by Instagram's own login, and accounts behind a Facebook page.

use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::application::{Application, Owner};
use crier_domain::platform::{ConnectTarget, Platform};
use crier_store::applications::{self, NewApplication};
use crier_store::{account_tokens, accounts};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use wiremock::MockServer;

use crate::support::app::{Tenant, TestApp};
use crate::support::containers::{ACCOUNT, ContainerServer, INSTAGRAM};
use crate::support::facebook::Facebook;
use crate::support::person::{Person, assert_page};
use crate::support::request::assert_fields;
use crate::support::store::{TestStore, on_one};

on_one!(an_account_is_connected_by_its_own_login, an_account_behind_a_page_is_chosen,);

fn settings(server: &MockServer, with_application: bool) -> PlatformConfig {
    PlatformConfig {
        client_id: with_application.then(|| "id".to_owned()),
        client_secret: with_application.then(|| "secret".into()),
        base_url: Some(server.uri()),
        auth_url: Some(server.uri()),
        ..PlatformConfig::default()
    }
}

async fn secrets_of(app: &TestApp, account: i64) -> Value {
    let found = accounts::with_secrets(&mut app.conn().await, app.cipher(), account).await.unwrap().unwrap();
    serde_json::from_str(found.1.expose_secret()).unwrap()
}

async fn authorize(t: &Tenant<'_>, target: &str) -> String {
    let body = json!({ "platform": "instagram", "target": target });
    let authorization = t.post(&t.path("/social-accounts/authorize"), body).await.data(200);
    authorization["authorization_url"].as_str().unwrap().to_owned()
}

async fn an_account_is_connected_by_its_own_login(s: TestStore) {
    let (instagram, server) = ContainerServer::start(INSTAGRAM, "2026-03-01T12:00:05+0000").await;
    instagram.oauth.add_client("id", "secret");
    let mut config = PlatformsConfig::default();
    config.platforms.insert(Platform::Instagram, settings(&server, true));
    let app = TestApp::start_with_platforms(s, config).await;
    let t = app.tenant("unlimited").await;
    let (url, mut person) = (authorize(&t, "default").await, Person::new(&app));
    assert!(person.open(&url).await.text().contains("only on professional accounts"));
    let platform_url = person.leave(&url).await;
    assert_eq!(platform_url.path(), "/oauth/authorize");
    person.finish(instagram.oauth.agree(&platform_url).as_str()).await;

    let account = t.get(&t.path("/social-accounts")).await.data(200)[0].clone();
    assert_eq!((&account["external_id"], &account["username"]), (&json!(ACCOUNT), &json!("bakery")));
    let id = account["id"].as_i64().unwrap();
    assert!(secrets_of(&app, id).await["access_token"].as_str().unwrap().starts_with("long-"));
    let tokens = account_tokens::find(&mut app.conn().await, id).await.unwrap().unwrap();
    assert!(tokens.renewal.renewable && tokens.check_at.is_some(), "the token is renewed by a job");
    let refresh = t.path(&format!("/social-accounts/{id}/refresh"));
    assert_eq!(t.request("POST", &refresh).send().await.data(200)["status"], "active");
}

async fn an_account_behind_a_page_is_chosen(s: TestStore) {
    let pages = [("41", "Bakery"), ("42", "Mill"), ("43", "Shop")];
    let (facebook, server) = Facebook::start("2026-03-01T12:00:05+0000", &pages).await;
    facebook.oauth.add_client("id", "secret");
    facebook.link_instagram("41", "17001", "bakery");
    facebook.link_instagram("43", "17003", "shop");
    let mut config = PlatformsConfig::default();
    config.platforms.insert(Platform::Facebook, settings(&server, false));
    let app = TestApp::start_with_platforms(s, config).await;
    let t = app.tenant("unlimited").await;
    let body = json!({ "platform": "instagram", "target": "page" });
    t.post(&t.path("/social-accounts/authorize"), body).await.expect_error(422, "platform_not_configured");
    let new = NewApplication {
        platform: Platform::Instagram,
        target: ConnectTarget::Page,
        owner: Owner::Brand(t.brand),
        instance: "",
        redirect_uri: "",
        application: &Application::new("id", "secret"),
    };
    app.write(async |tx| applications::set(tx, &new).await).await;

    let (url, mut person) = (authorize(&t, "page").await, Person::new(&app));
    let platform_url = person.leave(&url).await;
    let response = person.open(facebook.agree(&platform_url).as_str()).await;
    let page = person.follow(&response).await.text();
    assert!(page.contains("bakery") && page.contains("shop") && !page.contains("Mill"), "{page}");
    let chosen = person.submit(response.header("location").unwrap(), &[("choice", "43")]).await;
    assert_page(&person.follow(&chosen).await, 200, "Connected");
    let account = t.get(&t.path("/social-accounts")).await.data(200)[0].clone();
    assert_fields(&account, json!({ "external_id": "17003", "username": "shop", "token_expires_at": null }));
    let secrets = secrets_of(&app, account["id"].as_i64().unwrap()).await;
    assert_eq!((&secrets["access_token"], &secrets["login"]), (&json!("page-43"), &json!("facebook")));
}
