//! The session's cookie, and the token that its forms carry.
//!
//! The cookie is `HttpOnly` and `SameSite=Lax`; on https it is `Secure` and has the prefix `__Host-`, so that no other host
//! can set it. A form's token is derived from the session's, so it needs no storage and ends with the session.

use std::sync::Arc;

use crier_common::hexadecimal;
use crier_common::store::sessions;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use salvo::Response;
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

use crate::app::App;

const NAME: &str = "crier_session";
const HOST_NAME: &str = "__Host-crier_session";

fn is_https(app: &App) -> bool {
    app.public_url.starts_with("https://")
}

fn name(app: &App) -> &'static str {
    if is_https(app) { HOST_NAME } else { NAME }
}

/// Returns the session's token.
pub fn token(app: &Arc<App>, headers: &HeaderMap) -> Option<SecretString> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name(app)).map(|(_, value)| SecretString::from(value))
}

/// Sets the cookie; for an existing session, it renews the time.
pub fn set(app: &App, res: &mut Response, token: &SecretString) {
    write(app, res, token.expose_secret(), sessions::LIFETIME.num_seconds());
}

pub fn clear(app: &App, res: &mut Response) {
    write(app, res, "", 0);
}

fn write(app: &App, res: &mut Response, value: &str, max_age: i64) {
    let secure = if is_https(app) { "; Secure" } else { "" };
    let cookie = format!("{}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}", name(app));
    if let Ok(mut cookie) = HeaderValue::from_str(&cookie) {
        cookie.set_sensitive(true);
        res.headers_mut().append(SET_COOKIE, cookie);
    }
}

/// Returns the token that the session's forms carry.
pub fn csrf_token(session: &SecretString) -> String {
    hexadecimal::encode(csrf_mac(session).finalize().into_bytes())
}

/// Returns whether a form carries the session's token; compares in constant time.
pub fn is_csrf_token(session: &SecretString, sent: &str) -> bool {
    hexadecimal::decode::<32>(sent).is_some_and(|sent| csrf_mac(session).verify_slice(&sent).is_ok())
}

fn csrf_mac(session: &SecretString) -> Hmac<Sha256> {
    // A key of any length is valid.
    let key = session.expose_secret().as_bytes();
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()));
    mac.update(b"csrf");
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forms_token_belongs_to_one_session() {
        let (one, other) = (SecretString::from("a".repeat(43)), SecretString::from("b".repeat(43)));
        assert!(is_csrf_token(&one, &csrf_token(&one)));
        for wrong in ["", "00", "x", &csrf_token(&other), &csrf_token(&one)[2..]] {
            assert!(!is_csrf_token(&one, wrong), "{wrong}");
        }
    }
}
