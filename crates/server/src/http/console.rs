//! The console: its page, which is embedded where it was built, and what the page may ask for.
//!
//! | Path | Asks for |
//! |---|---|
//! | `/api/login` | a session: the body is `LOGIN user password`, as a call |
//! | `/api/session` | who the session is: its token and its user |
//! | `/api/command` | replies: the body is calls, as bytes of the protocol, and so is the answer |
//! | `/api/options` | what is known of each option |
//! | `/api/logout` | an end |
//!
//! All but the session have to come by POST, with the token where there is a session, and, as
//! browsers say it, from a page of this server.

use std::net::IpAddr;

use kvasir_config::row::{Change, Row};
use kvasir_config::table;
use kvasir_reactor::{ConnectionId, Reactor};
use kvasir_resp::decode;
use kvasir_resp::encode::encode_request;

use crate::http::answer::Answer;
use crate::http::calls;
use crate::http::request::{Method, Request};
use crate::http::sessions::{Proof, RESP, Sessions};
use crate::state::shared::Shared;

include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// What the page may do: use its own script and style, and ask this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src data:; frame-ancestors 'none'; \
                      base-uri 'none'; form-action 'none'";

const NO_CONSOLE: &str = "\
Kvasir is here, but this program was built without its console.

    cargo xtask console     builds its page; then build the server again.

/metrics  figures, for Prometheus
/healthz  whether the server lives
/readyz   whether its data is loaded and, of a replica, its link is up
";

const KINDS: [&str; 3] =
    ["text/html; charset=utf-8", "text/javascript; charset=utf-8", "text/css; charset=utf-8"];

/// The page, its script and its style; what to do where there are none.
pub fn page(path: &str) -> Option<Answer> {
    let at = ["/", "/console.js", "/console.css"].iter().position(|known| *known == path)?;
    match BUILT {
        Some(files) => Some(Answer::new(200, KINDS[at], files[at]).under(POLICY)),
        None if at == 0 => Some(Answer::text(200, NO_CONSOLE)),
        None => None,
    }
}

pub struct Console {
    shared: &'static Shared,
    pub sessions: Sessions,
}

impl Console {
    pub fn new(shared: &'static Shared) -> Console {
        Console { shared, sessions: Sessions::new(shared.config().metrics.port) }
    }

    /// None: it is answered once the server has done so.
    pub fn call(
        &mut self,
        path: &str,
        request: &Request,
        client: ConnectionId,
        reactor: &mut Reactor,
    ) -> Option<Answer> {
        let cookies = request.text("cookie").unwrap_or_default();
        let id = self.sessions.id_of(cookies).unwrap_or_default();
        if path == "session" && request.method == Method::Get {
            let found = self.sessions.find(id).map(|session| self.sessions.describe(session));
            return Some(found.unwrap_or_else(|| Answer::refusal(401)));
        }
        if request.method != Method::Post {
            return Some(Answer::refusal(405).with("Allow", "POST"));
        }
        if !is_of_own_page(request) {
            return Some(Answer::refusal(403));
        }
        if path == "login" {
            return self.log_in(request, client, reactor).err();
        }
        let token = request.text("x-kvasir-token").unwrap_or_default();
        let Some(session) = self.sessions.prove(Proof { id, token }) else {
            return Some(Answer::refusal(401));
        };
        match path {
            "command" => self.command(request, session, client, reactor),
            "options" => Some(Answer::new(200, RESP, options())),
            "logout" => {
                self.sessions.end(reactor, session);
                Some(Answer::text(200, "ok\n"))
            }
            _ => Some(Answer::refusal(404)),
        }
    }

    fn log_in(
        &mut self,
        request: &Request,
        client: ConnectionId,
        reactor: &mut Reactor,
    ) -> Result<(), Answer> {
        let body = decode::decode(&request.body).ok();
        let words = body.as_ref().and_then(|body| body.as_array()).unwrap_or_default();
        let words: Vec<&[u8]> = words.iter().filter_map(|word| word.as_bytes()).collect();
        let &[_, user, password] = &words[..] else { return Err(Answer::refusal(400)) };
        let has_password = self.shared.acl.find(user).is_none_or(|user| !user.takes_any_password);
        // Another site's name may be made to lead here; who needs no password would be its.
        if !has_password && !request.text("host").is_some_and(is_plain_host) {
            let text = "a user without a password logs in by an address or as localhost only\n";
            return Err(Answer::text(403, text));
        }
        self.sessions.log_in(reactor, self.shared, client, user, password)
    }

    fn command(
        &mut self,
        request: &Request,
        session: ConnectionId,
        client: ConnectionId,
        reactor: &mut Reactor,
    ) -> Option<Answer> {
        let may_write = request.text("x-kvasir-write") == Some("yes");
        match calls::check(&self.shared.table, &request.body, may_write) {
            Ok(names) if names.is_empty() => Some(Answer::new(200, RESP, "")),
            Ok(names) => {
                self.sessions.call(reactor, session, client, request.body.clone(), names).err()
            }
            Err(text) => Some(Answer::text(400, text + "\n")),
        }
    }

    pub fn received(
        &mut self,
        reactor: &mut Reactor,
        session: ConnectionId,
        bytes: &[u8],
    ) -> Option<(ConnectionId, Answer)> {
        let is_tls = self.shared.config().tls.metrics;
        self.sessions.received(reactor, session, bytes, is_tls)
    }
}

/// Whether a request comes from a page of this server, as far as the browser tells. A program need
/// not say.
fn is_of_own_page(request: &Request) -> bool {
    let site = request.text("sec-fetch-site").unwrap_or("same-origin");
    let origin = request.text("origin").map(|origin| origin.split_once("://").map(|of| of.1));
    let is_own = origin.is_none_or(|host| host == request.text("host"));
    is_own && matches!(site, "same-origin" | "none")
}

/// An address or `localhost`, with or without a port.
fn is_plain_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

/// Of each option its name, chapter, default, when it may be changed, its explanation, and what
/// else it is called.
fn options() -> Vec<u8> {
    let row = |row: &'static Row| {
        let change = match row.change {
            Change::AtRunTime => "",
            Change::Protected => "protected",
            Change::AtStart => "start",
        };
        let aliases = row.aliases.join(" ");
        encode_request(&[row.name, row.group.title(), row.default, change, row.doc, &aliases])
    };
    table::all().filter(|row| !row.is_hidden).flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_nobody_else_can_have() {
        for host in ["localhost", "localhost:9121", "127.0.0.1:80", "[::1]:80", "[::1]", "10.0.0.1"]
        {
            assert!(is_plain_host(host), "{host}");
        }
        for host in ["", "evil.example", "evil.example:9121", "localhost.evil:1", "1.2.3.4.evil"] {
            assert!(!is_plain_host(host), "{host}");
        }
    }

    #[test]
    fn pages_of_others_are_told_apart() {
        let check = |fields: &str, expect: bool| {
            let text = format!("POST /api/login HTTP/1.1\r\nHost: a:1\r\n{fields}\r\n");
            let (request, _) = Request::parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(is_of_own_page(&request), expect, "{fields}");
        };
        check("", true);
        check("Origin: http://a:1\r\n", true);
        check("Origin: https://a:1\r\nSec-Fetch-Site: same-origin\r\n", true);
        check("Origin: http://b:1\r\n", false);
        check("Origin: null\r\n", false);
        check("Sec-Fetch-Site: cross-site\r\n", false);
    }
}
