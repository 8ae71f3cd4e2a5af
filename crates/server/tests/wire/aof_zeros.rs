//! A log with far more zeros behind its last call than a machine has memory: a hole, as a power cut
//! may leave it. What reads it keeps no more than a piece.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::aof::{last_increment, start, stop};
use crate::aof_check::manifest;
use crate::reply_limits::peak;
use crate::saving::{digest, directory, fill};

const MEMORY_MAX: usize = 256 << 20;

/// A log that is sound, and what it holds.
fn prepare(dir: &Path) -> String {
    let (server, mut client) = start("epoll", dir, &["--appendfsync", "always"]);
    fill(&mut client);
    client.ask("SET last call");
    let digest = digest(&mut client);
    stop(server, client);
    digest
}

/// Has a hole of so many bytes follow, and these bytes; returns the length before.
fn append(file: &Path, hole: u64, behind: &[u8]) -> u64 {
    let mut file = OpenOptions::new().write(true).open(file).unwrap();
    let sound = file.seek(SeekFrom::End(0)).unwrap();
    file.set_len(sound + hole).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(behind).unwrap();
    sound
}

/// As `aof_check::check`, and the most memory that was seen in use.
fn check(dir: &Path) -> (i32, String, usize) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.arg("check-aof").arg(manifest(dir)).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(peak(child.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("no signal"), String::from_utf8(text).unwrap(), most)
}

fn check_loads(dir: &Path, wanted: &str, sound: u64) {
    let (server, mut client) = start("epoll", dir, &[]);
    assert_eq!(digest(&mut client), wanted);
    let most = peak(server.pid()).expect("it runs");
    assert!(most < MEMORY_MAX, "{most}");
    // What it goes on with stands where the zeros were, or in a new file.
    let len = last_increment(dir).metadata().unwrap().len();
    assert!(len < sound + (1 << 20), "{len}");
    stop(server, client);
}

#[test]
fn zeros_without_end_are_not_held_in_memory() {
    let directory = directory();
    let wanted = prepare(directory.path());
    let hole = 4 << 30;
    let sound = append(&last_increment(directory.path()), hole, b"");
    let (status, text, most) = check(directory.path());
    assert!(status == 0 && text.contains(&format!("its last {hole} bytes are room")), "{text}");
    assert!(most < MEMORY_MAX, "{most}");
    check_loads(directory.path(), &wanted, sound);
}

#[test]
fn a_torn_end_behind_a_long_hole_is_not_held_in_memory() {
    let directory = directory();
    let wanted = prepare(directory.path());
    let hole = 1 << 30;
    let sound = append(&last_increment(directory.path()), hole, b"*1\r\n$4\r\nPING\r\nrest");
    let (status, text, most) = check(directory.path());
    assert_eq!(status, 2, "{text}");
    assert!(text.contains(&format!("is whole up to byte {sound}")), "{text}");
    assert!(most < MEMORY_MAX, "{most}");
    check_loads(directory.path(), &wanted, sound);
}
