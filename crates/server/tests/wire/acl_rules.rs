//! ACL rules: printed back, refused and obeyed as Valkey does, over many sequences of rules.

use kvasir_resp::value::Value;

use crate::check::{run_script, show};
use crate::harness::{Client, Server};

/// Both servers, or nothing where there is no Valkey.
fn both(options: &[&str]) -> Option<[Server; 2]> {
    Some([Server::kvasir("epoll", options), Server::valkey(options)?])
}

/// Runs a script on a fresh connection to each server; the replies must be the same.
fn check_alike(servers: &[Server; 2], script: &str) {
    let [ours, theirs] = servers.each_ref().map(|server| run_script(&mut server.connect(), script));
    assert_eq!(ours, theirs, "{script}");
}

/// Rules for one user each, valid ones and others.
const RULES: &str = "
    on off nopass
    on >pw >pw >other nopass
    >pw <pw
    >pw <nosuch
    !0000000000000000000000000000000000000000000000000000000000000000
    #30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4 >pw
    #30C952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4
    #30c9
    nopass >pw
    nopass resetpass
    sanitize-payload skip-sanitize-payload
    +@all -config +config|get
    +config|get +config
    +config +config|get
    +config -config|get
    +config|get +config|set -config
    +@all -config|get +config|get -config +config|set
    -config|get +config|get
    +@all -@all
    +@all -@all +get
    -@all -@all +@all
    +@read -get +get +@write +@read
    +GET +get +@READ
    -@admin
    -get
    +get -get
    +@all -get -set allcommands
    +@all -get nocommands +get
    +@string -@fast +@string
    +select|0 +select|1 +select|0
    +select|0 +select
    +select|0 -select
    +select|0 -@connection
    -select|0
    +get|x
    +ping|AbC +ping|abc
    +ping|x|y
    +ping|
    +config|set|x
    +config|get|
    +|x
    +client|nosuch
    +nosuch
    -nosuch
    +@nosuch
    -@nosuch
    +
    -
    foo
    ~a %R~b %W~c %RW~d %WR~e %R~b ~a
    %r~x %w~x
    %RR~x
    %R
    %
    %~x
    %X~x
    ~* ~a
    ~a ~*
    %RW~* ~a
    %R~* ~a
    ~
    allkeys resetkeys ~x
    &a &a &b
    &* &a
    allchannels resetchannels &x
    (+get ~x)
    ( +get ~x ) (%R~y allchannels +@all -set)
    (+get ~x) clearselectors (~*)
    (+get ~x
    (+get (x))
    ()
    ()x
    (
    )
    (>pw)
    (on)
    (nosuch)
    (+nosuch)
    (db=1 ~x) (resetdbs)
    db=1 db=0,2
    db=7,3,5,3
    db=1 alldbs
    resetdbs
    DB=1
    db=01
    db=x
    db=
    db=1,
    db=,1
    db=-1
    db=-0
    db=+1
    db=2147483647
    db=2147483648
    db=99999999999999999999
    ON ResetPass ALLKEYS RESETKEYS ~X +@ALL
    on >pw +@all ~* (+get) reset
    on nopass ~* &* +@all -@dangerous +info -debug (~b +@read)
";

#[test]
fn rules_are_printed_and_refused_as_by_valkey() {
    let Some(servers) = both(&[]) else { return };
    for rules in RULES.lines().map(str::trim).filter(|rules| !rules.is_empty()) {
        check_alike(
            &servers,
            &format!("ACL DELUSER u; ACL SETUSER u {rules}; ACL GETUSER u; ACL LIST"),
        );
    }
    // Quotes that do not close are a mistake here; Valkey takes the selector for an empty one.
    let odd = [r#""~a b""#, r#""&a\nb""#, r#""+a b""#, r#""(~\"a\" %R~b)""#, r#""""#];
    for rule in odd {
        check_alike(
            &servers,
            &format!("ACL DELUSER u; ACL SETUSER u {rule}; ACL GETUSER u; ACL LIST"),
        );
    }
}

#[test]
fn new_users_may_use_channels_if_the_default_says_so() {
    let Some(servers) = both(&["--acl-pubsub-default", "allchannels"]) else { return };
    for rules in ["", "on +get", "(+get)", "resetchannels (~x)", "resetchannels reset"] {
        check_alike(&servers, format!("ACL SETUSER u {rules}; ACL LIST; ACL DELUSER u").trim());
    }
}

/// A small generator, so that a failure can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// The full names of the commands that both servers have, with the same arity.
fn common_commands(clients: &mut [Client; 2]) -> Vec<(String, i64)> {
    let [ours, theirs] = clients.each_mut().map(|client| {
        let mut list = Vec::new();
        collect(client.ask("COMMAND").as_array().unwrap(), &mut list);
        list
    });
    ours.into_iter().filter(|command| theirs.contains(command)).collect()
}

/// Of a container its subcommands, which are what can be called.
fn collect(rows: &[Value], list: &mut Vec<(String, i64)>) {
    for row in rows {
        let fields = row.as_array().unwrap();
        let name = String::from_utf8_lossy(fields[0].as_bytes().unwrap()).into_owned();
        let subcommands = fields[9].as_array().unwrap();
        if subcommands.is_empty() {
            list.push((name, fields[1].as_integer().unwrap()));
        }
        collect(subcommands, list);
    }
}

const CATEGORIES: &str = "keyspace read write set sortedset list hash string bitmap hyperloglog geo \
     stream pubsub admin fast slow blocking dangerous connection transaction scripting";

fn draw_rule(random: &mut Random, commands: &[(String, i64)]) -> String {
    let sign = *random.pick(&["+", "-"]);
    match random.below(12) {
        0 => format!("{sign}@all"),
        1..=3 => format!("{sign}@{}", random.pick(&CATEGORIES.split(' ').collect::<Vec<_>>())),
        4..=6 => format!("{sign}{}", random.pick(commands).0),
        7 => {
            (*random.pick(&["+config", "-config", "+client", "-client", "+acl", "-object"])).into()
        }
        8 => format!("+{}", random.pick(&["select|0", "select|1", "get|a", "set|r1"])),
        9 => (*random.pick(&["db=0", "db=1", "alldbs", "resetdbs", "db=0,2"])).into(),
        10 => (*random.pick(&["&c*", "&a", "resetchannels", "allchannels"])).into(),
        _ => (*random.pick(&["~a*", "%R~r*", "%W~w*", "~*", "resetkeys", "%R~*", "%W~a"])).into(),
    }
}

/// Elsewhere a 0 may be a count of keys: a mistake, in which nobody minds what is denied first.
const DATABASE_COMMANDS: [&str; 4] = ["select", "move", "swapdb", "copy"];

/// A call of the right arity, of words that mean something to some command.
fn draw_call(random: &mut Random, (name, arity): &(String, i64)) -> Vec<String> {
    const WORDS: &str = "a a1 r1 w1 c1 x 1 2 3 * get set store streams by db limit u8 incrby overflow \
         storedist keys replace group";
    let known: Vec<&str> = WORDS.split(' ').collect();
    let mut words: Vec<String> = name.split('|').map(String::from).collect();
    let count = (arity.unsigned_abs() as usize).max(words.len()) + random.below(6);
    while words.len() < count {
        let word = match DATABASE_COMMANDS.contains(&name.as_str()) && random.below(2) == 0 {
            true => random.pick(&["0", "db", "99", "-1"]),
            false => random.pick(&known),
        };
        words.push((*word).into());
    }
    words
}

/// The replies to a batch of calls.
fn answers(client: &mut Client, calls: &[Vec<String>]) -> Vec<String> {
    calls.iter().for_each(|call| client.send(call));
    calls.iter().map(|_| show(&client.read_reply().unwrap())).collect()
}

/// Commands whose rows differ from Valkey's with reason, see `command_table`; and the one of which
/// Valkey takes the word `cluster` for a database.
const OTHER_ROWS: [&str; 3] = ["client|no-touch", "client|setinfo", "cluster|flushslot"];

#[test]
fn random_rules_allow_the_same_calls_as_at_valkey() {
    let Some(servers) = both(&[]) else { return };
    let mut clients = servers.each_ref().map(Server::connect);
    let mut commands = common_commands(&mut clients);
    commands.retain(|(name, _)| !OTHER_ROWS.contains(&name.as_str()));
    let mut random = Random(4);
    for round in 0..60 {
        let mut rules: Vec<String> = Vec::new();
        for _ in 0..1 + random.below(8) {
            rules.push(draw_rule(&mut random, &commands));
        }
        for _ in 0..random.below(3) {
            let (one, other) =
                (draw_rule(&mut random, &commands), draw_rule(&mut random, &commands));
            rules.push(format!("({one} {other} {})", random.pick(&["~*", "~a*", "%R~*", "+@all"])));
        }
        let words = |words: &str| words.split(' ').map(String::from).collect::<Vec<_>>();
        let mut calls = vec![words("ACL DELUSER u"), words("ACL SETUSER u on nopass")];
        // A rule that is refused must not end the sequence.
        calls.extend(
            rules.iter().map(|rule| ["ACL", "SETUSER", "u", rule].map(String::from).to_vec()),
        );
        calls.push(words("ACL GETUSER u"));
        for command in &commands {
            let mut call = words("ACL DRYRUN u");
            call.extend(draw_call(&mut random, command));
            calls.push(call);
        }
        let [ours, theirs] = clients.each_mut().map(|client| answers(client, &calls));
        for (index, call) in calls.iter().enumerate() {
            assert_eq!(ours[index], theirs[index], "round {round}: {rules:?}: {call:?}");
        }
    }
}

/// The commands of each category are those of Redis 7.0, or of Valkey, among the common ones.
#[test]
fn categories_have_the_same_commands() {
    let (Some(redis), Some(valkey)) = (Server::redis(&[]), Server::valkey(&[])) else { return };
    let ours = Server::kvasir("epoll", &[]);
    let [mut ours, mut redis, mut valkey] = [&ours, &redis, &valkey].map(Server::connect);
    // One of our own stands behind them.
    let categories = show(&ours.ask("ACL CAT")).replace(" $analytics]", "]");
    assert_eq!(categories, show(&redis.ask("ACL CAT")));
    let names = |client: &mut Client, call: &str| -> Vec<String> {
        let reply = client.ask(call);
        reply.as_array().unwrap().iter().map(show).collect()
    };
    let [redis_all, valkey_all, all] =
        [&mut redis, &mut valkey, &mut ours].map(|client| names(client, "COMMAND LIST"));
    for category in CATEGORIES.split(' ') {
        let call = format!("ACL CAT {category}");
        let members = names(&mut ours, &call);
        let by_redis = names(&mut redis, &call);
        let by_valkey = names(&mut valkey, &call);
        for name in &all {
            if OTHER_ROWS.iter().any(|other| name.ends_with(other)) {
                continue;
            }
            let is_in = members.contains(name);
            let agrees = |all: &[String], members: &[String]| {
                all.contains(name) && members.contains(name) == is_in
            };
            let is_known = redis_all.contains(name) || valkey_all.contains(name);
            assert!(
                !is_known || agrees(&redis_all, &by_redis) || agrees(&valkey_all, &by_valkey),
                "{name} in {category}: {is_in}"
            );
        }
    }
}
