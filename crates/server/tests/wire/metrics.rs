//! Metrics over HTTP: their names, their formats, who may see them, and clients that mean harm.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::Shutdown;

use crate::certificates::{BOTH, Certificates, TlsServer, free_port};
use crate::check::{run_script, show};
use crate::harness::{Server, backends, wait_until};
use crate::http::{Http, get, open, serve};

/// Names, types and labels that redis_exporter has, with its default options.
const NAMES: &str = include_str!("exporter_names.txt");

type Labels = BTreeMap<String, String>;

/// A page of metrics, read strictly: types by name, and the labels and values of each name.
#[derive(Default)]
struct Metrics {
    types: BTreeMap<String, String>,
    samples: BTreeMap<String, Vec<(Labels, f64)>>,
}

impl Metrics {
    fn parse(text: &str) -> Metrics {
        let mut metrics = Metrics::default();
        let (mut family, mut seen) = (String::new(), BTreeSet::new());
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(head) = line.strip_prefix("# TYPE ") {
                let (name, kind) = head.split_once(' ').expect(line);
                assert_eq!(family, name, "a type without help");
                assert_eq!(metrics.types.insert(name.into(), kind.into()), None, "{name} twice");
            } else if let Some(head) = line.strip_prefix("# HELP ") {
                family = head.split_once(' ').expect(line).0.into();
            } else {
                let (name, labels, value) = sample(line);
                assert!(name.starts_with(&family), "{line} is not of {family}");
                assert!(seen.insert((name.clone(), labels.clone())), "twice: {line}");
                metrics.samples.entry(name).or_default().push((labels, value));
            }
        }
        metrics
    }

    fn value(&self, name: &str) -> f64 {
        let samples = self.samples.get(name).unwrap_or_else(|| panic!("there is no {name}"));
        assert_eq!(samples.len(), 1, "{name}");
        samples[0].1
    }

    /// Of the sample with this label.
    fn labelled(&self, name: &str, label: (&str, &str)) -> Option<f64> {
        let has = |labels: &Labels| labels.get(label.0).is_some_and(|value| value == label.1);
        self.samples.get(name)?.iter().find(|(labels, _)| has(labels)).map(|(_, value)| *value)
    }
}

/// Name, labels and value of a line.
fn sample(line: &str) -> (String, Labels, f64) {
    let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let (start, value) = line.rsplit_once(' ').expect(line);
    let end = start.find(|char| !is_name(char)).unwrap_or(start.len());
    let (name, mut rest) = start.split_at(end);
    let mut labels = Labels::new();
    if !rest.is_empty() {
        rest = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).expect(line);
    }
    while !rest.is_empty() {
        let (label, value) = rest.split_once("=\"").expect(line);
        assert!(!label.is_empty() && label.chars().all(is_name), "{line}");
        let mut text = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next().expect(line) {
                (at, '"') => break at + 1,
                (_, '\\') => text.push(match chars.next().expect(line).1 {
                    'n' => '\n',
                    char @ ('"' | '\\') => char,
                    char => panic!("\\{char} in {line}"),
                }),
                (_, char) => text.push(char),
            }
        };
        assert_eq!(labels.insert(label.to_owned(), text), None, "{line}");
        rest = &value[end..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    (name.to_owned(), labels, value.parse().expect(line))
}

fn scrape(port: u16) -> Metrics {
    let page = get(port, "/metrics");
    assert_eq!(page.status, 200);
    Metrics::parse(&page.body)
}

/// Every name that redis_exporter has is there, of the same type and with the same labels.
#[test]
fn names_are_those_of_the_exporter() {
    let port = free_port();
    let file = ["--appendonly", "yes", "--latency-monitor-threshold", "1"];
    let server = serve("io_uring", port, &file);
    let mut client = server.connect();
    let script = "SET a 1 EX 1000; GET a; HSET h f v; CONFIG SET slowlog-log-slower-than 0; \
                  CONFIG GET slowlog-max-len; NOSUCH; DEBUG SLEEP 0.01";
    run_script(&mut client, script);
    let metrics = scrape(port);
    for line in NAMES.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, kind, labels) = (words[0], words[1], &words[2..]);
        // What only replicas and clusters have, and what is not told, by the reason in the file.
        if kind == "-" || labels.contains(&"slave_ip") || labels.contains(&"master_host") {
            continue;
        }
        assert_eq!(metrics.types.get(name).map(String::as_str), Some(kind), "{name}");
        let first =
            metrics.samples.get(name).or_else(|| metrics.samples.get(&format!("{name}_sum")));
        let first = &first.unwrap_or_else(|| panic!("no sample of {name}"))[0].0;
        let found: BTreeSet<&str> =
            first.keys().map(String::as_str).filter(|label| *label != "quantile").collect();
        assert_eq!(found, labels.iter().copied().collect(), "{name}");
    }
    assert_eq!(metrics.labelled("redis_db_keys", ("db", "db0")), Some(2.0));
    assert_eq!(metrics.labelled("redis_db_keys_expiring", ("db", "db0")), Some(1.0));
    assert_eq!(metrics.labelled("redis_commands_total", ("cmd", "config|set")), Some(1.0));
    assert_eq!(metrics.labelled("redis_errors_total", ("err", "ERR")), Some(1.0));
    assert_eq!(
        metrics.labelled("kvasir_command_duration_seconds_count", ("cmd", "get")),
        Some(1.0)
    );
    assert!(metrics.value("redis_memory_used_bytes") > 0.0);
    assert!(metrics.value("redis_memory_used_dataset_bytes") >= 0.0);
    wait_until("what was written is on disk", || {
        scrape(port).value("kvasir_aof_sync_duration_seconds_count") > 0.0
    });
    assert!(scrape(port).value("kvasir_aof_group_bytes_sum") > 0.0);
}

#[test]
fn both_formats_say_the_same() {
    let port = free_port();
    let server = serve("epoll", port, &[]);
    let mut client = server.connect();
    run_script(&mut client, "SET a 1; GET a; GET b");
    client.call(&["EVAL", "return redis.error_reply('\"\\\\\\n x')", "0"]);
    let mut http = Http::connect(port);
    let page = http.get("/metrics", "");
    assert_eq!(page.fields["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert!(!page.body.contains("# EOF"));
    let text = Metrics::parse(&page.body);
    let page = http.get("/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(page.fields["content-type"], kind);
    assert!(page.body.ends_with("\n# EOF\n"));
    let open_metrics = Metrics::parse(&page.body);
    let names = |metrics: &Metrics| metrics.samples.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&text), names(&open_metrics));
    for (name, kind) in &open_metrics.types {
        assert_eq!(kind == "counter", open_metrics.samples.contains_key(&format!("{name}_total")));
    }
    for name in ["redis_keyspace_hits_total", "redis_keyspace_misses_total"] {
        assert_eq!((text.value(name), open_metrics.value(name)), (1.0, 1.0), "{name}");
    }
}

#[test]
fn a_user_may_be_asked_for() {
    let port = free_port();
    let server = serve("io_uring", port, &["--user", "prom", "off", "--metrics-user", "prom"]);
    let mut client = server.connect();
    let basic = |word: &str| {
        Http::connect(port).get("/metrics", &format!("Authorization: Basic {word}\r\n")).status
    };
    // prom:secret, prom:other, default:secret.
    let [right, wrong, another] = ["cHJvbTpzZWNyZXQ=", "cHJvbTpvdGhlcg==", "ZGVmYXVsdDpzZWNyZXQ="];
    assert_eq!(basic(right), 401);
    run_script(&mut client, "ACL SETUSER prom on >secret");
    assert_eq!([right, wrong, another].map(basic), [200, 401, 401]);
    let page = get(port, "/metrics");
    assert!(page.status == 401 && page.fields["www-authenticate"].starts_with("Basic realm="));
    // Who watches over the process has no password.
    assert_eq!((get(port, "/healthz").status, get(port, "/readyz").status), (200, 200));
    run_script(&mut client, "ACL SETUSER prom off");
    assert_eq!(basic(right), 401);
    client.call(&["CONFIG", "SET", "metrics-user", ""]);
    assert_eq!(get(port, "/metrics").status, 200);
}

/// Wrong passwords are counted and logged, and who tries many has to wait.
#[test]
fn passwords_of_metrics_are_not_tried_at_will() {
    let port = free_port();
    let server =
        serve("epoll", port, &["--user", "prom", "on", ">secret", "--metrics-user", "prom"]);
    let mut client = server.connect();
    let basic = |word: &str| {
        Http::connect(port).get("/metrics", &format!("Authorization: Basic {word}\r\n")).status
    };
    let [right, wrong] = ["cHJvbTpzZWNyZXQ=", "cHJvbTpvdGhlcg=="];
    assert_eq!(basic(right), 200);
    // Who shows no password has tried none.
    assert!((0..20).all(|_| get(port, "/metrics").status == 401));
    let denied = |client: &mut _| crate::harness::figure(client, "stats", "acl_access_denied_auth");
    assert_eq!(denied(&mut client), 0);
    assert_eq!((0..10).map(|_| basic(wrong)).collect::<Vec<_>>(), [401; 10]);
    assert_eq!(denied(&mut client), 10);
    let log = show(&client.ask("ACL LOG"));
    for part in [
        "$count :10 $reason $auth $context $toplevel $object $/metrics $username $prom",
        "127.0.0.1",
    ] {
        assert!(log.contains(part), "{log}");
    }
    assert_eq!([basic(wrong), basic(right)], [429, 429]);
    assert_eq!(get(port, "/healthz").status, 200);
    wait_until("its time is over", || basic(right) == 200);
    run_script(&mut client, "CONFIG RESETSTAT");
    assert_eq!(denied(&mut client), 0);
}

#[test]
fn a_user_who_is_not_there_is_named_at_the_start() {
    let output = crate::snapshot_files::run(&["--port", "0", "--metrics-user", "nosuch"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains(">>> 'metrics-user \"nosuch\"'\nthere is no user of this name"),
        "{text}"
    );
    let server = Server::kvasir("epoll", &[]);
    let mut client = server.connect();
    let text = show(&client.ask("CONFIG SET metrics-user nosuch"));
    assert!(text.contains("argument 'metrics-user') - there is no user of this name"), "{text}");
    assert_eq!(show(&client.ask("CONFIG SET metrics-user default")), "+OK");
}

#[test]
fn a_replica_without_a_primary_is_not_ready() {
    let (port, of_primary) = (free_port(), free_port());
    let primary = Server::kvasir("epoll", &["--port", &of_primary.to_string()]);
    let replica = serve("epoll", port, &["--replicaof", "127.0.0.1", &of_primary.to_string()]);
    wait_until("it is linked", || get(port, "/readyz").status == 200);
    let metrics = scrape(port);
    let of_host = |name| metrics.labelled(name, ("master_port", &of_primary.to_string()));
    assert_eq!(of_host("redis_master_link_up"), Some(1.0));
    assert_eq!(of_host("redis_slave_info"), Some(1.0));
    drop(primary);
    wait_until("it knows", || get(port, "/readyz").status == 503);
    assert_eq!(get(port, "/healthz").status, 200);
    assert_eq!(run_script(&mut replica.connect(), "REPLICAOF NO ONE"), "+OK");
    assert_eq!(get(port, "/readyz").status, 200);
}

/// A script that may touch any key has the gate for itself.
#[test]
fn who_closes_the_gate_does_not_keep_metrics() {
    let port = free_port();
    let server = serve("io_uring", port, &["--busy-reply-threshold", "1"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    run_script(&mut other, "SET k1 v");
    wait_until("it is counted", || {
        scrape(port).labelled("redis_db_keys", ("db", "db0")) == Some(1.0)
    });
    client.send(&["EVAL", "while true do redis.call('get', 'k' .. 1) end", "0"]);
    wait_until("it runs", || show(&other.ask("PING")).starts_with("-BUSY"));
    assert_eq!(scrape(port).labelled("redis_db_keys", ("db", "db0")), Some(1.0));
    assert_eq!(show(&other.ask("SCRIPT KILL")), "+OK");
    assert!(client.read_reply().is_some());
}

#[test]
fn odd_requests_are_refused_and_others_answered() {
    for backend in backends() {
        let port = free_port();
        let _server = serve(backend, port, &[]);
        let mut http = Http::connect(port);
        // The console's page, or how to get it.
        let page = http.get("/", "");
        assert!(page.status == 200 && page.body.contains("Kvasir"), "{}", page.body);
        assert!(page.fields["content-security-policy"].starts_with("default-src 'none'"));
        assert_eq!(http.get("/nothing", "").status, 404);
        http.send(b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
        let page = http.read().expect("an answer");
        assert_eq!((page.status, &page.fields["allow"][..]), (405, "GET, HEAD"));
        // Two at once are answered in order.
        http.send(b"GET /healthz HTTP/1.1\r\n\r\nGET /nothing HTTP/1.1\r\n\r\n");
        assert_eq!([http.read(), http.read()].map(|page| page.unwrap().status), [200, 404]);
        for (bytes, status) in [
            ("\x16\x03\x01\x02 nothing\r\n\r\n".to_owned(), 400),
            (format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(100_000)), 431),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), 411),
            ("GET / HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n".to_owned(), 413),
        ] {
            let mut stream = open(port);
            // It may be closed before all is sent.
            let _ = stream.write_all(bytes.as_bytes());
            let mut http = Http::over(stream);
            assert_eq!(http.read().expect("an answer").status, status, "{bytes:.40}");
            assert!(http.read().is_none(), "it is closed");
        }
        // Half closed is answered, and HTTP/1.0 is closed.
        let mut stream = open(port);
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").expect("it is read");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let mut http = Http::over(stream);
        assert_eq!(http.read().expect("an answer").body, "ok\n");
        assert!(http.read().is_none());
    }
}

/// More than there is room for, who say nothing, or not all of it: who says all is answered, and
/// the server's own clients do not notice.
#[test]
fn who_is_slow_makes_room_for_others() {
    for backend in backends() {
        let port = free_port();
        let server = serve(backend, port, &[]);
        let mut client = server.connect();
        let mut silent: Vec<_> = (0..300).map(|_| open(port)).collect();
        for stream in silent.iter_mut().step_by(2) {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nA: ");
        }
        for _ in 0..20 {
            assert_eq!(get(port, "/metrics").status, 200);
            assert_eq!(show(&client.ask("PING")), "+PONG");
        }
        // The first of them are gone.
        assert!(Http::over(silent.remove(0)).read().is_none());
        // Scrapers that do not read what they ask for are no different.
        let mut deaf: Vec<_> = (0..100).map(|_| open(port)).collect();
        for stream in &mut deaf {
            let _ = stream.write_all(&b"GET /metrics HTTP/1.1\r\n\r\n".repeat(100));
        }
        assert_eq!(get(port, "/healthz").status, 200);
        assert_eq!(show(&client.ask("PING")), "+PONG");
    }
}

#[test]
fn tls_is_that_of_the_server() {
    let certificates = Certificates::new();
    let port = free_port();
    let number = port.to_string();
    let options = ["--metrics-port", &number, "--tls-metrics", "yes"];
    let _server = TlsServer::start("io_uring", &certificates, &options);
    for version in BOTH {
        let config = certificates.client(None, &[version]);
        let mut http = Http::over(TlsServer::open_at(port, &config));
        assert_eq!(http.get("/healthz", "").body, "ok\n");
        assert!(http.get("/metrics", "").body.contains("\nredis_up 1\n"));
    }
    // Who speaks plainly is not understood.
    let mut plain = open(port);
    plain.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").expect("it is read");
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut answer);
    assert!(!answer.starts_with(b"HTTP"));
}
