//! The append-only file on a disk that is full, or that loses what was written: what the server
//! says, what it does, and what is there after the next start.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use kvasir_resp::value::Value;

use crate::aof::{start, wait_for};
use crate::harness::{Client, Server, thread_of, wait_until};
use crate::saving::{digest, directory, path};
use crate::small_disk::SmallDisk;

/// How large a file may become: enough for a few dozen of the values.
const FILE_MAX: usize = 64 << 10;
const VALUE_SIZE: usize = 1000;
/// What may wait for a disk that is slow: less than there is room for when room is made.
const BUFFER_LIMIT: &str = "1mb";
/// More than is left where a file system is full.
const NOISE_SIZE: usize = 1 << 20;

const WAYS: [&str; 2] = ["yes", "no"];

/// A server whose files are soon too large, with its log in `dir`.
fn with_short_files(dir: &Path, liburing: &str, fsync: &str) -> (Server, Client) {
    let dir = dir.to_str().expect("a path of text");
    let options = ["--dir", dir, "--appendonly", "yes"];
    let server =
        Server::with_short_files(FILE_MAX, &[&options, &options_of(liburing, fsync)[..]].concat());
    let mut client = server.connect();
    wait_for(&mut client, "\nloading:0");
    (server, client)
}

fn options_of<'a>(liburing: &'a str, fsync: &'a str) -> [&'a str; 6] {
    let percentage = "--auto-aof-rewrite-percentage";
    ["--appendonly-liburing", liburing, "--appendfsync", fsync, percentage, "0"]
}

/// Writes keys until one is not answered by OK; which one, and what was answered.
fn write_until_it_fails(client: &mut Client) -> (usize, Option<Value>) {
    for number in 0.. {
        let call = ["SET", &format!("k{number}"), &"v".repeat(VALUE_SIZE)];
        if !client.try_send(&call) {
            return (number, None);
        }
        match client.read_reply() {
            Some(Value::Simple(_)) => {}
            other => return (number, other),
        }
    }
    unreachable!("the disk is full some time")
}

#[test]
fn where_the_disk_is_full_writes_are_refused_until_there_is_room() {
    for liburing in WAYS {
        let directory = directory();
        let (server, mut client) = with_short_files(directory.path(), liburing, "everysec");
        is_refused_until(&mut client, "File too large", || server.let_files_grow());
        let before = digest_of(&mut client);
        wait_for(&mut client, "aof_buffer_length:0\r\n");
        drop(server);
        let (_server, mut client) = start("epoll", directory.path(), &[]);
        assert_eq!(digest_of(&mut client), before, "appendonly-liburing {liburing}");
    }
}

/// Calls are put off while too much waits for the disk; then it turns out to be full.
#[test]
fn who_was_put_off_hears_of_a_full_disk() {
    let directory = directory();
    let (_server, mut client) = with_short_files(directory.path(), "no", "everysec");
    client.ask(&format!("CONFIG SET aof-buffer-limit {BUFFER_LIMIT}"));
    let too_much = noise(2 * NOISE_SIZE);
    assert_eq!(client.call(&[&b"SET"[..], b"big", &too_much]), Value::Simple(b"OK".to_vec()));
    let reply = format!("{:?}", client.ask("SET k v"));
    assert!(reply.contains("MISCONF Errors writing to the AOF file: File too large"), "{reply}");
}

#[test]
fn nothing_is_lost_where_a_file_system_is_full() {
    for liburing in WAYS {
        let Some(disk) = SmallDisk::new() else { return };
        let options = options_of(liburing, "everysec");
        let options = [&options[..], &["--aof-buffer-limit", BUFFER_LIMIT]].concat();
        let (server, mut client) = start("epoll", &disk.path(), &options);
        client.call(&[&b"SET"[..], b"noise", &noise(NOISE_SIZE)]);
        wait_for(&mut client, "aof_buffer_length:0\r\n");
        disk.fill();
        is_refused_until(&mut client, "No space left on device", || {
            fails_to_rewrite(&server);
            disk.make_room();
        });
        let before = digest_of(&mut client);
        wait_for(&mut client, "aof_buffer_length:0\r\n");
        drop(server);
        let (_server, mut client) = start("io_uring", &disk.path(), &[]);
        assert_eq!(digest_of(&mut client), before, "appendonly-liburing {liburing}");
    }
}

/// A rewrite needs more room than there is: the old files go on being good.
fn fails_to_rewrite(server: &Server) {
    let mut client = server.connect();
    client.ask("BGREWRITEAOF");
    wait_for(&mut client, "aof_last_bgrewrite_status:err");
    wait_for(&mut client, "aof_rewrite_in_progress:0\r\n");
}

/// What no algorithm makes shorter.
fn noise(len: usize) -> Vec<u8> {
    let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(Some(1), next).map(|state| (state >> 24) as u8).take(len).collect()
}

/// Writes until that is refused with this error, and again once there is room.
fn is_refused_until(client: &mut Client, error: &str, make_room: impl FnOnce()) {
    let (count, reply) = write_until_it_fails(client);
    let reply = format!("{reply:?}");
    assert!(reply.contains(&format!("MISCONF Errors writing to the AOF file: {error}")), "{reply}");
    wait_for(client, "aof_last_write_status:err");
    assert!(matches!(client.ask("GET k0"), Value::Bulk(_)));
    make_room();
    wait_until("writes are taken again", || {
        client.ask("SET after v") == Value::Simple(b"OK".to_vec())
    });
    wait_for(client, "aof_last_write_status:ok");
    assert!(count > FILE_MAX / VALUE_SIZE / 2, "{count}");
}

/// DEBUG is not for every server here.
fn digest_of(client: &mut Client) -> (Value, Vec<Value>) {
    let size = client.ask("DBSIZE");
    (size, (0..200).map(|number| client.ask(&format!("STRLEN k{number}"))).collect())
}

#[test]
fn under_always_a_full_disk_ends_the_server_and_takes_nothing_back() {
    for liburing in WAYS {
        let directory = directory();
        let server = with_short_files(directory.path(), liburing, "always");
        ends_and_keeps_all(server, directory.path(), || {});
        let Some(disk) = SmallDisk::new() else { continue };
        let (server, mut client) = start("io_uring", &disk.path(), &options_of(liburing, "always"));
        wait_for(&mut client, "aof_buffer_length:0\r\n");
        disk.fill();
        ends_and_keeps_all((server, client), &disk.path(), || disk.make_room());
    }
}

fn ends_and_keeps_all(
    (mut server, mut client): (Server, Client),
    dir: &Path,
    make_room: impl FnOnce(),
) {
    let (count, reply) = write_until_it_fails(&mut client);
    assert_eq!(reply, None, "it was promised that nobody hears of what is not on disk");
    assert_eq!(server.wait_for_end().code(), Some(1));
    drop(server);
    make_room();
    let (_server, mut client) = start("epoll", dir, &[]);
    assert!(count > FILE_MAX / VALUE_SIZE / 2, "{count}");
    for number in 0..count {
        assert_eq!(client.ask(&format!("STRLEN k{number}")), Value::Integer(VALUE_SIZE as i64));
    }
}

/// Has the next fdatasync of the thread `log` fail. None: nobody may trace the server here.
fn fail_next_sync(server: &Server) -> Option<Tracer> {
    let thread = thread_of(server, "log");
    let mut command = Command::new("strace");
    command.args(["-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-p", &thread]);
    command.args(["-e", "inject=fdatasync:error=EIO:when=1"]);
    let spawned = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(process) = spawned else {
        eprintln!("there is no strace: no fdatasync fails");
        return None;
    };
    let mut tracer = Tracer(process);
    let mut has_ended = false;
    wait_until("the thread is traced", || {
        has_ended = tracer.0.try_wait().expect("our child").is_some();
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
        has_ended || status.contains("TracerPid:") && !status.contains("TracerPid:\t0\n")
    });
    if has_ended {
        eprintln!("strace may not trace: no fdatasync fails");
        return None;
    }
    Some(tracer)
}

struct Tracer(Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_a_failed_sync_has_lost_is_written_again_by_a_rewrite() {
    let directory = directory();
    let options = ["--appendonly-liburing", "no", "--auto-aof-rewrite-percentage", "0"];
    let (server, mut client) = start("epoll", directory.path(), &options);
    client.ask("SET before v");
    // The first rewrite fails: a directory is where its base belongs.
    let obstacle = directory.path().join("appendonlydir/appendonly.aof.2.base.rdb");
    std::fs::create_dir_all(obstacle).expect("nothing is there");
    let Some(tracer) = fail_next_sync(&server) else { return };
    client.ask("SET lost v");
    wait_for(&mut client, "aof_last_bgrewrite_status:err");
    let refused = format!("{:?}", client.ask("SET other v"));
    assert!(refused.contains("MISCONF Errors writing to the AOF file: Input/output"), "{refused}");
    // It is repeated.
    wait_for(&mut client, "aof_rewrites:1\r\n");
    wait_for(&mut client, "aof_last_write_status:ok");
    wait_until("writes are taken again", || {
        client.ask("SET after v") == Value::Simple(b"OK".to_vec())
    });
    let before = digest(&mut client);
    assert!(matches!(client.ask("WAITAOF 1 0 0"), Value::Array(_)));
    drop((tracer, server));
    let (_server, mut client) = start("epoll", directory.path(), &[]);
    assert_eq!(digest(&mut client), before);
}

#[test]
fn under_always_a_failed_sync_ends_the_server_before_it_answers() {
    let directory = directory();
    let options = ["--appendonly-liburing", "no", "--appendfsync", "always"];
    let (mut server, mut client) = start("epoll", directory.path(), &options);
    assert_eq!(client.ask("SET before v"), Value::Simple(b"OK".to_vec()));
    let Some(_tracer) = fail_next_sync(&server) else { return };
    client.send(&["SET", "lost", "v"]);
    assert_eq!(client.read_reply(), None);
    assert_eq!(server.wait_for_end().code(), Some(1));
    drop(server);
    let (_server, mut client) = start("epoll", Path::new(path(&directory)), &[]);
    assert_eq!(client.ask_text("GET before"), "v");
}
