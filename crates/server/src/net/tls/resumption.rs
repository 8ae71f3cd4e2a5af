//! Sessions that a client may resume: remembered for a time, up to a number.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kvasir_structures::locks::lock;
use rustls::server::StoresServerSessions;

/// What TLS has to remember of sessions, by their id.
#[derive(Debug)]
pub struct Sessions {
    /// As many as come if `None`.
    count_max: Option<usize>,
    lifetime: Duration,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_id: HashMap<Vec<u8>, (Instant, Vec<u8>)>,
    /// Ids as they came, with the end of their time, so in the order of it. One that was used up
    /// stays here until its time is over, or its place is needed.
    by_age: VecDeque<(Instant, Vec<u8>)>,
}

impl Sessions {
    pub fn new(count_max: Option<usize>, lifetime: Duration) -> Sessions {
        Sessions { count_max, lifetime, kept: Mutex::default() }
    }
}

impl Kept {
    /// Forgets what is over, and the oldest beyond `count_max`.
    fn forget(&mut self, now: Instant, count_max: Option<usize>) {
        while let Some((end, id)) = self.by_age.front() {
            let is_too_many = count_max.is_some_and(|max| self.by_age.len() > max);
            if *end > now && !is_too_many {
                return;
            }
            // The id may have been stored again since.
            if self.by_id.get(id).is_some_and(|(kept_until, _)| kept_until == end) {
                self.by_id.remove(id);
            }
            self.by_age.pop_front();
        }
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        let now = Instant::now();
        let end = now + self.lifetime;
        let mut kept = lock(&self.kept);
        kept.by_id.insert(id.clone(), (end, session));
        kept.by_age.push_back((end, id));
        kept.forget(now, self.count_max);
        true
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        let mut kept = lock(&self.kept);
        kept.forget(Instant::now(), self.count_max);
        kept.by_id.get(id).map(|(_, session)| session.clone())
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        let mut kept = lock(&self.kept);
        kept.forget(Instant::now(), self.count_max);
        kept.by_id.remove(id).map(|(_, session)| session)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(1000);

    #[test]
    fn the_oldest_go_first() {
        let sessions = Sessions::new(Some(2), LONG);
        for id in 1..=3 {
            sessions.put(vec![id], vec![id, id]);
        }
        assert_eq!(sessions.get(&[1]), None);
        assert_eq!(sessions.get(&[2]), Some(vec![2, 2]));
        assert_eq!(sessions.take(&[2]), Some(vec![2, 2]));
        assert_eq!(sessions.take(&[2]), None);
        assert_eq!(sessions.get(&[3]), Some(vec![3, 3]));
    }

    #[test]
    fn an_id_that_is_stored_again_lives_on() {
        let sessions = Sessions::new(Some(2), LONG);
        sessions.put(vec![1], vec![1]);
        sessions.put(vec![1], vec![2]);
        sessions.put(vec![3], vec![3]);
        assert_eq!(sessions.get(&[1]), Some(vec![2]));
    }

    #[test]
    fn time_ends_a_session() {
        let sessions = Sessions::new(None, Duration::ZERO);
        sessions.put(vec![1], vec![1]);
        assert_eq!(sessions.get(&[1]), None);
        assert!(lock(&sessions.kept).by_age.is_empty());
    }
}
