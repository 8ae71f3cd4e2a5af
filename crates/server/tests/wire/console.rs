//! What the console's page may ask for, and what nobody may: sessions, tokens, rights, other sites.

use kvasir_resp::decode;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

use crate::certificates::free_port;
use crate::check::{run_script, show};
use crate::harness::{Server, backends, figure, wait_until};
use crate::http::{Http, Page, serve};

/// A browser that is logged in.
struct Browser {
    http: Http,
    cookie: String,
    token: String,
}

fn post(http: &mut Http, path: &str, fields: &str, body: &[u8]) -> Page {
    let length = body.len();
    let head = format!(
        "POST /api/{path} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {length}\r\n\r\n"
    );
    http.send(&[head.as_bytes(), body].concat());
    http.read().expect("an answer")
}

fn log_in(port: u16, user: &str, password: &str, fields: &str) -> (Http, Page) {
    let mut http = Http::connect(port);
    let page = post(&mut http, "login", fields, &encode_request(&["LOGIN", user, password]));
    (http, page)
}

impl Browser {
    fn new(port: u16, user: &str, password: &str) -> Browser {
        let (http, page) = log_in(port, user, password, "");
        assert_eq!(page.status, 200, "{}", page.body);
        let cookie = page.fields["set-cookie"].clone();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
        let session = decode::decode(page.body.as_bytes()).expect("a reply");
        let word = |at: usize| show(&session.as_array().expect("a list")[at]);
        assert_eq!(word(1), format!("${user}"));
        let cookie = cookie.split(';').next().expect("a cookie").to_owned();
        Browser { http, cookie, token: word(0)[1..].to_owned() }
    }

    fn post(&mut self, path: &str, more: &str, body: &[u8]) -> Page {
        let Browser { http, cookie, token } = self;
        post(http, path, &format!("Cookie: {cookie}\r\nX-Kvasir-Token: {token}\r\n{more}"), body)
    }

    fn call(&mut self, line: &str, more: &str) -> Page {
        let words: Vec<&str> = line.split(' ').collect();
        self.post("command", more, &encode_request(&words))
    }

    /// The reply to a call that may write.
    fn ask(&mut self, line: &str) -> String {
        let page = self.call(line, "X-Kvasir-Write: yes\r\n");
        assert_eq!(page.status, 200, "{line}: {}", page.body);
        show(&decode::decode(page.body.as_bytes()).expect("a reply"))
    }
}

/// Options are told with what else they are called, and what is to be known of them.
#[test]
fn options_are_told_with_their_other_names() {
    let port = free_port();
    let _server = serve("epoll", port, &[]);
    let mut browser = Browser::new(port, "default", "");
    let page = browser.post("options", "", b"");
    let mut decoder = decode::Decoder::default();
    decoder.feed(page.body.as_bytes());
    let rows = std::iter::from_fn(|| decoder.next_value().expect("calls"));
    let rows: Vec<Vec<String>> =
        rows.map(|row| row.as_array().expect("a row").iter().map(show).collect()).collect();
    assert!(rows.len() > 200 && rows.iter().all(|row| row.len() == 6), "{}", rows.len());
    let row = rows.iter().find(|row| row[0] == "$commandlog-slow-execution-max-len").unwrap();
    assert_eq!((&row[2][..], &row[3][..], &row[5][..]), ("$128", "$", "$slowlog-max-len"));
}

/// What the page asks for to show columns, slots and hot keys is no writing.
#[test]
fn looking_is_not_writing() {
    let port = free_port();
    let server = serve("io_uring", port, &["--hotkeys-sample", "1"]);
    run_script(&mut server.connect(), "HSET p:1 name ann; SADD g:1 2");
    let mut browser = Browser::new(port, "default", "");
    let mut ask = |line: &str| {
        let page = browser.call(line, "");
        assert_eq!(page.status, 200, "{line}: {}", page.body);
        page.body
    };
    assert_eq!(ask("EXPORT BEGIN MATCH p:* TYPE hash COLUMNS __key name"), "*1\r\n:1\r\n");
    assert!(ask("EXPORT END 1").starts_with('+'));
    for line in [
        "HOTKEYS LIST BY calls",
        "HOTKEYS SLOTS BY keys",
        "MEMORY REPORT BY type",
        "GRAPH.DEGREE_RO MATCH g:*",
        "HPTTL p:1 FIELDS 1 name",
        "XINFO GROUPS nosuch",
        "DBSIZE",
    ] {
        let reply = ask(line);
        assert!(!reply.starts_with('-') || reply.contains("no such key"), "{line}: {reply}");
    }
    for line in ["GRAPH.DEGREE MATCH g:* STORE z", "HOTKEYS START METRICS 1 CPU", "RENAMENX a b"] {
        assert_eq!(browser.call(line, "").status, 400, "{line}");
    }
}

#[test]
fn a_session_is_a_client_with_its_users_rights() {
    for backend in backends() {
        let port = free_port();
        let server = serve(backend, port, &[]);
        let mut client = server.connect();
        run_script(&mut client, "ACL SETUSER ann on >pw ~a:* -@all +get +set +select +client|list");
        let mut browser = Browser::new(port, "ann", "pw");
        let list = client.ask_text("CLIENT LIST");
        assert!(list.contains(" name=kvasir-console ") && list.contains(" user=ann "), "{list}");
        // Only what reads, until writing is wanted, and then what the user may.
        assert_eq!(browser.call("GET a:1", "").body, "_\r\n");
        let page = browser.call("SET a:1 v", "");
        assert_eq!((page.status, page.body.contains("turn writing on")), (400, true));
        assert_eq!(browser.ask("SET a:1 v"), "+OK");
        assert!(browser.ask("SET b v").starts_with("-NOPERM"));
        assert!(browser.ask("DEL a:1").starts_with("-NOPERM"));
        for never in ["MONITOR", "SUBSCRIBE a", "AUTH ann pw", "MULTI", "HELLO 2"] {
            assert_eq!(browser.call(never, "X-Kvasir-Write: yes\r\n").status, 400, "{never}");
        }
        // Several at once are answered in order.
        let two = [encode_request(&["GET", "a:1"]), encode_request(&["SELECT", "99"])].concat();
        let page = browser.post("command", "", &two);
        let replies = decode::decode_all(page.body.as_bytes()).expect("replies");
        let replies: Vec<String> = replies.iter().map(show).collect();
        assert_eq!(replies, ["$v", "-ERR DB index is out of range"]);
        let session = format!("Cookie: {}\r\n", browser.cookie);
        assert_eq!(Http::connect(port).get("/api/session", &session).status, 200);
        // Who is killed or deleted has no session any more.
        run_script(&mut client, "ACL DELUSER ann");
        wait_until("its connection is gone", || {
            figure(&mut client, "clients", "connected_clients") == 1
        });
        wait_until("its session is over", || browser.call("GET a:1", "").status == 401);
    }
}

#[test]
fn who_has_no_cookie_no_token_or_another_page_is_refused() {
    let port = free_port();
    let server = serve("io_uring", port, &[]);
    let mut browser = Browser::new(port, "default", "");
    let get = encode_request(&["GET", "k"]);
    let cookie = format!("Cookie: {}\r\n", browser.cookie);
    let token = format!("X-Kvasir-Token: {}\r\n", browser.token);
    let mut http = Http::connect(port);
    for fields in
        [String::new(), cookie.clone(), token.clone(), format!("{cookie}X-Kvasir-Token: 0\r\n")]
    {
        assert_eq!(post(&mut http, "command", &fields, &get).status, 401, "{fields}");
    }
    let both = format!("{cookie}{token}");
    for of_others in ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        assert_eq!(post(&mut http, "command", &format!("{both}{of_others}"), &get).status, 403);
        assert_eq!(log_in(port, "default", "", of_others).1.status, 403);
    }
    assert_eq!(
        post(&mut http, "command", &format!("{both}Origin: http://localhost\r\n"), &get).status,
        200
    );
    assert_eq!(http.get("/api/command", &both).status, 405);
    // A name that was made to lead here is nobody without a password.
    let body = encode_request(&["LOGIN", "default", ""]);
    let head = format!(
        "POST /api/login HTTP/1.1\r\nHost: evil.example\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    http.send(&[head.as_bytes(), &body].concat());
    assert_eq!(http.read().expect("an answer").status, 403);
    assert!(browser.post("options", "", b"").body.contains("metrics-port"));
    assert_eq!(browser.post("logout", "", b"").status, 200);
    assert_eq!(browser.call("GET k", "").status, 401);
    drop(server);
}

#[test]
fn passwords_are_not_tried_at_will() {
    let port = free_port();
    let _server = serve("epoll", port, &["--requirepass", "right"]);
    assert_eq!(log_in(port, "default", "right", "").1.status, 200);
    let tried: Vec<u16> = (0..11).map(|_| log_in(port, "default", "wrong", "").1.status).collect();
    assert_eq!(tried[..10], [403; 10]);
    assert_eq!(tried[10], 429);
}

/// Who has no right password ends nobody's session, however many there are; who has one ends the
/// one that was used longest ago.
#[test]
fn only_who_logs_in_takes_anothers_place() {
    let port = free_port();
    let _server = serve("io_uring", port, &["--requirepass", "right"]);
    let mut all: Vec<Browser> = (0..32).map(|_| Browser::new(port, "default", "right")).collect();
    for _ in 0..9 {
        assert_eq!(log_in(port, "default", "wrong", "").1.status, 403);
    }
    // All but the second are used again.
    for at in (0..32).filter(|at| *at != 1) {
        assert_eq!(all[at].ask("PING"), "+PONG", "{at}");
    }
    let mut one_more = Browser::new(port, "default", "right");
    assert_eq!(one_more.ask("PING"), "+PONG");
    let statuses: Vec<u16> =
        all.iter_mut().map(|browser| browser.call("PING", "").status).collect();
    let over: Vec<usize> = (0..32).filter(|at| statuses[*at] == 401).collect();
    assert_eq!(over, [1], "{statuses:?}");
}

/// What is too long for the page is told in the place of that reply; what fits beside it is there,
/// and the session goes on as it was.
#[test]
fn long_replies_are_told_in_their_place() {
    for backend in backends() {
        let port = free_port();
        let server: Server = serve(backend, port, &[]);
        let mut client = server.connect();
        client.call(&["SET", "large", &"x".repeat(20 << 20)]);
        client.call(&["SET", "fits", &"y".repeat(14 << 20)]);
        let element = "z".repeat(1 << 20);
        client.call(&[&["RPUSH", "list"][..], &[&element[..]; 18]].concat());
        let mut browser = Browser::new(port, "default", "");
        assert_eq!(browser.ask("SELECT 0"), "+OK");
        let text = browser.ask("GET large");
        let told = "-TOOLONG 'get', call 1 of 1, is answered with 20971533 bytes, and all replies \
                    to a request may have 16777216: ask for a part of it by GETRANGE key start end";
        assert_eq!(text, told);
        assert_eq!(browser.ask("GETRANGE large 0 3"), "$xxxx");
        assert_eq!(browser.ask("GET fits").len(), 1 + (14 << 20));
        let calls = ["PING", "GET fits", "LRANGE list 0 -1", "GET large", "LINDEX list 0", "PING"];
        let bytes = calls.map(|line| encode_request(&line.split(' ').collect::<Vec<_>>()));
        let page = browser.post("command", "", &bytes.concat());
        let replies = decode::decode_all(page.body.as_bytes()).expect("replies");
        let replies: Vec<String> = replies.iter().map(show).collect();
        let lens: Vec<usize> = replies.iter().map(String::len).collect();
        assert_eq!((replies.len(), lens[1], lens[4]), (6, 1 + (14 << 20), 1 + (1 << 20)));
        assert_eq!((&replies[0][..], &replies[5][..]), ("+PONG", "+PONG"));
        assert!(replies[2].starts_with("-TOOLONG 'lrange', call 3 of 6, is"), "{}", replies[2]);
        assert!(replies[3].starts_with("-TOOLONG 'get', call 4 of 6, is"), "{}", replies[3]);
    }
}

/// A call that is not answered holds up no other session.
#[test]
fn a_session_waits_alone() {
    let port = free_port();
    let server: Server = serve("io_uring", port, &[]);
    let mut client = server.connect();
    let (mut one, mut other) =
        (Browser::new(port, "default", ""), Browser::new(port, "default", ""));
    let session = format!("Cookie: {}\r\nX-Kvasir-Token: {}\r\n", one.cookie, one.token);
    let call = encode_request(&["BLPOP", "nosuch", "0"]);
    let length = call.len();
    let head = format!(
        "POST /api/command HTTP/1.1\r\nHost: localhost\r\n{session}X-Kvasir-Write: yes\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    one.http.send(&[head.as_bytes(), &call].concat());
    wait_until("it waits", || figure(&mut client, "clients", "blocked_clients") == 1);
    assert_eq!(other.ask("SET a b"), "+OK");
    // The session has one request at a time, also over other connections.
    let ping = encode_request(&["PING"]);
    assert_eq!(post(&mut Http::connect(port), "command", &session, &ping).status, 429);
    client.call(&["RPUSH", "nosuch", "now"]);
    let page = one.http.read().expect("an answer");
    assert_eq!(page.body, "*2\r\n$6\r\nnosuch\r\n$3\r\nnow\r\n");
    assert_eq!(one.ask("PING"), "+PONG");
    assert!(matches!(client.ask("PING"), Value::Simple(_)));
}

/// However often a user logs in, the sessions of others stay.
#[test]
fn a_users_logins_end_nobody_elses_session() {
    let port = free_port();
    let server = serve("epoll", port, &[]);
    run_script(&mut server.connect(), "ACL SETUSER ann on >pw -@all +ping");
    let mut chief = Browser::new(port, "default", "");
    let mut first = Browser::new(port, "ann", "pw");
    let mut others: Vec<Browser> = (0..40).map(|_| Browser::new(port, "ann", "pw")).collect();
    assert_eq!(chief.ask("PING"), "+PONG");
    assert_eq!(first.call("PING", "").status, 401);
    let last = others.last_mut().expect("there are some");
    assert_eq!(last.ask("PING"), "+PONG");
    // Who has none yet takes the place of who has most.
    run_script(&mut server.connect(), "ACL SETUSER bea on >pw -@all +ping");
    let mut bea = Browser::new(port, "bea", "pw");
    assert_eq!((bea.ask("PING"), chief.ask("PING")), ("+PONG".into(), "+PONG".into()));
}

/// Those who say nothing make room for each other, not at the cost of who waits for an answer.
#[test]
fn who_is_served_is_not_cut_off() {
    let port = free_port();
    let server: Server = serve("io_uring", port, &[]);
    let (mut client, mut browser) = (server.connect(), Browser::new(port, "default", ""));
    let session = format!("Cookie: {}\r\nX-Kvasir-Token: {}\r\n", browser.cookie, browser.token);
    let call = encode_request(&["BLPOP", "nosuch", "0"]);
    let length = call.len();
    let head = format!(
        "POST /api/command HTTP/1.1\r\nHost: localhost\r\n{session}X-Kvasir-Write: yes\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    browser.http.send(&[head.as_bytes(), &call].concat());
    wait_until("it waits", || figure(&mut client, "clients", "blocked_clients") == 1);
    let mut silent: Vec<_> = (0..300).map(|_| crate::http::open(port)).collect();
    // The first of them have been closed, so all were accepted.
    assert!(Http::over(silent.remove(0)).read().is_none());
    assert_eq!(crate::http::get(port, "/healthz").status, 200);
    client.call(&["RPUSH", "nosuch", "now"]);
    assert_eq!(browser.http.read().expect("an answer").body, "*2\r\n$6\r\nnosuch\r\n$3\r\nnow\r\n");
}
