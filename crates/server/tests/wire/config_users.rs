//! CONFIG REWRITE and users: what a restart finds is what there was, as in Redis.

use std::fs;
use std::process::Command;

use kvasir_resp::value::Value;

use crate::harness::{Client, Server};

/// Runs calls at a server with a configuration, ours and a peer's, and returns the file.
fn rewritten(server: &Server, calls: &[&str]) -> String {
    let mut client = server.connect();
    for call in calls {
        let reply = client.ask(call);
        assert!(!matches!(reply, Value::Error(_)), "{call}: {reply:?} in {}", server.name);
    }
    assert_eq!(client.ask("CONFIG REWRITE").as_bytes(), Some(&b"OK"[..]), "{}", server.name);
    server.read_file("the.conf")
}

/// The lines of users, comments and passwords, in their order.
/// Lines that are about users, each with its words in some order: Redis writes commands in that of
/// a table that it seeds at each start.
fn told(file: &str) -> Vec<Vec<&str>> {
    let starts = ["user ", "# c", "maxclients"];
    let told = file.lines().filter(|line| starts.iter().any(|start| line.starts_with(start)));
    let mut words: Vec<Vec<&str>> = told.map(|line| line.split(' ').collect()).collect();
    words.iter_mut().for_each(|words| words.sort_unstable());
    words
}

/// ACL LIST of a server that is started on a file.
fn users(server: &Server, login: Option<&str>) -> Vec<String> {
    let mut client = server.connect();
    if let Some(login) = login {
        assert_eq!(client.ask(login).as_bytes(), Some(&b"OK"[..]), "{login}");
    }
    list(&mut client)
}

fn list(client: &mut Client) -> Vec<String> {
    let Value::Array(users) = client.ask("ACL LIST") else { panic!("no users") };
    let text = |user: &Value| String::from_utf8(user.as_bytes().unwrap().to_vec()).unwrap();
    users.iter().map(text).collect()
}

/// Configurations, calls, and how to log in later.
const CASES: &[(&str, &[&str], Option<&str>)] = &[
    ("port 0\n", &[], None),
    (
        "port 0\nuser alice on >pw ~* +@all\n# c\nuser bob on nopass ~b:* +get\n\
         user gone on nopass +@all\nmaxclients 100\n",
        &[
            "ACL DELUSER gone",
            "ACL SETUSER alice resetpass >new",
            "ACL SETUSER carol on >x ~c* +set (~d* +get)",
        ],
        None,
    ),
    ("port 0\nuser alice on >pw\n# c\n  USER bob on\n# c 2\n", &["ACL DELUSER alice bob"], None),
    (
        "port 0\nrequirepass old\n",
        &["AUTH old", "ACL SETUSER default resetpass >new"],
        Some("AUTH new"),
    ),
    ("port 0\nrequirepass old\n", &["AUTH old", "ACL SETUSER default >new"], Some("AUTH old")),
    ("port 0\nrequirepass old\n", &["AUTH old", "ACL SETUSER default nopass"], None),
    ("port 0\nrequirepass old\n", &["AUTH old", "CONFIG SET requirepass new"], Some("AUTH new")),
    ("port 0\n", &["ACL SETUSER default -@all +acl +config +auth"], None),
];

#[test]
fn users_are_written_as_redis_writes_them() {
    for (text, calls, login) in CASES {
        let server = Server::kvasir_with_file("the.conf", text);
        let ours = rewritten(&server, calls);
        let before = list(&mut logged_in(&server, *login));
        if let Some(oracle) = Server::redis_with_file("the.conf", text) {
            assert_eq!(told(&ours), told(&rewritten(&oracle, calls)), "{text}");
        }
        let again = Server::kvasir_with_file("the.conf", &ours);
        assert_eq!(users(&again, *login), before, "{text}");
    }
}

fn logged_in(server: &Server, login: Option<&str>) -> Client {
    let mut client = server.connect();
    login.iter().for_each(|login| drop(client.ask(login)));
    client
}

/// Redis does not start on what it writes of these.
#[test]
fn odd_words_read_back() {
    let server = Server::kvasir_with_file("the.conf", "port 0\n");
    let mut client = server.connect();
    let ok = Value::Simple(b"OK".to_vec());
    assert_eq!(client.call(&[&b"ACL"[..], b"SETUSER", b"a\"b'\\\x01\xff#", b"on"]), ok);
    assert_eq!(
        client.call(&[&b"ACL"[..], b"SETUSER", b"#x", b"on", b"~'\"\\\xfe", b"&\"", b"(~y +get)"]),
        ok
    );
    let before = client.ask("ACL LIST");
    assert_eq!(client.ask("CONFIG REWRITE"), ok);
    let again = Server::kvasir_with_file("the.conf", &server.read_file("the.conf"));
    assert_eq!(again.connect().ask("ACL LIST"), before);
}

/// An included file is not written to, and no user may be declared twice.
#[test]
fn users_of_included_files_stay_there() {
    let directory = crate::saving::directory();
    let include = directory.path().join("users.conf");
    let declared = "user alice on >pw ~* +@all\nuser gone on nopass\nuser bob on\n";
    fs::write(&include, declared).unwrap();
    let text = format!("port 0\ninclude {}\n", include.display());
    let server = Server::kvasir_with_file("the.conf", &text);
    let ours = rewritten(&server, &["ACL SETUSER carol on"]);
    let lines: Vec<_> = ours.lines().filter(|line| line.starts_with("user ")).collect();
    assert_eq!(lines, ["user carol on resetchannels -@all", "user default on nopass ~* &* +@all"]);
    let mut client = server.connect();
    let before = client.ask("ACL LIST");
    assert_eq!(Server::kvasir_with_file("the.conf", &ours).connect().ask("ACL LIST"), before);

    for change in ["ACL DELUSER gone", "ACL SETUSER alice >more"] {
        client.ask(change);
        let Value::Error(error) = client.ask("CONFIG REWRITE") else { panic!("{change} is lost") };
        let error = String::from_utf8(error).unwrap();
        let wanted = format!("of {} declares it", include.display());
        assert!(error.starts_with("ERR Rewriting config file: user '"), "{error}");
        assert!(error.contains(&wanted), "{error}");
        assert_eq!(server.read_file("the.conf"), ours);
    }
    // Once it is changed there too, all is well.
    fs::write(&include, "user alice on >pw >more ~* +@all\nuser bob on\n").unwrap();
    assert_eq!(client.ask("CONFIG REWRITE"), Value::Simple(b"OK".to_vec()));
    let before = client.ask("ACL LIST");
    let again = Server::kvasir_with_file("the.conf", &server.read_file("the.conf"));
    assert_eq!(again.connect().ask("ACL LIST"), before);
}

#[test]
fn users_of_the_command_line_stay_there() {
    let directory = crate::saving::directory();
    let file = directory.path().join("the.conf");
    fs::write(&file, "port 0\nuser alice on\n").unwrap();
    let start = |socket: &str| {
        let socket = directory.path().join(socket);
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
        command.arg(&file).arg("--unixsocket").arg(&socket).args(["--user", "bob", "on"]);
        let process = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        crate::harness::wait_until("it listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        (process, Client::connect(&socket))
    };
    let (mut process, mut client) = start("first");
    assert_eq!(client.ask("CONFIG REWRITE").as_bytes(), Some(&b"OK"[..]));
    let before = client.ask("ACL LIST");
    client.ask("ACL SETUSER bob off");
    assert!(matches!(client.ask("CONFIG REWRITE"), Value::Error(_)));
    client.send(&["SHUTDOWN", "NOSAVE"]);
    process.wait().unwrap();
    let (mut process, mut client) = start("second");
    assert_eq!(client.ask("ACL LIST"), before);
    client.send(&["SHUTDOWN", "NOSAVE"]);
    process.wait().unwrap();
}
