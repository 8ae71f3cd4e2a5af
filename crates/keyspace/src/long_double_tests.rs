//! Long doubles against a table of what redis-server 7.0.15 says, and against such a server.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::testing::{ask_oracle, has_oracle};

fn sum(one: &str, other: &str) -> String {
    let infinite = "increment would produce NaN or Infinity";
    let invalid = "value is not a valid float";
    let parse = |text: &str| LongDouble::parse(text.as_bytes());
    let (Some(one), Some(other)) = (parse(one), parse(other)) else { return invalid.into() };
    let (Parsed::Finite(one), Parsed::Finite(other)) = (one, other) else { return infinite.into() };
    let Some(sum) = one.checked_add(other) else { return infinite.into() };
    let mut text = Vec::new();
    sum.write_to(&mut text);
    String::from_utf8(text).expect("digits")
}

#[test]
fn frozen_sums() {
    for line in include_str!("long_double_cases.txt").lines() {
        let [one, other, expected] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("three words: {line}")
        };
        assert_eq!(sum(one, other), expected.replace('_', " "), "{one} + {other}");
    }
}

/// Texts of numbers, most of them odd in some way.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "-?[0-9]{1,6}(\\.[0-9]{1,4})?",
        4 => "[-+]?[0-9]{0,25}\\.?[0-9]{0,25}",
        4 => "[-+]?[0-9]{1,30}\\.[0-9]{1,30}[eE][-+]?[0-9]{1,2}",
        2 => "-?[1-9][0-9]{15,21}",
        2 => "-?0\\.0{0,17}[0-9]{1,20}",
        2 => "-?[0-9]{1,3}\\.[0-9]{1,5}e-?(49[0-9]{2}|[0-9]{1,4})",
        1 => "[-+]?0[xX][0-9a-fA-F]{0,20}\\.?[0-9a-fA-F]{0,20}(p[-+]?[0-9]{1,5})?",
        1 => "-?[0-9]{50,300}(\\.[0-9]{1,50})?",
        1 => "-?(inf|nan|Infinity|INF|nan\\(1\\)|e5|0x|1e|--1|1e\\+|\\.|\\.e1)",
    ]
}

#[test]
fn sums_as_the_oracle_has_them() {
    if !has_oracle() {
        return;
    }
    let mut runner = TestRunner::default();
    let mut draw = || text().new_tree(&mut runner).expect("a text").current();
    let pairs: Vec<_> = (0..20_000).map(|_| (draw(), draw())).collect();
    let mut calls = Vec::new();
    for (one, other) in &pairs {
        calls.push(vec!["SET", "k", one]);
        calls.push(vec!["INCRBYFLOAT", "k", other]);
    }
    let replies = ask_oracle(&calls);
    for ((one, other), reply) in pairs.iter().zip(replies.chunks(2)) {
        let reply = match &reply[1] {
            kvasir_resp::value::Value::Error(text) => text.strip_prefix(b"ERR ").unwrap().to_vec(),
            value => value.as_bytes().expect("a number").to_vec(),
        };
        let theirs = String::from_utf8(reply).expect("text");
        assert_eq!(sum(one, other), theirs, "{one} + {other}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,40}", other in text()) {
        sum(&text, &other);
    }
}
