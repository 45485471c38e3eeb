//! Why there is no response, and whether the request may have taken effect.

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription, CertificateError, Error as TlsError};

use super::guard::ResolveError;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The guard blocks the address.
    #[error("the address is not public: {0}")]
    Blocked(String),
    #[error("the host name could not be resolved")]
    Dns,
    /// No connection, or a connection that was closed before any of the request was written to it.
    #[error("no connection could be made")]
    Connect,
    #[error("the TLS handshake failed: {0}")]
    Tls(String),
    /// The deadline passed. `sent`: whether the request may have reached the server.
    #[error("no {} in time", if *.sent { "response" } else { "connection" })]
    Timeout { sent: bool },
    /// The connection broke after the request may have reached the server, or the response is not HTTP.
    #[error("the connection was lost before a valid response arrived")]
    Broken,
    /// The request could not be built because of an invalid URL or header.
    #[error("invalid request: {0}")]
    Invalid(String),
}

/// The system has no certificate authorities, so no server could be trusted.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot read the certificate authorities of this system ({0}): install the package ca-certificates, or set \
     SSL_CERT_FILE to a file of certificates"
)]
pub struct NoRootCertificates(String);

impl NoRootCertificates {
    pub(super) fn new(error: rustls::Error) -> Self {
        Self(error.to_string())
    }
}

impl HttpError {
    /// Returns whether the server may have received the request, so that its effect is unknown.
    pub fn may_have_arrived(&self) -> bool {
        matches!(self, Self::Timeout { sent: true } | Self::Broken)
    }

    /// Returns the class of the error, for traces.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Blocked(_) => "blocked",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls(_) => "tls",
            Self::Timeout { .. } => "timeout",
            Self::Broken => "broken",
            Self::Invalid(_) => "invalid",
        }
    }

    /// Converts the error of a request that could not be built. Omits the URL, which may contain a token.
    pub(super) fn invalid(error: reqwest::Error) -> Self {
        let error = error.without_url();
        Self::Invalid(StdError::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
    }

    /// Converts the error of a request that got no response.
    pub(super) fn from_send(error: reqwest::Error) -> Self {
        if error.is_builder() {
            return Self::invalid(error);
        }
        if error.is_connect() {
            return Self::from_connect(&error);
        }
        let is = |what: fn(&hyper::Error) -> bool| chain(&error).any(|e| e.downcast_ref().is_some_and(what));
        // hyper reports a request as canceled only if none of it was written, e.g. because a pooled connection was
        // already closed.
        if is(hyper::Error::is_canceled) {
            return Self::Connect;
        }
        // The peer of an HTTP/2 connection did not respond to a ping in time.
        if is(hyper::Error::is_timeout) { Self::Timeout { sent: true } } else { Self::Broken }
    }

    fn from_connect(error: &reqwest::Error) -> Self {
        if let Some(ResolveError::Blocked(name)) = chain(error).find_map(|e| e.downcast_ref()) {
            return Self::Blocked(name.clone());
        }
        if error.is_dns() {
            return Self::Dns;
        }
        if error.is_timeout() {
            return Self::Timeout { sent: false };
        }
        // Errors of the TCP connector have their own type; a bare I/O error comes from the TLS handshake.
        let cause = chain(error).find(|e| e.is::<hyper_util::client::legacy::Error>()).and_then(StdError::source);
        match cause.and_then(|e| e.downcast_ref::<io::Error>()) {
            Some(handshake) => Self::Tls(handshake_failure(handshake)),
            None => Self::Connect,
        }
    }
}

/// Returns the error and all its causes.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&e| e.source())
}

/// Returns why a handshake failed, for the owner of the server.
fn handshake_failure(error: &io::Error) -> String {
    let error = innermost(error);
    let reason = error.get_ref().and_then(|e| e.downcast_ref()).and_then(|e| match e {
        TlsError::InvalidCertificate(why) => certificate(why),
        TlsError::AlertReceived(AlertDescription::ProtocolVersion) | TlsError::PeerIncompatible(_) => {
            Some("the server does not support TLS 1.2 or 1.3 correctly")
        }
        TlsError::InvalidMessage(_) => Some("the server does not use TLS"),
        _ => None,
    });
    reason.map_or_else(|| error.to_string(), str::to_owned)
}

fn certificate(why: &CertificateError) -> Option<&'static str> {
    Some(match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "the certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another name"
        }
        // With `BadSignature`, the issuer has the name of a known authority, but another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the certificate is not signed by a trusted authority"
        }
        _ => return None,
    })
}

/// Returns the innermost of nested I/O errors. (`source` would skip it.)
fn innermost(mut error: &io::Error) -> &io::Error {
    while let Some(inner) = error.get_ref().and_then(|e| e.downcast_ref::<io::Error>()) {
        error = inner;
    }
    error
}
