//! A few worlds with a whole server in them, and the fault that they must find. `cargo xtask sim`
//! runs more.

use kvasir_sim::server::{Setup, run};

fn setup(seed: u64) -> Setup {
    Setup { seed, replies_early: false }
}

#[test]
fn what_was_answered_is_there_after_any_crash() {
    for seed in 0..10 {
        let ran = run(setup(seed)).unwrap_or_else(|what| panic!("{what}"));
        assert!(ran.answers > 300 && ran.crashes > 0, "{ran:?}");
    }
}

#[test]
fn a_run_is_the_same_each_time() {
    for seed in 20..24 {
        assert_eq!(run(setup(seed)), run(setup(seed)));
    }
}

#[test]
fn replies_that_do_not_wait_for_the_disk_are_found() {
    let found = (0..20).find_map(|seed| run(Setup { replies_early: true, ..setup(seed) }).err());
    let found = found.expect("a crash has taken what was answered");
    assert!(found.contains("was answered, and only"), "{found}");
}
