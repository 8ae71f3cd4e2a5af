//! CLIENT PAUSE and CLIENT UNPAUSE.

use crate::check::{check, show};
use crate::harness::{Server, backends, wait_until};
use crate::talk::talk_as_valkey;

#[test]
fn arguments() {
    check(&[(
        "CLIENT PAUSE; CLIENT PAUSE x; CLIENT PAUSE -1; CLIENT PAUSE 0; CLIENT PAUSE 1 x; \
         CLIENT UNPAUSE; CLIENT UNPAUSE x",
        "-ERR wrong number of arguments for 'client|pause' command; \
         -ERR timeout is not an integer or out of range; -ERR timeout is negative; +OK; \
         -ERR CLIENT PAUSE mode must be WRITE or ALL; +OK; \
         -ERR wrong number of arguments for 'client|unpause' command",
    )]);
    talk_as_valkey(&[
        ("a: CLIENT PAUSE 1 WRITE x", "a +OK"),
        ("a: CLIENT PAUSE 9223372036854775807", "a -ERR timeout is out of range"),
    ]);
}

fn servers() -> impl Iterator<Item = Server> {
    let ours = |backend| Server::kvasir(backend, &["--io-threads", "4"]);
    backends().into_iter().map(ours).chain(Server::redis(&[])).chain(Server::valkey(&[]))
}

fn has(text: &str, line: &str) -> bool {
    text.lines().any(|found| found == line)
}

#[test]
fn writes_wait_and_reads_go_on() {
    for server in servers() {
        let mut admin = server.connect();
        admin.ask("CLIENT PAUSE 1000000 WRITE");
        let mut reader = server.connect();
        assert_eq!(show(&reader.ask("GET k")), "_", "{}", server.name);
        assert_eq!(show(&reader.ask("MULTI")), "+OK");
        assert_eq!(show(&reader.ask("GET k")), "+QUEUED");
        assert_eq!(show(&reader.ask("EXEC")), "[_]");
        // What follows in the pipeline waits behind the write, in order.
        let calls = ["SET k 1", "INCR k", "PUBLISH c m", "PFCOUNT h", "EVAL return(1) 0"];
        let mut writers: Vec<_> = calls.iter().map(|_| server.connect()).collect();
        for (writer, call) in writers.iter_mut().zip(calls) {
            writer.send(&call.split(' ').collect::<Vec<_>>());
            writer.send(&["ECHO", "behind"]);
        }
        let blocked = format!("blocked_clients:{}", calls.len());
        wait_until("all wait", || has(&admin.ask_text("INFO clients"), &blocked));
        let line = admin.ask_text("CLIENT LIST");
        assert_eq!(line.lines().filter(|line| line.contains(" flags=bU ")).count(), calls.len());
        let id = line.lines().find(|line| line.contains(" flags=bU ")).unwrap();
        let id = id.split(' ').next().unwrap().trim_start_matches("id=");
        // Redis 7.0 dies of this.
        if server.name != "redis-server" {
            assert_eq!(admin.ask(&format!("CLIENT UNBLOCK {id}")).as_integer(), Some(0));
        }
        assert_eq!(show(&admin.ask("EXISTS k")), ":0");
        admin.ask("CLIENT UNPAUSE");
        for (index, writer) in writers.iter_mut().enumerate() {
            let reply = show(&writer.read_reply().unwrap());
            let echo = show(&writer.read_reply().unwrap());
            assert_eq!(echo, "$behind", "{}: {} {reply}", server.name, calls[index]);
        }
        assert!(has(&admin.ask_text("INFO clients"), "blocked_clients:0"), "{}", server.name);
    }
}

#[test]
fn everything_waits_until_its_time_is_over() {
    for server in servers() {
        let (mut admin, mut other) = (server.connect(), server.connect());
        admin.ask("CLIENT PAUSE 100 ALL");
        // Not even this ends it: the reply comes when the time is over.
        assert_eq!(show(&admin.ask("CLIENT UNPAUSE")), "+OK", "{}", server.name);
        assert_eq!(show(&other.ask("PING")), "+PONG", "{}", server.name);
    }
}

#[test]
fn a_transaction_that_writes_waits() {
    for server in servers() {
        let (mut admin, mut client) = (server.connect(), server.connect());
        for call in ["MULTI", "SET k 1"] {
            client.ask(call);
        }
        admin.ask("CLIENT PAUSE 1000000 WRITE");
        client.send(&["EXEC"]);
        wait_until("it waits", || has(&admin.ask_text("INFO clients"), "blocked_clients:1"));
        assert_eq!(show(&admin.ask("EXISTS k")), ":0", "{}", server.name);
        admin.ask("CLIENT UNPAUSE");
        assert_eq!(show(&client.read_reply().unwrap()), "[+OK]", "{}", server.name);
    }
}

#[test]
fn keys_do_not_expire_meanwhile() {
    for server in servers() {
        let mut client = server.connect();
        // One transaction: the key cannot expire before the pause.
        for call in ["MULTI", "SET k v PX 300", "CLIENT PAUSE 1000000 WRITE", "EXEC"] {
            client.ask(call);
        }
        client.ask("DEBUG SLEEP 0.5");
        let mut expired = |line| has(&client.ask_text("INFO stats"), line);
        assert!(expired("expired_keys:0"), "{}", server.name);
        server.connect().ask("CLIENT UNPAUSE");
        wait_until("it expires", || expired("expired_keys:1"));
    }
}

#[test]
fn a_client_that_goes_is_forgotten() {
    for server in servers() {
        let (mut admin, mut client) = (server.connect(), server.connect());
        admin.ask("CLIENT PAUSE 1000000 WRITE");
        client.send(&["SET", "k", "1"]);
        wait_until("it waits", || has(&admin.ask_text("INFO clients"), "blocked_clients:1"));
        drop(client);
        wait_until("it has gone", || has(&admin.ask_text("INFO clients"), "blocked_clients:0"));
        admin.ask("CLIENT UNPAUSE");
        assert_eq!(show(&admin.ask("EXISTS k")), ":0", "{}", server.name);
    }
}
