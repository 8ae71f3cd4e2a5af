//! Redis's Sentinel watches servers of this maker, alone and beside Redis, and changes their roles.

use std::process::Command;
use std::time::{Duration, Instant};

use kvasir_resp::value::Value;

use crate::certificates::free_port;
use crate::harness::{Client, DEADLINE, Server, wait_until};

/// A server with a configuration file, since Sentinel has it rewritten.
struct Node {
    port: u16,
    server: Option<Server>,
    is_ours: bool,
}

impl Node {
    fn start(is_ours: bool) -> Option<Node> {
        let mut node = Node { port: free_port(), server: None, is_ours };
        node.restart().then_some(node)
    }

    /// Begins anew, as a primary; false: there is no such program.
    fn restart(&mut self) -> bool {
        let program = match self.is_ours {
            true => Some(env!("CARGO_BIN_EXE_kvasir-server").to_owned()),
            false => std::env::var("KVASIR_REDIS_SERVER").ok(),
        };
        let Some(program) = program else { return false };
        let command = with_file(&program, "node.conf", CONFIG, "");
        // Of two ports the last one counts.
        let port = self.port.to_string();
        self.server = Some(Server::start("node", command, &["--port", &port]));
        true
    }

    fn client(&self) -> Client {
        self.server.as_ref().expect("it runs").connect()
    }

    /// Asks until it is answered: Sentinel closes all connections of whom it reconfigures.
    fn ask(&self, line: &str) -> Value {
        let mut answer = None;
        wait_until("it answers", || {
            let mut client = self.client();
            let words: Vec<&str> = line.split(' ').collect();
            answer = client.try_send(&words).then(|| client.read_reply()).flatten();
            answer.is_some()
        });
        answer.expect("just seen")
    }

    fn has(&self, text: &str) -> bool {
        let info = self.ask("INFO replication");
        info.as_bytes().is_some_and(|info| String::from_utf8_lossy(info).contains(text))
    }

    fn has_value(&self, value: &str) -> bool {
        self.ask("GET k").as_bytes() == Some(value.as_bytes())
    }
}

const CONFIG: &str = "save \"\"\nrepl-diskless-sync-delay 0\n";

/// A program with a configuration file of this text in its directory.
fn with_file(program: &str, name: &str, text: &str, more: &str) -> Command {
    let mut command = Command::new("sh");
    let script = "name=$1; printf %s \"$2\" > \"$name\"; program=$0; more=$3; shift 3; \
                  exec \"$program\" \"$name\" $more \"$@\"";
    command.args(["-c", script, program, name, text, more]);
    command
}

struct Sentinel(Server);

const PATIENT: u32 = 600_000;

impl Sentinel {
    /// Alone it needs nobody's consent.
    fn watch(port: u16) -> Option<Sentinel> {
        let program = std::env::var("KVASIR_REDIS_SERVER").ok()?;
        let text = format!(
            "sentinel monitor m 127.0.0.1 {port} 1\nsentinel down-after-milliseconds m {PATIENT}\n\
             sentinel failover-timeout m 5000\n"
        );
        let command = with_file(&program, "sentinel.conf", &text, "--sentinel");
        Some(Sentinel(Server::start("sentinel", command, &[])))
    }

    /// How long a server may be silent before it is taken to be down. A machine that stands still
    /// for a second would have the wrong one replaced, so it is short only while one is dead.
    fn has_patience(&self, milliseconds: u32) {
        let call = format!("SENTINEL SET m down-after-milliseconds {milliseconds}");
        assert_eq!(self.0.connect().ask(&call), Value::Simple("OK".into()));
    }

    fn primary(&self) -> u16 {
        let answer = self.0.connect().ask("SENTINEL GET-MASTER-ADDR-BY-NAME m");
        let port = answer.as_array().and_then(|words| words[1].as_bytes());
        let port = port.and_then(|port| std::str::from_utf8(port).ok()?.parse().ok());
        port.unwrap_or_else(|| panic!("no address: {answer:?}"))
    }

    /// As `wait_until`. Where the machine stands still for two seconds Sentinel does nothing in the
    /// next thirty, which it calls TILT: these do not count.
    fn wait(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let mut since = Instant::now();
        while !condition() {
            if self.0.connect().ask_text("INFO sentinel").contains("sentinel_tilt:1") {
                since = Instant::now();
            }
            assert!(since.elapsed() < DEADLINE, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it knows so many replicas, and all of them are fine.
    fn sees(&self, count: usize) -> bool {
        let answer = self.0.connect().ask("SENTINEL REPLICAS m");
        let all = answer.as_array().unwrap_or_default();
        let is_fine = |replica: &Value| {
            let words = replica.as_array().unwrap_or_default().iter();
            let words: Vec<&[u8]> = words.filter_map(Value::as_bytes).collect();
            let has = |pair: [&[u8]; 2]| words.chunks(2).any(|found| found == pair);
            has([b"flags", b"slave"]) && has([b"master-link-status", b"ok"])
        };
        all.len() == count && all.iter().all(is_fine)
    }
}

#[test]
fn sentinel_fails_over_and_the_old_primary_comes_back_as_a_replica() {
    for others in [true, false] {
        let (Some(mut one), Some(two)) = (Node::start(true), Node::start(others)) else { continue };
        let follow = format!("REPLICAOF 127.0.0.1 {}", one.port);
        assert_eq!(two.ask(&follow), Value::Simple("OK".into()));
        wait_until("it is linked", || two.has("master_link_status:up"));
        let Some(sentinel) = Sentinel::watch(one.port) else { return };
        sentinel.wait("Sentinel knows both", || sentinel.sees(1));
        let mut client = one.client();
        client.ask("SET k 1");
        assert_eq!(client.ask("WAIT 1 0"), Value::Integer(1));
        // It is killed.
        one.server = None;
        sentinel.has_patience(1000);
        sentinel.wait("the other is promoted", || sentinel.primary() == two.port);
        sentinel.has_patience(PATIENT);
        assert!(two.has_value("1"));
        assert_eq!(two.ask("SET k 2"), Value::Simple("OK".into()));
        let file = two.server.as_ref().expect("it runs").read_file("node.conf");
        assert!(!file.lines().any(|line| line.starts_with("replicaof")), "{file}");
        assert!(one.restart());
        sentinel.wait("it follows", || one.has("role:slave") && one.has("link_status:up"));
        wait_until("it has all", || one.has_value("2"));
        // By hand, and back.
        sentinel.wait("Sentinel knows both", || sentinel.sees(1));
        let asked = || sentinel.0.connect().ask("SENTINEL FAILOVER m");
        sentinel.wait("it is asked", || asked() == Value::Simple("OK".into()));
        sentinel.wait("the first is promoted", || sentinel.primary() == one.port);
        sentinel.wait("the other follows", || two.has("role:slave") && two.has("link_status:up"));
        assert_eq!(one.ask("SET k 3"), Value::Simple("OK".into()));
        wait_until("it has all", || two.has_value("3"));
    }
}
