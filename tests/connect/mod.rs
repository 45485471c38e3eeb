//! Connecting an account in a browser: the pages under `/connect`, with a user who follows them and a platform that
//! responds as its documentation specifies.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crier_domain::platform::{ConnectTarget, Platform};
use crier_store::authorizations::{self, NewAuthorization};
use secrecy::ExposeSecret;

use crate::support::app::{Tenant, TestApp};
use crate::support::mastodon::RunningMastodon;

mod apps;
mod facebook;
mod google_business;
mod instagram;
mod linkedin;
mod mastodon;
mod shopify;
mod step_errors;
mod tumblr;

/// Returns the current time of the tests' clock.
fn now(app: &TestApp) -> String {
    app.store.now().to_rfc3339()
}

/// Returns the path of a one-time URL for an account on a Mastodon server, as `crier account connect` creates it.
async fn mastodon_path(t: &Tenant<'_>, mastodon: &RunningMastodon) -> String {
    mastodon_path_of(t, mastodon, None).await
}

/// Like [`mastodon_path`], as the console creates it for a user.
async fn mastodon_path_of(t: &Tenant<'_>, mastodon: &RunningMastodon, user_id: Option<i64>) -> String {
    let instance = mastodon.server.uri();
    let (platform, target) = (Platform::Mastodon, ConnectTarget::Default);
    let new = NewAuthorization { brand_id: t.brand, user_id, key_id: None, platform, target, instance: &instance };
    let token = t.app.write(async |tx| authorizations::create(tx, new).await).await;
    format!("/connect/{}", token.expose_secret())
}
