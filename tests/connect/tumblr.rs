//! A platform with an application, a choice of blogs, and tokens that are refreshed. The connection is started through
//! the API.

use chrono::TimeDelta;
use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::application::{Application, Owner};
use crier_domain::platform::{ConnectTarget, Platform};
use crier_store::applications::{self, NewApplication};
use crier_store::{account_tokens, accounts};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use wiremock::MockServer;

use crate::support::app::{Reply, Tenant, TestApp};
use crate::support::person::{Person, assert_page};
use crate::support::store::{TestStore, on_one};
use crate::support::tumblr::{TOKEN_LIFE, Tumblr};

on_one!(
    a_blog_is_chosen_and_connected,
    the_only_blog_needs_no_choice,
    a_long_list_can_be_searched,
    without_a_blog_there_is_nothing_to_connect,
    the_choice_belongs_to_its_browser_and_its_list,
    the_nearest_application_is_used,
    authorize_rejects_what_cannot_be_connected,
    a_reconnect_without_a_refresh_token_keeps_the_old_one,
);

const BLOGS: &[(&str, &str)] = &[("ann", "Ann's bread"), ("rye", "Rye & more")];

/// Starts an API with an application for Tumblr, and a Tumblr server with these blogs.
async fn start(s: TestStore, blogs: &[(&str, &str)]) -> (TestApp, Tumblr, MockServer) {
    let (tumblr, server) = Tumblr::start(blogs).await;
    tumblr.oauth.add_client("installation", "secret");
    let mut config = PlatformsConfig::default();
    let settings = PlatformConfig {
        client_id: Some("installation".to_owned()),
        client_secret: Some("secret".into()),
        base_url: Some(server.uri()),
        auth_url: Some(server.uri()),
        ..PlatformConfig::default()
    };
    config.platforms.insert(Platform::Tumblr, settings);
    (TestApp::start_with_platforms(s, config).await, tumblr, server)
}

async fn authorize(t: &Tenant<'_>, body: Value) -> Reply {
    t.post(&t.path("/social-accounts/authorize"), body).await
}

/// Returns the path of the URL that `authorize` returns.
async fn authorization_path(t: &Tenant<'_>) -> String {
    let authorization = authorize(t, json!({ "platform": "tumblr" })).await.data(200);
    assert_eq!((&authorization["platform"], &authorization["expires_in"]), (&json!("tumblr"), &json!(1800)));
    let url = authorization["authorization_url"].as_str().unwrap();
    url.strip_prefix(&t.app.url).expect("our own page").to_owned()
}

async fn a_blog_is_chosen_and_connected(s: TestStore) {
    let (app, tumblr, _server) = start(s, BLOGS).await;
    let t = app.tenant("unlimited").await;
    let (path, mut person) = (authorization_path(&t).await, Person::new(&app));
    assert!(person.open(&path).await.text().contains("your Tumblr blog"));
    let authorize = person.leave(&path).await;
    assert!(authorize.query().unwrap().contains("scope=basic+write+offline_access"), "{authorize}");
    let response = person.open(tumblr.agree(&authorize).as_str()).await;
    let page = person.follow(&response).await;
    assert_page(&page, 200, "Choose a blog");
    assert!(page.text().contains("Rye &#38; more") && !page.text().contains("Search by name"), "{}", page.text());
    for secret in ["access-", "refresh-", "installation"] {
        assert!(!page.text().contains(secret), "{secret}");
    }
    let choice_path = response.header("location").unwrap().to_owned();
    let chosen = person.submit(&choice_path, &[("choice", "t:rye")]).await;
    assert_page(&person.follow(&chosen).await, 200, "Connected");
    let account = t.get(&t.path("/social-accounts")).await.data(200)[0].clone();
    assert_eq!((&account["external_id"], &account["username"]), (&json!("t:rye"), &json!("rye")));
    assert_eq!((&account["name"], &account["profile_url"]), (&json!("Rye & more"), &json!("https://rye.tumblr.com/")));
    let id = account["id"].as_i64().unwrap();
    let tokens = account_tokens::find(&mut app.conn().await, id).await.unwrap().unwrap();
    assert!(tokens.renewal.renewable && tokens.renewal.rotates);
    assert_eq!(tokens.token_expires_at, Some(app.store.now() + TimeDelta::seconds(TOKEN_LIFE as i64)));
    // A second submission changes nothing.
    let again = person.submit(&choice_path, &[("choice", "t:ann")]).await;
    assert_page(&person.follow(&again).await, 200, "Connected");
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200).as_array().unwrap().len(), 1);
    // The API refreshes the token with the application that issued it.
    let refreshed = t.request("POST", &t.path(&format!("/social-accounts/{id}/refresh"))).send().await;
    assert_eq!(refreshed.data(200)["status"], "active");
}

async fn the_only_blog_needs_no_choice(s: TestStore) {
    let (app, tumblr, _server) = start(s, &BLOGS[..1]).await;
    let t = app.tenant("unlimited").await;
    let (path, mut person) = (authorization_path(&t).await, Person::new(&app));
    let callback = tumblr.agree(&person.leave(&path).await);
    person.finish(callback.as_str()).await;
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200)[0]["username"], "ann");
}

async fn a_long_list_can_be_searched(s: TestStore) {
    let names: Vec<(String, String)> = (0..70).map(|n| (format!("blog-{n}"), format!("Number {n}"))).collect();
    let blogs: Vec<(&str, &str)> = names.iter().map(|(name, title)| (name.as_str(), title.as_str())).collect();
    let (app, tumblr, _server) = start(s, &blogs).await;
    let t = app.tenant("unlimited").await;
    let (path, mut person) = (authorization_path(&t).await, Person::new(&app));
    let callback = tumblr.agree(&person.leave(&path).await);
    let response = person.open(callback.as_str()).await;
    let page = person.follow(&response).await.text();
    assert_eq!(page.matches("type=\"radio\"").count(), 50);
    assert!(page.contains("20 more are not shown") && page.contains("Search by name"), "{page}");
    let choice_path = response.header("location").unwrap();
    let found = person.open(&format!("{choice_path}?q=NUMBER+69")).await.text();
    assert_eq!(found.matches("type=\"radio\"").count(), 1);
    assert!(found.contains("value=\"t:blog-69\""), "{found}");
    let no_results = person.open(&format!("{choice_path}?q=%22%3E%3Cb%3E")).await.text();
    assert!(no_results.contains("No results.") && !no_results.contains("<b>"), "{no_results}");
    let chosen = person.submit(choice_path, &[("choice", "t:blog-69")]).await;
    assert_page(&person.follow(&chosen).await, 200, "Connected");
}

async fn without_a_blog_there_is_nothing_to_connect(s: TestStore) {
    let (app, tumblr, _server) = start(s, &[]).await;
    let t = app.tenant("unlimited").await;
    let (path, mut person) = (authorization_path(&t).await, Person::new(&app));
    let callback = tumblr.agree(&person.leave(&path).await);
    assert_page(&person.open(callback.as_str()).await, 409, "There is nothing to connect");
}

async fn the_choice_belongs_to_its_browser_and_its_list(s: TestStore) {
    let (app, tumblr, _server) = start(s, BLOGS).await;
    let t = app.tenant("unlimited").await;
    let (path, mut person, mut other_browser) = (authorization_path(&t).await, Person::new(&app), Person::new(&app));
    let callback = tumblr.agree(&person.leave(&path).await);
    let response = person.open(callback.as_str()).await;
    let choice_path = response.header("location").unwrap().to_owned();
    assert_page(&other_browser.open(&choice_path).await, 403, "This is a different browser");
    assert_page(&other_browser.submit(&choice_path, &[("choice", "t:ann")]).await, 403, "This is a different browser");
    for choice in ["t:other", ""] {
        assert_page(&person.submit(&choice_path, &[("choice", choice)]).await, 400, "This choice is not available");
    }
    assert_page(&person.submit(&choice_path, &[]).await, 400, "This choice is not available");
    app.store.clock.advance(TimeDelta::minutes(31));
    assert_page(&person.submit(&choice_path, &[("choice", "t:ann")]).await, 410, "This link has expired");
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200), json!([]));
}

async fn the_nearest_application_is_used(s: TestStore) {
    let (app, tumblr, _server) = start(s, &BLOGS[..1]).await;
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let used = async |t: &Tenant<'_>| {
        let authorize = Person::new(&app).leave(&authorization_path(t).await).await;
        authorize.query_pairs().find(|(name, _)| name == "client_id").unwrap().1.into_owned()
    };
    let set = async |owner: Owner, id: &str| {
        let application = Application::new(id, format!("secret of {id}"));
        tumblr.oauth.add_client(id, &format!("secret of {id}"));
        let new = NewApplication {
            platform: Platform::Tumblr,
            target: ConnectTarget::Default,
            owner,
            instance: "",
            redirect_uri: "",
            application: &application,
        };
        app.write(async |tx| applications::set(tx, &new).await).await;
    };
    assert_eq!(used(&t).await, "installation");
    set(Owner::Installation, "set").await;
    assert_eq!(used(&t).await, "set");
    set(Owner::Workspace(t.workspace), "workspace").await;
    assert_eq!(used(&t).await, "workspace");
    set(Owner::Brand(t.brand), "brand").await;
    assert_eq!((used(&t).await.as_str(), used(&other).await.as_str()), ("brand", "set"));

    // A token is refreshed with the application that issued it, whatever application is set later.
    let (path, mut person) = (authorization_path(&t).await, Person::new(&app));
    let callback = tumblr.agree(&person.leave(&path).await);
    person.finish(callback.as_str()).await;
    set(Owner::Brand(t.brand), "newer").await;
    let id = t.get(&t.path("/social-accounts")).await.data(200)[0]["id"].as_i64().unwrap();
    let refresh = t.path(&format!("/social-accounts/{id}/refresh"));
    t.request("POST", &refresh).send().await.expect(200);
    let found = accounts::with_secrets(&mut app.conn().await, app.cipher(), id).await.unwrap().unwrap();
    let secrets: Value = serde_json::from_str(found.1.expose_secret()).unwrap();
    assert_eq!(secrets["client_id"], "brand");
}

async fn authorize_rejects_what_cannot_be_connected(s: TestStore) {
    let (app, _tumblr, _server) = start(s, BLOGS).await;
    let t = app.tenant("free").await;
    assert_eq!(authorize(&t, json!({ "platform": "tumblr", "target": "page" })).await.invalid_fields(), ["target"]);
    assert_eq!(authorize(&t, json!({ "platform": "tumblr", "target": "x" })).await.invalid_fields(), ["target"]);
    assert_eq!(authorize(&t, json!({ "platform": "sandbox" })).await.invalid_fields(), ["platform"]);
    assert_eq!(authorize(&t, json!({ "platform": "myspace" })).await.invalid_fields(), ["platform"]);
    for platform in ["mastodon", "shopify"] {
        authorize(&t, json!({ "platform": platform })).await.expect_error(422, "interactive_setup_required");
    }
    authorize(&t, json!({ "platform": "reddit" })).await.expect_error(422, "platform_not_configured");
    let platforms = t.get(&t.path("/social-accounts/platforms")).await.data(200);
    let configured = |name: &str| {
        let found = platforms.as_array().unwrap().iter().find(|platform| platform["platform"] == name);
        found.unwrap()["configured"].clone()
    };
    assert_eq!((configured("tumblr"), configured("reddit")), (json!(true), json!(false)));
    for handle in ["one", "two", "three"] {
        t.account(handle).await;
    }
    authorize(&t, json!({ "platform": "tumblr" })).await.expect_error(402, "limit_reached");
    assert_eq!(app.count_rows("authorizations").await, 0, "no URL is issued");
}

async fn a_reconnect_without_a_refresh_token_keeps_the_old_one(s: TestStore) {
    let (app, tumblr, _server) = start(s, &BLOGS[..1]).await;
    let t = app.tenant("unlimited").await;
    let connect = async || {
        let (path, mut person) = (authorization_path(&t).await, Person::new(&app));
        let callback = tumblr.agree(&person.leave(&path).await);
        person.finish(callback.as_str()).await;
        let id = t.get(&t.path("/social-accounts")).await.data(200)[0]["id"].as_i64().unwrap();
        let found = accounts::with_secrets(&mut app.conn().await, app.cipher(), id).await.unwrap().unwrap();
        serde_json::from_str::<Value>(found.1.expose_secret()).unwrap()
    };
    let first = connect().await;
    tumblr.oauth.stop_refresh_tokens();
    let second = connect().await;
    assert_ne!(first["access_token"], second["access_token"]);
    assert_eq!(first["refresh_token"], second["refresh_token"]);
    assert!(first["refresh_token"].as_str().is_some_and(|token| !token.is_empty()));
}
