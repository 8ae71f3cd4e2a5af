//! Keys that MIGRATE has sent to another node and not deleted here yet.
//!
//! While the other node is waited for, others may read them and may not write them: what they wrote
//! would be lost with the key, and a key that they deleted would come back over there.

use std::collections::HashSet;
use std::sync::Mutex;

use kvasir_structures::locks::lock;

#[derive(Default)]
pub struct InFlight(Mutex<HashSet<Vec<u8>>>);

/// Keys that are sent; they are so no more when this is dropped.
pub struct Sent<'a> {
    all: &'a InFlight,
    keys: Vec<Vec<u8>>,
}

impl InFlight {
    /// Begins to send keys, which the caller holds; `None` if one of them is on its way already.
    pub fn begin(&self, keys: &[Vec<u8>]) -> Option<Sent<'_>> {
        let mut all = lock(&self.0);
        if keys.iter().any(|key| all.contains(key)) {
            return None;
        }
        all.extend(keys.iter().cloned());
        Some(Sent { all: self, keys: keys.to_vec() })
    }

    /// Whether there are any.
    pub fn are_there(&self) -> bool {
        !lock(&self.0).is_empty()
    }

    /// Whether one of these keys, which the caller holds, is on its way.
    pub fn has_any(&self, keys: &[Vec<u8>]) -> bool {
        let all = lock(&self.0);
        !all.is_empty() && keys.iter().any(|key| all.contains(key))
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.all.0);
        self.keys.iter().for_each(|key| {
            all.remove(key);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_sent_by_one_at_a_time() {
        let (all, one, two) = (InFlight::default(), b"one".to_vec(), b"two".to_vec());
        let sent = all.begin(&[one.clone(), two.clone()]).expect("nothing is sent yet");
        assert!(all.has_any(&[b"three".to_vec(), two.clone()]));
        assert!(all.begin(std::slice::from_ref(&two)).is_none() && all.are_there());
        drop(sent);
        assert!(!all.has_any(&[one, two]) && !all.are_there());
    }
}
