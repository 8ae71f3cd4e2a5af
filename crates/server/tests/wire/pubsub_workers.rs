//! Pub/Sub across workers: order, exact counts, and tables that are empty in the end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use kvasir_resp::value::Value;

use crate::check::{run_script, show};
use crate::harness::{Client, Server, each_backend, wait_until};

const WORKERS: &[&str] = &["--io-threads", "4"];

/// Subscribes and returns when that is confirmed.
fn subscriber(server: &Server, call: &str) -> Client {
    let mut client = server.connect();
    for name in call.split(' ').skip(1) {
        assert!(
            show(&client.ask(&format!("{} {name}", call.split(' ').next().unwrap())))
                .contains(&format!("${name} "))
        );
    }
    client
}

fn publish(client: &mut Client, channel: &str, message: &str) -> u64 {
    client.call(&["PUBLISH", channel, message]).as_integer().expect("a number") as u64
}

/// Channel and message of the next message to a subscriber.
fn next(client: &mut Client) -> (String, String) {
    let value = client.read_reply().expect("the connection is open");
    let words: Vec<String> = value
        .as_array()
        .expect("a message")
        .iter()
        .map(|word| String::from_utf8_lossy(word.as_bytes().expect("text")).into_owned())
        .collect();
    (words[words.len() - 2].clone(), words[words.len() - 1].clone())
}

fn assert_empty(client: &mut Client) {
    wait_until("nothing is left of the subscribers", || {
        let script = "PUBSUB CHANNELS; PUBSUB SHARDCHANNELS; PUBSUB NUMPAT";
        run_script(client, script) == "[]; []; :0"
    });
}

/// Each publisher's messages, on two channels and in pipelines, arrive in its order at every
/// subscriber, whichever worker either has.
#[test]
fn messages_of_one_client_arrive_in_order() {
    const MESSAGES: u64 = 2_000;
    const PIPELINE: u64 = 50;
    each_backend(WORKERS, |server| {
        let mut subscribers: Vec<Client> = (0..8)
            .map(|index| match index % 3 {
                0 => subscriber(server, "SUBSCRIBE a b"),
                1 => subscriber(server, "PSUBSCRIBE [ab]"),
                _ => subscriber(server, "SUBSCRIBE b a"),
            })
            .collect();
        thread::scope(|scope| {
            for publisher in 0..4 {
                let mut client = server.connect();
                scope.spawn(move || {
                    for first in (0..MESSAGES).step_by(PIPELINE as usize) {
                        for number in first..first + PIPELINE {
                            let channel = if number % 3 == 0 { "a" } else { "b" };
                            client.send(&["PUBLISH", channel, &format!("{publisher} {number}")]);
                        }
                        for _ in 0..PIPELINE {
                            assert_eq!(client.read_reply(), Some(Value::Integer(8)));
                        }
                    }
                });
            }
            for client in &mut subscribers {
                scope.spawn(|| {
                    let mut seen = BTreeMap::<String, u64>::new();
                    for _ in 0..4 * MESSAGES {
                        let (_, message) = next(client);
                        let (publisher, number) = message.split_once(' ').expect("two words");
                        let expected = seen.entry(publisher.to_string()).or_default();
                        assert_eq!(number.parse(), Ok(*expected), "of publisher {publisher}");
                        *expected += 1;
                    }
                });
            }
        });
    });
}

/// While clients come and go, every message that a publisher was told of has been received, and no
/// other.
#[test]
fn every_receiver_that_was_counted_has_received() {
    const ROUNDS: usize = 300;
    each_backend(WORKERS, |server| {
        let (counted, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for index in 0..3 {
                let (mut client, is_over, counted) = (server.connect(), &is_over, &counted);
                scope.spawn(move || {
                    while !is_over.load(Relaxed) {
                        let channel = if index == 0 { "other" } else { "c" };
                        counted.fetch_add(publish(&mut client, channel, "m"), Relaxed);
                    }
                });
            }
            let churners: Vec<_> = (0..4)
                .map(|index| {
                    let (mut client, received) = (server.connect(), &received);
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            let (come, go) = match (index + round) % 3 {
                                0 => ("SUBSCRIBE c", "UNSUBSCRIBE c"),
                                1 => ("PSUBSCRIBE *", "PUNSUBSCRIBE *"),
                                _ => ("SUBSCRIBE c other", "UNSUBSCRIBE"),
                            };
                            received.fetch_add(come_and_go(&mut client, come, go), Relaxed);
                        }
                    })
                })
                .collect();
            churners.into_iter().for_each(|churner| churner.join().expect("it counts"));
            is_over.store(true, Relaxed);
        });
        assert_eq!(counted.load(Relaxed), received.load(Relaxed));
        assert!(received.load(Relaxed) > 0, "nothing was received at all");
        assert_empty(&mut server.connect());
    });
}

/// Subscribes, unsubscribes, and counts the messages until the last confirmation; then, by a PING,
/// those behind it, of which there must be none.
fn come_and_go(client: &mut Client, come: &str, go: &str) -> u64 {
    client.send(&come.split(' ').collect::<Vec<_>>());
    let mut messages = 0;
    let mut read_until = |client: &mut Client, is_end: &dyn Fn(&str) -> bool| {
        loop {
            let shown = show(&client.read_reply().expect("the connection is open"));
            if is_end(&shown) {
                return;
            }
            messages += u64::from(shown.contains("message "));
        }
    };
    let names = come.split(' ').count() - 1;
    read_until(client, &|shown| {
        shown.contains("subscribe ") && shown.ends_with(&format!(":{names}]"))
    });
    client.send(&go.split(' ').collect::<Vec<_>>());
    read_until(client, &|shown| shown.contains("unsubscribe ") && shown.ends_with(":0]"));
    assert_eq!(show(&client.ask("PING")), "+PONG", "nothing comes behind the confirmation");
    messages
}

#[test]
fn a_thousand_subscribers() {
    each_backend(WORKERS, |server| {
        let mut subscribers: Vec<Client> =
            (0..1000).map(|_| subscriber(server, "SUBSCRIBE c")).collect();
        let mut publisher = server.connect();
        let messages: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        for message in &messages {
            publisher.send(&["PUBLISH", "c", message]);
        }
        for _ in &messages {
            assert_eq!(publisher.read_reply(), Some(Value::Integer(1000)));
        }
        for client in &mut subscribers {
            for message in &messages {
                assert_eq!(next(client), ("c".into(), message.clone()));
            }
        }
        drop(subscribers.split_off(500));
        wait_until("half are gone", || {
            run_script(&mut publisher, "PUBSUB NUMSUB c") == "[$c :500]"
        });
        assert_eq!(publish(&mut publisher, "c", "last"), 500);
        drop(subscribers);
        assert_empty(&mut publisher);
    });
}

/// One that does not read has its messages kept, and the others get theirs.
#[test]
fn a_slow_subscriber_holds_nobody_up() {
    const MESSAGES: usize = 200;
    each_backend(&["--io-threads", "2"], |server| {
        let message = "x".repeat(64 * 1024);
        let mut slow: Vec<Client> = (0..2).map(|_| subscriber(server, "SUBSCRIBE c")).collect();
        let mut quick: Vec<Client> = (0..4).map(|_| subscriber(server, "SUBSCRIBE c")).collect();
        let mut publisher = server.connect();
        for _ in 0..MESSAGES {
            assert_eq!(publish(&mut publisher, "c", &message), 6);
            for client in &mut quick {
                assert_eq!(next(client).1.len(), message.len());
            }
        }
        for client in &mut slow {
            for _ in 0..MESSAGES {
                assert_eq!(next(client).1.len(), message.len());
            }
        }
    });
}

/// Whoever has the confirmation gets what is published from then on, whoever publishes it.
#[test]
fn a_confirmed_subscriber_misses_nothing() {
    each_backend(WORKERS, |server| {
        let mut publishers: Vec<Client> = (0..4).map(|_| server.connect()).collect();
        for round in 0..200 {
            let channel = format!("c{round}");
            let mut client = subscriber(server, &format!("SUBSCRIBE {channel}"));
            let publisher = &mut publishers[round % 4];
            assert_eq!(publish(publisher, &channel, "m"), 1);
            // And a message that is answered for has arrived before the reply to a later call.
            client.send(&["PING"]);
            assert_eq!(next(&mut client), (channel, "m".into()));
            assert_eq!(show(&client.read_reply().unwrap()), "[$pong $]");
        }
        assert_empty(&mut publishers[0]);
    });
}
