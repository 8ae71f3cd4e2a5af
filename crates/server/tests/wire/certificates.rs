//! Certificates for tests of TLS, and servers and clients that use them.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::{Client, DEADLINE, Server, wait_until};

pub type Version = &'static rustls::SupportedProtocolVersion;
/// A connection whose session the test looks at itself.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A directory of certificates; it is removed when this is dropped.
pub struct Certificates {
    dir: tempfile::TempDir,
    authority: Issuer<'static, KeyPair>,
}

impl Certificates {
    /// An authority `ca`, a `server` and a `client` that it has signed.
    pub fn new() -> Certificates {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("valid names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // No two authorities have the same name.
        params.distinguished_name.push(DnType::CommonName, dir.path().display().to_string());
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(dir.path().join("ca.crt"), certificate.pem()).expect("a file");
        let all = Certificates { dir, authority: Issuer::new(params, key) };
        all.issue("server");
        all.issue("client");
        all
    }

    /// A certificate and a key in new files `name.crt` and `name.key`.
    pub fn issue(&self, name: &str) {
        self.issue_with(name, |_| ());
    }

    pub fn issue_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".into()]).expect("valid names");
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.authority).expect("a certificate");
        let write = |ending: &str, text: String| std::fs::write(self.path(name, ending), text);
        write("crt", certificate.pem()).expect("a file");
        write("key", key.serialize_pem()).expect("a file");
    }

    /// One whose time was over long ago.
    pub fn issue_expired(&self, name: &str) {
        self.issue_with(name, |params| {
            params.not_before = date_time_ymd(1999, 1, 1);
            params.not_after = date_time_ymd(2000, 1, 1);
        });
    }

    pub fn path(&self, name: &str, ending: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.{ending}"))
    }

    /// As options and CONFIG SET take it.
    pub fn name(&self, name: &str, ending: &str) -> String {
        self.path(name, ending).display().to_string()
    }

    pub fn certificate(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path(name, "crt")).expect("a certificate")
    }

    /// What makes a client: whom it trusts, which versions it speaks, what it shows of itself.
    pub fn client(&self, identity: Option<&str>, versions: &[Version]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate("ca")).expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions that there are")
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.path(name, "key")).expect("a key");
                let chain = vec![self.certificate(name)];
                config.with_client_auth_cert(chain, key).expect("a key of that certificate")
            }
        };
        Arc::new(config)
    }
}

pub const BOTH: [Version; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// A Kvasir that speaks TLS.
pub struct TlsServer {
    pub server: Server,
    pub port: u16,
}

impl TlsServer {
    /// With the authority and the server of `certificates`; clients need not show theirs.
    pub fn start(backend: &'static str, certificates: &Certificates, more: &[&str]) -> TlsServer {
        let files = ["server.crt", "server.key", "ca.crt"]
            .map(|file| certificates.dir.path().join(file).display().to_string());
        let port = free_port();
        let number = port.to_string();
        let mut options = vec!["--tls-port", &number, "--logfile", "log"];
        options.extend(["--tls-cert-file", &files[0], "--tls-key-file", &files[1]]);
        options.extend(["--tls-ca-cert-file", &files[2], "--tls-auth-clients", "no"]);
        options.extend(more);
        TlsServer { server: Server::kvasir(backend, &options), port }
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        read(&self.server.directory().join("log"))
    }

    /// Returns once it has logged this: what a client sees may come before the line on it.
    pub fn wait_for_log(&self, part: &str) {
        wait_until(&format!("logged: {part}"), || self.log().contains(part));
    }

    /// How many connections it says have failed.
    pub fn failed(&self) -> usize {
        self.log().matches("TLS connection failed addr=127.0.0.1:").count()
    }

    pub fn connect_tcp(&self) -> TcpStream {
        TlsServer::connect_to(self.port)
    }

    fn connect_to(port: u16) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.set_nodelay(true).expect("an option that there is");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout can be set");
        stream
    }

    pub fn connect(&self, config: &Arc<ClientConfig>) -> Client {
        Client::over(self.open(config))
    }

    /// A connection that has not yet shaken hands.
    pub fn open(&self, config: &Arc<ClientConfig>) -> TlsStream {
        TlsServer::open_at(self.port, config)
    }

    /// As that, at another port.
    pub fn open_at(port: u16, config: &Arc<ClientConfig>) -> TlsStream {
        let name = "localhost".try_into().expect("a name");
        let session = ClientConnection::new(Arc::clone(config), name).expect("a session");
        StreamOwned::new(session, TlsServer::connect_to(port))
    }

    /// What shaking hands and one PING come to: the reply, or the first error.
    pub fn try_ping(&self, config: &Arc<ClientConfig>) -> Result<Vec<u8>, String> {
        use std::io::{Read, Write};
        let mut stream = self.open(config);
        let mut reply = vec![0; 7];
        stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut reply)).map_err(
            |error| match error.kind() {
                // A server that closes with something unread resets the connection.
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "reset".into(),
                _ => error.to_string(),
            },
        )?;
        Ok(reply)
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A port that nobody listens on. None is given away twice, or the server of one test would answer
/// for that of another; and none is among those that the system gives to whoever connects.
pub fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    static GIVEN: AtomicU16 = AtomicU16::new(FIRST);
    loop {
        let port = GIVEN.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}
