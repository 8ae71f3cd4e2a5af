//! TLS towards another server: who this one says it is, and whom it believes.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use kvasir_config::tls::TlsConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, IpAddr, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error,
    SignatureScheme, StreamOwned,
};

use crate::net::tls::{ciphers, files};

pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Begins a session over a socket; the handshake comes with the first bytes.
pub fn begin(config: &TlsConfig, socket: TcpStream) -> Result<TlsStream, String> {
    let address = socket.peer_addr().map_err(|error| error.to_string())?;
    let connection = ClientConnection::new(Arc::new(context(config)?), name_of(address.ip()));
    let connection = connection.map_err(|error| error.to_string())?;
    Ok(StreamOwned::new(connection, socket))
}

/// Shakes hands.
///
/// # Errors
///
/// Those of a socket that lets nobody wait for long, after which it can be called again.
pub fn shake_hands(stream: &mut TlsStream) -> io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(())
}

/// What a server is called that is known by its address.
pub fn name_of(ip: std::net::IpAddr) -> ServerName<'static> {
    ServerName::IpAddress(IpAddr::from(ip))
}

pub fn context(config: &TlsConfig) -> Result<ClientConfig, String> {
    let cipher_suites = ciphers::suites(&config.ciphersuites, &config.ciphers)?;
    let provider = Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() });
    let roots = Arc::new(files::authorities(config)?);
    let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
    let inner = inner.build().map_err(|error| format!("tls-ca-cert-file: {error}"))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&ciphers::versions(&config.protocols)?)
        .map_err(|error| format!("tls-protocols: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyName(inner)));
    let own = as_client(config);
    if own.cert_file.as_os_str().is_empty() {
        return Ok(builder.with_no_client_auth());
    }
    let (chain, key) = (files::chain(&own)?, files::key(&own)?);
    builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())
}

/// The options as they are for a client.
fn as_client(config: &TlsConfig) -> TlsConfig {
    let mut own = config.clone();
    if !config.client_cert_file.as_os_str().is_empty() {
        own.cert_file.clone_from(&config.client_cert_file);
        own.key_file.clone_from(&config.client_key_file);
        own.key_file_pass.clone_from(&config.client_key_file_pass);
    }
    own
}

/// Believes certificates that are signed by one of the authorities, whatever name they have:
/// servers are known by addresses, which certificates seldom have.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(own, between, name, ocsp, now) {
            // It is looked at last, when all else is fine.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
