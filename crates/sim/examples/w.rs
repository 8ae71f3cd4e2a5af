use kvasir_sim::replication::{Canary, Setup, run};
fn main() {
    let words: Vec<String> = std::env::args().collect();
    let (first, count): (u64, u64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let canary = match words.get(3).map(|word| &word[..]) {
        Some("early") => Some(Canary::AcknowledgesEarly),
        Some("elsewhere") => Some(Canary::GoesOnElsewhere),
        _ => None,
    };
    if count > 1 {
        kvasir_sim::be_quiet();
    }
    let start = std::time::Instant::now();
    let mut all = [0, 0, 0, 0];
    for seed in first..first + count {
        match run(Setup { seed, canary }) {
            Ok(ran) => {
                if count < 10 { println!("{seed} {ran:?}"); }
                all[0] += ran.answers;
                all[1] += ran.crashes;
                all[2] += ran.reigns;
            }
            Err(what) => {
                all[3] += 1;
                println!("FAILED {what}");
            }
        }
    }
    println!("{all:?} {:.1} s", start.elapsed().as_secs_f64());
}
