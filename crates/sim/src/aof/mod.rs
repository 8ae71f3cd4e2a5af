//! Crash enumeration of the append-only file: every operation of a run fails in every way, the plug
//! is pulled there or later, and what is left is loaded, whatever luck is had with what was not
//! synced. Then a server goes on from what was found, and the plug is pulled once more.

pub mod model;
mod recover;
mod run;

use kvasir_keyspace::rng::Rng;

use crate::disk::{Files, SimDisk};
use crate::fault::{EIO, ENOSPC, Fault, Kind, Operation};
use crate::luck::Luck;
use recover::{Found, check, recover};
pub use run::{Canary, Setup};
use run::{Promise, run};

/// What was tried.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tried {
    /// Crashes.
    pub points: usize,
    /// Starts on what they left.
    pub starts: usize,
}

/// Tries every fault of every operation of one run. `progress` is told of each crash; an error says
/// what was not as promised, and where.
pub fn enumerate(setup: &Setup, mut progress: impl FnMut()) -> Result<Tried, String> {
    let mut tried = Tried::default();
    let mut rng = Rng::new(setup.seed ^ 0xFA17);
    let operations = {
        let disk = SimDisk::with(&Files::new(), &[]);
        let promise = run(&disk, setup, &Found::default());
        tried
            .crash(&disk, &promise)
            .map_err(|what| format!("{setup:?} without a fault: {what}"))?;
        disk.operations()
    };
    for (at, operation) in operations.iter().enumerate() {
        for fault in faults(at, *operation, &mut rng) {
            let mut faults = vec![fault];
            if fault.kind != Kind::Stop {
                faults.push(Fault::stop(at + 1 + rng.below(operations.len() + 8 - at)));
            }
            crash_twice(setup, &faults, &mut tried, &mut rng).map_err(|what| {
                format!("{setup:?} with {faults:?}, the first one a {operation:?}: {what}")
            })?;
            progress();
        }
    }
    Ok(tried)
}

/// What can go wrong with an operation.
fn faults(at: usize, operation: Operation, rng: &mut Rng) -> Vec<Fault> {
    let fault = |kind, done| Fault { at, kind, done };
    let mut faults = vec![
        fault(Kind::Stop, 0),
        fault(Kind::Once(EIO), 0),
        fault(Kind::Once(ENOSPC), 0),
        fault(Kind::Forever(EIO), 0),
        fault(Kind::Forever(ENOSPC), 0),
    ];
    let Operation::Write(len) = operation else {
        // It is done, and fails all the same.
        faults.push(fault(Kind::Once(EIO), 1));
        return faults;
    };
    if len > 1 {
        let mut part = || 1 + rng.below(len - 1);
        faults.extend([
            fault(Kind::Stop, part()),
            fault(Kind::Stop, part()),
            fault(Kind::Stop, len - 1),
            fault(Kind::Short, part()),
            fault(Kind::Once(EIO), part()),
            fault(Kind::Once(ENOSPC), part()),
            fault(Kind::Forever(ENOSPC), part()),
        ]);
    }
    faults
}

/// A run that crashes, and another one on what it left.
fn crash_twice(
    setup: &Setup,
    faults: &[Fault],
    tried: &mut Tried,
    rng: &mut Rng,
) -> Result<(), String> {
    let disk = SimDisk::with(&Files::new(), faults);
    let promise = run(&disk, setup, &Found::default());
    tried.crash(&disk, &promise)?;
    let lucks: Vec<Luck> = Luck::all().collect();
    let luck = lucks[rng.below(lucks.len())];
    let left = disk.after(luck);
    let found = recover(&left)?;
    let fault = Fault { at: rng.below(40), kind: Kind::Stop, done: rng.below(80) };
    let disk = SimDisk::with(&left, &[fault]);
    let promise = run(&disk, setup, &found);
    let again = |what| format!("{luck:?}, and in the next run {fault:?}: {what}");
    tried.crash(&disk, &promise).map_err(again)
}

impl Tried {
    /// Loads what a crash leaves, whatever luck is had.
    fn crash(&mut self, disk: &SimDisk, promise: &Promise) -> Result<(), String> {
        self.points += 1;
        // Much luck makes no difference.
        let mut seen: Vec<(Files, Found)> = Vec::new();
        for luck in Luck::all() {
            let files = disk.after(luck);
            let show = |what| format!("{luck:?}: {what}");
            let known = seen.iter().find(|(other, _)| *other == files).map(|(_, found)| found);
            if let Some(found) = known {
                check(found, promise, luck).map_err(show)?;
                continue;
            }
            let found = recover(&files).map_err(show)?;
            self.starts += 1;
            check(&found, promise, luck).map_err(show)?;
            seen.push((files, found));
        }
        Ok(())
    }
}
