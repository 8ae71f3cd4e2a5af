//! A few worlds of clusters of whole servers, and the fault that they must find. `cargo xtask sim`
//! runs more.

use kvasir_sim::be_quiet;
use kvasir_sim::cluster::{Canary, Setup, run};

fn setup(seed: u64) -> Setup {
    Setup { seed, canary: None }
}

#[test]
fn in_the_end_each_slot_has_one_owner_and_each_answer_is_explained() {
    be_quiet();
    let (mut answers, mut reigns, mut ended) = (0, 0, 0);
    for seed in 0..8 {
        let ran = run(setup(seed)).unwrap_or_else(|what| panic!("{what}"));
        answers += ran.answers;
        reigns += ran.reigns;
        ended += ran.ended.iter().sum::<u64>();
    }
    assert!(answers > 600 && reigns > 3 && ended > 3, "{answers} {reigns} {ended}");
}

#[test]
fn a_run_is_the_same_each_time() {
    be_quiet();
    for seed in 20..22 {
        assert_eq!(run(setup(seed)), run(setup(seed)));
    }
}

#[test]
fn answers_that_do_not_wait_for_replicas_are_found() {
    be_quiet();
    let early = |seed| run(Setup { canary: Some(Canary::AnswersEarly), ..setup(seed) }).err();
    let found = (0..40).find_map(early).expect("a failover has taken what was answered");
    assert!(found.contains(" stood there while "), "{found}");
}
