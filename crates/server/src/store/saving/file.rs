//! Whose snapshot it is. Several servers may work in one directory, but only one saves into a file.
//!
//! A server that saves on its own claims the file when it starts, others when they are asked to
//! save. Who comes later serves all the same: it is refused when it would replace the other one's
//! snapshot. The claim says how often its holder has saved, too, so that nobody takes the place of
//! a snapshot that came after its own start, when whoever made it has ended.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, fmt, io};

use kvasir_config::Config;
use kvasir_keyspace::error::Error;
use kvasir_persistence::claim::{self, Claim, ClaimError, file_for};
use kvasir_persistence::set::SnapshotId;
use kvasir_structures::locks::lock;

use crate::log::{plain, warning};

/// Stands behind who the holder is, and before a number.
const SAVES: &str = " saves=";

/// The file of the configuration. Who has its lock may ask for the configuration's no more.
#[derive(Default)]
pub struct SnapshotFile(Mutex<State>);

#[derive(Default)]
struct State {
    /// In the present directory.
    name: PathBuf,
    claim: Option<Arc<Claim>>,
    /// What the claim's file said when this server came to it, or has said itself since.
    seen: String,
    saves: u64,
}

/// The file is this server's as long as this is there.
pub struct Taken {
    /// From the root: `dir` may change meanwhile.
    pub target: PathBuf,
    claim: Arc<Claim>,
}

/// Why the file is not this server's.
#[derive(Debug)]
pub enum Refused {
    /// Another one has it.
    Held {
        file: PathBuf,
        holder: String,
    },
    /// Another one has had it, and has saved.
    Saved {
        file: PathBuf,
        holder: String,
    },
    Io {
        file: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Held { file, holder } => {
                write!(f, "another server saves into {}: {holder}", file.display())
            }
            Refused::Saved { file, holder } => {
                let file = file.display();
                write!(f, "another server has saved into {file} since this one started: {holder}")
            }
            Refused::Io { file, error } => write!(f, "{}: {error}", file_for(file).display()),
        }
    }
}

impl std::error::Error for Refused {}

impl Refused {
    pub fn is_other_servers(&self) -> bool {
        !matches!(self, Refused::Io { .. })
    }
}

impl SnapshotFile {
    /// Claims the file at the start, if snapshots are taken without anybody asking for them.
    pub fn begin(&self, config: &Config, identity: &str) {
        let mut state = lock(&self.0);
        state.come_to(&config.persistence.dbfilename);
        if config.persistence.save.is_empty() {
            return;
        }
        if let Err(why @ Refused::Held { .. }) = state.take(identity) {
            warning!("snapshots of this server are refused meanwhile: {why}");
        }
    }

    /// Has the file for a save; fails if it is another server's.
    pub fn take(&self, identity: &str) -> Result<Taken, Refused> {
        lock(&self.0).take(identity)
    }

    /// Fails, for who asks for a snapshot, if the file is another server's. What else there may be
    /// shows when it is saved.
    pub fn check(&self, identity: &str) -> Result<(), Error> {
        match self.take(identity) {
            Err(why) if why.is_other_servers() => Err(Error::new(format!("ERR {why}"))),
            _ => Ok(()),
        }
    }

    /// A file that is nobody's, for what must not replace another server's.
    pub fn beside(&self, id: SnapshotId) -> io::Result<PathBuf> {
        let mut name = lock(&self.0).name.clone().into_os_string();
        name.push(format!(".{id}"));
        Ok(env::current_dir()?.join(name))
    }

    /// A snapshot has come to count.
    pub fn note_saved(&self, taken: &Taken, identity: &str) {
        let mut state = lock(&self.0);
        state.saves += 1;
        let said = format!("{identity}{SAVES}{}", state.saves);
        taken.claim.say(&said);
        if state.claim.as_ref().is_some_and(|claim| Arc::ptr_eq(claim, &taken.claim)) {
            state.seen = said;
        }
    }

    /// Goes to another directory, or to another file, unless that is another server's. An error
    /// says which option is at fault, and why.
    pub fn turn_to(
        &self,
        before: &Config,
        after: &Config,
        identity: &str,
    ) -> Result<(), (&'static str, String)> {
        let (dir, name) = (&after.dir, &after.persistence.dbfilename);
        let other_dir = dir != &before.dir;
        if !other_dir && name == &before.persistence.dbfilename {
            return Ok(());
        }
        let mut state = lock(&self.0);
        if other_dir {
            env::set_current_dir(dir).map_err(|error| ("dir", plain(&error)))?;
        }
        let mut other = State::default();
        other.come_to(name);
        let taken =
            if after.persistence.save.is_empty() { None } else { Some(other.take(identity)) };
        match taken {
            // It is the same, by another path.
            Some(Err(Refused::Held { holder, .. })) if holder.starts_with(identity) => {}
            Some(Err(why)) if why.is_other_servers() => {
                // It was there a moment ago; if not, nobody can tell what is.
                let _ = env::set_current_dir(&before.dir);
                return Err((if other_dir { "dir" } else { "dbfilename" }, why.to_string()));
            }
            _ => *state = other,
        }
        Ok(())
    }
}

impl State {
    fn come_to(&mut self, name: &Path) {
        let seen = claim::said(&file_for(name));
        *self = State { name: name.into(), seen, ..State::default() };
    }

    fn take(&mut self, identity: &str) -> Result<Taken, Refused> {
        let file = env::current_dir().unwrap_or_default().join(&self.name);
        if let Some(claim) = self.claim.as_ref().filter(|claim| claim.is_at(&file_for(&file))) {
            return Ok(Taken { target: file, claim: Arc::clone(claim) });
        }
        let claim = match Claim::take(&file_for(&file), Duration::ZERO) {
            Ok(claim) => claim,
            Err(ClaimError::Held(holder)) => return Err(Refused::Held { file, holder }),
            Err(ClaimError::Io(error)) => return Err(Refused::Io { file, error }),
        };
        let before = claim.before();
        let (_, saves) = before.rsplit_once(SAVES).unwrap_or((before, "0"));
        if before != self.seen && saves != "0" {
            return Err(Refused::Saved { file, holder: before.to_owned() });
        }
        claim.say(&format!("{identity}{SAVES}{}", self.saves));
        let claim = Arc::new(claim);
        self.claim = Some(Arc::clone(&claim));
        Ok(Taken { target: file, claim })
    }
}
