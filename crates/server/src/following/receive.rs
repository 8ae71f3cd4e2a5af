//! A snapshot on its way from the primary into a file. What has come of one when the link breaks
//! is kept, and a primary of this kind goes on behind it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::following::host::Wire;
use crate::following::link::{Link, shown};
use crate::log::notice;
use crate::machine::process::temporary_name;
use crate::store::saving::loading::eta_s;

/// How long the mark behind a snapshot is.
const MARK: usize = 40;
/// How often the log tells how far it is.
const TELL: Duration = Duration::from_secs(2);

/// A file that is removed when this is dropped.
pub struct Received(PathBuf);

impl Received {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // What stays behind is in nobody's way but the disk's.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What has come of a snapshot so far.
pub struct Partial {
    received: Received,
    file: File,
    /// What ends it; no other one has it. Without one nobody goes on behind it.
    mark: Option<String>,
    len: u64,
}

impl Partial {
    fn begin(mark: Option<String>) -> Result<Partial, String> {
        let received = Received(temporary_name("rdb"));
        let file = File::create(&received.0).map_err(|error| error.to_string())?;
        Ok(Partial { received, file, mark, len: 0 })
    }

    /// How the primary is asked for the rest.
    pub fn wish(&self) -> Option<String> {
        self.mark.as_ref().map(|mark| format!("{mark}:{}", self.len))
    }

    fn write<W: Wire>(&mut self, link: &mut Link<W>, len: usize) -> Result<(), String> {
        if let Err(error) = self.file.write_all(&link.unused()[..len]) {
            // Nobody knows how much of it is there.
            self.mark = None;
            return Err(error.to_string());
        }
        link.pass(len);
        self.len += len as u64;
        link.shared.replication.upstream.received.store(self.len, Relaxed);
        Ok(())
    }
}

/// Receives the snapshot, whether or not its size is told beforehand. `partial` is what there is of
/// it if the primary goes on behind that, and what there is of it after an error.
pub async fn receive<W: Wire>(
    link: &mut Link<W>,
    partial: &mut Option<Partial>,
    goes_on: bool,
) -> Result<Received, String> {
    let upstream = &link.shared.replication.upstream;
    upstream.total.store(0, Relaxed);
    if goes_on && let Some(begun) = partial {
        notice!("receiving the rest of a snapshot from the primary at={}", begun.len);
    } else {
        *partial = None;
        let head = link.line().await?;
        let mark = head.strip_prefix("$EOF:").filter(|mark| mark.len() == MARK);
        let size: Option<u64> = head.strip_prefix('$').and_then(|size| size.parse().ok());
        match (mark, size) {
            (Some(_), _) => notice!("receiving a snapshot from the primary"),
            (None, Some(size)) => {
                notice!("receiving a snapshot from the primary bytes={size}");
                upstream.total.store(size, Relaxed);
            }
            (None, None) => {
                return Err(format!("in place of a snapshot it sends {}", shown(&head)));
            }
        }
        *partial = Some(Partial::begin(mark.map(str::to_owned))?);
    }
    let begun = partial.as_mut().expect("it is there by now");
    upstream.received.store(begun.len, Relaxed);
    let mut teller = Teller::new(begun.len);
    match begun.mark.clone() {
        Some(mark) => receive_marked(link, begun, mark.as_bytes(), &mut teller).await?,
        None => receive_sized(link, begun, &mut teller).await?,
    }
    Ok(partial.take().expect("as before").received)
}

async fn receive_sized<W: Wire>(
    link: &mut Link<W>,
    begun: &mut Partial,
    teller: &mut Teller,
) -> Result<(), String> {
    let size = link.shared.replication.upstream.total.load(Relaxed);
    while begun.len < size {
        if link.unused().is_empty() {
            link.receive().await?;
        }
        let len = (link.unused().len() as u64).min(size - begun.len) as usize;
        begun.write(link, len)?;
        teller.tell(begun.len, Some(size));
    }
    Ok(())
}

async fn receive_marked<W: Wire>(
    link: &mut Link<W>,
    begun: &mut Partial,
    mark: &[u8],
    teller: &mut Teller,
) -> Result<(), String> {
    loop {
        let unused = link.unused();
        if let Some(len) = unused.windows(MARK).position(|window| window == mark) {
            begun.write(link, len)?;
            link.pass(MARK);
            return Ok(());
        }
        // What comes next may be the rest of the mark.
        let len = unused.len().saturating_sub(MARK - 1);
        begun.write(link, len)?;
        teller.tell(begun.len, None);
        link.receive().await?;
    }
}

/// Tells in the log how far it is.
struct Teller {
    begun: Instant,
    /// Bytes that were there by then.
    at_first: u64,
    told: Instant,
}

impl Teller {
    fn new(at_first: u64) -> Teller {
        let now = Instant::now();
        Teller { begun: now, at_first, told: now }
    }

    fn tell(&mut self, bytes: u64, total: Option<u64>) {
        if self.told.elapsed() < TELL {
            return;
        }
        self.told = Instant::now();
        let (took, came) = (self.begun.elapsed(), bytes - self.at_first);
        let mb_per_s = came as f64 / 1e6 / took.as_secs_f64();
        match total {
            None => notice!("receiving a snapshot bytes={bytes} mb_per_s={mb_per_s:.1}"),
            Some(total) => notice!(
                "receiving a snapshot bytes={bytes} percent={} mb_per_s={mb_per_s:.1} eta_s={}",
                bytes * 100 / total.max(1),
                eta_s(took, came, total - self.at_first)
            ),
        }
    }
}
