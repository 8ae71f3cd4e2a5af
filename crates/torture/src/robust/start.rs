//! Starts that cannot be: a clear line and an exit code.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kvasir_harness::server::Launch;
use kvasir_harness::workspace::{command, output};

/// The exit code of every refusal.
const EXIT_CODE: i32 = 1;
/// A server that should have refused is ended after this time.
const SECONDS_MAX: &str = "10";

pub fn check(launch: &Launch) -> Result<()> {
    let dir = tempdir()?;
    let config = format!("{dir}/wrong.conf");
    fs::write(&config, "# a comment\nmaxclients 100\nno-such-directive yes\n")?;
    let bad_value = format!("{dir}/value.conf");
    fs::write(&bad_value, "maxclients many\n")?;
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = taken.local_addr()?.port().to_string();
    let cases: Vec<(Vec<&str>, Vec<&str>)> = vec![
        (vec!["--port", &port], vec![&port, "in use"]),
        (vec![&config], vec!["no-such-directive", "3"]),
        (vec![&bad_value], vec!["maxclients many", "1"]),
        (vec!["--no-such-option", "1"], vec!["no-such-option"]),
        (vec!["--maxclients", "-1"], vec!["maxclients"]),
        (vec!["--io-backend", "kqueue"], vec!["io-backend", "kqueue"]),
        (vec!["--port", "70000"], vec!["port"]),
        (vec!["/no/such/file.conf"], vec!["/no/such/file.conf"]),
        (vec!["--dir", "/no/such/dir"], vec!["/no/such/dir"]),
    ];
    for (args, wanted) in &cases {
        refused(launch, args, wanted).with_context(|| format!("started with {args:?}"))?;
    }
    fs::remove_dir_all(dir)?;
    println!("robust: {} wrong starts are refused with a reason", cases.len());
    Ok(())
}

fn refused(launch: &Launch, args: &[&str], wanted: &[&str]) -> Result<()> {
    let mut server = Command::new("timeout");
    server.arg(SECONDS_MAX).arg(&launch.program).args(args);
    // A directory of its own and no port, unless that is what is tried.
    if !args.contains(&"--port") {
        server.args(["--port", "0"]);
    }
    let output = server.current_dir(std::env::temp_dir()).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    ensure!(output.status.code() == Some(EXIT_CODE), "it ended with {}: {text}", output.status);
    for word in wanted {
        ensure!(text.to_lowercase().contains(word), "it does not name {word}: {text}");
    }
    Ok(())
}

fn tempdir() -> Result<String> {
    Ok(output(command("mktemp").arg("-d"))?.trim().to_string())
}
