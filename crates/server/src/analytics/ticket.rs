//! How an answer that is made in the background finds the call that waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};

use kvasir_analytics::job::Job;
use kvasir_keyspace::waiting::Caller;
use kvasir_resp::reply::{Protocol, Reply};

use crate::store::Store;
use crate::workers::{Message, Served};

/// A call that waits. Exactly one ends its wait: who answers it, its client's end, or CLIENT
/// UNBLOCK.
pub struct Ticket {
    pub caller: Caller,
    pub protocol: Protocol,
    /// What is computed for it, and for nobody else.
    pub job: Option<Arc<Job>>,
    /// In ms since 1970, from when on the call is told that there is nothing yet.
    pub deadline_ms: Option<u64>,
    has_ended: AtomicBool,
}

impl Ticket {
    /// Of a call that waits for a job, as long as it takes.
    pub fn of_job(caller: Caller, protocol: Protocol, job: Arc<Job>) -> Arc<Ticket> {
        let has_ended = AtomicBool::new(false);
        Arc::new(Ticket { caller, protocol, job: Some(job), deadline_ms: None, has_ended })
    }

    /// Of a call that waits for a part of something, until then.
    pub fn until(caller: Caller, protocol: Protocol, deadline_ms: u64) -> Arc<Ticket> {
        let (deadline_ms, has_ended) = (Some(deadline_ms), AtomicBool::new(false));
        Arc::new(Ticket { caller, protocol, job: None, deadline_ms, has_ended })
    }

    /// Of a call that waits for something that does come.
    pub fn of_certain(caller: Caller, protocol: Protocol) -> Arc<Ticket> {
        let has_ended = AtomicBool::new(false);
        Arc::new(Ticket { caller, protocol, job: None, deadline_ms: None, has_ended })
    }

    /// Whether the caller is the one who ends the wait.
    pub fn claim(&self) -> bool {
        !self.has_ended.swap(true, AcqRel)
    }

    /// Ends the wait without an answer, and what is computed for it.
    pub fn cancel(&self) -> bool {
        if let Some(job) = &self.job {
            job.cancel();
        }
        self.claim()
    }

    /// Sends the answer, unless nobody waits for it any more; says whether it did.
    pub fn answer(&self, store: &Store, reply: Reply, fence: u64) -> bool {
        let is_waited_for = self.claim();
        if is_waited_for {
            let served = Served { caller: self.caller, reply, fence, us: 0 };
            store.send(self.caller.worker, Message::Unblock(served));
        }
        is_waited_for
    }
}
