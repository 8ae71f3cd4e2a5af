//! `check-aof`: what is sound, torn or damaged. What it does about damage is in `aof_damage`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::aof::{last_increment, start, stop, wait_for};
use crate::saving::{digest, directory, fill};

/// Runs it on a file; its exit status and all it says.
pub fn check(options: &[&str], file: &Path) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.arg("check-aof").args(options).arg(file).stdin(Stdio::null());
    let output = command.output().expect("it can be started");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("no signal"), String::from_utf8(text).unwrap())
}

pub fn manifest(dir: &Path) -> PathBuf {
    dir.join("appendonlydir/appendonly.aof.manifest")
}

/// A log of a base, a first increment and `k0`, `k1`, `k2` in a second.
fn prepare(dir: &Path) -> String {
    let (server, mut client) = start("io_uring", dir, &["--appendfsync", "always"]);
    fill(&mut client);
    client.ask("BGREWRITEAOF");
    wait_for(&mut client, "aof_rewrites:1\r\n");
    for number in 0..3 {
        client.ask(&format!("SET k{number} v"));
    }
    let digest = digest(&mut client);
    let refused = check(&["--truncate-to-timestamp", "1"], &last_increment(dir));
    assert_eq!(refused.0, 0, "without times nothing is late: {}", refused.1);
    stop(server, client);
    digest
}

#[test]
fn a_sound_log_is_called_so() {
    let directory = directory();
    prepare(directory.path());
    let (status, text) = check(&[], &manifest(directory.path()));
    assert_eq!(status, 0, "{text}");
    // The three, and two that select: where the log was at the cut, and where they are.
    assert!(text.contains("base.rdb bytes") && text.contains("calls 5\nsound\n"), "{text}");
    assert_eq!(check(&["--fix"], &last_increment(directory.path())).0, 0);
}

#[test]
fn a_torn_end_is_cut_off() {
    let directory = directory();
    let wanted = prepare(directory.path());
    let (manifest, file) = (manifest(directory.path()), last_increment(directory.path()));
    let sound = std::fs::read(&file).unwrap();
    for (tail, status, said) in [
        ("*2\r\n$3\r\nGET\r\n$9\r\n", 2, format!("is whole up to byte {}", sound.len())),
        ("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 0, "last 17 bytes are room".into()),
    ] {
        std::fs::write(&file, [&sound[..], tail.as_bytes()].concat()).unwrap();
        let found = check(&[], &manifest);
        assert!(found.0 == status && found.1.contains(&said), "{found:?}");
        let (status, text) = check(&["--fix"], &manifest);
        assert!(status == 0 && text.contains("cut off 17 bytes"), "{status} {text}");
        assert_eq!(std::fs::read(&file).unwrap(), sound);
    }
    let (server, mut client) = start("epoll", directory.path(), &["--aof-load-truncated", "no"]);
    assert_eq!(digest(&mut client), wanted);

    std::fs::write(&file, &sound[..sound.len() - 1]).unwrap();
    let (status, text) = check(&["--fix"], &manifest);
    assert!(status == 2 && text.contains("a server is writing"), "{status} {text}");
    drop(server);

    let mut damaged = sound.clone();
    let at = sound.windows(2).position(|window| window == b"k1").unwrap();
    damaged[at] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    let (status, text) = check(&[], &manifest);
    assert!(status == 3 && text.contains("not as it was written"), "{status} {text}");
    assert_eq!(std::fs::read(&file).unwrap(), damaged, "damage is left alone");
}

#[test]
fn a_torn_file_in_the_middle_and_a_broken_base_are_damage() {
    let directory = directory();
    prepare(directory.path());
    let manifest = manifest(directory.path());
    let text = std::fs::read_to_string(&manifest).unwrap();
    let last = last_increment(directory.path());
    let cut = std::fs::read(&last).unwrap();
    std::fs::write(&last, &cut[..cut.len() - 1]).unwrap();
    std::fs::write(last.with_file_name("later"), "").unwrap();
    std::fs::write(&manifest, format!("{text}file later seq 9 type i\n")).unwrap();
    assert_eq!(check(&[], &manifest).0, 3);
    assert_eq!(std::fs::read(&last).unwrap().len(), cut.len() - 1);
    std::fs::write(&last, [&cut[..], &[0; 100]].concat()).unwrap();
    let (status, said) = check(&[], &manifest);
    assert!(status == 3 && said.contains("100 zeros at its end"), "{said}");

    std::fs::write(&manifest, format!("{text}file gone seq 9 type i\n")).unwrap();
    std::fs::write(&last, cut).unwrap();
    let (status, said) = check(&[], &manifest);
    assert!(status == 1 && said.contains("gone error=No such file"), "{said}");
    std::fs::write(&manifest, format!("{text}nonsense\n")).unwrap();
    let (status, said) = check(&[], &manifest);
    assert!(status == 3 && said.contains("in line 3"), "{said}");

    std::fs::write(&manifest, &text).unwrap();
    let base = directory.path().join("appendonlydir").join(text.split(' ').nth(1).unwrap());
    let mut bytes = std::fs::read(&base).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&base, bytes).unwrap();
    assert_eq!(check(&["--fix"], &manifest).0, 3);
}

/// A snapshot with a log behind it, as Redis before 7 wrote them, with times between its calls.
#[test]
fn what_came_after_a_time_is_cut_off() {
    let directory = directory();
    prepare(directory.path());
    let manifest = std::fs::read_to_string(manifest(directory.path())).unwrap();
    let base = directory.path().join("appendonlydir").join(manifest.split(' ').nth(1).unwrap());
    let snapshot = std::fs::read(base).unwrap();
    let first = "#TS:1000\r\n*1\r\n$4\r\nPING\r\n";
    let rest = "*1\r\n$5\r\nMULTI\r\n#TS:2000\r\n*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nEXEC\r\n";
    let file = directory.path().join("single.aof");
    let kept = [&snapshot, first.as_bytes()].concat();
    std::fs::write(&file, [&kept, rest.as_bytes()].concat()).unwrap();
    let (status, text) = check(&["--truncate-to-timestamp", "2000"], &file);
    assert!(status == 0 && text.contains("snapshot calls 2\nsound"), "{text}");
    let (status, text) = check(&["--truncate-to-timestamp", "1999"], &file);
    assert!(status == 0 && text.contains(&format!("behind byte {} of", kept.len())), "{text}");
    assert_eq!(std::fs::read(&file).unwrap(), kept);
    assert_eq!(check(&[], &file).0, 0);
}
