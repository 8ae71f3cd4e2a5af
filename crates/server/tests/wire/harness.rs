//! Servers for tests, each on a unix socket in a directory of its own, and clients of them.
//!
//! Tests wait for conditions, never for time to pass; everything has a deadline.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kvasir_resp::decode::Decoder;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

/// Whatever takes longer has hung. A disk that builds write to at the same time was seen to take
/// 20 s for a few bytes.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// A running server; it is killed, and its directory removed, when this is dropped.
pub struct Server {
    process: Child,
    directory: PathBuf,
    pub name: &'static str,
}

impl Server {
    /// Kvasir on one backend, with two workers.
    pub fn kvasir(backend: &'static str, options: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
        command.args(["--io-backend", backend, "--io-threads", "2"]);
        command.args(["--enable-debug-command", "yes"]);
        Server::start(backend, command, options)
    }

    /// Kvasir with a configuration file of this name and text in its directory.
    pub fn kvasir_with_file(name: &str, text: &str) -> Server {
        let program = env!("CARGO_BIN_EXE_kvasir-server");
        Server::start_with_file("kvasir", Path::new(program), name, text)
    }

    /// The oracle with such a file.
    pub fn redis_with_file(name: &str, text: &str) -> Option<Server> {
        let program = std::env::var_os("KVASIR_REDIS_SERVER")?;
        Some(Server::start_with_file("redis-server", Path::new(&program), name, text))
    }

    fn start_with_file(who: &'static str, program: &Path, name: &str, text: &str) -> Server {
        let mut command = Command::new("sh");
        let script = "name=$1; printf %s \"$2\" > \"$name\"; program=$0; shift 2; \
                      exec \"$program\" \"$name\" \"$@\"";
        command.args(["-c", script]).arg(program).args([name, text]);
        Server::start(who, command, &[])
    }

    /// A file that the server wrote into its directory.
    pub fn read_file(&self, name: &str) -> String {
        let path = self.directory.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Kvasir on epoll, which may open this many files and no more.
    pub fn with_few_files(files: u32, options: &[&str]) -> Server {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_kvasir-server")]);
        command.args(["--io-backend", "epoll", "--io-threads", "1"]);
        Server::start("few files", command, options)
    }

    /// Kvasir whose files may have so many bytes, a multiple of 1024, until `let_files_grow`.
    pub fn with_short_files(bytes: usize, options: &[&str]) -> Server {
        let mut command = Command::new("bash");
        let script = format!("ulimit -S -f {}; exec \"$0\" \"$@\"", bytes / 1024);
        command.args(["-c", &script, env!("CARGO_BIN_EXE_kvasir-server")]);
        command.args(["--io-threads", "2"]);
        Server::start("short files", command, options)
    }

    /// Kvasir as a user whose threads can be limited, which root's can't. None: root may not be
    /// nobody here, or nobody may not run the program.
    pub fn of_nobody(backend: &'static str, options: &[&str]) -> Option<Server> {
        let program = env!("CARGO_BIN_EXE_kvasir-server");
        let mut command = Command::new(program);
        if user_of("self") == 0 {
            let mut test = as_nobody(&["test", "-x", program]);
            if !test.status().is_ok_and(|status| status.success()) {
                eprintln!("nobody can't run the server here: its threads are not limited");
                return None;
            }
            command = as_nobody(&[program]);
        }
        command.args(["--io-backend", backend, "--io-threads", "2"]);
        command.args(["--enable-debug-command", "yes"]);
        Some(Server::start(backend, command, options))
    }

    /// Changes a limit while it runs: an option of prlimit.
    pub fn limit(&self, what: &str) {
        let pid = self.pid().to_string();
        let call = ["prlimit", "--pid", &pid, what];
        let mut command = match user_of(&pid) == user_of("self") {
            true => Command::new(call[0]),
            false => as_nobody(&call[..1]),
        };
        let status = command.args(&call[1..]).status();
        assert!(status.expect("util-linux is here").success(), "{what}");
    }

    pub fn let_files_grow(&self) {
        self.limit("--fsize=unlimited");
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The oracle, if KVASIR_REDIS_SERVER names one; under CI it must.
    pub fn redis(options: &[&str]) -> Option<Server> {
        Server::peer("redis-server", "KVASIR_REDIS_SERVER", options)
    }

    /// Valkey, which has what is newer, if KVASIR_VALKEY_SERVER names one; under CI it must.
    pub fn valkey(options: &[&str]) -> Option<Server> {
        Server::peer("valkey-server", "KVASIR_VALKEY_SERVER", options)
    }

    /// Redis 8, which has forms of its own for what is newer, if KVASIR_REDIS8_SERVER names one;
    /// under CI it must.
    pub fn redis8(options: &[&str]) -> Option<Server> {
        Server::peer("redis8-server", "KVASIR_REDIS8_SERVER", options)
    }

    fn peer(name: &'static str, variable: &str, options: &[&str]) -> Option<Server> {
        let Ok(program) = std::env::var(variable) else {
            assert!(std::env::var("CI").is_err(), "CI needs {variable}");
            eprintln!("{variable} is not set: scripts run without {name}");
            return None;
        };
        let mut command = Command::new(program);
        command.args(["--save", "", "--enable-debug-command", "yes"]);
        Some(Server::start(name, command, options))
    }

    /// What a command becomes, on a socket in a directory of its own.
    pub fn start(name: &'static str, mut command: Command, options: &[&str]) -> Server {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let directory =
            std::env::temp_dir().join(format!("kvasir-wire-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        // Of whoever runs the server there.
        let anybody = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&directory, anybody).expect("it is ours");
        command.args(["--port", "0", "--unixsocket"]).arg(directory.join("socket")).args(options);
        command.current_dir(&directory).stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut server = Server { process, directory, name };
        let what = format!("{name} listens");
        wait_until(&what, || match server.process.try_wait().expect("our child") {
            Some(status) => panic!("{name} ended at its start: {status}"),
            None => UnixStream::connect(server.socket()).is_ok(),
        });
        server
    }

    /// Where it runs; what it makes is removed with it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    pub fn connect(&self) -> Client {
        Client::connect(&self.socket())
    }

    /// Waits for the process to end by itself.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the server ends", || {
            status = self.process.try_wait().expect("our child");
            status.is_some()
        });
        status.expect("just seen")
    }
}

/// Who a process is of.
fn user_of(pid: &str) -> u32 {
    std::fs::metadata(format!("/proc/{pid}")).expect("it runs").uid()
}

/// Root's call, as somebody who may do nothing.
fn as_nobody(call: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(call);
    command
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs a test on every backend that this machine allows.
pub fn each_backend(options: &[&str], test: impl Fn(&mut Server)) {
    for backend in backends() {
        test(&mut Server::kvasir(backend, options));
    }
}

/// io_uring is left out, with a word, only where the kernel forbids it.
pub fn backends() -> Vec<&'static str> {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    if disabled.is_ok_and(|value| value.trim() == "0") {
        return vec!["io_uring", "epoll"];
    }
    eprintln!("this kernel forbids io_uring: tests run on epoll only");
    vec!["epoll"]
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut asked = start;
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited in vain: {what}");
        // To ask may cost the server time: most of it belongs to what is waited for.
        std::thread::sleep(asked.elapsed().max(Duration::from_millis(1)) * 4);
        asked = Instant::now();
    }
}

/// Has the server answer once it has loaded: a new log takes its time on a disk that is busy.
pub fn wait_until_loaded(client: &mut Client) {
    wait_until("it is loaded", || client.ask_text("INFO persistence").contains("\nloading:0"));
}

/// The id of a thread of a server, as soon as it has that name.
pub fn thread_of(server: &Server, name: &str) -> String {
    let tasks = format!("/proc/{}/task", server.pid());
    let has_name = |tid: &String| {
        let found = std::fs::read_to_string(format!("{tasks}/{tid}/comm"));
        found.is_ok_and(|found| found.trim() == name)
    };
    let mut thread = None;
    wait_until("a thread has its name", || {
        let ids = std::fs::read_dir(&tasks).expect("it runs").flatten();
        let mut ids = ids.filter_map(|task| task.file_name().into_string().ok());
        thread = ids.find(has_name);
        thread.is_some()
    });
    thread.expect("it was waited for")
}

/// Whether the other end has closed the connection, read everything or not.
fn is_closed(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// What a client speaks over.
pub trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// One connection.
pub struct Client {
    stream: Box<dyn Stream>,
    decoder: Decoder,
    /// What was received since the last reply was complete.
    raw: Vec<u8>,
}

impl Client {
    pub fn connect(socket: &Path) -> Client {
        let stream = UnixStream::connect(socket).expect("the server listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout can be set");
        Client::over(stream)
    }

    /// A client of whatever is at the other end.
    pub fn over(stream: impl Stream + 'static) -> Client {
        Client { stream: Box::new(stream), decoder: Decoder::default(), raw: Vec::new() }
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Sends a call; false if the server has closed the connection.
    pub fn try_send(&mut self, call: &[impl AsRef<[u8]>]) -> bool {
        self.try_send_raw(&encode_request(call))
    }

    /// As `try_send`, of bytes as they are.
    pub fn try_send_raw(&mut self, bytes: &[u8]) -> bool {
        match self.stream.write_all(bytes) {
            Ok(()) => true,
            Err(error) if is_closed(&error) => false,
            Err(error) => panic!("the server does not read: {error}"),
        }
    }

    pub fn send(&mut self, call: &[impl AsRef<[u8]>]) {
        self.send_raw(&encode_request(call));
    }

    /// The next reply; `None` when the server has closed the connection.
    pub fn read_reply(&mut self) -> Option<Value> {
        let mut chunk = [0; 64 * 1024];
        loop {
            if let Some(value) = self.decoder.next_value().expect("a server speaks RESP") {
                return Some(value);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(length) => {
                    self.decoder.feed(&chunk[..length]);
                    self.raw.extend_from_slice(&chunk[..length]);
                }
                Err(error) if is_closed(&error) => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// Sends a call and returns its reply.
    pub fn call(&mut self, call: &[impl AsRef<[u8]>]) -> Value {
        self.send(call);
        self.read_reply().expect("the connection stays open")
    }

    /// As `call`, of words without spaces.
    pub fn ask(&mut self, line: &str) -> Value {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    /// As `ask`, of a text.
    pub fn ask_text(&mut self, line: &str) -> String {
        let value = self.ask(line);
        let bytes = value.as_bytes().unwrap_or_else(|| panic!("{line}: no text but {value:?}"));
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// The bytes of the replies since the last time, when no reply is under way.
    pub fn take_raw(&mut self) -> Vec<u8> {
        assert!(self.decoder.is_idle(), "a reply is not complete");
        std::mem::take(&mut self.raw)
    }

    /// Whether the server closes the connection without a word.
    pub fn ends(&mut self) -> bool {
        self.read_reply().is_none()
    }
}

/// Strings `PREFIX:N`, written so that logs and replicas have them, as DEBUG POPULATE does not.
pub fn add_strings(client: &mut Client, count: u64, prefix: &str, size: usize) {
    const SCRIPT: &str = "for number = 0, ARGV[1] - 1 do \
        redis.call('SET', ARGV[2] .. ':' .. number, string.rep('x', ARGV[3])) end";
    let (count, size) = (count.to_string(), size.to_string());
    let reply = client.call(&["EVAL", SCRIPT, "0", &count, prefix, &size]);
    assert_eq!(reply, Value::Null);
}

/// A whole number that INFO tells.
pub fn figure(client: &mut Client, section: &str, name: &str) -> u64 {
    let info = client.ask_text(&format!("INFO {section}"));
    let mut lines = info.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    lines.next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {info}"))
}
