//! A few runs of the crash enumeration, and the faults that it must find. `cargo xtask sim` does
//! more.

use kvasir_sim::aof::{Canary, Setup, enumerate};

/// Both policies and both ways of writing come up among four.
fn setup(seed: u64, canary: Option<Canary>) -> Setup {
    Setup { seed, is_always: seed.is_multiple_of(2), is_chained: seed % 4 < 2, canary }
}

#[test]
fn what_was_promised_is_there_whenever_the_power_goes() {
    for seed in [0, 3] {
        let tried = enumerate(&setup(seed, None), || {}).unwrap_or_else(|what| panic!("{what}"));
        assert!(tried.points > 1000 && tried.starts > tried.points, "{tried:?}");
    }
}

#[test]
fn every_canary_is_found() {
    for (canary, words) in [
        (Canary::AcknowledgesEarly, "was acknowledged and is gone"),
        (Canary::NamesEarly, "is not there"),
        (Canary::BelievesSync, " comes where "),
        (Canary::SyncsLate, "was acknowledged and is gone"),
    ] {
        let found = (0..2).find_map(|seed| enumerate(&setup(seed, Some(canary)), || {}).err());
        let found = found.unwrap_or_else(|| panic!("{canary:?} is not found"));
        assert!(found.contains(words), "{found}");
    }
}
