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
        // It is gone all the same, whoever looks.
        for (call, reply) in
            [("GET k", "_"), ("EXISTS k", ":0"), ("TTL k", ":-2"), ("DBSIZE", ":1")]
        {
            assert_eq!(show(&client.ask(call)), reply, "{}: {call}", server.name);
        }
        let mut expired = |line| has(&client.ask_text("INFO stats"), line);
        assert!(expired("expired_keys:0"), "{}", server.name);
        server.connect().ask("CLIENT UNPAUSE");
        wait_until("it expires", || expired("expired_keys:1"));
    }
}

#[test]
fn fields_of_hashes_do_not_expire_meanwhile() {
    let calls = [
        ("HSETEX h PX 100 FIELDS 1 f v", ":1"),
        ("HSETEX all PX 100 FIELDS 1 f v", ":1"),
        ("HSET h g w", ":1"),
        ("CLIENT PAUSE 1000000 WRITE", "+OK"),
        ("DEBUG SLEEP 0.2", "+OK"),
        ("HGETALL h", "[$g $w]"),
        ("HGET h f", "_"),
        ("HGETALL all", "[]"),
    ];
    for backend in backends() {
        let server = Server::kvasir(backend, &[]);
        let mut client = server.connect();
        calls
            .iter()
            .for_each(|(call, reply)| assert_eq!(show(&client.ask(call)), *reply, "{call}"));
        let fields = client.ask_text("INFO stats");
        assert!(has(&fields, "expired_fields:0"), "{fields}");
    }
}

#[test]
fn scripts_that_write_nothing_go_on() {
    let library = "#!lua name=lib\nredis.register_function{function_name='reads', callback=function() \
                   return 7 end, flags={'no-writes'}}";
    let script = "#!lua flags=no-writes\nreturn 8";
    for server in servers() {
        let (mut admin, mut client) = (server.connect(), server.connect());
        client.call(&["FUNCTION", "LOAD", library]);
        let sha = client.call(&["SCRIPT", "LOAD", "#!lua flags=no-writes\nreturn 9"]);
        let sha = String::from_utf8_lossy(sha.as_bytes().unwrap()).into_owned();
        admin.ask("CLIENT PAUSE 1000000 WRITE");
        let calls: [(&[&str], &str); 4] = [
            (&["EVAL", script, "0"], ":8"),
            (&["EVALSHA", &sha, "0"], ":9"),
            (&["FCALL", "reads", "0"], ":7"),
            (&["EVAL_RO", "return 6", "0"], ":6"),
        ];
        for (call, reply) in calls {
            assert_eq!(show(&client.call(call)), reply, "{}: {call:?}", server.name);
        }
        client.ask("MULTI");
        calls.iter().for_each(|(call, _)| assert_eq!(show(&client.call(call)), "+QUEUED"));
        assert_eq!(show(&client.ask("EXEC")), "[:8 :9 :7 :6]", "{}", server.name);
        admin.ask("CLIENT UNPAUSE");
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
