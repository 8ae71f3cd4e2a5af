//! `kvasir-server cluster`: one command for a cluster to try.

use std::io::{BufRead, BufReader, Lines};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::certificates::free_port;
use crate::harness::{Client, wait_until};

struct LocalCluster {
    process: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl LocalCluster {
    fn start(dir: &Path, port: u16, nodes: &str) -> LocalCluster {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
        command.args(["cluster", "--nodes", nodes, "--port", &port.to_string(), "--dir"]);
        command.arg(dir).args(["--io-threads", "1", "--repl-diskless-sync-delay", "0"]);
        command.args(["--appendonly", "yes", "--cluster-node-timeout", "2000"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(process.stdout.take().unwrap()).lines();
        LocalCluster { process, says }
    }

    /// What it says up to the line with this text.
    fn hear(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for line in self.says.by_ref() {
            lines.push(line.unwrap());
            if lines.last().unwrap().contains(text) {
                return lines;
            }
        }
        panic!("it did not say \"{text}\" but {lines:#?}");
    }

    /// As Ctrl-C does.
    fn stop(mut self) -> Vec<String> {
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM).unwrap();
        let lines = self.says.by_ref().map(Result::unwrap).collect();
        assert!(self.process.wait().unwrap().success());
        lines
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        // Ends its nodes too; it is gone already if the test went well.
        let _ = kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM);
        let _ = self.process.wait();
    }
}

/// The first of as many ports as nodes take, with those of their buses.
fn free_ports(count: u16) -> u16 {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
    loop {
        let first = free_port();
        // Tests beside this one are given these, so that none is given twice.
        let given: Vec<u16> = (1..count).map(|_| free_port()).collect();
        let are_next = given.iter().zip(first + 1..).all(|(port, next)| *port == next);
        if are_next && (first..first + count).all(|port| is_free(port + 10_000)) {
            return first;
        }
    }
}

fn connect(port: u16) -> Client {
    Client::over(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap())
}

#[test]
fn one_command_makes_a_cluster_that_goes_on_next_time() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_ports(6);
    let mut cluster = LocalCluster::start(directory.path(), port, "6");
    let said = cluster.hear("the cluster is up");
    let has = |text: String| assert!(said.iter().any(|line| line.contains(&text)), "{said:#?}");
    has(format!("port {port} has slots 0 to 5460"));
    has(format!("port {} has slots 10922 to 16383", port + 2));
    has(format!("port {} is a replica of the node at port {port}", port + 3));
    // Of key a's slot the third has charge.
    let moved = connect(port).ask("SET a 1");
    assert_eq!(format!("{moved:?}"), format!("(error) MOVED 15495 127.0.0.1:{}", port + 2));
    assert_eq!(connect(port + 2).ask_text("SET a 1"), "OK");
    let lines = cluster.stop();
    let ends = lines.iter().filter(|line| line.contains("ended with exit status: 0")).count();
    assert_eq!(ends, 6, "{lines:#?}");

    let mut cluster = LocalCluster::start(directory.path(), port, "6");
    let said = cluster.hear("the cluster is up");
    assert!(!said.iter().any(|line| line.contains("has slots")), "{said:#?}");
    assert_eq!(connect(port + 2).ask_text("GET a"), "1");
    // A node that dies is told of, and its replica takes over.
    let info = connect(port + 2).ask_text("INFO server");
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap();
    wait_until("its replica has all", || {
        connect(port + 5).ask_text("INFO replication").contains("master_link_status:up")
    });
    kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
    cluster.hear("ended with signal: 9");
    wait_until("its replica has taken over", || {
        connect(port + 5).ask_text("INFO replication").contains("role:master")
    });
    wait_until("all slots are served", || {
        connect(port).ask_text("CLUSTER INFO").contains("cluster_state:ok")
    });
    assert_eq!(connect(port + 5).ask_text("GET a"), "1");
    assert_eq!(cluster.stop().len(), 5);
}

#[test]
fn what_cannot_be_a_cluster_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
        let output = command.arg("cluster").arg("--dir").arg(directory.path()).args(words).output();
        let output = output.unwrap();
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = run(&["--nodes", "5"]);
    assert!(said.contains("5 nodes are not primaries with 1 replicas each"), "{said}");
    let said = run(&["--nodes", "2", "--no-such-option", "1"]);
    assert!(said.contains("no-such-option"), "{said}");
    // Nothing was started for these.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    // A port that another has: the node's own words are told.
    let taken = free_ports(2);
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, taken + 1)).unwrap();
    let said = run(&["--nodes", "2", "--port", &taken.to_string()]);
    assert!(said.contains(&format!("the node at port {} ended", taken + 1)), "{said}");
    drop(listener);
}
