//! What a log says of some slots: the calls about their keys, in order.
//!
//! Frames of transactions are left out: nobody looks at the slots before all of it is there.

use kvasir_persistence::aof::record::{NoRecord, Record, parse};
use kvasir_resp::args::Args;
use kvasir_resp::encode::encode_request;
use kvasir_structures::crc16;
use kvasir_table::Table;

use kvasir_cluster::slots::SlotSet;

pub struct Filter {
    /// In a log commands have their own names.
    table: Table,
    slots: SlotSet,
    /// The beginning of a call whose end has not come.
    begun: Vec<u8>,
}

impl Filter {
    pub fn new(table: &Table, slots: SlotSet) -> Filter {
        Filter { table: table.without_renames(), slots, begun: Vec::new() }
    }

    /// Adds what bytes of the log say of the slots.
    ///
    /// # Errors
    ///
    /// If it is something that ends the job.
    pub fn take(&mut self, bytes: &[u8], calls: &mut Vec<u8>) -> Result<(), String> {
        let joined;
        let mut rest = bytes;
        if !self.begun.is_empty() {
            joined = [&*std::mem::take(&mut self.begun), bytes].concat();
            rest = &joined;
        }
        while !rest.is_empty() {
            match parse(rest) {
                Ok(Record::Call { words, size }) => {
                    let (call, behind) = rest.split_at(size);
                    self.take_call(Args::new(call, &words), call, calls)?;
                    rest = behind;
                }
                Ok(record) => rest = &rest[record.size()..],
                Err(NoRecord::Incomplete) => break,
                Err(NoRecord::Wrong { what, .. }) => return Err(what.into()),
            }
        }
        self.begun = rest.to_vec();
        Ok(())
    }

    fn take_call(&self, args: Args<'_>, call: &[u8], calls: &mut Vec<u8>) -> Result<(), String> {
        let is = |name: &[u8]| args.name().eq_ignore_ascii_case(name);
        if is(b"flushall") || is(b"flushdb") {
            return Err("Data was flushed".into());
        }
        let Ok(entry) = self.table.resolve(args) else {
            return Err(format!("The log has an unknown call of {}", args.name().escape_ascii()));
        };
        let mut keys = Vec::new();
        let found = kvasir_table::keys::each_key_used(entry.spec, args, |arg, _| keys.push(arg));
        let name = args.name().escape_ascii();
        if found.is_err() {
            return Err(format!("The keys of a call of {name} in the log are not known"));
        }
        let is_ours = |arg: &usize| self.slots.contains(crc16::slot_of(&args[*arg]));
        let ours = keys.iter().filter(|arg| is_ours(arg)).count();
        if ours == 0 {
            return Ok(());
        }
        if ours == keys.len() {
            calls.extend_from_slice(call);
            return Ok(());
        }
        if is(b"del") || is(b"unlink") {
            let mut words = vec![args.name()];
            words.extend(keys.iter().filter(|arg| is_ours(arg)).map(|arg| &args[*arg]));
            calls.extend(encode_request(&words));
            return Ok(());
        }
        Err(format!("A call of {name} has changed keys of slots that stay as well"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(pieces: usize, log: &[&str]) -> Result<Vec<String>, String> {
        // The slots of `bar` and `foo` are 5061 and 12182.
        let slots: SlotSet = [5061].into_iter().collect();
        let mut filter = Filter::new(&crate::commands::table(), slots);
        let bytes: Vec<u8> = log
            .iter()
            .flat_map(|line| encode_request(&line.split(' ').collect::<Vec<_>>()))
            .collect();
        let mut calls = Vec::new();
        for piece in bytes.chunks(pieces) {
            filter.take(piece, &mut calls)?;
        }
        let (mut rest, mut found) = (&calls[..], Vec::new());
        while !rest.is_empty() {
            let Ok(Record::Call { words, size }) = parse(rest) else { panic!("it is no call") };
            let args = Args::new(rest, &words);
            let words: Vec<_> = args.iter().map(String::from_utf8_lossy).collect();
            found.push(words.join(" "));
            rest = &rest[size..];
        }
        Ok(found)
    }

    #[test]
    fn calls_about_the_slots_are_kept() {
        let log = [
            "SELECT 0",
            "SET bar 1",
            "SET foo 1",
            "MULTI",
            "HSET {bar}2 f v",
            "HSET {foo}2 f v",
            "EXEC",
            "DEL foo bar",
            "ECHO bar",
            "PEXPIREAT bar 5",
            "XGROUP CREATE bar g 0",
        ];
        let kept =
            ["SET bar 1", "HSET {bar}2 f v", "DEL bar", "PEXPIREAT bar 5", "XGROUP CREATE bar g 0"];
        for pieces in [1, 7, 1000] {
            assert_eq!(filtered(pieces, &log), Ok(kept.map(str::to_owned).to_vec()));
        }
    }

    #[test]
    fn what_cannot_be_sent_ends_the_job() {
        assert_eq!(filtered(9, &["FLUSHALL ASYNC"]), Err("Data was flushed".into()));
        assert!(filtered(9, &["MSET foo 1 bar 1"]).is_err());
    }
}
