//! ACL at work: who may do what, what is logged, and what happens to connections when users change.

use kvasir_resp::value::Value;

use crate::check::{run_script, show};
use crate::harness::{Client, Server, each_backend, wait_until};

/// Scripts whose replies must be those of Valkey, whose texts are newer than Redis 7.0's. Each runs
/// on a connection of its own, one after the other.
pub fn check_valkey(options: &[&str], scripts: &[&str]) {
    each_backend(options, |ours| {
        let Some(valkey) = Server::valkey(options) else { return };
        for script in scripts {
            let [ours, theirs] =
                [&*ours, &valkey].map(|server| run_script(&mut server.connect(), script));
            assert_eq!(ours, theirs, "{script}");
        }
    });
}

#[test]
fn commands_and_their_mistakes() {
    check_valkey(
        &[],
        &[
            "ACL; ACL NOSUCH; ACL WHOAMI; ACL WHOAMI x; ACL LIST x; ACL USERS",
            "ACL SETUSER; ACL SETUSER \"a b\" on; ACL SETUSER \"a\\x00b\" on; ACL SETUSER \"\" on; \
             ACL USERS; ACL DELUSER \"\"",
            "ACL GETUSER; ACL GETUSER nosuch; HELLO 3 SETNAME x x",
            "ACL DELUSER; ACL DELUSER default; ACL DELUSER nosuch default; ACL DELUSER a b",
            "ACL SETUSER a; ACL SETUSER b; ACL DELUSER a nosuch b a; ACL USERS",
            "ACL CAT nosuch; ACL CAT read x",
            "ACL GENPASS 0; ACL GENPASS -1; ACL GENPASS 4097; ACL GENPASS x; ACL GENPASS 1 2",
            "ACL LOG x; ACL LOG -1; ACL LOG 0; ACL LOG reset; ACL LOG RESET 1; ACL LOG",
            "ACL LOAD; ACL SAVE; ACL LOAD x; ACL SAVE x",
            "ACL DRYRUN default; ACL DRYRUN nosuch get x; ACL DRYRUN default nosuch; \
             ACL DRYRUN default get; ACL DRYRUN default get x; ACL DRYRUN default get x y; \
             ACL DRYRUN default config; ACL DRYRUN default config nosuch; \
             ACL DRYRUN default config|get x; ACL DRYRUN default GET x",
            "AUTH; AUTH x; AUTH default x; AUTH nosuch x; AUTH a b c; HELLO 2 AUTH nosuch x; \
             HELLO 3 AUTH x; ACL WHOAMI",
            "CLIENT KILL USER nosuch; CLIENT KILL USER; CLIENT KILL USER nosuch NOSUCH x",
        ],
    );
}

#[test]
fn calls_are_allowed_or_denied() {
    const RULES: &str =
        "on >pw ~a* %R~r* %W~w* +@all -set -config -select +select|0 +config|get -dbsize";
    let user = format!("ACL SETUSER u {RULES}");
    let scripts = [
        "AUTH u pw; ACL WHOAMI; SET a b; GET x; GET a; GET r; GET w; MGET a x; APPEND r 1",
        "AUTH u pw; ZUNIONSTORE x 0 a; ZUNIONSTORE x 1 a; ZUNIONSTORE w 1 a",
        "AUTH u pw; APPEND w 1; APPEND a 1; EXISTS w; TTL w; RENAME a w; RENAME w a; COPY a w; DBSIZE",
        "AUTH u pw; CONFIG SET hz 10; CONFIG GET hz; CONFIG; CONFIG NOSUCH; NOSUCH; SELECT 1; \
         SELECT 0; SELECT",
        "AUTH u pw; SORT a; SORT a BY x*; SORT a GET x*; SORT a BY nosort; SORT a BY nosort GET #; \
         SORT x BY x*; SORT a LIMIT x BY x*; SORT a STORE x; SORT_RO a GET x",
        "AUTH u pw; BITFIELD r GET u8 0; BITFIELD r SET u8 0 1; BITFIELD_RO r GET u8 0",
        "AUTH u pw; RESET; ACL WHOAMI; SET a b",
        "AUTH u pw; ACL WHOAMI; AUTH u nosuch; SET a b; AUTH default x; SET a b",
        "ACL SETUSER u %R~* +set; AUTH u pw; SORT a BY x* GET y*; GET z; SET z 1",
        "ACL SETUSER u reset on >pw +get (+set ~s*) (+del ~d*); AUTH u pw; GET k; SET s 1; SET k 1; \
         DEL d; DEL s; DEL s d; INCR s",
        "ACL SETUSER d on nopass ~* &* +@all db=0,2; AUTH d x; SELECT 1; SELECT 2; SELECT 99; \
         SELECT x; SET k v; MOVE k 1; COPY k l DB 1; COPY k l DB 0; SWAPDB 0 1; SWAPDB 0 2; \
         FLUSHALL; FLUSHDB; PING",
        "ACL SETUSER d off; AUTH d x; ACL SETUSER d on resetpass; AUTH d x; ACL SETUSER d >x >y; \
         AUTH d y; ACL SETUSER d <y; AUTH d y; AUTH d x",
    ];
    let scripts: Vec<&str> = std::iter::once(user.as_str()).chain(scripts).collect();
    check_valkey(&[], &scripts);
}

/// A transaction's calls are looked at when they are queued, and again when they run.
#[test]
fn rights_are_looked_at_again_by_exec() {
    let run = |server: &Server| -> Vec<String> {
        let mut admin = server.connect();
        admin.ask("ACL SETUSER u on nopass ~* &* +@all -del");
        let mut client = server.connect();
        client.ask("AUTH u x");
        let mut shown = vec![run_script(&mut client, "MULTI; DEL k; GET k; EXEC; DISCARD")];
        for rule in ["-get", "+@all resetkeys", "~* db=1", "alldbs"] {
            shown.push(run_script(&mut client, "MULTI; GET k; SORT k BY w* GET #; PING"));
            admin.call(
                &[&["ACL", "SETUSER", "u"], &rule.split(' ').collect::<Vec<_>>()[..]].concat(),
            );
            shown.push(run_script(&mut client, "EXEC"));
            admin.ask("ACL SETUSER u ~* +@all");
        }
        shown.extend(admin.ask("ACL LOG 20").as_array().unwrap().iter().map(|entry| {
            let shown = show(entry);
            shown.split(" $age-seconds").next().unwrap().to_owned()
        }));
        shown
    };
    let ours = run(&Server::kvasir("epoll", &[]));
    if let Some(valkey) = Server::valkey(&[]) {
        assert_eq!(ours, run(&valkey));
    }
}

/// A script may do what its client may; the errors name the script, each server in its own way.
#[test]
fn scripts_have_the_rights_of_their_client() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("ACL SETUSER u on nopass ~a* +@all -set");
        client.ask("AUTH u x");
        for (script, expect) in [
            ("return redis.call('get', 'a')", "_"),
            (
                "return redis.call('get', 'x')",
                "-ERR ACL failure in script: No permissions to access a key",
            ),
            (
                "return redis.pcall('set', 'a', '1')",
                "-ERR ACL failure in script: User u has no permissions to run the 'set' command",
            ),
            ("return redis.acl_check_cmd('get', 'a')", ":1"),
            ("return redis.acl_check_cmd('get', 'x')", "_"),
            ("return redis.acl_check_cmd('set')", "_"),
            ("return redis.acl_check_cmd('bitfield')", ":1"),
            ("return redis.acl_check_cmd('sort')", ":1"),
        ] {
            let reply = show(&client.call(&["EVAL", script, "0"]));
            assert!(reply.starts_with(expect), "{script}: {reply}");
        }
        let log = show(&client.ask("ACL LOG"));
        assert!(log.matches("$context $lua").count() == 2, "{log}");
    });
}

#[test]
fn the_default_user_is_who_has_not_said_who() {
    check_valkey(
        &[],
        &[
            "ACL SETUSER default >x; PING; AUTH x; AUTH y; CONFIG GET requirepass",
            "PING; ACL WHOAMI; AUTH x; PING; QUIT",
            "AUTH default x; ACL WHOAMI; RESET; PING; AUTH default x; ACL SETUSER default nopass",
            "PING; ACL SETUSER default off; PING",
            "PING; AUTH x; AUTH default x",
        ],
    );
    check_valkey(
        &["--requirepass", "one"],
        &[
            "ACL LIST; AUTH one; ACL LIST; CONFIG SET requirepass two; CONFIG GET requirepass; PING",
            "AUTH one; AUTH two; ACL SETUSER default +@all >three; CONFIG GET requirepass; \
             CONFIG SET requirepass \"\"; ACL LIST; AUTH two",
            "PING; CONFIG SET requirepass one; CONFIG SET hz 10; PING",
        ],
    );
}

/// A connection that needed a password when it came does not when nobody does any more.
#[test]
fn passwords_are_rotated_under_live_clients() {
    each_backend(&[], |server| {
        let mut admin = server.connect();
        admin.ask("ACL SETUSER app on >old ~* +@all");
        let mut client = server.connect();
        assert_eq!(show(&client.ask("AUTH app old")), "+OK");
        admin.ask("ACL SETUSER app >new");
        assert_eq!(show(&server.connect().ask("AUTH app old")), "+OK");
        assert_eq!(show(&server.connect().ask("AUTH app new")), "+OK");
        admin.ask("ACL SETUSER app <old");
        assert!(show(&server.connect().ask("AUTH app old")).starts_with("-WRONGPASS"));
        assert_eq!(show(&client.ask("SET k v")), "+OK", "who is in stays in");
        admin.ask("ACL SETUSER default >secret");
        let mut late = server.connect();
        assert!(show(&late.ask("PING")).starts_with("-NOAUTH"));
        admin.ask("ACL SETUSER default nopass");
        assert_eq!(show(&late.ask("PING")), "+PONG");
        admin.ask("ACL SETUSER default >secret");
        assert!(show(&late.ask("PING")).starts_with("-NOAUTH"));
    });
}

/// What SETUSER changed holds for the next call on every worker once it was answered.
#[test]
fn a_change_holds_at_once_on_every_worker() {
    each_backend(&["--io-threads", "4"], |server| {
        let mut admin = server.connect();
        admin.ask("ACL SETUSER u on nopass ~* +@all");
        let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| drop(client.ask("AUTH u x")));
        for round in 0..200 {
            let (rule, expect) = match round % 4 {
                0 => ("-get", "-NOPERM User u has no permissions to run the 'get' command"),
                1 => ("+@all", "_"),
                2 => ("resetkeys", "-NOPERM No permissions to access a key"),
                _ => ("allkeys", "_"),
            };
            assert_eq!(show(&admin.ask(&format!("ACL SETUSER u {rule}"))), "+OK");
            for client in &mut clients {
                assert_eq!(show(&client.ask("GET k")), expect, "round {round}: {rule}");
            }
        }
    });
}

/// Nor is it served by whoever pushes afterwards.
#[test]
fn who_waits_for_a_key_that_its_user_loses_is_refused() {
    each_backend(&[], |server| {
        let (mut admin, mut client) = (server.connect(), server.connect());
        admin.ask("ACL SETUSER u on nopass ~* +@all");
        client.ask("AUTH u x");
        for (rule, why) in [
            ("resetkeys ~other*", "-NOPERM No permissions to access a key"),
            ("~* -blpop", "-NOPERM User u has no permissions to run the 'blpop' command"),
        ] {
            client.send(&["BLPOP", "list", "0"]);
            wait_until("it waits", || {
                admin.ask_text("INFO clients").contains("blocked_clients:1\r")
            });
            assert_eq!(show(&admin.ask(&format!("ACL SETUSER u {rule}"))), "+OK");
            assert_eq!(show(&client.read_reply().expect("it is told")), why);
            assert_eq!(show(&admin.ask("RPUSH list x")), ":1");
            assert_eq!(show(&admin.ask("DEL list")), ":1");
            admin.ask("ACL SETUSER u ~* +@all");
        }
        // Another right is none of its business.
        client.send(&["BLPOP", "list", "0"]);
        wait_until("it waits", || admin.ask_text("INFO clients").contains("blocked_clients:1\r"));
        admin.ask("ACL SETUSER u -get");
        admin.ask("RPUSH list x");
        assert_eq!(show(&client.read_reply().expect("it is served")), "[$list $x]");
    });
}

#[test]
fn connections_of_deleted_users_are_closed() {
    each_backend(&[], |server| {
        let mut admin = server.connect();
        for _ in 0..50 {
            admin.ask("ACL SETUSER u on nopass ~* +@all");
            let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
            clients.iter_mut().for_each(|client| drop(client.ask("AUTH u x")));
            let listed = admin.ask_text("CLIENT LIST");
            assert_eq!(listed.matches(" user=u ").count(), 4, "{listed}");
            clients[0].send(&["BLPOP", "nosuch", "0"]);
            wait_until("one waits", || {
                admin.ask_text("INFO clients").contains("blocked_clients:1\r")
            });
            assert_eq!(show(&admin.ask("ACL DELUSER u")), ":1");
            // A new user of the same name is somebody else.
            admin.ask("ACL SETUSER u on nopass ~* +@all");
            assert!(clients.iter_mut().all(Client::ends));
            admin.ask("ACL DELUSER u");
        }
        let mut own = server.connect();
        own.ask("ACL SETUSER self on nopass +@all");
        own.ask("AUTH self x");
        assert_eq!(show(&own.ask("ACL DELUSER self")), ":1");
        assert!(own.ends());
        wait_until("all are gone", || !admin.ask_text("CLIENT LIST").contains("user=self"));
    });
}

#[test]
fn client_kill_by_user() {
    each_backend(&[], |server| {
        let mut admin = server.connect();
        admin.ask("ACL SETUSER u on nopass +@all");
        let mut client = server.connect();
        client.ask("AUTH u x");
        assert_eq!(show(&admin.ask("CLIENT KILL USER u")), ":1");
        assert!(client.ends());
        assert_eq!(show(&admin.ask("CLIENT KILL USER default")), ":0", "not the caller");
    });
}

/// A subscriber whose user loses the channel is disconnected; one that keeps it is not.
#[test]
fn subscribers_that_lose_their_channel_are_closed() {
    let run = |server: &Server| {
        let mut admin = server.connect();
        admin.ask("ACL SETUSER u on nopass +@all &a &b* &pat*");
        let calls = ["SUBSCRIBE a", "SUBSCRIBE b1", "PSUBSCRIBE pat*", "SSUBSCRIBE b2", "PING"];
        let mut clients: Vec<Client> = calls
            .iter()
            .map(|call| {
                let mut client = server.connect();
                client.ask("AUTH u x");
                client.ask(call);
                client
            })
            .collect();
        assert!(
            show(&clients[4].ask("SUBSCRIBE c")).starts_with("-NOPERM No permissions to access a")
        );
        assert!(show(&clients[4].ask("PSUBSCRIBE a")).starts_with("[$psubscribe"));
        for (rules, lost) in [
            ("&c", None),
            ("resetchannels &a &b* &pat*", None),
            ("resetchannels &b* &pat*", Some(vec![0, 4])),
            ("resetchannels &b1", Some(vec![2, 3])),
        ] {
            let words: Vec<&str> = rules.split(' ').collect();
            assert_eq!(show(&admin.call(&[&["ACL", "SETUSER", "u"], &words[..]].concat())), "+OK");
            for lost in lost.into_iter().flatten() {
                assert!(clients[lost].ends(), "{} {rules} {lost}", server.name);
            }
        }
        assert_eq!(show(&clients[1].ask("PING")), "[$pong $]", "{}", server.name);
    };
    each_backend(&[], |server| run(server));
    Server::valkey(&[]).iter().for_each(run);
}

/// The fields of a log entry but those that tell times and clients.
fn log_fields(entry: &Value) -> String {
    let Value::Map(pairs) = entry else { panic!("{entry:?}") };
    let is_told = |(name, _): &&(Value, Value)| {
        let name = name.as_bytes().unwrap();
        !name.starts_with(b"timestamp") && name != b"age-seconds" && name != b"client-info"
    };
    let pairs = pairs.iter().filter(is_told);
    pairs
        .map(|(name, value)| format!("{}={}", show(name), show(value)))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn what_is_denied_is_logged_and_counted() {
    let run = |server: &Server| -> (Vec<String>, Vec<String>) {
        let mut admin = server.connect();
        admin.ask("HELLO 3");
        admin.ask("ACL SETUSER u on >pw ~a* +@all -set -config db=0");
        let mut client = server.connect();
        for call in [
            "auth u bad",
            "AUTH u bad",
            "HELLO 3 AUTH nosuch x",
            "AUTH u pw",
            "SET a 1",
            "GET k",
            "MGET a k l",
            "SET a 2",
            "CONFIG GET x",
            "GET k",
            "SELECT 1",
            "FLUSHALL",
        ] {
            client.ask(call);
        }
        let log = admin.ask("ACL LOG 20");
        let log = log.as_array().unwrap().iter().map(log_fields).collect();
        assert_eq!(admin.ask("ACL LOG 2").as_array().unwrap().len(), 2);
        assert_eq!(admin.ask("ACL LOG").as_array().unwrap().len(), 8);
        let info = admin.ask_text("INFO stats");
        let counts = info.lines().filter(|line| line.starts_with("acl_access_denied"));
        let counts = counts.filter(|line| !line.contains("tls_cert")).map(str::to_owned).collect();
        admin.ask("CONFIG SET acllog-max-len 1");
        client.ask("GET nokey");
        assert_eq!(admin.ask("ACL LOG").as_array().unwrap().len(), 1);
        assert_eq!(show(&admin.ask("ACL LOG RESET")), "+OK");
        assert_eq!(show(&admin.ask("ACL LOG")), "[]");
        (log, counts)
    };
    let ours = run(&Server::kvasir("epoll", &[]));
    if let Some(valkey) = Server::valkey(&[]) {
        assert_eq!(ours, run(&valkey));
    }
}

#[test]
fn log_entries_show_the_client() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("ACL SETUSER u on nopass +@all");
        client.ask("HELLO 3 AUTH u x SETNAME worker-7");
        client.ask("GET k");
        let log = client.ask("ACL LOG");
        let shown = show(&log);
        for part in [" name=worker-7 ", " cmd=get ", " user=u ", "timestamp-created", "age-seconds"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    });
}

#[test]
fn generated_passwords_are_new_and_long() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        for (call, len) in [("ACL GENPASS", 64), ("ACL GENPASS 5", 2), ("ACL GENPASS 4096", 1024)] {
            let one = client.ask_text(call);
            assert_eq!(one.len(), len, "{call}");
            assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        assert_ne!(client.ask_text("ACL GENPASS"), client.ask_text("ACL GENPASS"));
    });
}
