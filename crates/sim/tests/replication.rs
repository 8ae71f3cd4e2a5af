//! A few worlds with several servers in them, and the faults that they must find. `cargo xtask sim`
//! runs more.

use kvasir_sim::be_quiet;
use kvasir_sim::replication::{Canary, Setup, run};

fn setup(seed: u64) -> Setup {
    Setup { seed, canary: None }
}

#[test]
fn in_the_end_all_have_the_same_and_nothing_that_was_promised_is_missing() {
    be_quiet();
    let mut reigns = 0;
    for seed in 0..10 {
        let ran = run(setup(seed)).unwrap_or_else(|what| panic!("{what}"));
        assert!(ran.answers > 100, "{ran:?}");
        reigns += ran.reigns;
    }
    assert!(reigns > 10, "another server becomes the primary now and then: {reigns}");
}

/// A replica was told to follow another server between its snapshot's arrival and the loading, and
/// never had an append-only file again.
#[test]
fn what_is_not_thrown_away_goes_on_being_logged() {
    be_quiet();
    run(setup(519)).unwrap_or_else(|what| panic!("{what}"));
}

/// Power went when replicas had no more than the base of their append-only files on disk, and they
/// did not know any more where in the history that was.
#[test]
fn a_base_alone_is_a_place_in_a_history() {
    be_quiet();
    for seed in [108_162, 110_888, 126_118] {
        run(setup(seed)).unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn a_run_is_the_same_each_time() {
    be_quiet();
    for seed in 20..23 {
        assert_eq!(run(setup(seed)), run(setup(seed)));
    }
}

#[test]
fn planted_faults_are_found() {
    be_quiet();
    for canary in [Canary::AcknowledgesEarly, Canary::GoesOnElsewhere] {
        let found = (0..40).find_map(|seed| run(Setup { canary: Some(canary), seed }).err());
        let found = found.unwrap_or_else(|| panic!("{canary:?} is not found"));
        let is_right = match canary {
            Canary::AcknowledgesEarly => found.contains("was answered, and only"),
            Canary::GoesOnElsewhere => found.contains("not all have the same"),
        };
        assert!(is_right, "{found}");
    }
}
