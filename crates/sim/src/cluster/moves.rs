//! Slots that move all at once, and who is ended at which step of it.

use kvasir_cluster::id::NodeId;
use kvasir_keyspace::rng::Rng;
use kvasir_server::cluster::handovers::Stage;

use super::nodes::Nodes;

/// At which something may be ended.
pub const STAGES: usize = 6;

/// What is ended, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    stage: usize,
    victim: Victim,
    /// Steps of the world after the stage has begun.
    steps: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    Source,
    Target,
    Both,
    Link,
    /// The source, and the target with its replicas is cut off from all but clients as soon as it
    /// has taken the slots.
    Split,
}

/// A move that is over only when nobody has a job any more.
pub struct Watch {
    plan: Option<Plan>,
    steps: usize,
}

impl Plan {
    pub fn draw(rng: &mut Rng) -> Plan {
        let victim = match rng.below(9) {
            7.. => return Plan { stage: STAGES - 1, victim: Victim::Split, steps: rng.below(10) },
            0..3 => Victim::Source,
            3..5 => Victim::Target,
            5 => Victim::Both,
            _ => Victim::Link,
        };
        Plan { stage: rng.below(STAGES), victim, steps: rng.below(40) }
    }
}

fn number(stage: Stage) -> Option<usize> {
    match stage {
        Stage::Establishing => Some(0),
        Stage::WaitsToSnapshot => Some(1),
        Stage::Snapshotting => Some(2),
        Stage::Streaming => Some(3),
        Stage::Paused => Some(4),
        Stage::Granted => Some(5),
        _ => None,
    }
}

impl Watch {
    pub fn new(plan: Option<Plan>) -> Watch {
        Watch { plan, steps: 0 }
    }

    /// Who is to be ended now, if that time has come: the stage, source and target, and what of
    /// them.
    pub fn look(&mut self, nodes: &Nodes) -> Option<(usize, [usize; 2], Victim)> {
        let plan = self.plan?;
        for node in 0..nodes.count() {
            let Some(cluster) = nodes.shared(node).and_then(|shared| shared.cluster.as_ref())
            else {
                continue;
            };
            for job in cluster.handovers.jobs().into_iter().filter(|job| job.is_export) {
                let place = |id: NodeId| nodes.ids.iter().position(|one| *one == id);
                let Some(target) = place(job.target) else { continue };
                let has_taken = || {
                    let of_target = nodes.shared(target).and_then(|shared| shared.cluster.as_ref());
                    of_target.is_some_and(|node| node.look().owns_all(job.target, &job.slots))
                };
                let is_early = plan.victim == Victim::Split && !has_taken();
                if number(job.stage()) != Some(plan.stage) || is_early {
                    continue;
                }
                self.steps += 1;
                // The last step is the shortest.
                let steps = if plan.stage == STAGES - 1 { plan.steps / 8 } else { plan.steps };
                if self.steps <= steps {
                    return None;
                }
                self.plan = None;
                return Some((plan.stage, [node, target], plan.victim));
            }
        }
        None
    }

    pub fn is_armed(&self) -> bool {
        self.plan.is_some()
    }
}
