//! Users at the start and in the ACL file; commands renamed, removed and forbidden.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::acl::check_valkey;
use crate::check::{check_ours, check_with, show};
use crate::harness::{Server, each_backend};

/// A file in a directory of its own.
struct AclFile {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl AclFile {
    fn new(text: &str) -> AclFile {
        let dir = tempfile::tempdir().unwrap();
        let file = AclFile { path: dir.path().join("users.acl"), _dir: dir };
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.path, text).unwrap();
    }

    fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// What a server says that does not start.
fn refusal(options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.args(["--port", "0", "--io-threads", "1"]).args(options).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(!output.status.success(), "it started: {options:?}");
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}

const USERS: &str = "user default on nopass ~* &* +@all\n\
    user app on >x +get +config|get ~a* %R~b resetchannels &c (+set ~z)\r\n\n  user idle off \n";

#[test]
fn files_are_loaded_and_saved() {
    let run = |start: fn(&[&str]) -> Option<Server>| -> Option<Vec<String>> {
        let file = AclFile::new(USERS);
        let server = start(&["--aclfile", file.name()])?;
        let mut admin = server.connect();
        let mut shown = vec![show(&admin.ask("ACL LIST"))];
        let mut app = server.connect();
        app.ask("AUTH app x");
        let mut idle = server.connect();
        admin.ask("ACL SETUSER idle on nopass");
        idle.ask("AUTH idle x");
        for call in ["ACL SETUSER more +@read", "ACL SAVE"] {
            shown.push(show(&admin.ask(call)));
        }
        shown.push(std::fs::read_to_string(&file.path).unwrap());
        for text in [
            "user app on +foo\nusr b on\nuser c on +bad1 ~a +bad2 x y\nuser c on\nuser\n",
            "# no comments\n",
            "user\tx on\nUSER y on\nuser \"q r\" on\n",
            "user f on (+get ~x) bar\nuser p # x\n",
        ] {
            file.write(text);
            let reply = show(&admin.ask("ACL LOAD"));
            shown.push(reply.replace(file.name(), "FILE"));
        }
        shown.push(show(&admin.ask("ACL LIST")));
        file.write("user app on >x +get ~b*\nuser new on nopass +@all\n");
        shown.push(show(&admin.ask("ACL LOAD")));
        shown.push(show(&admin.ask("ACL LIST")));
        shown.push(show(&app.ask("GET a")));
        assert!(idle.ends(), "its user is gone");
        std::fs::remove_file(&file.path).unwrap();
        shown.push(show(&admin.ask("ACL LOAD")).replace(file.name(), "FILE"));
        std::fs::create_dir(&file.path).unwrap();
        shown.push(show(&admin.ask("ACL SAVE")));
        Some(shown)
    };
    let ours = run(|options| Some(Server::kvasir("epoll", options))).unwrap();
    if let Some(theirs) = run(Server::valkey) {
        assert_eq!(ours, theirs);
    }
}

/// A parenthesis that nothing closes is named here; peers crash.
#[test]
fn files_with_open_parentheses_are_refused() {
    let file = AclFile::new(USERS);
    each_backend(&["--aclfile", file.name()], |server| {
        file.write("user a on (+get\nuser b on\n");
        let reply = show(&server.connect().ask("ACL LOAD"));
        assert!(reply.contains(":1: Unmatched parenthesis in selector definition."), "{reply}");
        file.write(USERS);
    });
}

#[test]
fn a_saved_file_starts_the_same_users() {
    let file = AclFile::new(USERS);
    let options = ["--aclfile", file.name()];
    let before = {
        let server = Server::kvasir("epoll", &options);
        let mut admin = server.connect();
        admin.call(&["ACL", "SETUSER", "odd\"'(", "on", ">p", "~q\"'", "(~\"a)\" +get)", "db=1,2"]);
        admin.ask(
            "ACL SETUSER s resetdbs +@all -@dangerous +select|0 (allchannels %W~x) (resetdbs)",
        );
        admin.ask("ACL SAVE");
        show(&admin.ask("ACL LIST"))
    };
    let server = Server::kvasir("epoll", &options);
    assert_eq!(show(&server.connect().ask("ACL LIST")), before);
    let left = std::fs::read_dir(file.path.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "no temporary file is left");
}

#[test]
fn a_wrong_start_is_refused_with_its_line() {
    let bad = AclFile::new("user default on nopass ~* +@all\nuser a +nosuch\n");
    let said = refusal(&["--aclfile", bad.name()]);
    let line = format!("{}:2: Error in applying operation '+nosuch'", bad.name());
    assert!(
        said.contains("aborting the start because of ACL errors") && said.contains(&line),
        "{said}"
    );
    let good = AclFile::new(USERS);
    let said = refusal(&["--aclfile", good.name(), "--user", "a", "on"]);
    assert!(said.contains(good.name()) && said.contains(">>> 'user"), "{said}");
    let said = refusal(&["--aclfile", "/nosuch/users.acl"]);
    assert!(said.contains("opening file '/nosuch/users.acl': No such file or directory"), "{said}");
    for (options, reason) in [
        (
            &["--user", "a", "+nosuch"][..],
            "Error in user declaration 'a': '+nosuch': Unknown command",
        ),
        (&["--user", "a", "on", "--user", "a", "off"], "Duplicate user found."),
        (&["--user", "a b", "on"], "Spaces not allowed in ACL usernames"),
        (&["--user", "a", "(+get"], "Unmatched parenthesis in selector definition"),
        (&["--user"], "Bad directive or wrong number of arguments"),
        (&["--rename-command", "nosuch", "x"], "No such command in rename-command"),
        (&["--rename-command", "get", "SET"], "Target command name already exists"),
        (&["--rename-command", "get"], "Bad directive or wrong number of arguments"),
    ] {
        let said = refusal(options);
        assert!(said.contains(reason) && said.contains("at option"), "{options:?}: {said}");
    }
}

#[test]
fn users_are_declared_in_the_configuration() {
    let options = [
        "--requirepass",
        "x",
        "--user",
        "app",
        "on",
        ">y",
        "~a*",
        "(+get",
        "~b)",
        "--user",
        "default",
        "on",
        "nopass",
        "+@all",
    ];
    check_valkey(&options, &["ACL LIST; AUTH app y; GET a; GET b; GET c; SET a 1"]);
}

#[test]
fn commands_are_renamed_and_removed() {
    let options = [
        "--rename-command",
        "config",
        "hidden-0123456789abcdef0123456789abcdef",
        "--rename-command",
        "FLUSHALL",
        "",
        "--rename-command",
        "get",
        "fetch",
    ];
    check_with(
        &options,
        &[
            (
                "FLUSHALL; GET k; SET k v; FETCH k; CONFIG GET hz; \
                 HIDDEN-0123456789abcdef0123456789abcdef GET hz; \
                 hidden-0123456789abcdef0123456789abcdef nosuch",
                "-ERR unknown command 'FLUSHALL', with args beginning with: ; \
                 -ERR unknown command 'GET', with args beginning with: 'k' ; +OK; $v; \
                 -ERR unknown command 'CONFIG', with args beginning with: 'GET' 'hz' ; [$hz $10]; \
                 -ERR unknown subcommand 'nosuch'. Try HIDDEN-0123456789ABCDEF0123456789ABCDEF \
                 HELP.",
            ),
            (
                "COMMAND INFO flushall get; COMMAND LIST FILTERBY PATTERN fetch; \
                 COMMAND LIST FILTERBY PATTERN flushall; COMMAND LIST FILTERBY PATTERN get; \
                 COMMAND GETKEYS fetch k",
                "[_ _]; []; []; [$get]; [$k]",
            ),
            // Rules are about commands, whatever they are called.
            (
                "ACL SETUSER u on nopass ~* -@all +get +flushall; ACL SETUSER u +fetch; \
                 ACL DRYRUN u get k; ACL DRYRUN u fetch k; AUTH u x; FETCH k",
                "+OK; -ERR Error in ACL SETUSER modifier '+fetch': Unknown command or category name \
                 in ACL; -ERR Command 'get' not found; +OK; +OK; $v",
            ),
        ],
    );
}

#[test]
fn protected_options_and_commands() {
    check_ours(
        &["--enable-debug-command", "no"],
        &[(
            "DEBUG HELP; CONFIG SET dir /; CONFIG SET enable-protected-configs yes; \
             CONFIG SET aclfile x; CONFIG GET enable-*",
            "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
             you can run it from a local connection, otherwise you need to set this option in the \
             configuration file, and then restart the server.; \
             -ERR CONFIG SET failed (possibly related to argument 'dir') - can't set protected \
             config; \
             -ERR CONFIG SET failed (possibly related to argument 'enable-protected-configs') - \
             can't set immutable config; \
             -ERR CONFIG SET failed (possibly related to argument 'aclfile') - can't set immutable \
             config; \
             [$enable-debug-command $no $enable-module-command $no $enable-protected-configs $no]",
        )],
    );
    for who in ["yes", "local"] {
        check_ours(
            &["--enable-debug-command", who, "--enable-protected-configs", who],
            &[(
                "DEBUG SET-ACTIVE-EXPIRE 1; CONFIG SET dir /nosuch; CONFIG SET hz 11 dir /; \
                 CONFIG GET dir; CONFIG GET hz",
                "+OK; -ERR CONFIG SET failed (possibly related to argument 'dir') - No such file or \
                 directory; +OK; [$dir $/]; [$hz $11]",
            )],
        );
    }
}
