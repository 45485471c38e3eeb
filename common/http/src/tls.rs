//! The TLS configuration of all clients. It is created once per process, because reading the system's certificate
//! authorities takes longer than everything else that a client needs.

use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls_platform_verifier::Verifier;

use super::NoRootCertificates;

/// Installs the TLS crypto provider for the whole process, including clients of libraries.
pub fn install() {
    // Fails if a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Returns a configuration that trusts the system's certificate authorities.
pub(super) fn config() -> Result<ClientConfig, NoRootCertificates> {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    install();
    let verifier = Verifier::new(provider()).map_err(NoRootCertificates::new)?;
    Ok(CONFIG.get_or_init(|| with_verifier(verifier)).clone())
}

/// Returns a configuration that trusts one more certificate authority.
#[cfg(test)]
pub(super) fn trusting(
    authority: rustls::pki_types::CertificateDer<'static>,
) -> Result<ClientConfig, NoRootCertificates> {
    install();
    Verifier::new_with_extra_roots([authority], provider()).map(with_verifier).map_err(NoRootCertificates::new)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn with_verifier(verifier: Verifier) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.expect("the provider supports TLS 1.2 and 1.3").dangerous();
    let mut config = builder.with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    // reqwest adds no protocols to a preconfigured TLS backend.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}
