//! Reading certificates and keys: PEM files to what rustls takes.
//!
//! Every error names the option and the file, for the log.

use std::path::Path;

use kvasir_config::tls::TlsConfig;
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::{Decode, Encode};

const ENCRYPTED_BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const ENCRYPTED_END: &str = "-----END ENCRYPTED PRIVATE KEY-----";
/// In the head of a key that is encrypted the old way.
const LEGACY_ENCRYPTED: &str = "Proc-Type: 4,ENCRYPTED";

/// The server's certificate and the chain behind it.
pub fn chain(config: &TlsConfig) -> Result<Vec<CertificateDer<'static>>, String> {
    let at = Place { option: "tls-cert-file", path: &config.cert_file };
    let chain = certificates(&at, &at.read()?)?;
    if chain.is_empty() {
        return Err(at.refuse("there is no certificate in it"));
    }
    Ok(chain)
}

/// The public key of a certificate, as DER; any version of certificate will do.
pub fn public_key(config: &TlsConfig, certificate: &[u8]) -> Result<Vec<u8>, String> {
    let at = Place { option: "tls-cert-file", path: &config.cert_file };
    CertificateInner::<Raw>::from_der(certificate)
        .and_then(|certificate| certificate.tbs_certificate().subject_public_key_info().to_der())
        .map_err(|error| at.refuse(&format!("the certificate is malformed: {error}")))
}

/// What INFO tells of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// In hexadecimal digits.
    pub serial: String,
    /// When it expires, in seconds since 1970.
    pub expiry_s: u64,
}

impl Facts {
    fn of(certificate: &[u8]) -> Option<Facts> {
        let certificate = CertificateInner::<Raw>::from_der(certificate).ok()?;
        let certificate = certificate.tbs_certificate();
        let digits = certificate.serial_number().as_bytes().iter();
        let serial = digits.map(|byte| format!("{byte:02X}")).collect();
        let expiry_s = certificate.validity().not_after.to_unix_duration().as_secs();
        Some(Facts { serial, expiry_s })
    }
}

/// Of the server's own certificate, and of the authority's that expires first.
pub fn facts(config: &TlsConfig) -> [Option<Facts>; 2] {
    let authorities = Place { option: "tls-ca-cert-file", path: &config.ca_cert_file };
    let authorities = authorities.read().and_then(|pem| certificates(&authorities, &pem));
    let of_authorities = authorities.unwrap_or_default();
    let of_authorities = of_authorities.iter().filter_map(|certificate| Facts::of(certificate));
    let own = chain(config).ok().and_then(|chain| Facts::of(chain.first()?));
    [own, of_authorities.min_by_key(|facts| facts.expiry_s)]
}

/// The private key, decrypted if it has to be.
pub fn key(config: &TlsConfig) -> Result<PrivateKeyDer<'static>, String> {
    let at = Place { option: "tls-key-file", path: &config.key_file };
    let bytes = at.read()?;
    let text = String::from_utf8_lossy(&bytes);
    if let Some(start) = text.find(ENCRYPTED_BEGIN) {
        return decrypt(&at, &text[start..], &config.key_file_pass);
    }
    if text.contains(LEGACY_ENCRYPTED) {
        return Err(at.refuse(
            "the key is encrypted in a form that cannot be read; \
             `openssl pkcs8 -topk8 -in KEY -out NEW` converts it to PKCS #8",
        ));
    }
    let key = PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|error| at.refuse(&format!("there is no private key in it: {error}")))?;
    // As to OpenSSL, what stands there counts, not what the line above says of it.
    Ok(PrivateKeyDer::try_from(key.secret_der().to_vec()).unwrap_or(key))
}

/// Those who may sign the certificates of clients; empty if no option names any.
pub fn authorities(config: &TlsConfig) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if !config.ca_cert_file.as_os_str().is_empty() {
        let at = Place { option: "tls-ca-cert-file", path: &config.ca_cert_file };
        if add_roots(&at, &at.read()?, &mut roots)? == 0 {
            return Err(at.refuse("there is no certificate in it"));
        }
    }
    if !config.ca_cert_dir.as_os_str().is_empty() {
        let at = Place { option: "tls-ca-cert-dir", path: &config.ca_cert_dir };
        let mut count = 0;
        let entries = std::fs::read_dir(at.path).map_err(|error| at.refuse(&error.to_string()))?;
        for entry in entries {
            let path = entry.map_err(|error| at.refuse(&error.to_string()))?.path();
            let at = Place { option: at.option, path: &path };
            if path.is_file() {
                count += add_roots(&at, &at.read()?, &mut roots)?;
            }
        }
        if count == 0 {
            return Err(at.refuse("there is no certificate in it"));
        }
    }
    Ok(roots)
}

/// A file and the option that names it.
struct Place<'a> {
    option: &'static str,
    path: &'a Path,
}

impl Place<'_> {
    fn read(&self) -> Result<Vec<u8>, String> {
        if self.path.as_os_str().is_empty() {
            return Err(format!("{} is not set, which tls-port needs", self.option));
        }
        std::fs::read(self.path).map_err(|error| self.refuse(&error.to_string()))
    }

    fn refuse(&self, why: &str) -> String {
        format!("{} {}: {why}", self.option, self.path.display())
    }
}

fn certificates(at: &Place<'_>, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| at.refuse(&format!("it is malformed: {error}")))
}

/// Adds every certificate of a file; how many there were.
fn add_roots(at: &Place<'_>, pem: &[u8], roots: &mut RootCertStore) -> Result<usize, String> {
    let found = certificates(at, pem)?;
    let count = found.len();
    for certificate in found {
        roots
            .add(certificate)
            .map_err(|error| at.refuse(&format!("a certificate in it is of no use: {error}")))?;
    }
    Ok(count)
}

/// Decrypts a PKCS #8 key; `text` starts with it.
fn decrypt(at: &Place<'_>, text: &str, password: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    if password.is_empty() {
        return Err(at.refuse("the key is encrypted, and tls-key-file-pass is not set"));
    }
    let end = text.find(ENCRYPTED_END).ok_or_else(|| at.refuse("the key has no end"))?;
    let pem = &text[..end + ENCRYPTED_END.len()];
    let (_, encrypted) = SecretDocument::from_pem(pem)
        .map_err(|error| at.refuse(&format!("the key is malformed: {error}")))?;
    let key = EncryptedPrivateKeyInfoRef::try_from(encrypted.as_bytes())
        .map_err(|error| at.refuse(&format!("the key is encrypted in an unknown way: {error}")))?
        .decrypt(password)
        .map_err(|error| {
            at.refuse(&format!("tls-key-file-pass does not decrypt the key: {error}"))
        })?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `openssl genpkey -algorithm ed25519` made.
    const PLAIN: &str = "\
-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIK2lsMCWP7FP0EPC0ADf2CF0QIFusnR36e/9JON0pkDh
-----END PRIVATE KEY-----
";
    /// The same behind `openssl pkcs8 -topk8 -passout pass:secret`.
    const ENCRYPTED: &str = "\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgsEsCRR28nnAICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEP32cp7NDte+NMTSW0FHLGAEQLvN
YBtQ/WzIKYEsNjGcbfUtYRUU9653kF/VzQQXjP1ooHvY2rcyqNfnUqVFyp3aLuPc
9PUIKeNHnlNElqLGAcM=
-----END ENCRYPTED PRIVATE KEY-----
";
    /// The beginning of a key behind `openssl ec -aes128`.
    const LEGACY: &str = "\
-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,99657ACCE345A5AE301A86BFB3691148
";

    /// Reads a file of this text as the key; `expect` is a word of the error.
    fn check_key(text: &str, password: &str, expect: Result<(), &str>) {
        let dir = tempfile::tempdir().unwrap();
        let key_file = dir.path().join("server.key");
        std::fs::write(&key_file, text).unwrap();
        let key_file_pass = password.as_bytes().to_vec();
        let config = TlsConfig { key_file, key_file_pass, ..TlsConfig::default() };
        match (key(&config), expect) {
            (Ok(key), Ok(())) => {
                assert_eq!(key, PrivateKeyDer::from_pem_slice(PLAIN.as_bytes()).unwrap());
            }
            (Err(error), Err(word)) => {
                assert!(error.starts_with("tls-key-file /"), "{error}");
                assert!(error.contains(word), "{error}");
            }
            (result, _) => panic!("{text}: {result:?}"),
        }
    }

    #[test]
    fn keys_are_read_decrypted_or_refused_with_a_reason() {
        check_key(PLAIN, "", Ok(()));
        check_key(&PLAIN.replace("PRIVATE", "RSA PRIVATE"), "", Ok(()));
        check_key(&format!("a comment\n{PLAIN}"), "needless", Ok(()));
        check_key(ENCRYPTED, "secret", Ok(()));
        check_key(&format!("a comment\n{ENCRYPTED}{LEGACY}"), "secret", Ok(()));
        check_key(ENCRYPTED, "", Err("tls-key-file-pass is not set"));
        check_key(ENCRYPTED, "wrong", Err("tls-key-file-pass does not decrypt the key"));
        check_key(&ENCRYPTED[..200], "secret", Err("the key has no end"));
        check_key(LEGACY, "secret", Err("openssl pkcs8 -topk8"));
        check_key("nonsense", "", Err("there is no private key in it"));
    }

    /// What of PEM and DER comes from a file may be anything.
    #[test]
    fn malformed_files_are_refused() {
        let begin = "-----BEGIN CERTIFICATE-----\n";
        let end = "-----END CERTIFICATE-----\n";
        for text in ["", "x", begin, &format!("{begin}MIIB\n{end}"), &format!("{begin}ä\n{end}")] {
            let dir = tempfile::tempdir().unwrap();
            let cert_file = dir.path().join("server.crt");
            std::fs::write(&cert_file, text).unwrap();
            let config = TlsConfig { cert_file, ..TlsConfig::default() };
            let read = chain(&config).and_then(|chain| public_key(&config, &chain[0]));
            assert!(read.is_err_and(|error| error.starts_with("tls-cert-file /")), "{text}");
        }
    }
}
