//! A few worlds of clusters that are no more than their bus, and the faults that they must find.
//! `cargo xtask sim` runs more.

use kvasir_sim::be_quiet;
use kvasir_sim::bus::{Canary, Ran, Setup, run};

fn setup(seed: u64) -> Setup {
    Setup { seed, canary: None }
}

#[test]
fn in_the_end_each_slot_has_one_owner_and_each_primary_an_epoch() {
    be_quiet();
    let mut all = Ran::default();
    for seed in 0..20 {
        let ran = run(setup(seed)).unwrap_or_else(|what| panic!("{what}"));
        all.votes += ran.votes;
        all.reigns += ran.reigns;
        all.crashes += ran.crashes;
    }
    assert!(all.votes > 20 && all.reigns > 10 && all.crashes > 20, "{all:?}");
}

#[test]
fn a_run_is_the_same_each_time() {
    be_quiet();
    for seed in 20..24 {
        assert_eq!(run(setup(seed)), run(setup(seed)));
    }
}

#[test]
fn planted_faults_are_found() {
    be_quiet();
    for (canary, words) in
        [(Canary::VotesTwice, " votes for "), (Canary::SpeaksEarly, "its disk has")]
    {
        let found = (0..400).find_map(|seed| run(Setup { seed, canary: Some(canary) }).err());
        let found = found.unwrap_or_else(|| panic!("{canary:?} is not found"));
        assert!(found.contains(words), "{canary:?}: {found}");
    }
}
