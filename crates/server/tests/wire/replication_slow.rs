//! Replicas that are slower than those who write: what they have to get waits packed in memory, and
//! then on disk.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kvasir_resp::value::Value;

use crate::certificates::free_port;
use crate::harness::{Client, Server, figure, wait_until, wait_until_loaded};
use crate::replication::{OURS, PEERS, is_linked, primary, replica, wait_until_equal};

/// Sends a signal to a server. A stopped one does nothing more when this returns: the thread that
/// gets the signal stops the others, but has to get a processor first.
pub fn signal(server: &Server, name: &str) {
    let sent = Command::new("kill").args([name, &server.pid().to_string()]).status();
    assert!(sent.expect("there is a kill").success());
    if name == "-STOP" {
        wait_until("all its threads stand", || {
            let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
            threads.flatten().all(|thread| {
                let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
            })
        });
    }
}

/// Writes so many MiB: of text, or of noise, which cannot be packed.
fn write(client: &mut Client, mib: usize, is_noise: bool) {
    let mut state = 1_u64;
    for number in 0..mib * 16 {
        let value: String = (0..64 << 10)
            .map(|at: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(97);
                let byte = if is_noise { (state >> 57) as u8 } else { (at % 23) as u8 };
                char::from(byte & 63 | 64)
            })
            .collect();
        client.call(&["SET", &format!("key:{}", number % 50), &value]);
    }
    // The same values may have been there before: who has this has all of them.
    client.ask("INCR writes");
}

#[test]
fn what_a_slow_replica_has_to_get_waits_packed_and_then_on_disk() {
    for start in [OURS[0], OURS[1], PEERS[0], PEERS[1]] {
        let port = free_port();
        let primary = primary("io_uring", port, &[]);
        let mut client = primary.connect();
        let Some(replica) = replica(start, port, &[]) else { continue };
        let mut reader = replica.connect();
        wait_until("the replica is linked", || is_linked(&mut reader));
        signal(&replica, "-STOP");
        write(&mut client, 32, false);
        wait_until("it is packed", || {
            figure(&mut client, "replication", "repl_log_cold_bytes") > 16 << 20
        });
        let packed = figure(&mut client, "replication", "repl_log_cold_packed_bytes");
        assert!(packed < 4 << 20, "{packed}");
        assert!(figure(&mut client, "replication", "max_mem_used") >= packed);
        assert!(figure(&mut client, "replication", "bgsave_close_time") > 0);
        assert_eq!(figure(&mut client, "replication", "repl_log_disk_bytes"), 0);
        client.ask("CONFIG SET repl-log-memory 8mb");
        write(&mut client, 64, true);
        wait_until("it is on disk", || {
            figure(&mut client, "replication", "repl_log_disk_bytes") > 48 << 20
        });
        assert!(figure(&mut client, "replication", "repl_log_cold_packed_bytes") <= 8 << 20);
        signal(&replica, "-CONT");
        wait_until_equal(&mut client, &mut reader);
        assert_eq!(figure(&mut client, "stats", "sync_full"), 1);
        write(&mut client, 8, false);
        wait_until("nothing is kept for it", || {
            write(&mut client, 1, false);
            figure(&mut client, "replication", "repl_log_disk_bytes") == 0
        });
        wait_until_equal(&mut client, &mut reader);
        assert_eq!(figure(&mut client, "stats", "sync_full"), 1);
    }
}

#[test]
fn packed_pieces_travel_as_they_are() {
    let port = free_port();
    // With so much room there is always time to pack.
    let primary = primary("epoll", port, &["--repl-log-memory", "1gb"]);
    let mut client = primary.connect();
    let replica = replica(OURS[0], port, &[]).expect("it is ours");
    let mut reader = replica.connect();
    wait_until("the replica is linked", || is_linked(&mut reader));
    // What the kernel's buffers take before it is packed goes as it is, and these grow with what
    // has gone through them: so what is not packed comes last.
    for (algorithm, level, sent_max) in
        [("lzf", "1", 40), ("lz4", "1", 40), ("zstd", "1", 40), ("zstd", "9", 40), ("no", "1", 128)]
    {
        client.ask(&format!("CONFIG SET replica-output-buffer-compression {algorithm}"));
        client.ask(&format!("CONFIG SET replica-output-buffer-compression-level {level}"));
        let before = figure(&mut client, "stats", "total_net_output_bytes");
        signal(&replica, "-STOP");
        write(&mut client, 64, false);
        wait_until("all but its end is packed", || {
            figure(&mut client, "replication", "repl_log_hot_bytes") < 8 << 20
        });
        signal(&replica, "-CONT");
        wait_until_equal(&mut client, &mut reader);
        let sent = figure(&mut client, "stats", "total_net_output_bytes") - before;
        assert!(sent < sent_max << 20, "{algorithm} {sent} bytes");
        assert_eq!(sent > 64 << 20, algorithm == "no", "{algorithm} {sent} bytes");
    }
}

#[test]
fn a_replica_that_needs_more_than_may_be_kept_gets_all_data_anew() {
    for start in [OURS[1], PEERS[0]] {
        let port = free_port();
        // It is given up for what it lacks, long before for its silence.
        let options =
            ["--repl-log-memory", "8mb", "--repl-log-disk", "4mb", "--repl-timeout", "1000"];
        let primary = primary("io_uring", port, &options);
        let mut client = primary.connect();
        let Some(replica) = replica(start, port, &[]) else { continue };
        let mut reader = replica.connect();
        wait_until("the replica is linked", || is_linked(&mut reader));
        signal(&replica, "-STOP");
        write(&mut client, 64, true);
        wait_until("the link is given up", || {
            client.ask_text("CLIENT LIST TYPE replica").is_empty()
        });
        signal(&replica, "-CONT");
        wait_until("it gets all again", || figure(&mut client, "stats", "sync_full") == 2);
        wait_until_equal(&mut client, &mut reader);
    }
}

#[test]
fn writes_wait_for_a_replica_if_they_are_to() {
    let port = free_port();
    let primary = primary("io_uring", port, &["--repl-pace-lag", "8mb"]);
    let mut client = primary.connect();
    let replica = replica(OURS[0], port, &[]).expect("it is ours");
    let mut reader = replica.connect();
    wait_until("the replica is linked", || is_linked(&mut reader));
    signal(&replica, "-STOP");
    let written = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..64 {
                write(&mut client, 1, true);
                written.fetch_add(1, Relaxed);
            }
        });
        // Others are served.
        let mut other = primary.connect();
        wait_until("no more is written", || {
            let before = written.load(Relaxed);
            for _ in 0..20 {
                other.ask("DEBUG SLEEP 0.01");
            }
            before > 0 && written.load(Relaxed) == before
        });
        assert!(written.load(Relaxed) < 32, "{} MiB", written.load(Relaxed));
        signal(&replica, "-CONT");
    });
    assert_eq!(written.load(Relaxed), 64);
    wait_until_equal(&mut client, &mut reader);
}

/// A replica whose own disk is slow takes no more than its log may keep, and what it has not taken
/// waits at its primary.
#[test]
fn a_replica_with_a_slow_disk_does_not_run_ahead_of_it() {
    let port = free_port();
    let primary = primary("io_uring", port, &[]);
    let mut client = primary.connect();
    let options = ["--appendonly", "yes", "--aof-buffer-limit", "1mb"];
    let replica = replica(OURS[0], port, &options).expect("it is ours");
    let mut reader = replica.connect();
    wait_until("the replica is linked", || is_linked(&mut reader));
    wait_until("its log is begun", || {
        let info = reader.ask_text("INFO persistence");
        info.contains("aof_enabled:1") && info.contains("aof_rewrite_in_progress:0")
    });
    reader.ask("DEBUG AOF-FLUSH-SLEEP 200000");
    let mut most = 0;
    let waiting = |reader: &mut Client| figure(reader, "persistence", "aof_buffer_length");
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write(&mut client, 16, true));
        wait_until("all is written", || {
            most = most.max(waiting(&mut reader));
            writing.is_finished()
        });
    });
    wait_until("it waits for its disk", || {
        most = most.max(waiting(&mut reader));
        most > 1 << 20
    });
    reader.ask("DEBUG AOF-FLUSH-SLEEP 0");
    wait_until_equal(&mut client, &mut reader);
    most = most.max(waiting(&mut reader));
    assert!(most < 4 << 20, "{most} bytes");
    assert_eq!(figure(&mut client, "stats", "sync_full"), 1);
}

/// Replicas may be all that keeps what is written then.
#[test]
fn replicas_get_what_a_disk_that_hangs_does_not_take() {
    let port = free_port();
    let primary = primary("epoll", port, &["--appendonly", "yes"]);
    let mut client = primary.connect();
    wait_until_loaded(&mut client);
    let replica = replica(OURS[0], port, &[]).expect("it is ours");
    let mut reader = replica.connect();
    wait_until("the replica is linked", || is_linked(&mut reader));
    client.ask("DEBUG AOF-FLUSH-SLEEP 1000000000");
    wait_until("the replica has it", || {
        client.ask("INCR k");
        !matches!(reader.ask("GET k"), Value::Null)
    });
}

/// Passes on what a primary sends: of the first connection so much, of others all. Says how much of
/// these.
fn break_once(primary_port: u16, after: usize) -> (u16, &'static AtomicUsize) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let passed: &'static AtomicUsize = Box::leak(Box::default());
    std::thread::spawn(move || {
        for (number, replica) in listener.incoming().enumerate() {
            let Ok(mut replica) = replica else { return };
            let Ok(mut primary) = TcpStream::connect(("127.0.0.1", primary_port)) else { return };
            let (mut back, mut there) =
                (primary.try_clone().unwrap(), replica.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut there, &mut back));
            std::thread::spawn(move || {
                let (mut bytes, mut left) = (vec![0; 64 << 10], after);
                while let Ok(len @ 1..) = primary.read(&mut bytes) {
                    if replica.write_all(&bytes[..len]).is_err() {
                        break;
                    }
                    left = left.saturating_sub(len);
                    if number == 0 && left == 0 {
                        break;
                    }
                    if number > 0 {
                        passed.fetch_add(len, Relaxed);
                    }
                }
                let _ = replica.shutdown(Shutdown::Both);
                let _ = primary.shutdown(Shutdown::Both);
            });
        }
    });
    (port, passed)
}

#[test]
fn a_snapshot_whose_link_breaks_goes_on_where_it_was() {
    let port = free_port();
    let primary = primary("io_uring", port, &["--rdbcompression", "no"]);
    let mut client = primary.connect();
    client.ask("DEBUG POPULATE 40000 key 1000");
    let (between, passed) = break_once(port, 16 << 20);
    let replica = replica(OURS[0], between, &[]).expect("it is ours");
    let mut reader = replica.connect();
    wait_until("it has begun", || figure(&mut client, "replication", "connected_slaves") == 1);
    client.ask("SET meanwhile 1");
    wait_until("the replica is linked", || is_linked(&mut reader));
    wait_until_equal(&mut client, &mut reader);
    assert_eq!(figure(&mut client, "stats", "sync_full"), 1);
    assert!(passed.load(Relaxed) < 32 << 20, "{} bytes", passed.load(Relaxed));
}
