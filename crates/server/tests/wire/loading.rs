//! A server that is asked to end while it loads: it does so at once, and the disk stays as it is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kvasir_resp::encode::encode_request;

use crate::check::show;
use crate::harness::{Client, Server, backends, figure, wait_until};
use crate::saving::{directory, path, terminate};

/// Keys of a file that takes long to load.
const KEYS: usize = 2_000_000;

/// A snapshot of so many keys.
fn snapshot(keys: usize) -> Vec<u8> {
    let mut file = b"REDIS0011\xfe\0".to_vec();
    for number in 0..keys {
        file.extend(b"\0\x09");
        file.extend(format!("k{number:08}").as_bytes());
        file.extend(b"\x01v");
    }
    file.extend(b"\xff\0\0\0\0\0\0\0\0");
    file
}

/// A log of few bytes that takes long to load, minutes if it has thousands of calls.
fn slow_log(calls: usize) -> Vec<u8> {
    let elements: Vec<String> = (0..50_000).map(|number| format!("{}", number % 977)).collect();
    let push: Vec<&str> =
        ["RPUSH", "list"].into_iter().chain(elements.iter().map(|e| &**e)).collect();
    let sort = encode_request(&["SORT", "list", "STORE", "sorted"]);
    [encode_request(&push), sort.repeat(calls)].concat()
}

const MANIFEST: &str = "file a.base seq 1 type b\nfile a.1 seq 1 type i\nfile a.2 seq 2 type i\n";

/// An append-only file of these parts, named as the manifest has them.
fn write_log(directory: &Path, [base, first, second]: [&[u8]; 3]) {
    let dir = directory.join("appendonlydir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("appendonly.aof.manifest"), MANIFEST).unwrap();
    for (name, bytes) in [("a.base", base), ("a.1", first), ("a.2", second)] {
        fs::write(dir.join(name), bytes).unwrap();
    }
}

/// All files below a directory, and what is in them.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let is_shown = |entry: &fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    // Hidden ones say whose the others are.
    for entry in fs::read_dir(directory).unwrap().flatten().filter(is_shown) {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(files(&entry.path())),
            false => drop(all.insert(entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
    all
}

/// How a server is asked to end.
const ENDS: [&str; 4] = ["kill", "SHUTDOWN NOSAVE", "SHUTDOWN", "SHUTDOWN SAVE"];

/// Starts on what is in a directory, and asks for the end as soon as `is_time`.
fn check_ends(
    directory: &Path,
    options: &[&str],
    end: &str,
    is_time: impl Fn(&mut Client) -> bool,
) {
    let logs = crate::saving::directory();
    let log = logs.path().join("log");
    let before = files(directory);
    let places = ["--dir", directory.to_str().unwrap(), "--logfile", log.to_str().unwrap()];
    let mut server = Server::kvasir("io_uring", &[&places, options].concat());
    let mut client = server.connect();
    wait_until("it is time", || is_time(&mut client));
    match end {
        "kill" => terminate(&mut client),
        end => client.send(&end.split(' ').collect::<Vec<_>>()),
    }
    let status = server.wait_for_end();
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(status.code(), Some(0), "{end}: {log}");
    assert!(!log.contains("Ready to accept"), "{end} had to wait: {log}");
    assert!(log.contains("bye bye"), "{end}: {log}");
    assert!(files(directory) == before, "{end} has changed files: {log}");
}

fn loads(client: &mut Client) -> bool {
    figure(client, "persistence", "loading") == 1
}

fn has_loaded_keys(client: &mut Client) -> bool {
    figure(client, "persistence", "rdb_last_load_keys_loaded") > 0
}

#[test]
fn a_server_that_loads_a_snapshot_ends_when_it_is_asked_to() {
    let directory = directory();
    fs::write(directory.path().join("dump.rdb"), snapshot(KEYS)).unwrap();
    for end in ENDS {
        check_ends(directory.path(), &["--save", "900 1"], end, loads);
        check_ends(directory.path(), &["--save", ""], end, has_loaded_keys);
    }
}

#[test]
fn a_server_that_loads_several_files_ends_when_it_is_asked_to() {
    let directory = directory();
    let options = ["--dir", path(&directory), "--snapshot-files", "4", "--save", ""];
    let server = Server::kvasir("epoll", &options);
    server.connect().ask("DEBUG POPULATE 700000 key 1");
    server.connect().ask("SAVE");
    drop(server);
    for end in ENDS {
        check_ends(directory.path(), &["--save", "900 1"], end, has_loaded_keys);
    }
}

#[test]
fn a_server_that_loads_a_log_ends_when_it_is_asked_to() {
    let (large, slow) = (snapshot(KEYS), slow_log(20_000));
    let small = snapshot(1);
    for parts in
        [[&large[..], b"", b""], [&slow, b"", b""], [&small, &slow, b""], [&small, b"", &slow]]
    {
        let directory = directory();
        write_log(directory.path(), parts);
        for end in ENDS {
            let options = ["--appendonly", "yes", "--save", "900 1"];
            check_ends(directory.path(), &options, end, loads);
        }
    }
}

/// The data is loaded, and the base is being written that a log begins with.
#[test]
fn a_server_that_writes_its_first_base_ends_when_it_is_asked_to() {
    let directory = directory();
    fs::write(directory.path().join("dump.rdb"), snapshot(100_000)).unwrap();
    let options = ["--appendonly", "yes", "--save", "", "--snapshot-bandwidth", "1000"];
    for end in ENDS {
        let log = directory.path().join("appendonlydir");
        check_ends(directory.path(), &options, end, |_| log.exists() && !files(&log).is_empty());
    }
}

/// The names of a server's threads.
fn threads(server: &Server) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().flatten();
    // One may end meanwhile.
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

/// What is loaded while everybody waits is neither shown nor saved.
#[test]
fn a_server_that_reloads_ends_when_it_is_asked_to() {
    for workers in ["1", "2"] {
        let (directory, logs) = (directory(), crate::saving::directory());
        let log = logs.path().join("log");
        fs::write(directory.path().join("dump.rdb"), snapshot(KEYS)).unwrap();
        let options = ["--save", "900 1", "--io-threads", workers, "--dir", path(&directory)];
        let mut server = Server::kvasir(
            "io_uring",
            &[&options, &["--logfile", log.to_str().unwrap()][..]].concat(),
        );
        let log = || fs::read_to_string(&log).unwrap();
        wait_until("it is ready", || log().contains("Ready to accept"));
        let before = files(directory.path());
        let mut client = server.connect();
        wait_until("the loader has ended", || !threads(&server).contains(&"load".to_owned()));
        let count = threads(&server).len();
        client.send(&["DEBUG", "RELOAD", "NOSAVE"]);
        wait_until("it reloads", || threads(&server).len() > count);
        let killed = std::process::Command::new("kill").arg(server.pid().to_string()).status();
        assert!(killed.unwrap().success());
        assert_eq!(server.wait_for_end().code(), Some(0), "{}", log());
        assert_eq!(log().matches("DB loaded from disk").count(), 1, "it was loaded: {}", log());
        assert!(files(directory.path()) == before, "a part was saved: {}", log());
    }
}

/// The base of a log knows a key as dead that the log keeps alive later on.
#[test]
fn nothing_expires_before_the_log_is_read_to_its_end() {
    let directory = directory();
    let dead = b"REDIS0011\xfe\0\xfc\x01\0\0\0\0\0\0\0\0\x01k\x01v\xff\0\0\0\0\0\0\0\0";
    let persist = encode_request(&["PERSIST", "k"]);
    // Some rounds of the housekeeping come between.
    write_log(directory.path(), [dead, &slow_log(50), &persist]);
    let options = ["--dir", path(&directory), "--appendonly", "yes", "--hz", "100"];
    let server = Server::kvasir("epoll", &options);
    let mut client = server.connect();
    crate::aof::wait_for(&mut client, "\nloading:0");
    assert_eq!(client.ask_text("GET k"), "v");
}

/// Who comes early waits for data that is there soon, and is told of that which takes long.
#[test]
fn a_short_load_is_nobodys_business() {
    let directory = directory();
    fs::write(directory.path().join("dump.rdb"), snapshot(1)).unwrap();
    for (delay_us, replies) in [("50000", ["$v", "$v"]), ("100000000", [LOADING, LOADING])] {
        for backend in backends() {
            let options = ["--dir", path(&directory), "--key-load-delay", delay_us, "--save", ""];
            let server = Server::kvasir(backend, &options);
            let mut client = server.connect();
            // What is answered without data is not held up.
            client.ask("CONFIG GET save");
            for reply in replies {
                assert_eq!(show(&client.ask("GET k00000000")), reply, "{backend} {delay_us}");
            }
        }
    }
}

const LOADING: &str = "-LOADING Redis is loading the dataset in memory";
