//! Every command with keys in every state of a slot: where clients are sent, beside Redis 7.0 and
//! Valkey.

use std::collections::{BTreeMap, BTreeSet};

use kvasir_resp::value::Value;
use kvasir_structures::crc16;

use crate::cluster::{Maker, Node, form};
use crate::harness::{Client, Server};

/// Calls, one a line.
const CALLS: &str = include_str!("moving_slots.txt");
/// Of `{bar}`, which moves from the first node to the second.
const SLOT: u16 = 5061;
/// Errors that say where a call belongs.
const CLASSES: [&str; 6] = ["MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "CLUSTERDOWN", "EXECABORT"];

/// Where a call is made, and about which keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Scene {
    Stable,
    StableGone,
    Elsewhere,
    CrossSlot,
    MigratingHere,
    MigratingGone,
    MigratingHalf,
    Importing,
    AskingHere,
    AskingGone,
    AskingHalf,
}

const SCENES: [Scene; 11] = [
    Scene::Stable,
    Scene::StableGone,
    Scene::Elsewhere,
    Scene::CrossSlot,
    Scene::MigratingHere,
    Scene::MigratingGone,
    Scene::MigratingHalf,
    Scene::Importing,
    Scene::AskingHere,
    Scene::AskingGone,
    Scene::AskingHalf,
];

impl Scene {
    fn is_at_target(self) -> bool {
        self >= Scene::Importing
    }

    fn asks(self) -> bool {
        self > Scene::Importing
    }

    /// The keys of a call: of a tag, present or not.
    fn keys(self, at: usize, is_within: bool, stable: &str) -> [String; 2] {
        let name = |tag: &str, kind: &str| format!("{{{tag}}}{at}{is_within}{kind}");
        match self {
            Scene::Stable => [name(stable, "a"), name(stable, "b")],
            Scene::StableGone => [name(stable, "gone"), name(stable, "gone2")],
            Scene::Elsewhere => [name("foo", "a"), name("foo", "b")],
            Scene::CrossSlot => [name(stable, "a"), name("bar", "a")],
            Scene::MigratingHere | Scene::AskingHere => [name("bar", "a"), name("bar", "b")],
            Scene::MigratingHalf | Scene::AskingHalf => [name("bar", "half"), name("bar", "lost")],
            _ => [name("bar", "gone"), name("bar", "gone2")],
        }
    }
}

fn calls() -> Vec<&'static str> {
    CALLS.lines().filter(|line| !line.starts_with('#')).collect()
}

fn words(call: &str, keys: &[String; 2]) -> Vec<String> {
    let mut words = call.split(' ');
    let name = words.next().expect("a name").split('|').map(str::to_owned);
    let rest = words.map(|word| match word {
        "K" => keys[0].clone(),
        "L" => keys[1].clone(),
        word => word.to_owned(),
    });
    name.chain(rest).collect()
}

/// What an answer says of where the call belongs; `?`: there is no such command.
fn class(answer: Option<Value>) -> String {
    let Some(Value::Error(text)) = answer else { return "-".into() };
    let text = String::from_utf8_lossy(&text).into_owned();
    let first = text.split(' ').next().unwrap_or_default();
    match () {
        () if CLASSES.contains(&first) => first.into(),
        () if text.to_lowercase().contains("unknown command") => "?".into(),
        () if text.to_lowercase().contains("unknown subcommand") => "?".into(),
        () => "-".into(),
    }
}

/// A tag of a slot of the first node, other than the one that moves.
fn stable_tag() -> String {
    let tags = (0..).map(|number| format!("s{number}"));
    let is_its = |tag: &String| {
        let slot = crc16::slot_of(tag.as_bytes());
        slot < 8000 && slot != SLOT
    };
    tags.into_iter().find(is_its).expect("there are many")
}

fn add(client: &mut Client, key: &str, asks: bool) {
    if asks {
        client.ask("ASKING");
    }
    let added = client.ask(&format!("XADD {key} 1-1 f v"));
    assert!(!added.is_error(), "{key}: {added:?}");
}

/// Makes the keys, and has the slot move.
fn prepare(one: &Node, two: &Node, stable: &str) {
    let (from, to) = (one.id(), two.id());
    assert_eq!(two.ask(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {from}")), "OK");
    for (node, asks, scenes) in [
        (one, false, [Scene::Stable, Scene::MigratingHere, Scene::MigratingHalf].as_slice()),
        (two, true, [Scene::AskingHere, Scene::AskingHalf].as_slice()),
    ] {
        let mut client = node.server.connect();
        for (at, is_within) in (0..calls().len()).flat_map(|at| [(at, false), (at, true)]) {
            for scene in scenes.iter().copied() {
                let [first, second] = scene.keys(at, is_within, stable);
                add(&mut client, &first, asks);
                let is_half = matches!(scene, Scene::MigratingHalf | Scene::AskingHalf);
                if !is_half {
                    add(&mut client, &second, asks);
                }
            }
        }
    }
    assert_eq!(one.ask(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {to}")), "OK");
}

/// What a call comes to alone, and within MULTI: there when it is queued and when all run.
fn outcome(node: &Node, scene: Scene, at: usize, call: &str, stable: &str) -> [String; 3] {
    let client = || {
        let mut client = node.server.connect();
        if scene.asks() {
            assert_eq!(client.ask_text("ASKING"), "OK");
        }
        client
    };
    let mut alone = client();
    let once = class(Some(alone.call(&words(call, &scene.keys(at, false, stable)))));
    let mut within = client();
    assert_eq!(within.ask_text("MULTI"), "OK");
    let queued = class(Some(within.call(&words(call, &scene.keys(at, true, stable)))));
    let run = class(Some(within.ask("EXEC")));
    [once, queued, run]
}

type Outcomes = BTreeMap<(usize, Scene), [String; 3]>;

fn outcomes(maker: Maker) -> Option<Outcomes> {
    let nodes = form(&[maker; 3])?;
    let [one, two, _] = &nodes[..] else { panic!("three were started") };
    let stable = stable_tag();
    prepare(one, two, &stable);
    let mut all = Outcomes::new();
    for (at, call) in calls().into_iter().enumerate() {
        for scene in SCENES {
            if scene == Scene::CrossSlot && !call.contains(" L") {
                continue;
            }
            let node = if scene.is_at_target() { two } else { one };
            all.insert((at, scene), outcome(node, scene, at, call, &stable));
        }
    }
    Some(all)
}

/// The names of commands that have keys, with those of containers.
fn commands_with_keys(client: &mut Client) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let all = client.ask("COMMAND");
    for row in all.as_array().expect("rows") {
        note_row(row, &mut names);
    }
    names
}

fn note_row(row: &Value, names: &mut BTreeSet<String>) {
    let fields = row.as_array().expect("fields");
    let name = String::from_utf8_lossy(fields[0].as_bytes().expect("a name")).into_owned();
    if fields[8].as_array().is_some_and(|specs| !specs.is_empty()) {
        names.insert(name);
    }
    fields[9].as_array().into_iter().flatten().for_each(|row| note_row(row, names));
}

/// Valkey 9.1 runs the first whatever its keys are, and looks for the second's in two databases.
const ROUTED_OTHERWISE: [&str; 2] = ["msetex ", "move "];
/// What can't be queued is only made alone.
const NOT_IN_MULTI: &str = "graph.";

#[test]
fn every_command_with_keys_is_sent_where_they_are() {
    let ours = outcomes(Maker::Kvasir).expect("it is ours");
    let makers = [Maker::Redis, Maker::Valkey];
    let peers: Vec<Outcomes> = makers.into_iter().filter_map(outcomes).collect();
    let calls = calls();
    let like = |call: &str| calls.iter().position(|other| *other == call).expect("it is there");
    let (one_key, two_keys) = (like("strlen K"), like("sintercard 2 K L"));
    let mut wrong = Vec::new();
    // What comes later, as in the rows, is not ours yet.
    for ((at, scene), found) in ours.iter().filter(|(_, found)| found[0] != "?") {
        let call = calls[*at];
        let of = |at| peers.iter().filter_map(move |peer| peer.get(&(at, *scene)));
        let mut wanted: Vec<_> = of(*at).filter(|wanted| wanted[0] != "?").collect();
        if wanted.is_empty() || ROUTED_OTHERWISE.iter().any(|name| call.starts_with(name)) {
            // It goes as a call on so many keys does.
            wanted = of(if call.contains(" L") { two_keys } else { one_key }).collect();
        }
        let moments = if call.starts_with(NOT_IN_MULTI) { 1 } else { 3 };
        let is_right = wanted.iter().any(|wanted| wanted[..moments] == found[..moments]);
        if !wanted.is_empty() && !is_right {
            wrong.push(format!("{scene:?} {call}: {found:?}, peers {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// What has no keys that a slot could lack.
const LEFT_OUT: [&str; 1] = ["clusterscan"];

/// Of those that Redis 7.0 or Valkey has.
#[test]
fn no_command_with_keys_is_left_out() {
    let tried: BTreeSet<&str> = calls().iter().filter_map(|call| call.split(' ').next()).collect();
    for server in [Server::redis(&[]), Server::valkey(&[])].into_iter().flatten() {
        let names = commands_with_keys(&mut server.connect());
        let is_lacking =
            |name: &&String| !tried.contains(name.as_str()) && !LEFT_OUT.contains(&name.as_str());
        let lacking: Vec<_> = names.iter().filter(is_lacking).collect();
        assert!(names.len() > 150 && lacking.is_empty(), "{}: {lacking:?}", server.name);
    }
}
