//! Record keys of Bluesky: timestamp identifiers.
//!
//! Source: AT Protocol specification, "TID": 64 bits, the highest 0, then 53 bits of microseconds since 1970 and a
//! clock id of 10 bits, written as 13 characters of base32-sortable.

use chrono::{DateTime, Utc};

const ALPHABET: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";

/// Returns the identifier of `at`. `clock` distinguishes identifiers of the same microsecond; only its lowest 10 bits
/// are used.
pub fn tid(at: DateTime<Utc>, clock: u64) -> String {
    let micros = u64::try_from(at.timestamp_micros()).unwrap_or(0) & ((1 << 53) - 1);
    let value = (micros << 10) | (clock & 0x3ff);
    (0..13).rev().map(|i| char::from(ALPHABET[(value >> (5 * i) & 31) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(micros: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(micros).unwrap_or_default()
    }

    #[test]
    fn the_first_tid_is_all_twos() {
        assert_eq!(tid(at(0), 0), "2222222222222");
    }

    proptest! {
        #[test]
        fn tids_have_the_specified_form(micros in 0_i64..(1 << 53), clock: u64) {
            let tid = tid(at(micros), clock);
            prop_assert_eq!(tid.len(), 13);
            prop_assert!(tid.bytes().all(|b| ALPHABET.contains(&b)));
            prop_assert!(matches!(tid.as_bytes()[0], b'2'..=b'7' | b'a'..=b'j'));
        }

        #[test]
        fn tids_sort_by_time(a in 0_i64..(1 << 53), b in 0_i64..(1 << 53), clock: u64) {
            prop_assert_eq!(a.cmp(&b), tid(at(a), clock).cmp(&tid(at(b), clock)));
        }
    }
}
