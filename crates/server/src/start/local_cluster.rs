//! `kvasir-server cluster`: a cluster on this machine, for development. Each node is a process of
//! its own with a folder of its own, so that one can be killed to see what clients make of it.
//!
//! Nodes that are in no cluster yet are joined: the first ones share out the slots, each of the
//! others follows one of them. Folders of an earlier run go on where it has ended.

use std::fmt::{self, Display};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kvasir_cluster::slots::SLOTS;
use kvasir_config::Config;
use kvasir_config::arguments::{Invocation, LocalCluster, parse};
use kvasir_config::load::load;
use kvasir_reactor::signal;
use kvasir_resp::decode::Decoder;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

/// How often something that comes is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// A node that is not where it should be by then does not come.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// So many primaries agree on a replica in place of one of them.
const PRIMARIES_MIN: usize = 3;
const LOG: &str = "kvasir.log";

/// Runs until a signal comes; fails if the cluster does not come about.
pub fn main(wish: &LocalCluster) -> ExitCode {
    let mut nodes = Vec::new();
    let result = run(wish, &mut nodes);
    nodes.iter().filter_map(|node| node.process.as_ref()).for_each(signal::terminate);
    for node in &mut nodes {
        if let Some(status) = node.process.as_mut().and_then(|process| process.wait().ok()) {
            say(&format!("{node} ended with {status}"));
        }
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(wish: &LocalCluster, nodes: &mut Vec<Node>) -> Result<(), String> {
    let config = config_of(wish)?;
    signal::watch_shutdown(&[]).map_err(|error| error.to_string())?;
    for at in 0..wish.nodes {
        nodes.push(Node::start(wish, wish.port + at as u16)?);
    }
    for node in &mut *nodes {
        node.connect(&config)?;
    }
    say(&format!("{} nodes run, each in a folder of {}", nodes.len(), wish.dir.display()));
    let new = nodes.iter_mut().map(Node::is_new).collect::<Result<Vec<_>, _>>()?;
    if new.iter().all(|is_new| *is_new) {
        join(nodes, wish.primaries())?;
    } else if let Some(at) = new.iter().position(|is_new| *is_new) {
        return Err(format!(
            "{} belongs to no cluster, but others do: give another --dir, or remove {}",
            nodes[at],
            wish.dir.display()
        ));
    }
    wait_for("all nodes to agree", nodes, Node::is_fine)?;
    say(&format!("the cluster is up: redis-cli -c -p {}   (Ctrl-C ends all nodes)", wish.port));
    if wish.primaries() < PRIMARIES_MIN {
        say("of fewer than three primaries none is replaced when it dies");
    }
    while signal::shutdown_requested().is_none() {
        for node in &mut *nodes {
            if let Some(status) = node.ended() {
                say(&format!("{node} ended with {status}; the others go on"));
            }
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// What the nodes have in common: a wrong option is told once, before anything starts.
fn config_of(wish: &LocalCluster) -> Result<Config, String> {
    let mut words = wish.options.clone();
    // By itself a first word would name a file.
    words.splice(0..0, ["--cluster-enabled".into(), "yes".into()]);
    let Invocation::Serve(sources) = parse(&words) else { return Err("no options".into()) };
    let loaded = load(&sources).map_err(|error| error.to_string())?;
    Ok(loaded.config)
}

/// The first nodes share out the slots; the others follow one each, by turns.
fn join(nodes: &mut [Node], primaries: usize) -> Result<(), String> {
    let first_port = nodes[0].port.to_string();
    for (at, node) in nodes.iter_mut().enumerate() {
        node.expect_ok(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()])?;
        if at < primaries {
            let share = |at: usize| at * usize::from(SLOTS) / primaries;
            let [from, to] = [share(at), share(at + 1) - 1].map(|slot| slot.to_string());
            node.expect_ok(&["CLUSTER", "ADDSLOTSRANGE", &from, &to])?;
            say(&format!("{node} has slots {from} to {to}"));
        }
        if at > 0 {
            node.expect_ok(&["CLUSTER", "MEET", "127.0.0.1", &first_port])?;
        }
    }
    let known = format!("cluster_known_nodes:{}\r\n", nodes.len());
    wait_for("all nodes to know each other", nodes, |node| {
        Ok(node.text(&["CLUSTER", "INFO"])?.contains(&known)
            && !node.text(&["CLUSTER", "NODES"])?.contains("handshake"))
    })?;
    let (primaries, replicas) = nodes.split_at_mut(primaries);
    for (at, node) in replicas.iter_mut().enumerate() {
        let primary = &mut primaries[at % primaries.len()];
        let id = primary.text(&["CLUSTER", "MYID"])?;
        node.expect_ok(&["CLUSTER", "REPLICATE", &id])?;
        say(&format!("{node} is a replica of {primary}"));
    }
    wait_for("replicas to have the data", replicas, |node| {
        Ok(node.text(&["INFO", "replication"])?.contains("master_link_status:up"))
    })
}

/// Waits until this holds for each of them.
fn wait_for(
    what: &str,
    nodes: &mut [Node],
    mut holds: impl FnMut(&mut Node) -> Result<bool, String>,
) -> Result<(), String> {
    let start = Instant::now();
    for node in nodes {
        while !holds(node)? {
            node.check(what, start)?;
            thread::sleep(LOOK);
        }
    }
    Ok(())
}

fn say(text: &str) {
    // A reader that went away is no reason to end.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// One node: its process, and a connection to it.
struct Node {
    port: u16,
    dir: PathBuf,
    /// None once it has ended.
    process: Option<Child>,
    connection: Option<(TcpStream, Decoder)>,
}

impl Display for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the node at port {}", self.port)
    }
}

impl Node {
    fn start(wish: &LocalCluster, port: u16) -> Result<Node, String> {
        let dir = wish.dir.join(port.to_string());
        let failed = |error: std::io::Error| format!("dir={} error={error}", dir.display());
        fs::create_dir_all(&dir).map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        // What the user says comes last, and wins.
        command.args(["--cluster-enabled", "yes", "--daemonize", "no", "--logfile", LOG]);
        command.arg("--port").arg(port.to_string()).arg("--dir").arg(&dir).args(&wish.options);
        let process = command.stdin(Stdio::null()).spawn().map_err(failed)?;
        Ok(Node { port, dir, process: Some(process), connection: None })
    }

    /// Connects once it serves.
    fn connect(&mut self, config: &Config) -> Result<(), String> {
        let start = Instant::now();
        let pid = self.process.as_ref().map_or(0, Child::id);
        let itself = format!("process_id:{pid}\r\n");
        // Whoever else has its port is left alone.
        while !self.greet(config).is_ok_and(|info| info.contains(&itself)) {
            self.check("it to serve", start)?;
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// What the server says of itself that now listens at its port.
    fn greet(&mut self, config: &Config) -> Result<String, String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let failed = |error: std::io::Error| format!("{address}: {error}");
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        self.connection = Some((stream, Decoder::default()));
        if !config.requirepass.is_empty() {
            self.expect_ok(&["AUTH", &String::from_utf8_lossy(&config.requirepass)])?;
        }
        self.text(&["INFO", "server"])
    }

    /// Fails if it has ended, or takes too long.
    fn check(&mut self, what: &str, since: Instant) -> Result<(), String> {
        let log = self.dir.join(LOG);
        let log = std::path::absolute(&log).unwrap_or(log);
        if let Some(status) = self.ended() {
            return Err(format!("{self} ended with {status}: {}", last_line(&log)));
        }
        if signal::shutdown_requested().is_some() {
            return Err("interrupted".into());
        }
        if since.elapsed() < PATIENCE {
            return Ok(());
        }
        Err(format!("{self}: waited in vain for {what}; its log is {}", log.display()))
    }

    /// How it has ended, if it has: told once.
    fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.process.as_mut()?.try_wait().ok()??;
        self.process = None;
        Some(status)
    }

    fn is_new(&mut self) -> Result<bool, String> {
        let info = self.text(&["CLUSTER", "INFO"])?;
        Ok(info.contains("cluster_known_nodes:1\r\n")
            && info.contains("cluster_slots_assigned:0\r\n"))
    }

    fn is_fine(&mut self) -> Result<bool, String> {
        Ok(self.text(&["CLUSTER", "INFO"])?.contains("cluster_state:ok"))
    }

    fn ask(&mut self, words: &[&str]) -> Result<Value, String> {
        let failed = |error: &dyn Display| format!("port {}: {}: {error}", self.port, words[0]);
        let (stream, decoder) = self.connection.as_mut().expect("it is asked once it serves");
        stream.write_all(&encode_request(words)).map_err(|error| failed(&error))?;
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(value) = decoder.next_value().map_err(|error| failed(&error))? {
                return Ok(value);
            }
            match stream.read(&mut chunk).map_err(|error| failed(&error))? {
                0 => return Err(failed(&"the connection was closed")),
                length => decoder.feed(&chunk[..length]),
            }
        }
    }

    fn text(&mut self, words: &[&str]) -> Result<String, String> {
        let value = self.ask(words)?;
        let text = value.as_bytes().map(|text| String::from_utf8_lossy(text).into_owned());
        text.filter(|_| !value.is_error()).ok_or_else(|| format!("{self}: {words:?}: {value:?}"))
    }

    fn expect_ok(&mut self, words: &[&str]) -> Result<(), String> {
        self.text(words).map(|_| ())
    }
}

/// What a log tells last: why a server did not start.
fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or("see above").to_owned()
}
