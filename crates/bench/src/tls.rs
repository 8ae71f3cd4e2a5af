//! GET and SET over TLS, and without on the same server: what encryption costs it.
//!
//! The Valkey that the peers are taken from is built without TLS; then Redis is the one to compare
//! with.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use kvasir_harness::server::free_port;

use super::kv::{self, Load, Point};
use super::report::Measurement;
use super::{Lab, Target};

/// What Valkey's log says where TLS was left out.
const NO_TLS: &str = "Failed finding TLS support";

const PIPELINES: [u32; 2] = [1, 16];

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let dir = tempfile::tempdir()?;
    let (certificate, key) = certify(dir.path())?;
    let port = free_port()?;
    let port_text = port.to_string();
    let options = [
        ["--tls-port", &port_text],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-auth-clients", "no"],
    ];
    let server = match lab.start_with(target, 1, &lab.server_core(), options.as_flattened()) {
        Err(error) if format!("{error:#}").contains(NO_TLS) => {
            lab.note(&format!("{} is built without TLS", target.label));
            return Ok(Vec::new());
        }
        other => other?,
    };
    let keys = (lab.keys / 10).max(1);
    kv::fill(lab, &server, target, keys)?;
    let mut measurements = Vec::new();
    for pipeline in PIPELINES {
        for command in ["GET", "SET"] {
            let point = Point { command, pipeline };
            lab.say(&format!("{}: {}", target.label, point.name()));
            let plain = kv::measure(lab, &server, &point.load(keys), &lab.load_core())?;
            let load = Load { tls_port: Some(port), ..point.load(keys) };
            let mut metrics = kv::measure(lab, &server, &load, &lab.load_core())?;
            metrics.insert("added_us", metrics["cpu_us"] - plain["cpu_us"]);
            measurements.push(Measurement::new("tls", point.name(), metrics));
        }
    }
    Ok(measurements)
}

/// Files of a certificate that signs itself, and of its key.
fn certify(dir: &Path) -> Result<(String, String)> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()])?;
    let write = |name: &str, text: String| -> Result<String> {
        let path = dir.join(name);
        fs::write(&path, text)?;
        Ok(path.to_str().context("a directory with an odd name")?.to_string())
    };
    Ok((
        write("server.crt", made.cert.pem())?,
        write("server.key", made.signing_key.serialize_pem())?,
    ))
}
