//! The two queues: setup and probe, pushing entries when the submission queue is full, one
//! `io_uring_enter` per turn, and taking completions also after an overflow.
//!
//! # Safety
//!
//! Entries name memory and descriptors of operations. This file only carries them; that both stay
//! until the completion is promised by who calls `push` (`uring/mod.rs`).

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue};

use crate::sandbox::Optional;

/// How often one turn asks the kernel for more: completions that found no place in the queue, and
/// those it has put off, since from 6.13 it makes no more than 20 in one pass. A bound, so that a
/// turn ends under any load; what is left comes with the next.
const FLUSHES_MAX: usize = 16;

/// Interrupted, or short of memory for a moment: nothing was lost, the next turn tries again.
const PASSING_ERRORS: [i32; 5] =
    [libc::EINTR, libc::ETIME, libc::EAGAIN, libc::EBUSY, libc::ENOMEM];

pub(crate) struct Ring {
    ring: IoUring,
    /// Entries that found the submission queue full, in their order.
    queued: VecDeque<squeue::Entry>,
}

impl Ring {
    /// Sets the ring up and tries it. An error says which step failed, for the log.
    pub(crate) fn new(entries: u32) -> io::Result<Ring> {
        Optional::IoUring.check()?;
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun();
        builder
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(entries.saturating_mul(4))
            .setup_clamp();
        builder.dontfork();
        let ring = builder.build(entries).map_err(|error| step("io_uring_setup", &error))?;
        let mut ring = Ring { ring, queued: VecDeque::new() };
        ring.probe()?;
        ring.try_nop()?;
        Ok(ring)
    }

    /// `DEFER_TASKRUN` was accepted, so this is 6.1 or later; but a sandbox may allow some
    /// operations only.
    fn probe(&mut self) -> io::Result<()> {
        let mut probe = Probe::new();
        let registered = self.ring.submitter().register_probe(&mut probe);
        registered.map_err(|error| step("IORING_REGISTER_PROBE", &error))?;
        let needed = [
            opcode::Nop::CODE,
            opcode::AcceptMulti::CODE,
            opcode::RecvMulti::CODE,
            opcode::Send::CODE,
            opcode::SendMsg::CODE,
            opcode::PollAdd::CODE,
            opcode::AsyncCancel::CODE,
        ];
        let params = self.ring.params();
        let features = params.is_feature_nodrop() && params.is_feature_ext_arg();
        if features && needed.iter().all(|&code| probe.is_supported(code)) {
            return Ok(());
        }
        let error = io::Error::new(io::ErrorKind::Unsupported, "an operation is missing");
        Err(step("IORING_REGISTER_PROBE", &error))
    }

    fn try_nop(&mut self) -> io::Result<()> {
        // SAFETY: a no-op names no memory.
        unsafe { self.push(opcode::Nop::new().build()) };
        self.ring.submit_and_wait(1).map_err(|error| step("io_uring_enter", &error))?;
        match self.ring.completion().next() {
            Some(entry) if entry.result() >= 0 => Ok(()),
            Some(entry) => Err(step("no-op", &io::Error::from_raw_os_error(-entry.result()))),
            None => Err(step("no-op", &io::Error::from(io::ErrorKind::Unsupported))),
        }
    }

    pub(crate) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.ring.submitter()
    }

    /// Queues an operation for the next turn; entries are submitted in the order of the pushes.
    ///
    /// # Safety
    ///
    /// What the entry names has to stay valid until its last completion has been taken.
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry) {
        if self.queued.is_empty() {
            // SAFETY: the caller's promise.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            let _ = self.ring.submit();
            // SAFETY: the caller's promise.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.queued.push_back(entry);
    }

    /// Submits everything, waits for at least one completion, takes all.
    pub(crate) fn turn(
        &mut self,
        timeout: Option<Duration>,
        completions: &mut Vec<cqueue::Entry>,
    ) -> io::Result<()> {
        while !self.move_queued() {
            self.enter(Some(Duration::ZERO))?;
            self.take(completions);
        }
        let ready = !completions.is_empty() || !self.ring.completion().is_empty();
        self.enter(if ready { Some(Duration::ZERO) } else { timeout })?;
        self.take(completions);
        for _ in 0..FLUSHES_MAX {
            let submission = self.ring.submission();
            if !submission.cq_overflow() && !submission.taskrun() {
                break;
            }
            drop(submission);
            self.enter(Some(Duration::ZERO))?;
            self.take(completions);
        }
        Ok(())
    }

    /// Whether every operation pushed so far was submitted, and every completion there is taken.
    pub(crate) fn is_settled(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.is_empty() && !submission.cq_overflow() && self.queued.is_empty()
    }

    /// Whether there is nothing to submit and nothing to take, nor any work of the kernel for us.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let submission = self.ring.submission();
        let waits = submission.cq_overflow() || submission.taskrun() || !submission.is_empty();
        drop(submission);
        !waits && self.queued.is_empty() && self.ring.completion().is_empty()
    }

    /// Whether all queued entries now stand in the submission queue.
    fn move_queued(&mut self) -> bool {
        let mut submission = self.ring.submission();
        while let Some(entry) = self.queued.front() {
            // SAFETY: whoever pushed the entry promised that what it names stays valid.
            if unsafe { submission.push(entry) }.is_err() {
                return false;
            }
            self.queued.pop_front();
        }
        true
    }

    /// One system call. Always with GETEVENTS: deferred completions come only to those who ask.
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let to_submit = self.ring.submission().len() as u32;
        let min_complete = u32::from(timeout != Some(Duration::ZERO));
        let flags = (EnterFlags::GETEVENTS | EnterFlags::EXT_ARG).bits();
        let mut args = SubmitArgs::new();
        let timespec = timeout.map(Timespec::from).unwrap_or_default();
        if timeout.is_some() {
            args = args.timespec(&timespec);
        }
        let submitter = self.ring.submitter();
        // SAFETY: the entries are valid by the promise of `push`; `args` and what it points to
        // live until the call returns.
        match unsafe { submitter.enter(to_submit, min_complete, flags, Some(&args)) } {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error().is_some_and(|e| PASSING_ERRORS.contains(&e)) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn take(&mut self, completions: &mut Vec<cqueue::Entry>) {
        completions.extend(self.ring.completion());
    }
}

fn step(step: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{step}: {error}"))
}
