//! The cookies of the console, and the CSRF token of its forms.
//!
//! One cookie contains the session token, the other one the path to redirect to after sign-in. Cookies are `HttpOnly`
//! and `SameSite=Lax`. On https they are `Secure` and have the prefix `__Host-`, so that no other host can set them.
//! The CSRF token is derived from the session token, so it needs no storage and expires with the session.

use chrono::TimeDelta;
use crier_base::hexadecimal;
use crier_endpoints::app::App;
use crier_store::sessions;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use salvo::Response;
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

use crate::is_https;

const SESSION: &str = "crier_session";
const NEXT: &str = "crier_next";
/// The lifetime of the path to redirect to, which equals that of an emailed sign-in link.
const NEXT_LIFETIME: TimeDelta = sessions::LINK_LIFETIME;
const MAX_NEXT: usize = 500;
/// The page with the consent to an application, and the maximum length of its path and query. Browsers keep cookies of
/// 4 KiB.
const CONSENT: &str = "/mcp/oauth/authorize?";
const MAX_CONSENT: usize = 3_000;

fn full_name(app: &App, name: &str) -> String {
    if is_https(app) { format!("__Host-{name}") } else { name.to_owned() }
}

fn read<'a>(app: &App, headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let name = full_name(app, name);
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Returns the session token.
pub fn token(app: &App, headers: &HeaderMap) -> Option<SecretString> {
    read(app, headers, SESSION).map(SecretString::from)
}

/// Sets the session cookie, or renews its lifetime.
pub fn set(app: &App, res: &mut Response, token: &SecretString) {
    write(app, res, SESSION, token.expose_secret(), sessions::LIFETIME);
}

/// Deletes the session cookie.
pub fn clear(app: &App, res: &mut Response) {
    write(app, res, SESSION, "", TimeDelta::zero());
}

/// Stores the path and query to redirect to after the next sign-in.
pub fn set_next(app: &App, res: &mut Response, path: &str) {
    if is_own_path(path) {
        write(app, res, NEXT, path, NEXT_LIFETIME);
    }
}

/// Returns the path that [`set_next`] stored, and deletes it.
pub fn take_next(app: &App, headers: &HeaderMap, res: &mut Response) -> Option<String> {
    let path = read(app, headers, NEXT).filter(|path| is_own_path(path))?.to_owned();
    write(app, res, NEXT, "", TimeDelta::zero());
    Some(path)
}

/// Returns whether a path is that of a page of the console, and can be the value of a cookie.
fn is_own_path(path: &str) -> bool {
    let is_page = ["/brands/", "/operator"].iter().any(|start| path.starts_with(start)) && path.len() <= MAX_NEXT;
    let is_consent = path.starts_with(CONSENT) && path.len() <= MAX_CONSENT;
    (is_page || is_consent) && path.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b';' | b',' | b'"'))
}

fn write(app: &App, res: &mut Response, name: &str, value: &str, lifetime: TimeDelta) {
    let (name, max_age) = (full_name(app, name), lifetime.num_seconds());
    let secure = if is_https(app) { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}");
    if let Ok(mut cookie) = HeaderValue::from_str(&cookie) {
        cookie.set_sensitive(true);
        res.headers_mut().append(SET_COOKIE, cookie);
    }
}

/// Returns the CSRF token of a session.
pub fn csrf_token(session: &SecretString) -> String {
    hexadecimal::encode(csrf_mac(session).finalize().into_bytes())
}

/// Returns whether the CSRF token belongs to the session. Compares in constant time.
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
