//! GRAPH.* over random values, some of whose members are no nodes, beside a small model.

use std::collections::{BTreeMap, BTreeSet};

use kvasir_harness::random::Random;
use kvasir_resp::value::Value;
use kvasir_structures::crc16;

use crate::check::show;
use crate::harness::{Client, Server, each_backend, figure, wait_until};

/// What is no integer as Redis writes one.
const BAD: [&str; 6] = ["x", "1.5", "01", "-", "9223372036854775808", "+3"];

/// A graph as its texts have it: each node, and its neighbours as they stand there.
type Rows = Vec<(String, Vec<String>)>;

/// How a round keeps its graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    OneHash,
    Set,
    List,
    SortedSet,
    Hash,
    Text,
}

const FORMS: [Form; 6] =
    [Form::OneHash, Form::Set, Form::List, Form::SortedSet, Form::Hash, Form::Text];

fn word(random: &mut Random, bad_percent: u64) -> String {
    match random.percent(bad_percent) {
        true => (*random.pick(&BAD)).to_owned(),
        false => random.range(-3, 9).to_string(),
    }
}

fn rows(random: &mut Random, form: Form) -> Rows {
    let bad_percent = *random.pick(&[0, 2, 10]);
    let mut rows = BTreeMap::new();
    for _ in 0..random.range(1, 9) {
        let node = word(random, bad_percent);
        let mut others: Vec<String> =
            (0..random.range(1, 6)).map(|_| word(random, bad_percent)).collect();
        if !matches!(form, Form::OneHash | Form::List | Form::Text) {
            // Each member is there once.
            others = others.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        }
        rows.insert(node, others);
    }
    rows.into_iter().collect()
}

/// Writes a graph, and says where it is.
fn keep(client: &mut Client, form: Form, rows: &Rows, name: &str, tag: &str) -> String {
    for (node, others) in rows {
        let key = format!("{name}:{node}{tag}");
        let text = others.join(" ");
        let mut call: Vec<&str> = match form {
            Form::OneHash => vec!["HSET", name, node, &text],
            Form::Set => vec!["SADD", &key],
            Form::List => vec!["RPUSH", &key],
            Form::SortedSet => vec!["ZADD", &key],
            Form::Hash => vec!["HSET", &key],
            Form::Text => vec!["SET", &key, &text],
        };
        for other in others {
            match form {
                Form::OneHash | Form::Text => {}
                Form::Set | Form::List => call.push(other),
                Form::SortedSet => call.extend(["1", other]),
                Form::Hash => call.extend([&other[..], "1"]),
            }
        }
        let reply = client.call(&call);
        assert!(!reply.is_error(), "{call:?}: {reply:?}");
    }
    if form == Form::OneHash { format!("HASH {name}") } else { format!("MATCH {name}:*{tag}") }
}

/// What is behind `result`: ids, and their values.
fn result(reply: &Value) -> BTreeMap<String, String> {
    let fields = reply.as_array().unwrap_or_else(|| panic!("{reply:?}"));
    let pairs = fields.last().and_then(Value::as_array).unwrap_or_else(|| panic!("{reply:?}"));
    let text = |value: &Value| show(value)[1..].to_owned();
    let pair = |pair: &Value| {
        let pair = pair.as_array().unwrap_or_else(|| panic!("{reply:?}"));
        (text(&pair[0]), text(&pair[1]))
    };
    pairs.iter().map(pair).collect()
}

fn degrees(rows: &Rows) -> BTreeMap<String, String> {
    let mut degrees = BTreeMap::<&str, usize>::new();
    for (node, others) in rows {
        *degrees.entry(node).or_default() += others.len();
        for other in others {
            degrees.entry(other).or_default();
        }
    }
    degrees.into_iter().map(|(node, count)| (node.to_owned(), count.to_string())).collect()
}

fn is_bad(rows: &Rows) -> bool {
    let mut all = rows.iter().flat_map(|(node, others)| others.iter().chain([node]));
    all.any(|word| BAD.contains(&&word[..]))
}

/// A tag whose keys stand in the slots that are visited last.
fn last_slot() -> String {
    let mut tags = (0..).map(|number| number.to_string());
    tags.find(|tag| crc16::slot_of(tag.as_bytes()) >= crc16::SLOTS - 16).expect("there is one")
}

/// What is computed is the model's, and what is no graph is refused, wherever its fault lies.
#[test]
fn graphs_of_random_values_are_those_of_the_model() {
    let last = format!("{{{}}}", last_slot());
    each_backend(&["--io-threads", "2"], |server| {
        let (mut client, mut random) = (server.connect(), Random::new(7));
        let mut refused = 0;
        for round in 0..90 {
            let form = FORMS[round % FORMS.len()];
            let rows = rows(&mut random, form);
            let tag = if random.percent(50) { &last[..] } else { "" };
            let place = keep(&mut client, form, &rows, &format!("g{round}"), tag);
            let call = format!("GRAPH.DEGREE_RO {place} IDS STRING ALL");
            assert_eq!(result(&client.ask(&call)), degrees(&rows), "{form:?} {rows:?}");
            let others = ["CONNECTED_RO", "TRIANGLES_RO", "PAGERANK", "BFS_RO"];
            let other = *random.pick(&others);
            let root = if other == "BFS_RO" { format!(" ROOT {}", rows[0].0) } else { "".into() };
            for call in [format!("DEGREE_RO {place}"), format!("{other} {place}{root}")] {
                let reply = client.ask(&format!("GRAPH.{call} ALL"));
                let text = show(&reply);
                if is_bad(&rows) {
                    refused += 1;
                    assert!(text.starts_with("-ERR ") && text.contains("no integer"), "{text}");
                } else if call.starts_with("DEGREE") {
                    assert_eq!(result(&reply), degrees(&rows), "{form:?} {rows:?}");
                } else {
                    let nodes = degrees(&rows).len();
                    assert!(text.contains(&format!("$nodes :{nodes} ")), "{call}: {text}");
                }
            }
        }
        assert!((20..160).contains(&refused), "{refused}");
        let active = |client: &mut Client| figure(client, "analytics", "graphs_active");
        wait_until("all have ended", || active(&mut client) == 0);
        assert_eq!(figure(&mut client, "analytics", "analytics_memory_used"), 0);
    });
}

/// The first word is bad, the last, or the only one; in the slots that are visited last.
#[test]
fn what_is_no_graph_ends_no_server() {
    let server = Server::kvasir("epoll", &[]);
    let mut client = server.connect();
    let last = last_slot();
    client.ask("HSET h a b");
    client.ask("HSET only_fields a 1");
    client.ask("HSET only_words 1 b");
    client.ask(&format!("SADD t:1:{{{last}}} 2 b"));
    for place in ["HASH h", "HASH only_fields", "HASH only_words", &format!("MATCH t:*:{{{last}}}")]
    {
        for name in ["DEGREE", "CONNECTED", "TRIANGLES", "PAGERANK", "BFS"] {
            for end in ["_RO", ""] {
                let root = if name == "BFS" { " ROOT 1" } else { "" };
                let text = show(&client.ask(&format!("GRAPH.{name}{end} {place}{root}")));
                assert!(text.contains("no integer: say IDS STRING"), "{name} {place}: {text}");
            }
        }
    }
    // Ids of many bytes are nodes as others.
    let long = "y".repeat(70_000);
    client.call(&["HSET", "long", &long, "b"]);
    let text = show(&client.ask("GRAPH.DEGREE_RO HASH long IDS STRING TOP 0"));
    assert!(text.contains("$nodes :2 $edges :1"), "{text}");
    assert!(show(&client.ask("GRAPH.DEGREE_RO HASH long")).contains("no integer"));
}

/// A value with more neighbours than memory is refused as it is read, not when it has been.
#[test]
fn one_value_takes_no_more_than_there_is() {
    let server = Server::kvasir("epoll", &["--analytics-memory", "3mb"]);
    let mut client = server.connect();
    // The estimate goes by bytes a word: these are more.
    client.call(&["SET", "many:1", &"1 ".repeat(900_000)]);
    let text = show(&client.ask("GRAPH.DEGREE_RO MATCH many:*"));
    assert!(text.contains("analytics-memory"), "{text}");
    assert!(figure(&mut client, "analytics", "analytics_memory_peak") <= 3 << 20);
    let active = |client: &mut Client| figure(client, "analytics", "graphs_active");
    wait_until("it has ended", || active(&mut client) == 0);
    assert_eq!(figure(&mut client, "analytics", "analytics_memory_used"), 0);
    client.ask("CONFIG SET analytics-memory 100mb");
    let text = show(&client.ask("GRAPH.DEGREE_RO MATCH many:*"));
    assert!(text.contains("$edges :900000 "), "{text}");
}
