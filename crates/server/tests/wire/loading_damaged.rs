//! Starts from damaged files, with a client that asks all the time: nobody ever gets an answer from
//! data of which a part is missing, nor an OK for a write that nothing becomes of.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kvasir_resp::value::Value;

use crate::harness::{Client, DEADLINE, Server, wait_until};
use crate::saving::{directory, fill, path, wait_for_snapshot};

/// `KVASIR_DAMAGED_STARTS` asks for more.
const STARTS: usize = 25;

const CALLS: [&[&str]; 6] = [
    &["GET", "text"],
    &["SET", "new", "value"],
    &["DBSIZE"],
    &["RPUSH", "list", "x"],
    &["EVAL", "return redis.call('exists','text')", "0"],
    &["KEYS", "*"],
];

/// A generator of numbers; which ones does not matter.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// What kinds of files there are, by the options that make them.
const KINDS: [&[&str]; 4] = [
    &["--snapshot-files", "1"],
    &["--snapshot-files", "3"],
    &["--appendonly", "yes"],
    &["--appendonly", "yes", "--aof-use-rdb-preamble", "no"],
];

/// Files that a server leaves behind.
fn make_files(options: &[&str], dir: &str) {
    let server = Server::kvasir("epoll", &[&["--dir", dir, "--save", ""], options].concat());
    let mut client = server.connect();
    wait_until("it is up", || client.ask_text("INFO persistence").contains("\nloading:0"));
    fill(&mut client);
    client.ask("DEBUG POPULATE 20000 more 20");
    match options.contains(&"--appendonly") {
        true => {
            client.ask("BGREWRITEAOF");
            wait_until("the log is rewritten", || {
                let info = client.ask_text("INFO persistence");
                info.contains("rewrite_in_progress:0") && info.contains("aof_rewrites:1")
            });
            client.ask("DEBUG POPULATE 2000 latest 20");
            (0..2000).for_each(|number| drop(client.ask(&format!("SET last:{number} v"))));
        }
        false => {
            client.ask("SAVE");
            wait_for_snapshot(&mut client);
        }
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let is_shown = |entry: &fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    // Hidden ones say whose the others are.
    for entry in fs::read_dir(directory).unwrap().flatten().filter(is_shown) {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(files(&entry.path())),
            false => all.push(entry.path()),
        }
    }
    all.sort();
    all
}

/// Damages a file somehow.
fn damage(file: &Path, random: &mut Random) -> String {
    let mut bytes = fs::read(file).unwrap();
    let at = random.below(bytes.len());
    let what = match random.below(4) {
        0 => {
            bytes.truncate(at);
            "cut off"
        }
        1 => {
            bytes[at..].iter_mut().take(512).for_each(|byte| *byte = 0);
            "zeros"
        }
        2 => {
            bytes.insert(at, b'x');
            "one more"
        }
        _ => {
            bytes[at] ^= 1 << random.below(8);
            "flipped"
        }
    };
    fs::write(file, bytes).unwrap();
    format!("{} {what} at {at}", file.display())
}

/// A server that may end any time.
struct Start {
    process: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Start {
    fn on(dir: &Path, logs: &Path, options: &[&str]) -> Start {
        let (socket, log) = (logs.join("socket"), logs.join("log"));
        let _ = fs::remove_file(&socket);
        let process = Command::new(env!("CARGO_BIN_EXE_kvasir-server"))
            .args(["--port", "0", "--save", "", "--io-threads", "2", "--dir"])
            .arg(dir)
            .arg("--unixsocket")
            .arg(&socket)
            .args(options)
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Start { process, socket, log }
    }

    fn connect(&self) -> Option<Client> {
        let stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Some(Client::over(stream))
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Asks until it has ended, or all is loaded. Returns whether it has ended, and the answers
    /// that were not refusals.
    fn ask_all_the_time(&mut self) -> (bool, Vec<Value>) {
        let mut answers = Vec::new();
        let mut is_over = || match self.process.try_wait().expect("our child") {
            Some(status) => {
                let log = fs::read_to_string(&self.log).unwrap();
                assert_eq!(status.code(), Some(65), "{log}");
                Some(true)
            }
            None => {
                fs::read_to_string(&self.log).unwrap().contains("Ready to accept").then_some(false)
            }
        };
        loop {
            if let Some(has_ended) = is_over() {
                return (has_ended, answers);
            }
            let Ok(stream) = UnixStream::connect(&self.socket) else { continue };
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            let mut client = Client::over(stream);
            while CALLS.iter().all(|call| client.try_send(call)) {
                let replies: Vec<_> = CALLS.iter().map_while(|_| client.read_reply()).collect();
                let is_closed = replies.len() < CALLS.len();
                let is_refusal = |reply: &Value| matches!(reply, Value::Error(text) if text.starts_with(b"LOADING "));
                answers.extend(replies.into_iter().filter(|reply| !is_refusal(reply)));
                if is_closed || !answers.is_empty() {
                    break;
                }
            }
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_start_that_fails_has_told_nobody_anything() {
    let wanted = std::env::var("KVASIR_DAMAGED_STARTS").ok();
    let wanted = wanted.map_or(STARTS, |text| text.parse().expect("a number of starts"));
    let mut random = Random(25);
    let mut refused = 0;
    for (kind, options) in KINDS.iter().enumerate() {
        let (model, logs) = (directory(), directory());
        make_files(options, path(&model));
        for _ in 0..wanted.div_ceil(KINDS.len()) {
            let copy = directory();
            let mut command = Command::new("cp");
            command.arg("-r").arg(model.path().join(".")).arg(copy.path());
            assert!(command.status().unwrap().success());
            let all: Vec<_> = files(copy.path())
                .into_iter()
                .filter(|file| fs::metadata(file).is_ok_and(|facts| facts.len() > 0))
                .collect();
            let what = damage(&all[random.below(all.len())], &mut random);
            let before: Vec<_> =
                files(copy.path()).iter().map(|file| fs::read(file).unwrap()).collect();
            let mut start = Start::on(copy.path(), logs.path(), options);
            let (has_ended, answers) = start.ask_all_the_time();
            if has_ended {
                assert!(answers.is_empty(), "{kind} {what}: {answers:?} {}", start.log());
                let after: Vec<_> =
                    files(copy.path()).iter().map(|file| fs::read(file).unwrap()).collect();
                assert!(before == after, "{kind} {what}: files were changed {}", start.log());
                refused += 1;
            }
        }
    }
    assert!(refused * 2 > wanted, "{refused} of {wanted} were damaged enough");
}

/// The connections that are there end with the server.
#[test]
fn clients_of_a_start_that_fails_are_refused_until_the_end() {
    let (directory, logs) = (directory(), directory());
    let mut file = b"REDIS0011\xfe\0".to_vec();
    for number in 0..200_000 {
        file.extend(format!("\0\x07k{number:06}\x01v").as_bytes());
    }
    file.extend(b"\x77");
    fs::write(directory.path().join("dump.rdb"), &file).unwrap();
    let mut start = Start::on(directory.path(), logs.path(), &[]);
    let mut client = None;
    wait_until("it listens", || {
        client = start.connect();
        client.is_some()
    });
    let mut client = client.unwrap();
    while client.try_send(&["GET", "k000000"]) {
        match client.read_reply() {
            None => break,
            Some(reply) => assert!(
                matches!(&reply, Value::Error(text) if text.starts_with(b"LOADING ")),
                "{reply:?}"
            ),
        }
    }
    assert_eq!(start.ask_all_the_time(), (true, vec![]));
}
