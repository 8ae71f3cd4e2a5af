//! MEMORY REPORT: all keys are summed up from an image, and who asked is told.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_analytics::job::Job;
use kvasir_analytics::report::answer::Report;
use kvasir_analytics::report::survey::{Survey, Wish};
use kvasir_analytics::visit::Place;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::snapshot::{self, Sink};
use kvasir_reactor::{clock, thread as reactor_thread};
use kvasir_resp::reply::Reply;
use kvasir_structures::crc16;
use kvasir_structures::locks::lock;

use crate::analytics::grant::{Grant, LOST};
use crate::analytics::graphs::Cancelled;
use crate::analytics::ticket::Ticket;
use crate::analytics::{Analytics, tell_failure, timeout};
use crate::log::notice;
use crate::store::Store;

/// Reports at the same time: each has an image that writers look at.
const REPORTS_MAX: usize = 4;

impl Analytics {
    /// A job of a client that wants a report, unless there are too many.
    pub fn new_report(&self, store: &Store, grant: &Grant, client: u64) -> Result<Arc<Job>, Error> {
        self.obey(&store.config());
        let mut reports = lock(&self.reports);
        if reports.len() >= REPORTS_MAX {
            let text = format!("ERR there are no more than {REPORTS_MAX} reports at a time");
            return Err(Error::new(text));
        }
        let (user, own_max) = (grant.user.id, grant.places(REPORTS_MAX));
        if reports.iter().filter(|job| job.user == user).count() >= own_max {
            let text = format!("ERR a user has no more than {own_max} reports at a time");
            return Err(Error::new(text));
        }
        let share = grant.share(&self.budget);
        let job = Arc::new(Job::new(self.new_id(), client, user, "memory|report", share));
        if let Some(time) = timeout(&store.config()) {
            job.limit(time);
        }
        reports.push(Arc::clone(&job));
        Ok(job)
    }

    /// Has a report made; the answer goes to the ticket's call.
    pub fn begin_report(
        &'static self,
        store: &'static Store,
        job: Arc<Job>,
        ticket: Arc<Ticket>,
        wish: Wish,
        grant: Grant,
    ) -> Result<(), Error> {
        let leaving = Arc::clone(&job);
        let run = move || {
            let _ = reactor_thread::wake_late().and_then(|()| reactor_thread::work_less());
            let made = self.make_report(store, &job, wish);
            let told =
                made.and_then(|made| if grant.holds() { Ok(made) } else { Err(LOST.into()) });
            match told {
                Ok((report, fence)) => {
                    self.stats.reports.fetch_add(1, Relaxed);
                    let mut reply = Reply::new(ticket.protocol);
                    report.write(&mut reply);
                    self.end_report(&job);
                    ticket.answer(store, reply, fence);
                }
                Err(why) => {
                    self.stats.reports_failed.fetch_add(1, Relaxed);
                    notice!("report given up id={} reason={why}", job.id);
                    let mut reply = Reply::new(ticket.protocol);
                    tell_failure(&why, &mut reply);
                    *lock(&self.stats.last_failure) = why;
                    self.end_report(&job);
                    ticket.answer(store, reply, 0);
                }
            }
            store.freeing.tidy_later();
        };
        if std::thread::Builder::new().name("report".into()).spawn(run).is_err() {
            self.end_report(&leaving);
            return Err(Error::fixed("ERR can't start a thread for the report"));
        }
        Ok(())
    }

    fn end_report(&self, job: &Arc<Job>) {
        // Who has the answer in hand finds its memory given back.
        job.share.keep(0);
        lock(&self.reports).retain(|one| !Arc::ptr_eq(one, job));
    }

    /// MEMORY REPORT CANCEL: says how many.
    pub fn cancel_reports(&self, cancelled: Cancelled) -> usize {
        let reports = self.reports();
        reports.iter().filter(|job| cancelled.is(job)).inspect(|job| job.cancel()).count()
    }

    /// The report of this moment, and up to where the disk must have what it shows.
    fn make_report(
        &self,
        store: &'static Store,
        job: &Arc<Job>,
        mut wish: Wish,
    ) -> Result<(Report, u64), String> {
        let keyspace = &store.keyspace;
        let mut pass = store.gate.exclusive();
        wish.env.now_ms = clock::now_unix_ms();
        let survey = Arc::new(Survey::new(wish, Arc::clone(job))?);
        let sink: Arc<dyn Sink> = Arc::clone(&survey) as Arc<dyn Sink>;
        let images = snapshot::cut(keyspace, &mut pass, &sink, 0..crc16::SLOTS);
        let fence = if keyspace.log.is_open() { keyspace.log.end() } else { 0 };
        drop(pass);
        let place = Place { keyspace, gate: store.gate, turns: &self.turns };
        let end = || snapshot::end(keyspace, &mut store.gate.exclusive(), &images);
        survey.run(place, &images, end).map(|report| (report, fence))
    }
}
