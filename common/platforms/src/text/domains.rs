//! Top-level domains, from IANA's list.

use url::Host;

/// Returns whether `label` is a top-level domain, in any case and script.
pub fn is_top_level(label: &str) -> bool {
    if label.is_ascii() {
        return tld::exist_case_insensitive(label);
    }
    matches!(Host::parse(label), Ok(Host::Domain(ascii)) if tld::exist(&ascii))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_level_domains_are_known_in_every_script() {
        for label in ["com", "COM", "at", "photography", "みんな", "рф", "中国", "xn--p1ai"] {
            assert!(is_top_level(label), "{label}");
        }
        for label in ["", "example", "test", "local", "みんなの", "co m", "-", "1"] {
            assert!(!is_top_level(label), "{label}");
        }
    }
}
