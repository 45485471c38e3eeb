//! The secret of an endpoint, and the signature of a delivery: `t=<unix>,v1=<hex>`, where `v1` is the HMAC-SHA-256 of
//! `<t>.<body>` with the endpoint's secret.
//!
//! The key is the whole secret, including `whsec_`. The time is part of the signed text, so an intercepted delivery
//! cannot be replayed later.

use std::time::Duration;

use crier_base::{hexadecimal, random};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

const SECRET_PREFIX: &str = "whsec_";
const SECRET_LENGTH: usize = 40;

/// Generates a signing secret: `whsec_` and 40 letters and digits from the system's random source.
pub fn new_secret() -> Result<SecretString, getrandom::Error> {
    Ok(SecretString::from(format!("{SECRET_PREFIX}{}", random::text(SECRET_LENGTH)?)))
}

/// The default maximum clock difference when a delivery is verified.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// Why a signature is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("the signature header has no valid t and v1")]
    Malformed,
    #[error("the signature does not match the body")]
    Mismatch,
    #[error("the signature's time is too far from now")]
    Expired,
}

/// Returns the value of `X-Webhook-Signature`. `timestamp` is in Unix seconds, the same as in `X-Webhook-Timestamp`.
pub fn sign(secret: &SecretString, timestamp: i64, body: &[u8]) -> String {
    let mac = mac(secret, timestamp, body).finalize().into_bytes();
    format!("t={timestamp},v1={}", hexadecimal::encode(mac))
}

/// Verifies a header as a receiver does, in constant time. Fields other than `t` and `v1` are ignored. If there are
/// several `v1`, one must match.
pub fn verify(
    secret: &SecretString,
    header: &str,
    body: &[u8],
    now: i64,
    tolerance: Duration,
) -> Result<(), SignatureError> {
    let fields = || header.split(',').filter_map(|field| field.split_once('='));
    let mut times = fields().filter(|(key, _)| *key == "t");
    let (Some((_, text)), None) = (times.next(), times.next()) else { return Err(SignatureError::Malformed) };
    let timestamp: i64 = text.parse().map_err(|_| SignatureError::Malformed)?;
    // The signed text contains the time as it was formatted: `+5` and `05` are not `5`.
    if timestamp.to_string() != text {
        return Err(SignatureError::Malformed);
    }
    let expected = mac(secret, timestamp, body);
    let mut result = Err(SignatureError::Malformed);
    for (_, text) in fields().filter(|(key, _)| *key == "v1") {
        let Some(candidate) = hexadecimal::decode::<32>(text) else { continue };
        if expected.clone().verify_slice(&candidate).is_ok() {
            result = Ok(());
            break;
        }
        result = Err(SignatureError::Mismatch);
    }
    result?;
    if now.abs_diff(timestamp) > tolerance.as_secs() { Err(SignatureError::Expired) } else { Ok(()) }
}

fn mac(secret: &SecretString, timestamp: i64, body: &[u8]) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).expect("HMAC takes keys of any length");
    mac.update(timestamp.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    mac
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_have_a_fixed_format_and_use_the_full_alphabet() {
        let secrets: BTreeSet<String> = (0..200).map(|_| new_secret().unwrap().expose_secret().to_owned()).collect();
        assert_eq!(secrets.len(), 200);
        let mut seen = BTreeSet::new();
        for secret in &secrets {
            let rest = secret.strip_prefix("whsec_").unwrap();
            assert!(rest.len() == 40 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{secret}");
            seen.extend(rest.bytes());
        }
        assert_eq!(seen.len(), 62);
    }

    fn secret() -> SecretString {
        SecretString::from("whsec_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN")
    }

    /// `printf '%s' '1700000000.{"event":"brand.created","data":{}}' | openssl dgst -sha256 -hmac whsec_abc…` prints
    /// the same.
    #[test]
    fn a_known_signature_is_reproduced() {
        let header = sign(&secret(), 1_700_000_000, br#"{"event":"brand.created","data":{}}"#);
        assert_eq!(header, "t=1700000000,v1=2a556ea4f5d64c78dbf81642e6565439fa8f41590bfd4bbdb26d02b9d09ca11b");
    }

    #[test]
    fn invalid_signature_headers_are_malformed() {
        let good = sign(&secret(), 100, b"body");
        let v1 = &good[good.find("v1=").unwrap_or(0)..];
        let cases = [
            "",
            "t=100",
            "v1=",
            v1,
            "t=,v1=00",
            "t=100,v1=zz",
            "t=x,v1=00",
            "t=100,v2=00",
            &format!("t=+100,{v1}"),
            &format!("t=100,t=100,{v1}"),
        ];
        for header in cases {
            assert_eq!(verify(&secret(), header, b"body", 100, TOLERANCE), Err(SignatureError::Malformed), "{header}");
        }
        let several = format!("t=100,v0=1,v1={},{v1},v2=x", "0".repeat(64));
        assert_eq!(verify(&secret(), &several, b"body", 100, TOLERANCE), Ok(()));
    }

    proptest! {
        #[test]
        fn signatures_verify_within_the_tolerance(body: Vec<u8>, at in 0_i64..1 << 40, off in -1000_i64..1000) {
            let header = sign(&secret(), at, &body);
            let expected = if off.abs() <= 300 { Ok(()) } else { Err(SignatureError::Expired) };
            prop_assert_eq!(verify(&secret(), &header, &body, at + off, TOLERANCE), expected);
        }

        #[test]
        fn any_change_of_the_body_is_detected(
            body in prop::collection::vec(any::<u8>(), 1..64),
            at in 0_i64..1 << 40,
            place: prop::sample::Index,
            flip in 1_u8..,
        ) {
            let header = sign(&secret(), at, &body);
            let mut changed = body.clone();
            changed[place.index(body.len())] ^= flip;
            prop_assert_eq!(verify(&secret(), &header, &changed, at, TOLERANCE), Err(SignatureError::Mismatch));
            let later = header.replacen(&format!("t={at}"), &format!("t={}", at + 1), 1);
            prop_assert_eq!(verify(&secret(), &later, &body, at, TOLERANCE), Err(SignatureError::Mismatch));
            let other = SecretString::from("whsec_other");
            prop_assert_eq!(verify(&other, &header, &body, at, TOLERANCE), Err(SignatureError::Mismatch));
        }

        /// Any secret works, including an empty one and one longer than a block of the hash.
        #[test]
        fn arbitrary_secrets_sign_and_verify(key in "\\PC{0,200}", other in "\\PC{0,200}", body: Vec<u8>, at: i64) {
            let secret = SecretString::from(key.clone());
            let header = sign(&secret, at, &body);
            prop_assert_eq!(verify(&secret, &header, &body, at, Duration::ZERO), Ok(()));
            prop_assume!(key != other);
            let other = verify(&SecretString::from(other), &header, &body, at, Duration::ZERO);
            prop_assert_eq!(other, Err(SignatureError::Mismatch));
        }

        /// A header with one byte changed or missing is rejected.
        #[test]
        fn any_change_of_the_header_is_detected(body: Vec<u8>, at in 0_i64..1 << 40, place: prop::sample::Index, byte in 0_u8..128) {
            let header = sign(&secret(), at, &body);
            let (place, byte) = (place.index(header.len()), char::from(byte));
            let changed = format!("{}{byte}{}", &header[..place], &header[place + 1..]);
            prop_assume!(changed != header);
            prop_assert!(verify(&secret(), &changed, &body, at, Duration::MAX).is_err(), "{changed}");
            let shorter = format!("{}{}", &header[..place], &header[place + 1..]);
            prop_assert!(verify(&secret(), &shorter, &body, at, Duration::MAX).is_err(), "{shorter}");
        }

        #[test]
        fn arbitrary_headers_do_not_panic(header in "(t=[0-9-]{0,20})?,?(v1=[0-9a-f]{0,64})?|\\PC{0,80}") {
            prop_assert!(verify(&secret(), &header, b"body", 0, TOLERANCE).is_err());
        }
    }
}
