//! The process: its log, its last words, its configuration file.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use crate::check::show;
use crate::harness::{Client, Server, backends, each_backend, figure, wait_until};
use crate::replication_slow::signal;
use crate::saving::directory;
use crate::snapshot_files::run;

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

#[test]
fn a_crash_leaves_a_report_without_data() {
    for word in ["PANIC", "ASSERT", "OOM"] {
        each_backend(&["--logfile", "kvasir.log"], |server| {
            let mut client = server.connect();
            client.ask("SET secretkey secretvalue");
            client.send(&["DEBUG", word]);
            assert!(client.ends(), "{word}");
            assert_eq!(server.wait_for_end().signal(), Some(SIGABRT), "{word}");
            let log = server.read_file("kvasir.log");
            let parts = [
                "=== KVASIR CRASH REPORT BEGINS",
                "message: ",
                "place: ",
                "thread: worker-",
                "version: ",
                "uptime_s: ",
                "last_command=debug ",
                "# Memory",
                "cmdstat_set:calls=1,",
                "------ BACKTRACE ------",
                "=== KVASIR CRASH REPORT ENDS ===",
                "the server failed and ends message=",
            ];
            for part in parts {
                assert!(log.contains(part), "{word}: {part} not in {log}");
            }
            assert!(!log.contains("secret"), "{log}");
        });
    }
}

#[test]
fn a_crash_report_may_be_switched_off() {
    each_backend(&["--logfile", "kvasir.log", "--crash-log-enabled", "no"], |server| {
        let mut client = server.connect();
        client.send(&["DEBUG", "PANIC"]);
        assert!(client.ends());
        assert_eq!(server.wait_for_end().signal(), Some(SIGABRT));
        let log = server.read_file("kvasir.log");
        assert!(log.contains("the server failed") && !log.contains("REPORT"), "{log}");
    });
}

#[test]
fn a_segfault_ends_the_process() {
    each_backend(&["--logfile", "kvasir.log"], |server| {
        let mut client = server.connect();
        client.send(&["DEBUG", "SEGFAULT"]);
        assert!(client.ends());
        assert_eq!(server.wait_for_end().signal(), Some(SIGSEGV));
        let log = server.read_file("kvasir.log");
        let worker = "\nthread: worker-";
        assert!(log.contains(worker) && log.contains("last_command=debug "), "{log}");
    });
}

/// Whoever has sent it, and at once.
#[test]
fn a_signal_that_ends_the_process_leaves_a_report() {
    for (name, number) in [("SEGV", 11), ("BUS", 7), ("FPE", 8), ("ILL", 4), ("ABRT", 6)] {
        each_backend(&["--logfile", "kvasir.log"], |server| {
            let mut client = server.connect();
            client.ask("SET secretkey secretvalue");
            signal(server, &format!("-{name}"));
            assert!(client.ends(), "{name}");
            assert_eq!(server.wait_for_end().signal(), Some(number), "{name}");
            let log = server.read_file("kvasir.log");
            let signal = format!("\nsignal: SIG{name} code=");
            let parts = [
                "=== KVASIR CRASH REPORT BEGINS",
                "version: ",
                &signal,
                " sent by pid=",
                "uptime_s: ",
                "last_command=set ",
                "------ REGISTERS ------",
                "------ STACK (program at ",
                "=== KVASIR CRASH REPORT ENDS ===",
            ];
            for part in parts {
                assert!(log.contains(part), "{name}: {part} not in {log}");
            }
            assert_eq!(log.matches("REPORT BEGINS").count(), 1, "{log}");
            assert!(!log.contains("secret"), "{log}");
        });
    }
}

#[test]
fn no_report_is_left_of_a_signal_where_none_is_wanted() {
    each_backend(&["--logfile", "kvasir.log"], |server| {
        let mut client = server.connect();
        assert_eq!(show(&client.ask("CONFIG SET crash-log-enabled no")), "+OK");
        signal(server, "-SEGV");
        assert!(client.ends());
        assert_eq!(server.wait_for_end().signal(), Some(SIGSEGV));
        assert!(!server.read_file("kvasir.log").contains("REPORT"));
    });
}

#[test]
fn an_alarm_ends_nothing() {
    each_backend(&[], |server| {
        signal(server, "-ALRM");
        for _ in 0..100 {
            assert_eq!(show(&server.connect().ask("PING")), "+PONG");
        }
    });
}

#[test]
fn the_log_changes_its_look_and_its_level() {
    each_backend(&["--logfile", "kvasir.log"], |server| {
        let mut client = server.connect();
        let mut last_line = |settings: &str, text: &str| {
            assert_eq!(client.ask(&format!("CONFIG SET {settings}")).as_bytes(), Some(&b"OK"[..]));
            client.ask(&format!("DEBUG LOG {text}"));
            // The line that says that the server is ready may come between.
            let log = server.read_file("kvasir.log");
            log.lines().rfind(|line| line.contains("DEBUG LOG")).unwrap().to_owned()
        };
        let line = last_line("log-format json log-timestamp-format milliseconds", "one");
        assert!(line.starts_with("{\"pid\":"), "{line}");
        assert!(line.ends_with("\"level\":\"warning\",\"message\":\"DEBUG LOG: one\"}"), "{line}");
        let line = last_line("log-format logfmt", "two");
        assert!(line.ends_with("level=warning message=\"DEBUG LOG: two\""), "{line}");
        let line = last_line("log-format legacy", "three");
        assert!(line.ends_with(" # DEBUG LOG: three"), "{line}");
        let line = last_line("loglevel nothing", "four");
        assert!(line.ends_with("three"), "{line}");
    });
}

const FILE: &str =
    "# a comment\nport 0\n\ntimeout 5\n# another\nslowlog-max-len 10\nhz 10\nhz 20\n";

/// Changes the same options at a server, and returns the file that it rewrites.
fn rewritten(server: &Server) -> String {
    let mut client: Client = server.connect();
    client.ask("CONFIG SET timeout 7 maxclients 500 slowlog-max-len 9");
    assert_eq!(client.ask("CONFIG REWRITE").as_bytes(), Some(&b"OK"[..]), "{}", server.name);
    server.read_file("the.conf")
}

/// Redis writes more, of options that are not supported here or that it always writes.
#[test]
fn a_rewritten_file_has_what_redis_puts_there() {
    let ours = rewritten(&Server::kvasir_with_file("the.conf", FILE));
    let start = "# a comment\nport 0\n\ntimeout 7\n# another\nslowlog-max-len 9\nhz 20\n\
                 # Generated by CONFIG REWRITE\n";
    assert!(ours.starts_with(start), "{ours}");
    assert!(ours.contains("\nmaxclients 500\n"), "{ours}");
    let Some(oracle) = Server::redis_with_file("the.conf", FILE) else { return };
    let theirs = rewritten(&oracle);
    let known = |text: &str| -> Vec<String> {
        let is_told = |line: &&str| {
            ["#", "port", "timeout", "slowlog-max-len", "hz", "maxclients"]
                .iter()
                .any(|start| line.starts_with(start))
        };
        text.lines().filter(is_told).map(String::from).collect()
    };
    assert_eq!(known(&ours), known(&theirs));
}

#[test]
fn a_file_that_is_gone_is_rewritten() {
    let server = Server::kvasir_with_file("the.conf", FILE);
    std::fs::remove_file(server.directory().join("the.conf")).unwrap();
    let ours = rewritten(&server);
    assert!(ours.contains("\nmaxclients 500\n"), "{ours}");
}

#[test]
fn without_a_file_nothing_is_rewritten() {
    crate::check::check(&[("CONFIG REWRITE", "-ERR The server is running without a config file")]);
}

#[test]
fn a_server_goes_to_the_background() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_kvasir-server"))
        .args(["--daemonize", "yes", "--port", "0", "--io-threads", "1", "--pidfile", "pid"])
        .args(["--unixsocket", "socket", "--logfile", "log", "--dir"])
        .arg(directory.path())
        .status()
        .unwrap();
    assert!(status.success());
    // It is there when the command has returned.
    let mut client = Client::connect(&path("socket"));
    let pid = std::fs::read_to_string(path("pid")).unwrap();
    let info = client.ask_text("INFO server");
    assert!(info.contains(&format!("process_id:{}\r\n", pid.trim())), "{info}");
    client.send(&["SHUTDOWN", "NOSAVE"]);
    wait_until("it has ended", || !path("pid").exists());
}

#[test]
fn who_starts_it_in_the_background_hears_that_it_has_failed() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let directory = tempfile::tempdir().unwrap();
    let result = std::process::Command::new(env!("CARGO_BIN_EXE_kvasir-server"))
        .args(["--daemonize", "yes", "--bind", "127.0.0.1", "--port", &port, "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert_eq!(result.status.code(), Some(1));
    let text = String::from_utf8_lossy(&result.stdout).into_owned();
    assert!(text.contains("the server has ended, see its log"), "{text}");
}

/// What the kernel was told of the memory for records: `hg` in its list of mappings. Where huge
/// pages are slow to come `auto` does without, and says so a moment later.
#[test]
fn records_stand_on_huge_pages_if_wanted() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        eprintln!("this kernel has no huge pages: not tested");
        return;
    }
    for wanted in ["auto", "yes", "no"] {
        let server = Server::kvasir("epoll", &["--huge-pages", wanted, "--logfile", "log"]);
        server.connect().ask("SET k v");
        let mappings = std::fs::read_to_string(format!("/proc/{}/smaps", server.pid())).unwrap();
        let is_told = |line: &str| line.starts_with("VmFlags:") && line.contains(" hg");
        let are_told = mappings.lines().any(is_told);
        if wanted != "auto" {
            assert_eq!(are_told, wanted == "yes", "{wanted}: {mappings}");
        } else if !are_told {
            let is_said = || server.read_file("log").contains("huge pages are slow to come");
            wait_until("it says that it does without", is_said);
        }
    }
}

/// At once, or later where they are slow to come.
#[test]
fn records_come_to_stand_on_huge_pages() {
    const KEYS: u64 = 20_000;
    const SIZE: usize = 2000;
    let server = Server::kvasir("epoll", &["--logfile", "log"]);
    let mut client = server.connect();
    let value = |key: u64| key.to_string().repeat(SIZE / key.to_string().len());
    for key in 0..KEYS {
        client.send(&["SET", &key.to_string(), &value(key)]);
        if key % 100 == 99 {
            (0..100).for_each(|_| assert_eq!(show(&client.read_reply().unwrap()), "+OK"));
        }
    }
    wait_until("none waits", || figure(&mut client, "memory", "mem_huge_pages_pending") == 0);
    let memory = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", server.pid())).unwrap();
    let huge = memory.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let huge_kb: u64 = huge.and_then(|kb| kb.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    let is_possible = !server.read_file("log").contains("records stay on small pages")
        && std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    // The last chunk of each size is not full yet, and one or another is in use by the kernel.
    let data_kb = KEYS * SIZE as u64 / 1024;
    assert!(huge_kb >= data_kb / 4 * 3 || !is_possible, "{huge_kb} of {data_kb}: {memory}");
    for key in 0..KEYS {
        assert_eq!(client.ask_text(&format!("GET {key}")), value(key));
    }
}

/// Whatever the oracles can be asked for is an option here, or is known and has a reason.
#[test]
fn every_option_of_the_oracles_is_known() {
    let mut unknown = Vec::new();
    for oracle in [Server::redis(&[]), Server::valkey(&[])].into_iter().flatten() {
        let reply = oracle.connect().ask("CONFIG GET *");
        let names = reply.as_array().unwrap().iter().step_by(2);
        for name in names.map(|name| String::from_utf8_lossy(name.as_bytes().unwrap())) {
            let is_known = kvasir_config::row::Row::find(name.as_bytes()).is_some()
                || kvasir_config::unsupported::Unsupported::find(name.as_bytes()).is_some();
            if !is_known {
                unknown.push(name.into_owned());
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// With clients, and with a ring, which the system takes apart after the process has ended.
#[test]
fn a_port_is_free_once_its_holder_was_killed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let name = port.to_string();
    drop(listener);
    for backend in backends() {
        for _ in 0..5 {
            let options = ["--bind", "127.0.0.1", "--port", &name, "--logfile", "log"];
            let server = Server::kvasir(backend, &options);
            let clients = [(); 20].map(|()| TcpStream::connect(("127.0.0.1", port)).unwrap());
            let log = server.read_file("log");
            assert!(!log.contains("was in use"), "{backend}: {log}");
            drop((server, clients));
        }
    }
}

#[test]
fn systemd_hears_of_loading_of_readiness_and_of_the_end() {
    let place = directory();
    let socket = UnixDatagram::bind(place.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let heard = || {
        let mut text = [0; 256];
        let len = socket.recv(&mut text).unwrap();
        String::from_utf8(text[..len].to_vec()).unwrap()
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.env("NOTIFY_SOCKET", place.path().join("notify"));
    let mut server = Server::start("supervised", command, &["--supervised", "auto"]);
    assert_eq!(heard(), "STATUS=Loading data\n");
    assert_eq!(heard(), "STATUS=Ready to accept connections\nREADY=1\n");
    server.connect().send(&["SHUTDOWN", "NOSAVE"]);
    assert_eq!(heard(), "STATUS=Ready to exit\nSTOPPING=1\n");
    assert!(server.wait_for_end().success());
}

/// Whatever the allocator is told from outside: what commits all of its arena takes huge pages.
/// Those of records are another matter.
#[test]
fn a_fresh_server_takes_little_memory() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.env("MIMALLOC_ARENA_EAGER_COMMIT", "1");
    command.args(["--io-threads", "2", "--huge-pages", "no"]);
    let server = Server::start("fresh", command, &[]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 10 << 10, "{kilobytes} kB");
}

#[test]
fn the_unix_socket_belongs_to_the_group_that_is_named() {
    // Who is not root can give it to a group of its own only.
    let own = std::fs::metadata("/proc/self").unwrap();
    let groups = std::fs::read_to_string("/etc/group").unwrap();
    let lines = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut groups = lines.map(|fields| (fields[0], fields[2].parse::<u32>().unwrap()));
    let (name, id) = groups.find(|(_, id)| (*id != own.gid()) == (own.uid() == 0)).unwrap();
    for group in [name, &id.to_string()] {
        let server = Server::kvasir("epoll", &["--unixsocketgroup", group]);
        assert_eq!(std::fs::metadata(server.socket()).unwrap().gid(), id);
    }
    let socket = directory();
    let socket = socket.path().join("s");
    let output =
        run(&["--port", "0", "--unixsocket", socket.to_str().unwrap(), "--unixsocketgroup", "?"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("group=? error=there is no such group"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
