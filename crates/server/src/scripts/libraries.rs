//! Libraries of functions: one catalogue for all workers, which each loads into its interpreter
//! when it next calls a function.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use kvasir_keyspace::error::Error;
use kvasir_lua::analysis::Touches;
use kvasir_lua::library::FunctionInfo;
use kvasir_structures::locks::{read, write};

/// A library as FUNCTION LIST shows it.
pub struct Library {
    pub name: Vec<u8>,
    pub code: Vec<u8>,
    pub functions: Vec<Arc<Function>>,
}

pub struct Function {
    pub info: FunctionInfo,
    pub library: Vec<u8>,
    pub touches: Touches,
}

/// All libraries.
#[derive(Default)]
pub struct Libraries {
    catalogue: RwLock<Catalogue>,
    /// Changes with the catalogue.
    generation: AtomicU64,
    flushes: AtomicU64,
}

#[derive(Default, Clone)]
struct Catalogue {
    by_name: BTreeMap<Vec<u8>, Arc<Library>>,
    /// By their names in lower case, since they are found whatever their case.
    functions: HashMap<Vec<u8>, Arc<Function>>,
}

impl Catalogue {
    fn add(&mut self, library: Library) {
        self.remove(&library.name);
        for function in &library.functions {
            self.functions.insert(function.info.name.to_ascii_lowercase(), Arc::clone(function));
        }
        self.by_name.insert(library.name.clone(), Arc::new(library));
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        let Some(library) = self.by_name.remove(name) else { return false };
        for function in &library.functions {
            self.functions.remove(&function.info.name.to_ascii_lowercase());
        }
        true
    }

    fn has_library(&self, library: &Library) -> bool {
        self.by_name.contains_key(&library.name)
    }

    /// Fails if a function of another library has one of these names.
    fn check(&self, library: &Library) -> Result<(), Error> {
        for function in &library.functions {
            let name = &function.info.name;
            let other = self.functions.get(&name.to_ascii_lowercase());
            let other = other.filter(|other| other.library != library.name);
            if other.is_some() {
                return Err(Error::quoting("ERR Function ", name, " already exists"));
            }
        }
        Ok(())
    }
}

/// What FUNCTION RESTORE does with the libraries that are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    Append,
    Flush,
    Replace,
}

impl Libraries {
    pub fn function(&self, name: &[u8]) -> Option<Arc<Function>> {
        self.read().functions.get(&name.to_ascii_lowercase()).cloned()
    }

    pub fn library(&self, name: &[u8]) -> Option<Arc<Library>> {
        self.read().by_name.get(name).cloned()
    }

    /// All libraries, by name.
    pub fn all(&self) -> Vec<Arc<Library>> {
        self.read().by_name.values().cloned().collect()
    }

    /// How many libraries and functions there are.
    pub fn counts(&self) -> (usize, usize) {
        let catalogue = self.read();
        (catalogue.by_name.len(), catalogue.functions.len())
    }

    pub fn add(&self, library: Library, replaces: bool) -> Result<(), Error> {
        self.change(|catalogue| {
            if !replaces && catalogue.has_library(&library) {
                return Err(Error::quoting("ERR Library '", &library.name, "' already exists"));
            }
            catalogue.check(&library)?;
            catalogue.add(library);
            Ok(())
        })
    }

    /// Adds all of these, or none.
    pub fn restore(&self, libraries: Vec<Library>, policy: Policy) -> Result<(), Error> {
        self.change(|catalogue| {
            let mut changed = match policy {
                Policy::Flush => Catalogue::default(),
                Policy::Append | Policy::Replace => catalogue.clone(),
            };
            for library in libraries {
                if policy != Policy::Replace && changed.has_library(&library) {
                    return Err(Error::quoting("ERR Library ", &library.name, " already exists"));
                }
                changed.check(&library)?;
                changed.add(library);
            }
            *catalogue = changed;
            Ok(())
        })
    }

    pub fn remove(&self, name: &[u8]) -> Result<(), Error> {
        self.change(|catalogue| {
            let was_there = catalogue.remove(name);
            was_there.then_some(()).ok_or(Error::fixed("ERR Library not found"))
        })
    }

    pub fn flush(&self) {
        let _ = self.change(|catalogue| {
            *catalogue = Catalogue::default();
            Ok(())
        });
        self.flushes.fetch_add(1, Release);
    }

    /// Takes those of another catalogue over, in place of all there are.
    pub fn replace(&self, other: &Libraries) {
        let other = other.read().clone();
        let _ = self.change(|catalogue| {
            *catalogue = other;
            Ok(())
        });
        self.flushes.fetch_add(1, Release);
    }

    /// How often all libraries were deleted together: with them goes all that they kept.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Acquire)
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Catalogue) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut catalogue = write(&self.catalogue);
        change(&mut catalogue)?;
        self.generation.fetch_add(1, Release);
        Ok(())
    }

    /// Changes whenever the catalogue does.
    pub fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    fn read(&self) -> RwLockReadGuard<'_, Catalogue> {
        read(&self.catalogue)
    }
}
