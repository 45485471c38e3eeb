//! The redirect URIs that applications may have.
//!
//! The code goes to the redirect URI, so it must be one that only the application receives: `https`, `http` to this
//! computer (with any port, RFC 8252, 7.3), or the scheme of an installed application. Such a scheme must contain a dot
//! (RFC 8252, 7.1) or be one of a few known ones: the schemes of operating systems and browsers, which start programs
//! with parameters, must not be among them.

use url::Url;

/// The maximum length, in bytes.
pub const MAX_LENGTH: usize = 512;
/// The maximum number of redirect URIs of an application.
pub const MAX_COUNT: usize = 20;
/// Schemes without a dot that are accepted: those of editors and clients that use MCP servers.
const SCHEMES: &[&str] = &["cursor", "vscode", "vscode-insiders", "vscodium", "warp", "windsurf", "zed"];
/// The hosts of this computer, as they are written in URIs.
const LOOPBACK_HOSTS: &[&str] = &["127.0.0.1", "[::1]", "localhost"];

/// Why a redirect URI is rejected. The message completes "A redirect URI …".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected(pub &'static str);

/// Checks a redirect URI of a registration, a metadata document or an authorization request.
pub fn check(text: &str) -> Result<(), Rejected> {
    if text.is_empty() || text.len() > MAX_LENGTH {
        return Err(Rejected("must have at most 512 bytes"));
    }
    // The parser would repair some of these, and the parser of a browser might repair them differently.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"' | b'<' | b'>'));
    let url =
        Url::parse(text).ok().filter(|_| is_plain).ok_or(Rejected("must be an absolute URI of ASCII characters"))?;
    if text.contains('#') {
        return Err(Rejected("must not have a fragment"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Rejected("must not have a username or password"));
    }
    match scheme_of(text) {
        "https" if url.has_host() && has_authority(text) => Ok(()),
        "http" if without_port(text).is_some() => Ok(()),
        "http" => Err(Rejected("must use https, unless it leads to this computer (127.0.0.1, [::1] or localhost)")),
        scheme if is_application_scheme(scheme) && !url.cannot_be_a_base() => Ok(()),
        _ => Err(Rejected("must begin with https://, http://127.0.0.1, or the scheme of an application with a dot")),
    }
}

/// Returns the scheme as it is written, so that only lower case is accepted.
fn scheme_of(text: &str) -> &str {
    text.split_once(':').map_or("", |(scheme, _)| scheme)
}

/// Returns whether two slashes and a host follow the scheme: the parser also repairs `https:host` and `https:///host`.
fn has_authority(text: &str) -> bool {
    let after = text.split_once("://").map(|(_, after)| after);
    after.is_some_and(|after| !after.starts_with(['/', '?', ':', '@']) && !after.is_empty())
}

fn is_application_scheme(scheme: &str) -> bool {
    let is_lower =
        scheme.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-+".contains(&byte));
    is_lower && (scheme.contains('.') || SCHEMES.contains(&scheme))
}

/// Returns a URI on this computer as the text before its port and the text after it. `None` for any other URI. No path
/// is the path `/`, as which many programs write it.
fn without_port(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("http://")?;
    let host = LOOPBACK_HOSTS.iter().find_map(|host| rest.starts_with(host).then_some(*host))?;
    let after = rest.strip_prefix(host)?;
    let path = match after.strip_prefix(':') {
        None => after,
        Some(port) => {
            let end = port.find(|c: char| !c.is_ascii_digit()).unwrap_or(port.len());
            let (digits, path) = port.split_at_checked(end)?;
            digits.parse::<u16>().ok().filter(|port| *port > 0)?;
            path
        }
    };
    let path = if path.is_empty() { "/" } else { path };
    path.starts_with(['/', '?']).then_some((host, path))
}

/// Returns whether a URI leads to this computer.
pub fn is_loopback(uri: &str) -> bool {
    without_port(uri).is_some()
}

/// Returns whether a requested URI is a registered one. They are compared as texts; on this computer, the port is
/// ignored.
pub fn matches(registered: &str, requested: &str) -> bool {
    if check(requested).is_err() {
        return false;
    }
    registered == requested || without_port(registered).is_some_and(|one| without_port(requested) == Some(one))
}

/// Returns the host of a URI as it is shown to users: with its scheme if it leads to an installed application, and with
/// its port if that is not the default one.
pub fn host(uri: &str) -> String {
    let Ok(url) = Url::parse(uri) else { return uri.to_owned() };
    let host = url.host_str().unwrap_or_default();
    match (url.scheme(), url.port()) {
        ("https", None) | ("http", _) => host.to_owned(),
        ("https", Some(port)) => format!("{host}:{port}"),
        (scheme, _) if host.is_empty() => format!("{scheme}:"),
        (scheme, _) => format!("{scheme}://{host}"),
    }
}

/// Returns a URI with these parameters added to its query.
pub fn with_parameters(uri: &str, parameters: &[(&str, &str)]) -> String {
    let Ok(mut url) = Url::parse(uri) else { return uri.to_owned() };
    url.query_pairs_mut().extend_pairs(parameters);
    url.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn redirect_uris_of_applications_are_accepted() {
        for good in [
            "https://claude.ai/api/mcp/auth_callback",
            "https://example.com",
            "https://example.com:8443/callback?tenant=1",
            "http://127.0.0.1:33418/",
            "http://127.0.0.1",
            "http://localhost/callback",
            "http://localhost:6274/oauth/callback?x=1",
            "http://[::1]:9000/cb",
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "vscode://vendor.extension/callback",
            "com.example.app:/callback",
            "com.example.app://callback",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
            assert!(matches(good, good), "{good}");
        }
    }

    #[test]
    fn other_redirect_uris_are_rejected() {
        let long = format!("https://example.com/{}", "a".repeat(MAX_LENGTH));
        for bad in [
            "",
            "example.com/callback",
            "http://example.com/callback",
            "http://127.0.0.2/",
            "http://127.1/",
            "http://2130706433/",
            "http://0.0.0.0:80/",
            "http://localhost.example.com/",
            "http://localhost@example.com/",
            "http://127.0.0.1:80@example.com/",
            "http://127.0.0.1.example.com/",
            "http://localhost:99999/",
            "http://localhost:0/",
            "http://localhost:/",
            "HTTP://localhost/",
            "https://user:password@example.com/",
            "https://user@example.com/",
            "https://example.com/#fragment",
            "https://example.com/#",
            "https://example.com\\@other.example/",
            "https://example.com/a b",
            "https://example.com/\u{e9}",
            "https://example.com/\n",
            "https:example.com",
            "https:///example.com",
            "https://",
            "HTTPS://example.com/",
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "about:blank",
            "ms-msdt:/id",
            "search-ms:query=x",
            "ws://localhost/",
            "com.example.app:callback",
            "com.Example.app:/callback",
            &long,
        ] {
            assert!(check(bad).is_err(), "{bad}");
            assert!(!matches(bad, bad), "{bad}");
        }
    }

    #[test]
    fn only_the_port_of_this_computer_is_ignored() {
        assert!(matches("http://127.0.0.1/cb", "http://127.0.0.1:51234/cb"));
        assert!(matches("http://localhost:1/cb", "http://localhost:2/cb"));
        assert!(matches("http://[::1]:1/cb", "http://[::1]/cb"));
        assert!(matches("http://127.0.0.1:33418", "http://127.0.0.1:51234/"));
        for (registered, requested) in [
            ("http://127.0.0.1/cb", "http://localhost:51234/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:51234/other"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:51234/cb?x=1"),
            ("http://127.0.0.1/cb", "https://127.0.0.1:51234/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:1@example.com/cb"),
            ("https://example.com/cb", "https://example.com:8443/cb"),
            ("https://example.com/cb", "https://example.com/cb/"),
            ("https://example.com/cb", "https://example.com/cb/../cb"),
            ("https://example.com/cb", "https://EXAMPLE.com/cb"),
            ("com.example.app:/cb", "com.example.app:/cb?x"),
        ] {
            assert!(!matches(registered, requested), "{registered} {requested}");
        }
    }

    #[test]
    fn users_see_where_the_code_goes() {
        assert_eq!(host("https://claude.ai/api/mcp/auth_callback"), "claude.ai");
        assert_eq!(host("https://example.com:8443/"), "example.com:8443");
        assert_eq!(host("http://localhost:1234/cb"), "localhost");
        assert_eq!(host("cursor://anysphere.cursor-mcp/oauth"), "cursor://anysphere.cursor-mcp");
        assert_eq!(host("com.example.app:/cb"), "com.example.app:");
        assert_eq!(
            with_parameters("https://a.example/cb?x=1", &[("code", "a&b")]),
            "https://a.example/cb?x=1&code=a%26b"
        );
        assert_eq!(with_parameters("com.example.app:/cb", &[("code", "a")]), "com.example.app:/cb?code=a");
    }

    proptest! {
        /// Whatever an attacker requests, the code goes to the registered host and path.
        #[test]
        fn a_match_never_leads_elsewhere(
            registered in prop::sample::select(vec![
                "https://example.com/cb", "http://127.0.0.1/cb", "http://localhost:1/cb", "com.example.app:/cb",
            ]),
            at in 0_usize..30,
            inserted in "[a-z0-9@:/.?#%\\\\ ]{0,6}",
            removed in 0_usize..4,
        ) {
            let mut requested = registered.to_owned();
            let at = at.min(requested.len());
            requested.replace_range(at..(at + removed).min(requested.len()), &inserted);
            if matches(registered, &requested) {
                let (one, other) = (Url::parse(registered).unwrap(), Url::parse(&requested).unwrap());
                prop_assert_eq!(one.scheme(), other.scheme());
                prop_assert_eq!(one.host_str(), other.host_str());
                prop_assert_eq!(one.path(), other.path());
                prop_assert_eq!(one.query(), other.query());
                prop_assert!(other.username().is_empty() && other.fragment().is_none());
                prop_assert!(one.port() == other.port() || is_loopback(registered));
            }
        }

        /// Texts of any form are checked without a panic, and what is accepted has a host or is of an application.
        #[test]
        fn any_text_is_checked(text in "\\PC{0,40}") {
            if check(&text).is_ok() {
                prop_assert!(Url::parse(&text).is_ok());
                prop_assert!(!host(&text).is_empty());
            }
        }
    }
}
