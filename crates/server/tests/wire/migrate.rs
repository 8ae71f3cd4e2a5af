//! MIGRATE from a server to one of another kind, outside of clusters.

use kvasir_resp::value::Value;

use crate::certificates::free_port;
use crate::check::show;
use crate::harness::{Server, backends};

/// The connection is kept for the next call, what was said over it of who calls is not.
#[test]
fn each_call_says_who_calls() {
    let run = |make: &dyn Fn(&[&str]) -> Option<Server>| {
        let port = free_port().to_string();
        let Some(target) = make(&["--port", &port, "--requirepass", "one"]) else { return };
        let source = Server::kvasir(backends()[0], &[]);
        let (mut to, mut from) = (target.connect(), source.connect());
        let mut migrate = |key: &str, rest: &str| {
            from.ask_text(&format!("SET {key} x"));
            let call = format!("MIGRATE 127.0.0.1 {port} {key} 0 100000 {rest}");
            show(&from.ask(call.trim_end()))
        };
        let refused = |text: &str| format!("-ERR Target instance replied with error: {text}");
        assert_eq!(migrate("a", ""), refused("NOAUTH Authentication required."));
        assert_eq!(migrate("a", "AUTH one"), "+OK");
        assert_eq!(migrate("b", "AUTH2 default one"), "+OK");
        assert_eq!(to.ask_text("AUTH one"), "OK");
        assert_eq!(to.ask_text("CONFIG SET requirepass two"), "OK");
        let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
        assert_eq!(migrate("c", "AUTH one"), refused(wrong), "{}", target.name);
        assert_eq!(migrate("c", "AUTH two"), "+OK");
        assert_eq!(to.ask("DBSIZE"), Value::Integer(3));
        assert_eq!(migrate("c", "REPLACE AUTH two"), "+OK");
    };
    run(&|options| Some(Server::kvasir(backends()[0], options)));
    run(&Server::redis);
    run(&Server::valkey);
}
