//! A node on its machine: the state machine, a clock that may be wrong, a disk with its file.

use std::path::{Path, PathBuf};

use kvasir_cluster::options::Options;
use kvasir_cluster::output::Action;
use kvasir_cluster::packet;
use kvasir_cluster::state::Cluster;
use kvasir_keyspace::rng::Rng;
use kvasir_server::cluster::file;

use crate::disk::{Files, SimDisk};
use crate::luck::Luck;

pub const NAME: &str = "nodes.conf";
/// When the world begins, of all clocks that are right.
const BEGIN_MS: u64 = 1_800_000_000_000;

pub struct Host {
    pub cluster: Cluster,
    pub options: Options,
    pub disk: SimDisk,
    pub is_up: bool,
    /// It does nothing until then.
    pub stopped_until_ms: u64,
    /// How often it has started.
    pub starts: u64,
    /// By how much its clock is wrong.
    pub skew_ms: i64,
    /// How far its data is.
    pub offset: u64,
    /// When it had all of its primary's data.
    pub fresh_ms: u64,
    /// The epochs that its disk has, whatever becomes of it: the current one, and that of the last
    /// vote.
    pub safe: (u64, u64),
    /// The file is to be written by the next tick.
    pub saves_soon: bool,
}

impl Host {
    pub fn new(options: Options, text: &str, seed: u64) -> Result<Host, String> {
        let files = Files::from([(PathBuf::from(NAME), text.as_bytes().to_vec())]);
        let disk = SimDisk::with(&files, &[]);
        let cluster = read(text, &options, seed, BEGIN_MS)?;
        let mut host = Host {
            cluster,
            options,
            disk,
            is_up: true,
            stopped_until_ms: 0,
            starts: 1,
            skew_ms: 0,
            offset: 1,
            fresh_ms: 0,
            safe: (0, 0),
            saves_soon: false,
        };
        host.safe = host.safe_epochs();
        Ok(host)
    }

    /// What its clock says.
    pub fn clock_ms(&self, now_ms: u64) -> u64 {
        (BEGIN_MS + now_ms).saturating_add_signed(self.skew_ms)
    }

    /// Brings the file to the disk.
    pub fn save(&mut self) -> Result<(), String> {
        let text = self.cluster.file();
        file::write(&self.disk, Path::new(NAME), &text).map_err(|error| error.to_string())?;
        self.safe = self.safe_epochs();
        self.saves_soon = false;
        Ok(())
    }

    fn safe_epochs(&self) -> (u64, u64) {
        let files = self.disk.after(Luck::NOTHING);
        let text = files.get(Path::new(NAME)).map(|bytes| String::from_utf8_lossy(bytes));
        let text = text.unwrap_or_default();
        let vars = text.rfind("vars ").map_or("", |at| &text[at..]);
        let words: Vec<&str> = vars.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        (number(2), number(4))
    }

    /// Ends it, and leaves of its disk what luck does.
    pub fn crash(&mut self, disk: &SimDisk, luck: Luck) {
        self.is_up = false;
        self.disk = SimDisk::with(&disk.after(luck), &[]);
    }

    /// Starts it on what there is.
    pub fn start(&mut self, now_ms: u64, rng: &mut Rng) -> Result<(), String> {
        let files = self.disk.after(Luck::KILLED);
        let bytes = files.get(Path::new(NAME)).ok_or("its file is gone")?;
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.cluster = read(&text, &self.options, rng.draw(), self.clock_ms(now_ms))?;
        (self.is_up, self.stopped_until_ms) = (true, 0);
        self.starts += 1;
        self.fresh_ms = now_ms;
        // As the program does: what it has read is safe before anybody hears of it.
        self.save()
    }
}

fn read(text: &str, options: &Options, seed: u64, now_ms: u64) -> Result<Cluster, String> {
    Cluster::from_file(text, options.clone(), seed, now_ms)
        .map_err(|error| format!("its file cannot be read: line {} {}", error.line, error.why))
}

/// The kind of a packet, and the current epoch that it tells of.
pub fn head(bytes: &[u8]) -> (u16, u64) {
    let kind = u16::from_be_bytes(bytes[12..14].try_into().expect("a packet has a header"));
    let epoch = u64::from_be_bytes(bytes[16..24].try_into().expect("a packet has a header"));
    (kind, epoch)
}

/// Whether an action says something, and what.
pub fn said(action: &Action) -> Option<&[u8]> {
    match action {
        Action::Send { bytes, .. } if bytes.len() >= packet::HEADER_SIZE => Some(bytes),
        _ => None,
    }
}
