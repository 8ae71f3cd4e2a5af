//! The words of OpenSSL for versions and cipher suites, and the suites they choose here.
//!
//! All suites have forward secrecy and authenticated encryption; names of others choose nothing.

use rustls::SupportedCipherSuite;
use rustls::crypto::ring::cipher_suite as suite;
use rustls::version::{TLS12, TLS13};

/// A suite of TLS 1.2: the names that choose it, its own first.
struct Suite {
    suite: SupportedCipherSuite,
    names: &'static [&'static str],
}

/// In OpenSSL's order.
static TLS12_SUITES: &[Suite] = &[
    Suite {
        suite: suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        names: &["ECDHE-ECDSA-AES256-GCM-SHA384", ECDSA, "AES", "AESGCM", "AES256", "SHA384"],
    },
    Suite {
        suite: suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        names: &["ECDHE-RSA-AES256-GCM-SHA384", RSA, "AES", "AESGCM", "AES256", "SHA384"],
    },
    Suite {
        suite: suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        names: &["ECDHE-ECDSA-CHACHA20-POLY1305", ECDSA, "CHACHA20"],
    },
    Suite {
        suite: suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        names: &["ECDHE-RSA-CHACHA20-POLY1305", RSA, "CHACHA20"],
    },
    Suite {
        suite: suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        names: &["ECDHE-ECDSA-AES128-GCM-SHA256", ECDSA, "AES", "AESGCM", "AES128", "SHA256"],
    },
    Suite {
        suite: suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        names: &["ECDHE-RSA-AES128-GCM-SHA256", RSA, "AES", "AESGCM", "AES128", "SHA256"],
    },
];

/// How the server proves who it is.
const ECDSA: &str = "aECDSA";
const RSA: &str = "aRSA";
/// Words that choose every suite there is here.
const EVERY: &[&str] =
    &["ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH", "kECDHE", "kEECDH", "TLSv1.2", "AEAD"];

static TLS13_SUITES: &[(&str, SupportedCipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", suite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
];

/// The versions that `tls-protocols` names.
pub fn versions(
    words: &[String],
) -> Result<Vec<&'static rustls::SupportedProtocolVersion>, String> {
    if words.is_empty() {
        return Ok(vec![&TLS13, &TLS12]);
    }
    let version = |word: &String| match word.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Ok(&TLS12),
        "tlsv1.3" => Ok(&TLS13),
        "tlsv1" | "tlsv1.1" => Err(format!("tls-protocols: {word} is not safe and not supported")),
        _ => Err(format!(
            "tls-protocols: '{word}' is none of 'TLSv1', 'TLSv1.1', 'TLSv1.2' and 'TLSv1.3'"
        )),
    };
    words.iter().map(version).collect()
}

/// The suites that both options choose, those of TLS 1.3 first.
pub fn suites(ciphersuites: &[u8], ciphers: &[u8]) -> Result<Vec<SupportedCipherSuite>, String> {
    let mut chosen = tls13_suites(&String::from_utf8_lossy(ciphersuites))?;
    chosen.extend(tls12_suites(&String::from_utf8_lossy(ciphers))?);
    Ok(chosen)
}

fn tls13_suites(words: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    if words.is_empty() {
        return Ok(TLS13_SUITES.iter().map(|(_, suite)| *suite).collect());
    }
    let find = |word: &str| {
        let found = TLS13_SUITES.iter().find(|(name, _)| *name == word);
        found
            .map(|(_, suite)| *suite)
            .ok_or_else(|| format!("tls-ciphersuites: '{word}' is not supported"))
    };
    words.split(':').map(find).collect()
}

/// The rules of OpenSSL's cipher lists: a word appends what it chooses, `-` in front takes it out,
/// `!` for good, `+` moves it to the end; `A+B` chooses what both choose.
fn tls12_suites(rules: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let mut chosen: Vec<&Suite> = Vec::new();
    let mut banned: Vec<&str> = Vec::new();
    let rules = if rules.is_empty() { "DEFAULT" } else { rules };
    for rule in rules.split([':', ',', ' ', ';']).filter(|rule| !rule.is_empty()) {
        let (sign, words) = match rule.as_bytes()[0] {
            sign @ (b'!' | b'-' | b'+') => (sign, &rule[1..]),
            _ => (b' ', rule),
        };
        let meant: Vec<&Suite> = TLS12_SUITES.iter().filter(|suite| suite.is(words)).collect();
        let is_meant = |suite: &&Suite| meant.iter().any(|one| one.names[0] == suite.names[0]);
        match sign {
            b'!' | b'-' => {
                chosen.retain(|suite| !is_meant(suite));
                if sign == b'!' {
                    banned.extend(meant.iter().map(|suite| suite.names[0]));
                }
            }
            b'+' => chosen.sort_by_key(is_meant),
            _ => {
                for suite in meant {
                    let is_new = chosen.iter().all(|one| one.names[0] != suite.names[0]);
                    if is_new && !banned.contains(&suite.names[0]) {
                        chosen.push(suite);
                    }
                }
            }
        }
    }
    if chosen.is_empty() {
        return Err(format!("tls-ciphers: '{rules}' chooses no cipher suite"));
    }
    Ok(chosen.into_iter().map(|suite| suite.suite).collect())
}

impl Suite {
    /// Whether every word, with `+` between, chooses this suite.
    fn is(&self, words: &str) -> bool {
        let all = || self.names.iter().chain(EVERY);
        words.split('+').all(|word| all().any(|name| *name == word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expect`: the names of the suites, shortened to what tells them apart.
    fn check12(rules: &str, expect: Result<&str, &str>) {
        let short = |suite: SupportedCipherSuite| {
            let of = TLS12_SUITES.iter().find(|one| one.suite == suite).expect("one of them");
            let parts: Vec<&str> = of.names[0].split('-').collect();
            format!("{}-{}", parts[1], parts[2])
        };
        let found = tls12_suites(rules)
            .map(|suites| suites.into_iter().map(short).collect::<Vec<_>>().join(" "));
        assert_eq!(found, expect.map(String::from).map_err(String::from), "{rules}");
    }

    #[test]
    fn rules_choose_as_in_openssl() {
        let all = "ECDSA-AES256 RSA-AES256 ECDSA-CHACHA20 RSA-CHACHA20 ECDSA-AES128 RSA-AES128";
        check12("", Ok(all));
        check12("DEFAULT:!MEDIUM", Ok(all));
        check12("ECDHE-RSA-AES128-GCM-SHA256", Ok("RSA-AES128"));
        check12("AES128-SHA:ECDHE-RSA-AES128-GCM-SHA256", Ok("RSA-AES128"));
        check12(
            "ECDHE+AESGCM+aRSA:CHACHA20",
            Ok("RSA-AES256 RSA-AES128 ECDSA-CHACHA20 RSA-CHACHA20"),
        );
        check12("HIGH:-AES:+aECDSA", Ok("RSA-CHACHA20 ECDSA-CHACHA20"));
        check12("AES128:-aRSA:aRSA+AES128 @STRENGTH", Ok("ECDSA-AES128 RSA-AES128"));
        check12("!aRSA,ALL:aRSA", Ok("ECDSA-AES256 ECDSA-CHACHA20 ECDSA-AES128"));
        check12("nope", Err("tls-ciphers: 'nope' chooses no cipher suite"));
        check12("ALL:!ALL", Err("tls-ciphers: 'ALL:!ALL' chooses no cipher suite"));
    }

    #[test]
    fn suites_of_tls13_are_named_in_full() {
        let check = |words: &str, expect: Result<usize, &str>| {
            let found = tls13_suites(words).map(|suites| suites.len());
            assert_eq!(found, expect.map_err(String::from), "{words}");
        };
        check("", Ok(3));
        check("TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256", Ok(2));
        check("nope", Err("tls-ciphersuites: 'nope' is not supported"));
    }

    #[test]
    fn versions_are_those_that_are_safe() {
        let check = |words: &[&str], expect: Result<usize, &str>| {
            let words: Vec<String> = words.iter().copied().map(String::from).collect();
            let found = versions(&words).map(|versions| versions.len());
            assert_eq!(found, expect.map_err(String::from), "{words:?}");
        };
        check(&[], Ok(2));
        check(&["TLSv1.2"], Ok(1));
        check(&["tlsv1.3", "TLSV1.2"], Ok(2));
        check(&["TLSv1.2", "TLSv1.1"], Err("tls-protocols: TLSv1.1 is not safe and not supported"));
        check(
            &["SSLv3"],
            Err("tls-protocols: 'SSLv3' is none of 'TLSv1', 'TLSv1.1', 'TLSv1.2' and 'TLSv1.3'"),
        );
    }
}
