//! Looking for what proves that a broken place of a log was on disk: a sound group somewhere behind
//! it that was written later.
//!
//! What is behind may be gigabytes of anything, so it is looked through piece by piece: of a group
//! that may be the proof no more is kept than its checksum so far.

use super::record::{Body, GROUP, HEAD_MAX, Record, parse};

/// More heads of groups than this that are not finished are no accident. Nobody cuts off what they
/// may prove.
const OPEN_MAX: usize = 1 << 16;

pub struct Proof {
    /// The place that may have been on disk.
    broken: u64,
    open: Vec<Open>,
    is_found: bool,
}

/// A group whose body has not been seen to its end.
struct Open {
    /// Bytes of its head that are still to come.
    skips: usize,
    body: Body,
}

impl Proof {
    pub fn of(broken: u64) -> Proof {
        Proof { broken, open: Vec::new(), is_found: false }
    }

    pub fn is_found(&self) -> bool {
        self.is_found
    }

    /// Looks through bytes that begin at byte `offset` of the file, or, unless they are the last,
    /// through as many of them as cannot be the beginning of a head. Returns how many it is done
    /// with: the next ones begin behind those.
    pub fn look(&mut self, bytes: &[u8], offset: u64, are_last: bool) -> usize {
        let done = if are_last { bytes.len() } else { bytes.len().saturating_sub(HEAD_MAX) };
        self.open.retain_mut(|open| {
            let skipped = open.skips.min(done);
            open.skips -= skipped;
            open.body.take(&bytes[skipped..done]);
            self.is_found |= open.body.is_sound();
            !open.body.is_whole()
        });
        for at in memchr::memmem::find_iter(bytes, GROUP).take_while(|at| *at < done) {
            self.begin(&bytes[at..], offset + at as u64, done - at);
        }
        self.is_found |= self.open.len() > OPEN_MAX;
        done
    }

    /// Looks at what may be the head of a group; of the bytes from there on so many are looked at
    /// now.
    fn begin(&mut self, bytes: &[u8], place: u64, done: usize) {
        let Ok(Record::Group(group)) = parse(bytes) else { return };
        if !(self.broken + 1..=place).contains(&group.synced) {
            return;
        }
        let (skipped, mut body) = (group.size.min(done), group.body());
        body.take(&bytes[skipped..done]);
        self.is_found |= body.is_sound();
        if !body.is_whole() {
            self.open.push(Open { skips: group.size - skipped, body });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aof::record::group_head;

    /// Whether there is a proof, if the bytes are seen in pieces of this size.
    fn has_proof(bytes: &[u8], offset: u64, broken: u64, piece: usize) -> bool {
        let (mut proof, mut begin) = (Proof::of(broken), 0);
        for end in (piece..bytes.len()).step_by(piece).chain([bytes.len()]) {
            let are_last = end == bytes.len();
            begin += proof.look(&bytes[begin..end], offset + begin as u64, are_last);
        }
        proof.is_found()
    }

    #[test]
    fn a_sound_group_proves_what_was_on_disk_before_it() {
        let body = b"*1\r\n$4\r\nPING\r\n";
        let head = group_head(7, &[&body[..5], &body[5..]]);
        let group = [b"torn", &head[..], body].concat();
        for piece in [1, 3, 10, 40, 2000] {
            let has_proof = |bytes: &[u8], offset, broken| has_proof(bytes, offset, broken, piece);
            assert!(has_proof(&group, 10, 6));
            // It says nothing of byte 7, and cannot speak of what comes behind itself.
            assert!(!has_proof(&group, 10, 7) && !has_proof(&group, 2, 6));
            for at in 4..group.len() {
                let mut flipped = group.clone();
                flipped[at] ^= 1;
                assert!(!has_proof(&flipped, 10, 6), "{at}");
            }
            assert!(!has_proof(&group[..group.len() - 1], 10, 6));
            // Behind much that is none, in the middle of one that is none, and of no length.
            let unsound = group_head(7, &[&[b'y'; 5000]]);
            let empty = group_head(7, &[]);
            for group in [&group[..], &empty] {
                let behind = [&[b'#'; 5000], &unsound[..], group, &[0; 3000]].concat();
                assert!(has_proof(&behind, 10, 6));
            }
        }
    }
}
