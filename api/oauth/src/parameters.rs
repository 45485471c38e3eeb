//! The parameters of a request: of a query, or of a form.

use url::form_urlencoded;

/// The maximum size of a query or of a form, in bytes.
pub const MAX_BYTES: usize = 16 << 10;

/// The parameters of a request. An empty one counts as omitted (RFC 6749, 3.1).
#[derive(Debug)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub fn parse(encoded: &[u8]) -> Self {
        let all = form_urlencoded::parse(encoded).into_owned();
        Self(all.filter(|(_, value)| !value.is_empty()).collect())
    }

    /// Returns a parameter. `None` if it is omitted or repeated.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(key, _)| key == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }

    /// Returns the name of a parameter that is repeated, which RFC 6749 forbids: programs could read different ones.
    pub fn repeated(&self) -> Option<&str> {
        let mut names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.windows(2).find_map(|pair| match pair {
            [one, other] if one == other => Some(*one),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_parameters_have_no_value() {
        let parameters = Parameters::parse(b"a=1&b=&c=x+y%26&a=2&d=1&b=");
        assert_eq!((parameters.get("a"), parameters.get("b"), parameters.get("c")), (None, None, Some("x y&")));
        assert_eq!(parameters.repeated(), Some("a"));
        assert_eq!(Parameters::parse(b"a=1&b=2").repeated(), None);
    }
}
