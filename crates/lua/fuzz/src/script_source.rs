//! Any source is judged, and a script that is said to keep to its keys does so when it runs.
#![no_main]

mod machine;

use kvasir_lua::analysis::{Call, Commands, KeyPositions, Touches, analyse, analyse_library};
use libfuzzer_sys::fuzz_target;
use machine::Machine;

/// Commands whose name starts with `m` have keys only, all others one.
struct Table;

impl Commands for Table {
    fn key_positions(&self, call: &Call) -> Option<KeyPositions> {
        let name = call.args[0].as_deref()?;
        let last = if takes_keys_only(name) { call.args.len().max(2) - 1 } else { 1 };
        let positions = (1..=last).collect();
        Some(KeyPositions { positions, in_rest: call.is_open && takes_keys_only(name) })
    }

    fn is_read_only(&self, _: &Call) -> bool {
        true
    }
}

fn takes_keys_only(name: &[u8]) -> bool {
    name.first() == Some(&b'm')
}

const KEYS: [&[u8]; 2] = [b"key1", b"key2"];

thread_local! {
    static MACHINE: Machine = Machine::new();
}

fuzz_target!(|input: &[u8]| {
    let _ = analyse_library(input, &Table);
    if analyse(input, &Table).touches == Touches::Any {
        return;
    }
    MACHINE.with(|machine| {
        let Some(script) = machine.compile(input) else { return };
        // How it ends does not matter.
        let _ = machine.run(&script, &KEYS, &[b"other"]);
        // The bug that the fuzzer must find.
        assert!(!cfg!(feature = "canary") || !input.contains(&b'='), "{}", input.escape_ascii());
        for call in machine.server.calls.borrow().iter() {
            let args = call.as_args();
            let last = if takes_keys_only(args.name()) { args.len() } else { 2 };
            let mut keys = args.first(last).from(1).iter();
            let stray = keys.find(|key| !KEYS.contains(key));
            assert_eq!(stray, None, "{}", input.escape_ascii());
        }
    });
});
