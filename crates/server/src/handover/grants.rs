//! Slots that were granted to another node, which may have taken them: that one is asked, and until
//! it is known whose they are calls about them are put off. By who has granted them, when the link
//! broke at that moment; by who starts with a grant; and by who takes over with one.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use kvasir_cluster::grant::Grant;
use kvasir_reactor::clock;

use crate::cluster::Node;
use crate::cluster::handovers::{Job, Stage, Wanted};
use crate::cluster::hands::{Hands, Later};
use crate::handover::export::{LOST, Stop, open, patience};
use crate::handover::words;
use crate::run::cluster::settle;
use crate::run::handover;
use crate::state::shared::Shared;

/// How soon the target is asked again whose the slots are.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Has somebody ask whose slots are that were granted, by this node before it started or by the
/// primary whose place it has taken.
pub fn resume(shared: &'static Shared, node: &'static Node, grant: Grant) {
    let Grant { job: name, to: target, slots } = grant;
    let (ranges, source) = (slots.words(" "), node.look().my_id());
    let job = Job::new(Wanted { name, is_export: true, slots, ranges, source, target });
    node.handovers.add(vec![Arc::clone(&job)], super::kept_max(shared));
    job.enter(Stage::Granted);
    let own = Arc::clone(&job);
    let work = move |mut hands: Box<dyn Hands>| -> Later<'static, ()> {
        Box::pin(async move {
            let found = find_out(&mut *hands, shared, node, &own).await;
            let alone = shared.gate.exclusive();
            handover::end_grant(shared, node, &alone, &own.name, &own.slots);
            drop(alone);
            match found {
                Err(Stop::Failed(why)) => own.end(Stage::Failed, &why),
                _ => own.end(Stage::Success, ""),
            }
        })
    };
    if let Err(error) = node.workforce.begin("handover", Box::new(work)) {
        // It is tried again.
        job.end(Stage::Failed, &format!("Can't start a thread: {error}"));
    }
}

/// Asks until it is known whose the slots are.
pub(super) async fn find_out(
    hands: &mut dyn Hands,
    shared: &'static Shared,
    node: &'static Node,
    job: &Job,
) -> Result<(), Stop> {
    loop {
        if let ControlFlow::Break(result) = ask_whose(hands, shared, node, job).await {
            return result;
        }
        hands.rest(ASK_AGAIN).await;
    }
}

/// Looks whether the bus has said whose the slots are, or the target will.
async fn ask_whose(
    hands: &mut dyn Hands,
    shared: &'static Shared,
    node: &'static Node,
    job: &Job,
) -> ControlFlow<Result<(), Stop>> {
    let epoch = {
        let cluster = node.look();
        if cluster.me().is_replica() {
            let why = "This node is not a primary any more";
            return ControlFlow::Break(Err(Stop::Failed(why.into())));
        }
        if !cluster.owns_all(job.source, &job.slots) {
            return ControlFlow::Break(Ok(()));
        }
        if cluster.node(job.target).is_none() {
            return ControlFlow::Break(Err(Stop::Failed(LOST.into())));
        }
        cluster.me().config_epoch.to_string()
    };
    let Ok(mut peer) = open(hands, shared, node, job).await else {
        return ControlFlow::Continue(());
    };
    let (source, slots) = (job.source.to_string(), job.slots.words(","));
    let name = job.name.as_bytes();
    let words: [&[u8]; 7] = [
        b"CLUSTER",
        b"SYNCSLOTS",
        words::ABANDON.as_bytes(),
        name,
        source.as_bytes(),
        slots.as_bytes(),
        epoch.as_bytes(),
    ];
    if peer.send(&words, patience(shared), || true).await.is_err() {
        return ControlFlow::Continue(());
    }
    match peer.answer(patience(shared), || true).await {
        Ok(answer) if answer.0.starts_with("+KEPT") => {
            ControlFlow::Break(Err(Stop::Failed(LOST.into())))
        }
        Ok(answer) => match answer.integer() {
            Some(epoch) if give(shared, node, job, epoch) => ControlFlow::Break(Ok(())),
            _ => ControlFlow::Continue(()),
        },
        Err(_) => ControlFlow::Continue(()),
    }
}

/// The slots are the target's from here on. False if it has to take a newer epoch first.
pub(super) fn give(shared: &'static Shared, node: &'static Node, job: &Job, epoch: u64) -> bool {
    let now_ms = clock::now_unix_ms();
    let mut alone = shared.gate.exclusive();
    let is_given = node.change(|cluster| {
        let is_given = cluster.hand_over(&job.slots, job.target, epoch, now_ms);
        if is_given {
            cluster.end_grant(&job.name);
        }
        is_given
    });
    if !is_given {
        return false;
    }
    // Its last slots gone, this node may be a replica in a moment, and say no more.
    handover::tell_granted(shared, node, &alone);
    settle(shared, node, &mut alone, now_ms);
    // Those whose calls were put off, or who wait for a key, hear of it.
    handover::hold(shared, node, &alone, &job.slots, false);
    drop(alone);
    node.wake();
    true
}
