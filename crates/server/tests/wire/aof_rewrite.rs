//! When the append-only file is rewritten, what ends a rewrite, and manifests that lead nowhere.

use crate::aof::{refused, start, stop, wait_for};
use crate::harness::{Client, figure, wait_until};
use crate::saving::{digest, directory, fill, names};

/// Writes 400 kB over the same key.
fn grow(client: &mut Client) {
    let long = "x".repeat(10_000);
    for _ in 0..40 {
        client.call(&["SET", "k", &long]);
    }
    wait_for(client, "aof_buffer_length:0\r\n");
}

/// Else a server that is started often would keep all that was ever logged.
#[test]
fn what_was_logged_before_a_restart_counts_as_growth() {
    let directory = directory();
    let never = ["--auto-aof-rewrite-min-size", "100kb", "--auto-aof-rewrite-percentage", "0"];
    let (server, mut client) = start("io_uring", directory.path(), &never);
    grow(&mut client);
    stop(server, client);
    let (_server, mut client) = start("io_uring", directory.path(), &never);
    let base = figure(&mut client, "persistence", "aof_base_size");
    let size = figure(&mut client, "persistence", "aof_current_size");
    assert!(base < 1000 && size > 400_000, "{base} {size}");
    client.ask("CONFIG SET auto-aof-rewrite-percentage 100");
    wait_for(&mut client, "aof_rewrites:1\r\n");
}

#[test]
fn it_is_rewritten_when_it_has_grown() {
    let directory = directory();
    let options = ["--auto-aof-rewrite-min-size", "100kb", "--auto-aof-rewrite-percentage", "100"];
    let (_server, mut client) = start("io_uring", directory.path(), &options);
    grow(&mut client);
    wait_for(&mut client, "aof_rewrites:1\r\n");
    // From there on it is measured anew.
    client.ask("CONFIG SET auto-aof-rewrite-percentage 100000");
    grow(&mut client);
    assert!(client.ask_text("INFO persistence").contains("aof_rewrites:1\r\n"));
    // No write is needed for that to count.
    client.ask("CONFIG SET auto-aof-rewrite-percentage 50");
    wait_for(&mut client, "aof_rewrites:2\r\n");
}

#[test]
fn it_is_not_rewritten_while_it_is_small_or_nobody_wants_it() {
    let few = ["--auto-aof-rewrite-min-size", "1mb", "--auto-aof-rewrite-percentage", "1"];
    let never = ["--auto-aof-rewrite-min-size", "1", "--auto-aof-rewrite-percentage", "0"];
    for options in [few, never] {
        let directory = directory();
        let (_server, mut client) = start("epoll", directory.path(), &options);
        grow(&mut client);
        let info = client.ask_text("INFO persistence");
        let is_idle = info.contains("aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n");
        assert!(is_idle && info.contains("aof_rewrites:0\r\n"), "{info}");
    }
}

/// A rewrite that would take minutes.
const SLOW: [&str; 2] = ["--snapshot-bandwidth", "10kb"];

/// Returns once the cut was made and the log has gone on behind it.
fn begin_rewrite(client: &mut Client, dir: &std::path::Path) {
    client.ask("BGREWRITEAOF");
    let next = dir.join("appendonlydir/appendonly.aof.2.incr.aof");
    wait_until("the log goes on in another file", || next.exists());
}

/// Manifest, base, the increment before the cut and the one behind it: nothing by half.
fn has_whole_files_only(dir: &std::path::Path) {
    let names = names(&dir.join("appendonlydir"));
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn the_end_of_the_server_does_not_wait_for_a_rewrite() {
    let directory = directory();
    let (mut server, mut client) = start("io_uring", directory.path(), &SLOW);
    fill(&mut client);
    begin_rewrite(&mut client, directory.path());
    client.ask("SET last 1");
    let wanted = digest(&mut client);
    client.send(&["SHUTDOWN", "NOSAVE"]);
    assert!(server.wait_for_end().success());
    has_whole_files_only(directory.path());
    drop(server);
    let (_server, mut client) = start("epoll", directory.path(), &[]);
    assert_eq!(digest(&mut client), wanted);
}

#[test]
fn turning_the_file_off_gives_a_rewrite_up() {
    let directory = directory();
    let (_server, mut client) = start("io_uring", directory.path(), &SLOW);
    fill(&mut client);
    begin_rewrite(&mut client, directory.path());
    client.ask("CONFIG SET appendonly no");
    wait_for(&mut client, "aof_enabled:0\r\naof_rewrite_in_progress:0\r\n");
    has_whole_files_only(directory.path());
    // Nor does turning it on, if it is turned off meanwhile.
    client.ask("CONFIG SET appendonly yes");
    wait_for(&mut client, "aof_rewrite_in_progress:1\r\n");
    client.ask("CONFIG SET appendonly no");
    wait_for(&mut client, "aof_enabled:0\r\naof_rewrite_in_progress:0\r\n");
    has_whole_files_only(directory.path());
}

#[test]
fn manifests_that_lead_nowhere_are_refused_with_their_line() {
    let directory = directory();
    drop(start("io_uring", directory.path(), &[]));
    let manifest = directory.path().join("appendonlydir/appendonly.aof.manifest");
    let sound = std::fs::read_to_string(&manifest).unwrap();
    for (line, what) in [
        ("nonsense\n", "Invalid AOF manifest file format in line 3"),
        ("\n", "in line 3"),
        ("file a seq 1 type i\n", "Found a non-monotonic sequence number in line 3"),
        ("file a/b seq 9 type i\n", "File can't be a path, just a filename in line 3"),
        ("file gone seq 9 type i\n", "gone error=No such file"),
    ] {
        let text = format!("{sound}{line}");
        refused(directory.path(), &manifest, text.as_bytes(), &[], what);
    }
}
