//! A certificate authority for tests, and servers with its certificates.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::super::test_server::{ScriptedLookup, TestServer};
use super::*;

pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        Self::named("the tests' own authority")
    }

    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Returns a client that trusts this authority and resolves every name to 127.0.0.1.
    pub fn client(&self, timeout: Duration, max_body: usize) -> HttpClient {
        let guard = Guard::with_lookup(vec!["127.0.0.0/8".parse().unwrap()], ScriptedLookup::of("127.0.0.1"));
        HttpClient::with_root_certificate(self.0.der().clone(), guard, timeout, max_body)
    }

    /// Returns the acceptor of a server for `name` with these protocols.
    pub fn acceptor(&self, name: &str, alpn: &[&str]) -> TlsAcceptor {
        self.acceptor_of(CertificateParams::new([name.to_owned()]).unwrap(), alpn, rustls::ALL_VERSIONS)
    }

    /// Like [`Authority::acceptor`], with any certificate parameters and TLS versions.
    pub fn acceptor_of(
        &self,
        params: CertificateParams,
        alpn: &[&str],
        versions: &[&'static SupportedProtocolVersion],
    ) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        acceptor(&certificate, &key, alpn, versions)
    }
}

pub(super) fn acceptor(
    certificate: &rcgen::Certificate,
    key: &KeyPair,
    alpn: &[&str],
    versions: &[&'static SupportedProtocolVersion],
) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// Returns the parameters of a certificate that is valid between two years.
pub(super) fn valid(name: &str, from: i32, to: i32) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
    params
}

/// Starts a server that runs `handle` on each connection after a successful handshake.
pub(super) async fn secure<F>(
    acceptor: TlsAcceptor,
    handle: impl Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static,
) -> TestServer
where
    F: Future<Output = ()> + Send + 'static,
{
    let handle = Arc::new(handle);
    TestServer::run(move |stream| {
        let (acceptor, handle) = (acceptor.clone(), handle.clone());
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                handle(stream).await;
            }
        }
    })
    .await
}
