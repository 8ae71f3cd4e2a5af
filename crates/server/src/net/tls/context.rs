//! From the options to the configuration that new connections are made with.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use kvasir_config::tls::{AuthClients, TlsConfig};
use kvasir_structures::locks::{read, write};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::net::tls::files::Facts;
use crate::net::tls::resumption::Sessions;
use crate::net::tls::{ciphers, files};

/// TLS of this server as it is now; `None` where it has none.
pub struct Endpoint(RwLock<Option<Tls>>);

/// What new connections are made with, and what is known of its certificates.
#[derive(Clone)]
struct Tls {
    context: Arc<ServerConfig>,
    facts: [Option<Facts>; 2],
}

impl Endpoint {
    /// Reads the files if there is a listener with TLS; the error names what is wrong.
    pub fn new(config: &TlsConfig) -> Result<Endpoint, String> {
        let tls = config.is_used().then(|| Tls::new(config)).transpose()?;
        Ok(Endpoint(RwLock::new(tls)))
    }

    /// Has new connections use other options and files, unless something is wrong with them.
    pub fn reload(&self, config: &TlsConfig) -> Result<(), String> {
        if config.is_used() {
            let tls = Tls::new(config)?;
            *write(&self.0) = Some(tls);
        }
        Ok(())
    }

    pub fn context(&self) -> Option<Arc<ServerConfig>> {
        read(&self.0).as_ref().map(|tls| Arc::clone(&tls.context))
    }

    /// Of the server's own certificate, and of the authority's that expires first.
    pub fn facts(&self) -> [Option<Facts>; 2] {
        read(&self.0).as_ref().map_or([None, None], |tls| tls.facts.clone())
    }
}

impl Tls {
    fn new(config: &TlsConfig) -> Result<Tls, String> {
        Ok(Tls { context: context(config)?, facts: files::facts(config) })
    }
}

/// What other nodes of a cluster are answered with: they show a certificate in any case.
pub fn for_peers(config: &TlsConfig) -> Result<Arc<ServerConfig>, String> {
    context(&TlsConfig { auth_clients: AuthClients::Yes, ..config.clone() })
}

fn context(config: &TlsConfig) -> Result<Arc<ServerConfig>, String> {
    let cipher_suites = ciphers::suites(&config.ciphersuites, &config.ciphers)?;
    let provider = Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() });
    let identity = identity(config, &provider)?;
    let mut context = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&ciphers::versions(&config.protocols)?)
        .map_err(|error| format!("tls-protocols: {error}"))?
        .with_client_cert_verifier(verifier(config, provider)?)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
    context.ignore_client_order = config.prefer_server_ciphers;
    remember_sessions(config, &mut context);
    Ok(Arc::new(context))
}

/// The certificate and its key. Certificates of version 1 are fine, though rustls would refuse them
/// in clients: they are what tools often make, and it is the client who judges them.
fn identity(config: &TlsConfig, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain = files::chain(config)?;
    let of_key = |why: String| format!("tls-key-file {}: {why}", config.key_file.display());
    let key = provider
        .key_provider
        .load_private_key(files::key(config)?)
        .map_err(|error| of_key(error.to_string()))?;
    let certified = files::public_key(config, &chain[0])?;
    if key.public_key().is_some_and(|public| public.as_ref() != certified.as_slice()) {
        let certificate = config.cert_file.display();
        return Err(of_key(format!("this is not the key of tls-cert-file {certificate}")));
    }
    Ok(CertifiedKey::new(chain, key))
}

/// Who judges the certificates of clients.
fn verifier(
    config: &TlsConfig,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let roots = files::authorities(config)?;
    if config.auth_clients == AuthClients::No {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    if roots.is_empty() {
        return Err("tls-auth-clients needs tls-ca-cert-file or tls-ca-cert-dir".into());
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = match config.auth_clients {
        AuthClients::Optional => verifier.allow_unauthenticated(),
        _ => verifier,
    };
    verifier.build().map_err(|error| format!("tls-auth-clients: {error}"))
}

fn remember_sessions(config: &TlsConfig, context: &mut ServerConfig) {
    if !config.session_caching {
        context.session_storage = Arc::new(NoServerSessionStorage {});
        context.send_tls13_tickets = 0;
        return;
    }
    let count_max = (config.session_cache_size != 0).then_some(config.session_cache_size as usize);
    let lifetime = Duration::from_secs(config.session_cache_timeout.into());
    context.session_storage = Arc::new(Sessions::new(count_max, lifetime));
    // Clients keep their connections: a second ticket would hardly be used, but be kept all the
    // same.
    context.send_tls13_tickets = 1;
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A certificate and its key in files of these names, signed by itself.
    fn make(dir: &Path, name: &str) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(dir.join(format!("{name}.crt")), made.cert.pem()).unwrap();
        std::fs::write(dir.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn certificates_are_told_of() {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), "a");
        let [cert_file, key_file] = ["a.crt", "a.key"].map(|name| dir.path().join(name));
        let ca_cert_file = cert_file.clone();
        let config = TlsConfig { port: 1, cert_file, key_file, ca_cert_file, ..Default::default() };
        let [own, authority] = Endpoint::new(&config).unwrap().facts();
        assert_eq!(own, authority);
        let Facts { serial, expiry_s } = own.unwrap();
        assert!(serial.len() >= 2 && serial.bytes().all(|digit| digit.is_ascii_hexdigit()));
        // The tool that makes it gives it until the year 4096.
        assert_eq!(expiry_s, 67_090_118_400);
        let none = Endpoint::new(&TlsConfig::default()).unwrap().facts();
        assert_eq!(none, [None, None]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        make(dir, "a");
        make(dir, "b");
        std::fs::write(dir.join("nothing"), "nothing").unwrap();
        std::fs::create_dir(dir.join("certificates")).unwrap();
        let check = |change: &dyn Fn(&mut TlsConfig), expect: Result<(), &str>| {
            let mut config = TlsConfig {
                port: 1,
                cert_file: dir.join("a.crt"),
                key_file: dir.join("a.key"),
                ca_cert_file: dir.join("a.crt"),
                ..TlsConfig::default()
            };
            change(&mut config);
            let result = Endpoint::new(&config).map(|_| ());
            let text = |text: &str| text.replace("DIR", &dir.display().to_string());
            assert_eq!(result, expect.map_err(text), "{config:?}");
        };
        check(&|_| (), Ok(()));
        check(&|c| c.ca_cert_dir = dir.to_owned(), Ok(()));
        check(&|c| c.protocols = vec!["TLSv1.2".into()], Ok(()));
        check(&|c| c.cert_file = "".into(), Err("tls-cert-file is not set, which tls-port needs"));
        check(
            &|c| c.cert_file = dir.join("none"),
            Err("tls-cert-file DIR/none: No such file or directory (os error 2)"),
        );
        check(
            &|c| c.cert_file = dir.join("a.key"),
            Err("tls-cert-file DIR/a.key: there is no certificate in it"),
        );
        check(
            &|c| c.key_file = dir.join("b.key"),
            Err("tls-key-file DIR/b.key: this is not the key of tls-cert-file DIR/a.crt"),
        );
        check(
            &|c| c.ca_cert_file = "".into(),
            Err("tls-auth-clients needs tls-ca-cert-file or tls-ca-cert-dir"),
        );
        check(
            &|c| c.ca_cert_file = dir.join("nothing"),
            Err("tls-ca-cert-file DIR/nothing: there is no certificate in it"),
        );
        check(
            &|c| c.ca_cert_dir = dir.join("certificates"),
            Err("tls-ca-cert-dir DIR/certificates: there is no certificate in it"),
        );
        check(
            &|c| c.ciphers = b"AES128-SHA".to_vec(),
            Err("tls-ciphers: 'AES128-SHA' chooses no cipher suite"),
        );
        check(&|c| (c.port, c.cert_file) = (0, dir.join("none")), Ok(()));
    }
}
