//! Reading a snapshot into the databases, with several threads.
//!
//! Readers read files and cut them into blocks of whole entries, which costs little, since only
//! lengths are looked at (`cutter.rs`); makers make values of them and add them to their slots
//! (`maker.rs`). No block waits for another: keys of a snapshot are different, so their order does
//! not matter. What stands beside the keys goes to the caller's thread.

mod claims;
mod cutter;
mod maker;

use std::fmt;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::view::Env;
use kvasir_structures::gate::{Gate, Guests};
use kvasir_structures::locks::lock;

use crate::delay::KeyDelay;
use crate::disk::read_more;
use crate::input::Input;
use crate::manifest::{MAGIC, Manifest, SIZE_MAX};
use crate::rdb::{Entry, Item, module_name};
use claims::Claims;
use cutter::{Cutter, News, Out};
use maker::Makers;

/// Blocks that are read ahead, for each thread that makes values.
const BLOCKS_AHEAD: usize = 2;
/// News that wait for the caller's thread.
const NEWS_AHEAD: usize = 64;
/// How often it is asked whether anybody still wants the data.
const ASK: Duration = Duration::from_millis(10);

/// How the threads get at the databases.
#[derive(Clone, Copy)]
pub enum Entrance<'a> {
    /// Each on its own, while others may be inside.
    Gate(&'a Gate),
    /// With who has closed the gate.
    Inside(Guests<'a>),
}

/// Where the data goes.
pub struct Target<'a> {
    pub keyspace: &'a Keyspace,
    pub entrance: Entrance<'a>,
    pub env: &'a Env,
    /// Threads that make values, and as many, but not more than files, that read.
    pub threads: usize,
    /// Whether keys whose time has come are left out. Who replays a log behind the file needs them.
    pub drops_expired: bool,
    /// `key-load-delay`.
    pub key_delay: &'a KeyDelay,
    /// Whether a key that is in the databases already stays as it is; otherwise it is an error.
    pub keeps_present: bool,
}

/// How far it is; read by others meanwhile.
#[derive(Debug, Default)]
pub struct Progress {
    pub bytes: AtomicU64,
    pub bytes_total: AtomicU64,
    pub keys: AtomicU64,
    pub keys_expired: AtomicU64,
    /// Keys of collections without elements, which are left out.
    pub keys_empty: AtomicU64,
}

impl Progress {
    /// Nothing is loaded yet.
    pub fn reset(&self) {
        let Progress { bytes, bytes_total: _, keys, keys_expired, keys_empty } = self;
        for figure in [bytes, keys, keys_expired, keys_empty] {
            figure.store(0, Relaxed);
        }
    }
}

/// What a file tells beside its keys.
pub trait Listener {
    fn aux(&mut self, name: &[u8], value: &[u8]);

    /// A library of functions; an error ends the loading.
    fn library(&mut self, code: &[u8]) -> Result<(), String>;

    /// What a module kept, which nobody here can read: a value of its own if there is a key. An
    /// error ends the loading; otherwise it is left out.
    fn module(&mut self, module: &str, key: Option<&[u8]>) -> Result<(), String>;

    /// A collection without elements, which is left out.
    fn empty(&mut self, _key: &[u8]) {}

    /// Whether the data is still wanted.
    fn goes_on(&self) -> bool {
        true
    }
}

/// Nobody listens.
impl Listener for () {
    fn aux(&mut self, _name: &[u8], _value: &[u8]) {}

    fn library(&mut self, _code: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn module(&mut self, _module: &str, _key: Option<&[u8]>) -> Result<(), String> {
        Ok(())
    }
}

/// Why a file was not read to its end.
#[derive(Debug)]
pub enum LoadError {
    Io(io::Error),
    /// The file is not what it should be, from this byte on.
    Broken {
        offset: u64,
        what: String,
    },
    /// The file is not the one of which its manifest tells.
    NotAsTold(String),
    /// The listener has enough of it.
    GivenUp,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Io(error) => error.fmt(f),
            LoadError::Broken { offset, what } => write!(f, "{what} at byte {offset}"),
            LoadError::NotAsTold(what) => f.write_str(what),
            LoadError::GivenUp => f.write_str("given up"),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> LoadError {
        LoadError::Io(error)
    }
}

fn broken(offset: u64, what: impl Into<String>) -> LoadError {
    LoadError::Broken { offset, what: what.into() }
}

/// What is wrong with which file.
#[derive(Debug)]
pub struct FileError {
    pub file: PathBuf,
    pub error: LoadError,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file={} error={}", self.file.display(), self.error)
    }
}

impl std::error::Error for FileError {}

/// Loads a snapshot: an RDB file, or a manifest and the files of which it tells. What was loaded
/// before an error stays.
pub fn load(
    path: &Path,
    target: &Target<'_>,
    progress: &Progress,
    listener: &mut impl Listener,
) -> Result<(), FileError> {
    let in_path = |error| FileError { file: path.to_owned(), error };
    let (file, start) = open(path).map_err(|error| in_path(error.into()))?;
    if start == MAGIC {
        let manifest = read_manifest(start, file).map_err(in_path)?;
        return load_set(path, &manifest, target, progress, listener);
    }
    progress.bytes_total.store(file.file_len(), Relaxed);
    let source = Source { input: Cursor::new(start).chain(file), claims: None };
    read_all(vec![source], target, progress, listener).map_err(|(_, error)| in_path(error))
}

/// As [`load`], one RDB file from anything that can be read.
pub fn load_from(
    input: impl Read + Send,
    target: &Target<'_>,
    progress: &Progress,
    listener: &mut impl Listener,
) -> Result<(), LoadError> {
    let source = Source { input, claims: None };
    read_all(vec![source], target, progress, listener).map_err(|(_, error)| error)
}

/// The manifest that a file is; `None` if it is another file.
pub fn manifest(path: &Path) -> Result<Option<Manifest>, FileError> {
    let in_path = |error| FileError { file: path.to_owned(), error };
    let (file, start) = open(path).map_err(|error| in_path(error.into()))?;
    (start == MAGIC).then(|| read_manifest(start, file).map_err(in_path)).transpose()
}

/// A file and its first bytes, which tell what it is.
fn open(path: &Path) -> io::Result<(Input, Vec<u8>)> {
    let (mut file, mut start) = (Input::open(path)?, Vec::new());
    read_more(&mut file, &mut start, MAGIC.len())?;
    Ok((file, start))
}

fn read_manifest(mut text: Vec<u8>, mut file: impl Read) -> Result<Manifest, LoadError> {
    let has_ended = read_more(&mut file, &mut text, SIZE_MAX)?;
    if !has_ended {
        return Err(broken(SIZE_MAX as u64, "a manifest longer than any"));
    }
    Manifest::parse(&text).map_err(|error| broken(error.offset as u64, error.what))
}

fn load_set(
    path: &Path,
    manifest: &Manifest,
    target: &Target<'_>,
    progress: &Progress,
    listener: &mut impl Listener,
) -> Result<(), FileError> {
    let in_file = |(index, error)| FileError { file: manifest.path_of(index, path), error };
    // That all files are there is known before a key of any is loaded.
    let sources = (0..manifest.files.len()).map(|index| {
        let input = File::open(manifest.path_of(index, path));
        let claims = Claims::of(manifest, index);
        let source = claims
            .check_size(input)
            .and_then(|input| Ok(Source { input: Input::new(input, 0)?, claims: Some(claims) }));
        source.map_err(|error| in_file((index, error)))
    });
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    progress.bytes_total.store(manifest.bytes(), Relaxed);
    read_all(sources, target, progress, listener).map_err(in_file)
}

/// A file to read, and what is told of it.
struct Source<R> {
    input: R,
    claims: Option<Claims>,
}

/// Entries that stand together, and where they stood.
struct Block {
    file: usize,
    bytes: Vec<u8>,
    offset: u64,
    entries: Vec<(DbIndex, Entry)>,
    claims: Option<Claims>,
}

/// The first thing that went wrong, in time; everybody stops for it.
#[derive(Default)]
struct Failure {
    is_there: AtomicBool,
    first: Mutex<Option<(usize, LoadError)>>,
}

impl Failure {
    fn note(&self, file: usize, error: LoadError) {
        let mut first = lock(&self.first);
        first.get_or_insert((file, error));
        self.is_there.store(true, Relaxed);
    }

    fn is_there(&self) -> bool {
        self.is_there.load(Relaxed)
    }

    fn into_result(self) -> Result<(), (usize, LoadError)> {
        let first = self.first.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.map_or(Ok(()), Err)
    }
}

/// Reads some files at once; the number of the first that fails goes with its error.
fn read_all<R: Read + Send>(
    sources: Vec<Source<R>>,
    target: &Target<'_>,
    progress: &Progress,
    listener: &mut impl Listener,
) -> Result<(), (usize, LoadError)> {
    let (send_block, blocks) = sync_channel(target.threads.max(1) * BLOCKS_AHEAD);
    let (send_news, news) = sync_channel(NEWS_AHEAD);
    let failure = Failure::default();
    let makers = Makers { target, progress, blocks: Mutex::new(blocks), failure: &failure };
    let readers = target.threads.clamp(1, sources.len());
    let sources = Mutex::new(sources.into_iter().enumerate());
    let next = || lock(&sources).next();
    thread::scope(|scope| {
        let maker = || {
            let (makers, news) = (&makers, send_news.clone());
            move || makers.run(&news)
        };
        let reader = || {
            let out = Out { blocks: send_block.clone(), news: send_news.clone() };
            let (next, failure) = (&next, &failure);
            move || {
                while let Some((file, source)) = next() {
                    let cutter = Cutter::new(file, source, target, progress);
                    if let Err(error) = cutter.run(&out, failure) {
                        failure.note(file, error);
                    }
                }
            }
        };
        let started =
            start(scope, target.threads.max(1), maker).and_then(|()| start(scope, readers, reader));
        if let Err(error) = started {
            failure.note(0, error.into());
        }
        drop((send_block, send_news));
        listen(&news, listener, &failure);
    });
    failure.into_result()
}

/// Passes news on until all who have any have ended.
fn listen(news: &Receiver<News>, listener: &mut impl Listener, failure: &Failure) {
    loop {
        match news.recv_timeout(ASK) {
            Ok(News { file, offset, item, noted: _noted }) => {
                if let Err(what) = tell(listener, item) {
                    failure.note(file, broken(offset, what));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if !listener.goes_on() {
            failure.note(0, LoadError::GivenUp);
        }
    }
}

/// Starts so many threads; fewer where the system has no more, but one at the least.
fn start<'scope, F: FnOnce() + Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    count: usize,
    run: impl Fn() -> F,
) -> io::Result<()> {
    for number in 0..count {
        match thread::Builder::new().spawn_scoped(scope, run()) {
            Err(error) if number == 0 => return Err(error),
            Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}

fn tell(listener: &mut impl Listener, item: Item<'_>) -> Result<(), String> {
    match item {
        Item::Aux { name, value } => listener.aux(&name, &value),
        Item::Library(code) => return listener.library(&code),
        Item::OfModule { key, module } => {
            return listener.module(&module_name(module), key.as_deref());
        }
        Item::Empty(key) => listener.empty(&key),
        Item::Database(_) | Item::Hint | Item::Entry(_) | Item::End => {}
    }
    Ok(())
}
