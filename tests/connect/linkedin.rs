//! LinkedIn: pages of organizations are connected with a separate application.

use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::application::{Application, Owner};
use crier_domain::platform::{ConnectTarget, Platform};
use crier_store::accounts;
use crier_store::applications::{self, NewApplication};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use url::Url;
use wiremock::{MockServer, ResponseTemplate};

use crate::support::app::{Reply, Tenant, TestApp};
use crate::support::linkedin::Linkedin;
use crate::support::person::{Person, assert_page};
use crate::support::store::{TestStore, on_one};

on_one!(
    a_page_is_connected_with_the_second_application,
    the_granted_scopes_are_stored_with_each_connect,
    an_application_is_set_for_each_target,
    an_unsupported_version_is_named_on_the_page,
);

/// Starts an API whose configuration has only the application for pages.
async fn start(s: TestStore) -> (TestApp, Linkedin, MockServer) {
    let (linkedin, server) = Linkedin::start(&[(7, "ADMINISTRATOR"), (9, "ADMINISTRATOR")]).await;
    for id in ["page-app", "person-app", "brand-app"] {
        linkedin.oauth.add_client(id, "secret");
    }
    let mut config = PlatformsConfig::default();
    let settings = PlatformConfig {
        page_client_id: Some("page-app".to_owned()),
        page_client_secret: Some("secret".into()),
        scopes: vec!["of_persons".to_owned()],
        page_scopes: Some(vec!["r_organization_social_feed".to_owned()]),
        base_url: Some(server.uri()),
        auth_url: Some(server.uri()),
        ..PlatformConfig::default()
    };
    config.platforms.insert(Platform::Linkedin, settings);
    (TestApp::start_with_platforms(s, config).await, linkedin, server)
}

async fn authorize(t: &Tenant<'_>, target: &str) -> Reply {
    t.post(&t.path("/social-accounts/authorize"), json!({ "platform": "linkedin", "target": target })).await
}

fn client_id(url: &Url) -> String {
    url.query_pairs().find(|(name, _)| name == "client_id").unwrap().1.into_owned()
}

async fn a_page_is_connected_with_the_second_application(s: TestStore) {
    let (app, linkedin, _server) = start(s).await;
    let t = app.tenant("unlimited").await;
    authorize(&t, "default").await.expect_error(422, "platform_not_configured");
    let authorization = authorize(&t, "page").await.data(200);
    let (url, mut person) = (authorization["authorization_url"].as_str().unwrap(), Person::new(&app));
    let first = person.open(url).await.text();
    assert!(first.contains("your LinkedIn page") && first.contains("Community Management"), "{first}");
    let platform_url = person.leave(url).await;
    assert_eq!(client_id(&platform_url), "page-app");
    assert!(platform_url.query().unwrap().contains("w_organization_social"), "{platform_url}");
    assert!(first.contains("r_organization_social_feed") && !first.contains("of_persons"), "{first}");
    let query = platform_url.query().unwrap();
    assert!(query.contains("r_organization_social_feed") && !query.contains("of_persons"), "{platform_url}");
    let response = person.open(linkedin.oauth.agree(&platform_url).as_str()).await;
    let page = person.follow(&response).await.text();
    assert!(page.contains("Choose a page") && page.contains("Organisation 9"), "{page}");
    let choice = [("choice", "urn:li:organization:9")];
    let chosen = person.submit(response.header("location").unwrap(), &choice).await;
    assert_page(&person.follow(&chosen).await, 200, "Connected");
    let account = t.get(&t.path("/social-accounts")).await.data(200)[0].clone();
    assert_eq!((&account["kind"], &account["name"]), (&json!("page"), &json!("Organisation 9")));
    let id = account["id"].as_i64().unwrap();
    let found = accounts::with_secrets(&mut app.conn().await, app.cipher(), id).await.unwrap().unwrap();
    let secrets: Value = serde_json::from_str(found.1.expose_secret()).unwrap();
    assert_eq!(secrets["client_id"], "page-app");
}

async fn the_granted_scopes_are_stored_with_each_connect(s: TestStore) {
    let (app, linkedin, _server) = start(s).await;
    let t = app.tenant("unlimited").await;
    let connect = async || {
        let authorization = authorize(&t, "page").await.data(200);
        let mut person = Person::new(&app);
        let platform_url = person.leave(authorization["authorization_url"].as_str().unwrap()).await;
        let response = person.open(linkedin.oauth.agree(&platform_url).as_str()).await;
        let choice = [("choice", "urn:li:organization:9")];
        let chosen = person.submit(response.header("location").unwrap(), &choice).await;
        assert_page(&person.follow(&chosen).await, 200, "Connected");
        let id = t.get(&t.path("/social-accounts")).await.data(200)[0]["id"].as_i64().unwrap();
        accounts::find_any(&mut app.conn().await, id).await.unwrap().unwrap().granted_scopes.unwrap()
    };
    let required = ["w_organization_social", "r_organization_social", "rw_organization_admin"];
    // If the response names no scopes, all requested ones are granted.
    linkedin.oauth.set_granted_scopes("");
    assert_eq!(connect().await, [&required[..], &["r_organization_social_feed"][..]].concat());
    // The next connect grants less, and something that was not requested.
    linkedin.oauth.set_granted_scopes(&format!("{},r_basicprofile", required.join(",")));
    assert_eq!(connect().await, required);
}

async fn an_application_is_set_for_each_target(s: TestStore) {
    let (app, _linkedin, _server) = start(s).await;
    let t = app.tenant("unlimited").await;
    let set = async |platform, target, owner, id: &str| {
        let application = Application::new(id, "secret".to_owned());
        let new = NewApplication { platform, target, owner, instance: "", redirect_uri: "", application: &application };
        app.write(async |tx| applications::set(tx, &new).await).await;
    };
    let used = async |target: &str| {
        let authorization = authorize(&t, target).await.data(200);
        client_id(&Person::new(&app).leave(authorization["authorization_url"].as_str().unwrap()).await)
    };
    set(Platform::Linkedin, ConnectTarget::Default, Owner::Installation, "person-app").await;
    assert_eq!((used("default").await.as_str(), used("page").await.as_str()), ("person-app", "page-app"));
    set(Platform::Linkedin, ConnectTarget::Page, Owner::Brand(t.brand), "brand-app").await;
    assert_eq!((used("default").await.as_str(), used("page").await.as_str()), ("person-app", "brand-app"));
    // Other platforms have one application for both targets.
    set(Platform::Facebook, ConnectTarget::Default, Owner::Installation, "facebook-app").await;
    for target in ["default", "page"] {
        let body = json!({ "platform": "facebook", "target": target });
        t.post(&t.path("/social-accounts/authorize"), body).await.data(200);
    }
}

async fn an_unsupported_version_is_named_on_the_page(s: TestStore) {
    let (app, linkedin, _server) = start(s).await;
    let t = app.tenant("unlimited").await;
    let authorization = authorize(&t, "page").await.data(200);
    let mut person = Person::new(&app);
    let callback = linkedin.oauth.agree(&person.leave(authorization["authorization_url"].as_str().unwrap()).await);
    let unsupported_version =
        ResponseTemplate::new(426).set_body_json(json!({ "status": 426, "message": "NONEXISTENT_VERSION" }));
    linkedin.scripted.lock().unwrap().push(unsupported_version);
    let page = person.open(callback.as_str()).await;
    assert_page(&page, 502, "LinkedIn rejected the connection");
    assert!(page.text().contains("CRIER_LINKEDIN_API_VERSION"), "{}", page.text());
}
