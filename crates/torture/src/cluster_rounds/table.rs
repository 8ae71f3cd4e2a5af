//! What all rounds have shown, by kind of cluster and of fault.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::Fault;

/// What one fault has cost.
#[derive(Clone, Copy)]
pub struct Round {
    /// Until a replica was a primary.
    pub taken_over: Duration,
    /// Until a client was answered by somebody else than the victim.
    pub written: Duration,
    pub lost: usize,
}

#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
}

struct Row {
    mix: &'static str,
    fault: Fault,
    rounds: Vec<Round>,
}

impl Table {
    pub fn add(&mut self, mix: &'static str, fault: Fault, round: Round) {
        let at = self.rows.iter().position(|row| row.mix == mix && row.fault == fault);
        let at = at.unwrap_or_else(|| {
            self.rows.push(Row { mix, fault, rounds: Vec::new() });
            self.rows.len() - 1
        });
        self.rows[at].rounds.push(round);
    }
}

impl Display for Table {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let heads = ["rounds", "taken over", "worst", "written to", "worst", "lost"];
        write!(out, "{:<24} {:<8}", "cluster", "primary")?;
        heads.iter().try_for_each(|head| write!(out, " {head:>10}"))?;
        writeln!(out)?;
        for row in &self.rows {
            let [taken_over, worst_taken_over] = spread(&row.rounds, |round| round.taken_over);
            let [written, worst_written] = spread(&row.rounds, |round| round.written);
            let lost: usize = row.rounds.iter().map(|round| round.lost).sum();
            write!(
                out,
                "{:<24} {:<8} {:>10}",
                row.mix,
                format!("{:?}", row.fault),
                row.rounds.len()
            )?;
            for seconds in [taken_over, worst_taken_over, written, worst_written] {
                write!(out, " {seconds:>9.2}s")?;
            }
            writeln!(out, " {lost:>10}")?;
        }
        Ok(())
    }
}

/// Median and worst, in seconds.
fn spread(rounds: &[Round], of: fn(&Round) -> Duration) -> [f64; 2] {
    let mut times: Vec<f64> = rounds.iter().map(|round| of(round).as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[times.len() - 1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_median_worst_and_sum() {
        let mut table = Table::default();
        for seconds in [3, 1, 2] {
            let time = Duration::from_secs(seconds);
            table.add(
                "Kvasir",
                Fault::Killed,
                Round { taken_over: time, written: time * 2, lost: 5 },
            );
        }
        let text = table.to_string();
        let row: Vec<&str> = text.lines().nth(1).expect("a row").split_whitespace().collect();
        let shown = ["Kvasir", "Killed", "3", "2.00s", "3.00s", "4.00s", "6.00s", "15"];
        assert_eq!(row, shown);
    }
}
