//! The libraries of an interpreter: those of the catalogue, loaded when they are needed.

use std::sync::Arc;

use kvasir_keyspace::error::Error;
use kvasir_lua::analysis;
use kvasir_lua::library::FunctionInfo;

use crate::log::warning;
use crate::run::scripting::call::{Scripting, error};
use crate::scripts::commands::TableCommands;
use crate::scripts::libraries::{Function, Library};
use crate::state::shared::Shared;

impl Scripting {
    /// The function of this name, if the interpreter's libraries are up to date and have it.
    pub fn known_function(&self, shared: &Shared, name: &[u8]) -> Option<Arc<Function>> {
        let is_fresh = self.libraries_generation == shared.libraries.generation();
        let function = shared.libraries.function(name)?;
        (is_fresh && self.interpreter.has_function(&function.info.name)).then_some(function)
    }

    /// The function of this name, whose library may have to be loaded first.
    pub fn find_function(&mut self, shared: &Shared, name: &[u8]) -> Result<Arc<Function>, Error> {
        self.refresh_libraries(shared);
        let missing = Error::fixed("ERR Function not found");
        let function = shared.libraries.function(name).ok_or(missing.clone())?;
        if !self.interpreter.has_function(&function.info.name) {
            let library = shared.libraries.library(&function.library).ok_or(missing.clone())?;
            self.load_again(&library)?;
        }
        self.interpreter.has_function(&function.info.name).then_some(function).ok_or(missing)
    }

    /// Brings the interpreter's libraries up to date.
    fn refresh_libraries(&mut self, shared: &Shared) {
        let generation = shared.libraries.generation();
        if self.libraries_generation == generation {
            return;
        }
        self.libraries_generation = generation;
        self.interpreter.remove_libraries();
        for library in shared.libraries.all() {
            // One that fails is tried again, and its error told, when a function of it is called.
            let _ = self.load_again(&library);
        }
    }

    /// Loads a library that was loaded once already, by the worker that got it; but there is no
    /// telling whether its code does the same again.
    fn load_again(&mut self, library: &Library) -> Result<(), Error> {
        self.host.begin_library();
        let loaded = self.interpreter.load_library(&library.code).inspect_err(|failure| {
            let (name, text) = (library.name.escape_ascii(), failure.text.escape_ascii());
            warning!("a library can't be loaded any more library={name} error=\"{text}\"");
        });
        self.interpreter.add_library(loaded.map_err(error)?);
        Ok(())
    }

    /// Runs a library's code to learn which functions it has.
    pub fn read_library(&self, shared: &Shared, code: &[u8]) -> Result<Library, Error> {
        self.host.begin_library();
        let loaded = self.interpreter.load_library(code).map_err(error)?;
        let touches = analysis::analyse_library(code, &TableCommands(&shared.table));
        let function = |info: &FunctionInfo| {
            Arc::new(Function { info: info.clone(), library: loaded.name().to_vec(), touches })
        };
        let functions = loaded.functions().map(function).collect();
        Ok(Library { name: loaded.name().to_vec(), code: code.to_vec(), functions })
    }
}
