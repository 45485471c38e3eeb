//! URLs from users are called with the guarded client, on every platform that has a URL field.

use std::sync::Arc;
use std::time::Duration;

use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::platform::{CredentialField, FieldType, Platform};
use crier_http::{Guard, HttpClient};
use crier_platforms::{Clients, ConnectorRegistry};
use serde_json::{Map, Value, json};
use wiremock::MockServer;

use super::support::{AnyAddress, now, secrets};

/// Returns the number of calls to the user's URL, and the error message.
async fn connect(platform: Platform, field: &CredentialField, guard: Guard) -> Option<(usize, String)> {
    let server = MockServer::start().await;
    let client = HttpClient::trusted(Duration::from_secs(20), 1 << 20);
    let guarded = HttpClient::guarded(guard, Duration::from_secs(20), 1 << 20);
    // Only the client's guard rejects URLs here.
    let clients = Clients { trusted: client, guarded, addresses: Arc::new(AnyAddress) };
    let connector =
        ConnectorRegistry::new(PlatformsConfig::default(), &clients, &Clock::manual(now())).get(platform)?;
    let form: Map<String, Value> = catalogue::descriptor(platform)
        .credential_fields
        .iter()
        .map(|f| (f.name.to_owned(), if f.name == field.name { json!(server.uri()) } else { json!("typed") }))
        .collect();
    let rejection = connector.connect(1, &secrets(Value::Object(form))).await.unwrap_err();
    Some((server.received_requests().await.unwrap().len(), format!("{rejection:?}")))
}

#[tokio::test]
async fn user_supplied_urls_cannot_bypass_the_guard() {
    let mut seen = Vec::new();
    for &platform in Platform::ALL {
        for field in catalogue::descriptor(platform).credential_fields.iter().filter(|f| f.field_type == FieldType::Url)
        {
            let Some((calls, rejection)) = connect(platform, field, Guard::new(Vec::new())).await else { continue };
            assert!(calls == 0 && rejection.contains("public"), "{platform} called {calls} times: {rejection}");
            let allowed = Guard::new(vec!["127.0.0.0/8".parse().unwrap()]);
            let (calls, rejection) = connect(platform, field, allowed).await.unwrap();
            assert!(calls > 0, "{platform} never called: {rejection}");
            seen.push(platform);
        }
    }
    for platform in [Platform::Bluesky, Platform::Wordpress, Platform::Woocommerce] {
        assert!(seen.contains(&platform), "{platform} has an address that users type");
    }
}
