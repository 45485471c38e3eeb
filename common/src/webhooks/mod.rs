//! Webhooks: send events to other systems.
//!
//! An event becomes one delivery per endpoint that subscribed to it. Each attempt of a delivery is one signed `POST`
//! ([`sender`], [`signature`]); [`schedule`] computes when the next one is due. This module is stateless: the store
//! keeps endpoints and deliveries, and the worker decides what an attempt's outcome means for them.

pub mod schedule;
pub mod sender;
pub mod signature;

use secrecy::SecretString;

pub use crate::domain::event::EventName;
pub use sender::{AttemptResult, DeliveryOutcome, DeliveryRequest, Sender};

const SECRET_PREFIX: &str = "whsec_";
const SECRET_LENGTH: usize = 40;

/// Generates a signing secret: `whsec_` and 40 letters and digits from the system's random source.
pub fn new_secret() -> Result<SecretString, getrandom::Error> {
    Ok(SecretString::from(format!("{SECRET_PREFIX}{}", crate::random::text(SECRET_LENGTH)?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's own data")]

    use std::collections::BTreeSet;

    use secrecy::ExposeSecret;

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
}
