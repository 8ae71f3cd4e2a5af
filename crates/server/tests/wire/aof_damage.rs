//! Damage of the append-only file: what was on disk is never taken for a torn end, and `check-aof
//! --fix` keeps what is sound, and the original.

use std::path::Path;

use kvasir_resp::value::Value;

use crate::aof::{last_increment, refused, start, stop, wait_for};
use crate::aof_check::{check, manifest};
use crate::harness::wait_until;
use crate::saving::directory;

/// The mark at the end of a log that says how much of it is on disk.
const MARK: &str = "#KVG:0:";

/// Keys that are synced by the end of the server.
fn prepare(dir: &Path, fsync: &str, is_stopped: bool) -> Vec<u8> {
    let (server, mut client) = start("epoll", dir, &["--appendfsync", fsync]);
    for number in 0..3 {
        client.ask(&format!("SET k{number} v"));
    }
    let file = last_increment(dir);
    if is_stopped {
        stop(server, client);
    } else {
        // Synced, and nothing comes behind it.
        client.ask("WAITAOF 1 0 0");
        wait_until("the mark is there", || {
            let text = std::fs::read(&file).unwrap();
            let text = String::from_utf8_lossy(&text).into_owned();
            text.rfind(MARK) > text.rfind("k2")
        });
        drop(server);
    }
    std::fs::read(file).unwrap()
}

/// Every byte of the last calls, after an orderly end and after another one.
#[test]
fn a_damaged_byte_that_was_synced_is_not_cut_off() {
    for (fsync, is_stopped) in
        [("everysec", true), ("always", true), ("no", true), ("everysec", false), ("always", false)]
    {
        let directory = directory();
        let sound = prepare(directory.path(), fsync, is_stopped);
        let file = last_increment(directory.path());
        let text = String::from_utf8_lossy(&sound).into_owned();
        let (from, to) = (text.find("$2\r\nk0").unwrap(), text.rfind(MARK).unwrap());
        for at in from..to {
            // What makes a comment of a head leaves the calls as they were.
            if text[..at + 1].rfind('#').is_some_and(|head| at - head < 5) {
                continue;
            }
            let mut damaged = sound.clone();
            damaged[at] ^= 4;
            std::fs::write(&file, &damaged).unwrap();
            let (status, said) = check(&[], &manifest(directory.path()));
            assert_eq!(status, 3, "{fsync} {is_stopped} {at} of {from}..{to}: {said}");
        }
        let mut damaged = sound.clone();
        damaged[to - 3] ^= 4;
        refused(directory.path(), &file, &damaged, &[], "not as it was written");
        // Of the mark itself nothing is missed.
        let mut damaged = sound.clone();
        damaged[to + 9] ^= 4;
        std::fs::write(&file, damaged).unwrap();
        let (_server, mut client) = start("epoll", directory.path(), &[]);
        assert_eq!(client.ask("DBSIZE"), Value::Integer(3), "{fsync} {is_stopped}");
    }
}

/// The mark is taken away by what comes next, also where that is shorter.
#[test]
fn a_log_goes_on_behind_its_mark() {
    for fsync in ["always", "everysec"] {
        let directory = directory();
        prepare(directory.path(), fsync, false);
        let options = ["--appendfsync", fsync];
        let (server, mut client) = start("epoll", directory.path(), &options);
        let file = last_increment(directory.path());
        let marked = |client: &mut crate::harness::Client, what: &str| {
            client.ask("WAITAOF 1 0 0");
            wait_until(what, || {
                let text = std::fs::read(&file).unwrap();
                let text = String::from_utf8_lossy(&text).into_owned();
                text.rfind(MARK) > text.rfind("GETDEL").max(text.rfind("DEL"))
            });
        };
        for number in 0..3 {
            client.ask(&format!("SET more{number} v"));
            client.ask(&format!("DEL more{number}"));
            marked(&mut client, "the mark is there again");
        }
        client.ask("CONFIG SET aof-checksums no");
        client.ask("DEL k0");
        client.ask("SET x 1");
        client.ask("WAITAOF 1 0 0");
        client.ask("CONFIG SET aof-checksums yes");
        client.ask("DEL k1");
        marked(&mut client, "and once more");
        drop(server);
        let (_server, mut client) =
            start("epoll", directory.path(), &["--aof-load-truncated", "no"]);
        assert_eq!(client.ask("DBSIZE"), Value::Integer(2), "{fsync}");
    }
}

#[test]
fn fix_keeps_the_sound_beginning_and_the_original() {
    let directory = directory();
    let sound = prepare(directory.path(), "always", true);
    let (manifest, file) = (manifest(directory.path()), last_increment(directory.path()));
    let text = String::from_utf8_lossy(&sound).into_owned();
    let mut damaged = sound.clone();
    damaged[text.find("k1").unwrap()] ^= 4;
    std::fs::write(&file, &damaged).unwrap();
    let (status, said) = check(&[], &manifest);
    assert!(status == 3 && said.contains("--fix keeps what is before byte"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), damaged);
    let (status, said) = check(&["--fix"], &manifest);
    let good_to = text[..text.find("k1").unwrap()].rfind("#KVG").unwrap();
    let dropped = format!(
        "cut off {} bytes behind byte {good_to} of {}, with 2 whole calls; as it was it is in {}",
        sound.len() - good_to,
        file.display(),
        file.with_extension("aof.orig.1").display()
    );
    assert!(status == 0 && said.contains(&dropped) && said.ends_with("sound\n"), "{said}");
    assert_eq!(std::fs::read(file.with_extension("aof.orig.1")).unwrap(), damaged);
    assert_eq!(std::fs::read(&file).unwrap(), sound[..good_to]);
    let (_server, mut client) = start("epoll", directory.path(), &[]);
    assert_eq!((client.ask_text("GET k0"), client.ask("DBSIZE")), ("v".into(), Value::Integer(1)));
}

/// What two servers have left that wrote to one file at places of their own.
#[test]
fn fix_saves_what_is_sound_before_groups_that_overwrite_each_other() {
    let directory = directory();
    let sound = prepare(directory.path(), "everysec", true);
    let file = last_increment(directory.path());
    let at = String::from_utf8_lossy(&sound).rfind("#KVG:").unwrap();
    let group = b"#KVG:28:40:0123456789abcdef\r\n*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$1\r\ny\r\n";
    let bytes = [&sound[..at], &group[7..], &sound[at - 40..]].concat();
    std::fs::write(&file, &bytes).unwrap();
    let (status, said) = check(&["--fix"], &manifest(directory.path()));
    assert!(status == 0 && said.contains("as it was it is in"), "{said}");
    let (_server, mut client) = start("epoll", directory.path(), &[]);
    assert_eq!(client.ask("DBSIZE"), Value::Integer(3));
}

/// Damage in a file that others follow: these are left out, and kept under other names.
#[test]
fn fix_leaves_out_the_files_behind_a_broken_one() {
    let directory = directory();
    let sound = prepare(directory.path(), "always", true);
    let (manifest, file) = (manifest(directory.path()), last_increment(directory.path()));
    let text = std::fs::read_to_string(&manifest).unwrap();
    let later = file.with_file_name("appendonly.aof.9.incr.aof");
    let call = "*3\r\n$3\r\nSET\r\n$5\r\nlater\r\n$1\r\n1\r\n";
    std::fs::write(&later, call).unwrap();
    std::fs::write(&manifest, format!("{text}file appendonly.aof.9.incr.aof seq 9 type i\n"))
        .unwrap();
    assert_eq!(check(&[], &manifest).0, 0);
    std::fs::write(&file, [&sound[..], b"*2\r\n$3\r\n"].concat()).unwrap();
    assert_eq!(check(&[], &manifest).0, 3);
    let (status, said) = check(&["--fix"], &manifest);
    assert!(status == 0 && said.contains("with 1 whole calls; it is "), "{said}");
    assert!(!later.exists());
    let kept = later.with_extension("aof.orig.1");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), call);
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), text);
    let (_server, mut client) = start("epoll", directory.path(), &[]);
    assert_eq!(client.ask("DBSIZE"), Value::Integer(3));
}

#[test]
fn fix_stays_away_from_a_server() {
    let directory = directory();
    let (server, mut client) = start("epoll", directory.path(), &[]);
    client.ask("SET k v");
    wait_for(&mut client, "aof_buffer_length:0\r\n");
    let file = last_increment(directory.path());
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, [&whole[..], b"*1"].concat()).unwrap();
    let (status, said) = check(&["--fix"], &manifest(directory.path()));
    let holder = format!("a server is writing the files: pid={} ", server.pid());
    assert!(status == 2 && said.contains(&holder), "{said}");
    drop(server);
    assert_eq!(check(&["--fix"], &manifest(directory.path())).0, 0);
    let (_server, mut client) = start("epoll", directory.path(), &["--aof-load-truncated", "no"]);
    assert_eq!(client.ask_text("GET k"), "v");
}
