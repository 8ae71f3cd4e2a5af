//! PING, ECHO, SELECT, HELLO, AUTH, RESET, QUIT, and errors of calls that are no command's.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::check::{check, check_ours, check_with, show};
use crate::harness::each_backend;

#[test]
fn simple_calls() {
    check(&[
        (
            "PING; ping hello; PING a b",
            "+PONG; $hello; -ERR wrong number of arguments for 'ping' command",
        ),
        ("ECHO x; echo \"\"; ECHO", "$x; $; -ERR wrong number of arguments for 'echo' command"),
        (
            "SELECT 1; SELECT 15; SELECT 16; SELECT -1; SELECT x; SELECT 99999999999",
            "+OK; +OK; -ERR DB index is out of range; -ERR DB index is out of range; \
             -ERR value is not an integer or out of range; -ERR value is out of range, value must \
             between -2147483648 and 2147483647",
        ),
        ("RESET; RESET x", "+RESET; -ERR wrong number of arguments for 'reset' command"),
        ("QUIT; PING", "+OK; !"),
        ("QUIT a b", "+OK"),
    ]);
}

#[test]
fn unknown_calls() {
    check(&[
        (
            "NOSUCH; nosuch a b; Client nosuch; CLIENT; COMMAND nosuch x; CONFIG nosuch",
            "-ERR unknown command 'NOSUCH', with args beginning with: ; \
             -ERR unknown command 'nosuch', with args beginning with: 'a' 'b' ; \
             -ERR unknown subcommand 'nosuch'. Try CLIENT HELP.; \
             -ERR wrong number of arguments for 'client' command; \
             -ERR unknown subcommand 'nosuch'. Try COMMAND HELP.; \
             -ERR unknown subcommand 'nosuch'. Try CONFIG HELP.",
        ),
        (
            "client|list; CLIENT LIST TYPE; CLIENT SETNAME; CLIENT SETNAME a b",
            "-ERR unknown command 'client|list', with args beginning with: ; -ERR syntax error; \
             -ERR wrong number of arguments for 'client|setname' command; \
             -ERR wrong number of arguments for 'client|setname' command",
        ),
    ]);
}

#[test]
fn hello_refuses() {
    check(&[
        (
            "HELLO x; HELLO 1; HELLO 4; HELLO 3 x; HELLO 3 AUTH a; HELLO 3 SETNAME; HELLO 3 AUTH x y",
            "-ERR Protocol version is not an integer or out of range; \
             -NOPROTO unsupported protocol version; -NOPROTO unsupported protocol version; \
             -ERR Syntax error in HELLO option 'x'; -ERR Syntax error in HELLO option 'AUTH'; \
             -ERR Syntax error in HELLO option 'SETNAME'; \
             -WRONGPASS invalid username-password pair or user is disabled.",
        ),
        (
            "HELLO 2 SETNAME \"a b\"; CLIENT GETNAME",
            "-ERR Client names cannot contain spaces, newlines or special characters.; _",
        ),
    ]);
}

#[test]
fn hello_tells_and_changes() {
    let hello = |proto: u8, id: u64| {
        format!(
            "$server $redis $version $7.2.4 $proto :{proto} $id :{id} $mode $standalone \
             $role $master $modules []"
        )
    };
    each_backend(&[], |server| {
        let mut client = server.connect();
        let mut ask = |line: &str| crate::check::show(&client.ask(line));
        let id: u64 = ask("CLIENT ID")[1..].parse().unwrap();
        assert_eq!(ask("HELLO"), format!("[{}]", hello(2, id)));
        assert_eq!(ask("HELLO 3 SETNAME me"), format!("{{{}}}", hello(3, id)));
        assert_eq!(ask("CLIENT GETNAME"), "$me");
        assert_eq!(ask("RESET"), "+RESET");
        assert_eq!(ask("CLIENT GETNAME"), "_");
        assert_eq!(ask("HELLO"), format!("[{}]", hello(2, id)));
    });
}

#[test]
fn auth_without_a_password() {
    check(&[(
        "AUTH x; AUTH default x; AUTH other x; AUTH a b c; AUTH",
        "-ERR AUTH <password> called without any password configured for the default user. Are \
         you sure your configuration is correct?; +OK; \
         -WRONGPASS invalid username-password pair or user is disabled.; -ERR syntax error; \
         -ERR wrong number of arguments for 'auth' command",
    )]);
}

#[test]
fn auth_with_a_password() {
    check_with(
        &["--requirepass", "secret"],
        &[
            (
                "PING; ECHO; AUTH wrong; AUTH secret; PING; RESET; PING",
                "-NOAUTH Authentication required.; \
                 -ERR wrong number of arguments for 'echo' command; \
                 -WRONGPASS invalid username-password pair or user is disabled.; +OK; +PONG; \
                 +RESET; -NOAUTH Authentication required.",
            ),
            ("AUTH default secret; SELECT 1", "+OK; +OK"),
            (
                "HELLO 2 AUTH default wrong; HELLO 2; HELLO 9",
                "-WRONGPASS invalid username-password pair or user is disabled.; \
                 -NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                 HELLO AUTH <user> <pass> option can be used to authenticate the client \
                 and select the RESP protocol version at the same time; \
                 -NOPROTO unsupported protocol version",
            ),
            ("QUIT", "+OK"),
        ],
    );
}

#[test]
fn a_password_set_at_run_time_counts_at_once() {
    check_ours(
        &[],
        &[
            (
                "CONFIG SET requirepass new; PING; RESET; PING; AUTH new; PING",
                "+OK; +PONG; +RESET; -NOAUTH Authentication required.; +OK; +PONG",
            ),
            ("PING; AUTH new", "-NOAUTH Authentication required.; +OK"),
        ],
    );
}

/// What comes behind a QUIT must not be taken for the call of whoever gets the connection's place.
#[test]
fn bytes_of_a_closed_connection_are_nobodys() {
    each_backend(&["--io-threads", "1"], |server| {
        let server = &*server;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) {
                        let mut noisy = server.connect();
                        noisy.try_send(&["QUIT"]);
                        while noisy.try_send(&["ECHO", "leak"]) {}
                    }
                });
            }
            let replies: Vec<String> =
                (0..500).map(|_| show(&server.connect().ask("PING"))).collect();
            is_over.store(true, Relaxed);
            assert!(replies.iter().all(|reply| reply == "+PONG"), "{replies:?}");
        });
    });
}
