//! Parsers of single values. An error completes a sentence that begins with the value: "`x` *is not …*"; the reader
//! adds a valid value.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use url::{Position, Url};

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "is not an IP address with a port".to_owned())
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("is neither true nor false".to_owned()),
    }
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.contains('\0') { Err("is not a path".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// Parses a text for a header, a form or a URL.
pub(super) fn word(text: &str) -> Result<String, String> {
    if text.len() > 4096 {
        Err("is longer than 4096 bytes".to_owned())
    } else if text.chars().any(char::is_control) {
        Err("contains a control character".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// Parses an integer with a unit: `500ms`, `30s`, `15m`, `24h`, `7d`.
pub fn duration(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let wrong = || "is not an integer with a unit (ms, s, m, h, d)".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number = u64::from_str(&text[..digits]).map_err(|_| wrong())?;
    let unit = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let value = number.checked_mul(unit).map(Duration::from_millis).ok_or_else(wrong)?;
    if value < min {
        Err(format!("is shorter than {min:?}"))
    } else if value > max {
        Err(format!("is longer than {} s", max.as_secs()))
    } else {
        Ok(value)
    }
}

pub(super) fn number(text: &str, min: usize, max: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("is not a number from {min} to {max}")),
    }
}

/// Returns the parts of a comma-separated list, without the empty ones.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Parses networks in CIDR notation. A bare address is a network of one. Host bits are dropped (`10.1.2.3/8` is
/// `10.0.0.0/8`).
pub(super) fn networks(text: &str) -> Result<Vec<IpNet>, String> {
    parts(text)
        .map(|part| {
            let network = match part.parse::<IpAddr>() {
                Ok(address) => Some(IpNet::from(address)),
                Err(_) => part.parse::<IpNet>().ok(),
            };
            network.map(|network| network.trunc()).ok_or_else(|| format!("has `{part}`, which is not a network (CIDR)"))
        })
        .collect()
}

/// Parses an `http` or `https` URL without user, password, query and fragment.
pub(super) fn web_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|_| "is not a URL".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("does not begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user or a password".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not contain ? or #".to_owned());
    }
    Ok(url)
}

/// Fails if a URL has an `@` after its host. Then the password contains a `/`, `?` or `#`, which ended the host, and the
/// host is a part of the password, which errors and the log would show.
pub(super) fn check_password(url: &Url) -> Result<(), String> {
    if !url[Position::AfterHost..].contains('@') {
        return Ok(());
    }
    Err("has an @ after the host; in the user and the password, write @ as %40, / as %2F, ? as %3F and # as %23"
        .to_owned())
}

/// Like [`web_url`], but returns text without a trailing slash, to which a path can be appended.
pub(super) fn base_url(text: &str) -> Result<String, String> {
    web_url(text).map(|url| url.as_str().trim_end_matches('/').to_owned())
}

/// Returns the location and message of a TOML error. The full error quotes the line, which may contain a password.
pub(super) fn toml_error(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    format!("line {} is not TOML: {}", 1 + before.matches('\n').count(), error.message())
}
