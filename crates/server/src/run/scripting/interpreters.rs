//! A worker's interpreters: one for scripts and one for functions, each made when it is first
//! needed.
//!
//! SCRIPT FLUSH and FUNCTION FLUSH each end one of them, with all that it holds; idle workers are
//! told to look. What a script leaves behind is collected between turns, a little at a time. Their
//! memory is no data: `maxmemory` does not count it, `script-memory-limit` does.

use std::time::Duration;

use kvasir_keyspace::busy::Kind;
use kvasir_reactor::clock;

use crate::run::scripting::call::Scripting;
use crate::run::worker::Worker;
use crate::state::shared::Shared;
use crate::workers::Message;

/// So long garbage is collected between two turns: clients wait for it.
const COLLECTION: Duration = Duration::from_micros(500);

/// One that runs, or was never needed, is not there.
#[derive(Default)]
pub struct Interpreters {
    scripts: Option<Box<Scripting>>,
    functions: Option<Box<Scripting>>,
    /// One of them has garbage that is to be collected.
    pub have_garbage: bool,
}

impl Interpreters {
    fn of(&mut self, kind: Kind) -> &mut Option<Box<Scripting>> {
        match kind {
            Kind::Script => &mut self.scripts,
            Kind::Function => &mut self.functions,
        }
    }
}

/// How often everything of this kind was flushed.
pub fn flushes(shared: &Shared, kind: Kind) -> u64 {
    match kind {
        Kind::Script => shared.scripts.flushes(),
        Kind::Function => shared.libraries.flushes(),
    }
}

/// Has all workers drop what has been flushed or forgotten.
pub fn tell_workers(shared: &Shared) {
    shared.send_all(|| Message::Look);
}

impl Worker {
    /// Takes an interpreter, which is not there while the worker itself is in it.
    pub fn take_scripting(&mut self, kind: Kind) -> Box<Scripting> {
        self.drop_flushed(kind);
        let shared = self.shared;
        let kept = self.interpreters.of(kind).take();
        kept.unwrap_or_else(|| Box::new(Scripting::new(shared, kind)))
    }

    pub fn give_back_scripting(&mut self, mut scripting: Box<Scripting>) {
        let kind = scripting.kind;
        scripting.free_arguments();
        self.interpreters.have_garbage |= scripting.interpreter.has_garbage();
        *self.interpreters.of(kind) = Some(scripting);
        self.drop_flushed(kind);
        self.note_memory(kind);
    }

    /// Drops what was flushed, or forgotten, since the interpreters were last used.
    pub fn tidy_interpreters(&mut self) {
        for kind in [Kind::Script, Kind::Function] {
            self.drop_flushed(kind);
            if let Some(scripting) = self.interpreters.of(kind) {
                scripting.forget_stale(self.shared);
            }
        }
    }

    fn drop_flushed(&mut self, kind: Kind) {
        let flushes = flushes(self.shared, kind);
        let kept = self.interpreters.of(kind);
        if kept.as_ref().is_some_and(|scripting| scripting.flushes != flushes) {
            *kept = None;
            self.note_memory(kind);
        }
    }

    /// Collects for a moment what scripts have left behind.
    pub fn collect_garbage(&mut self) {
        if !self.interpreters.have_garbage {
            return;
        }
        let start = clock::ticks();
        let is_over = || clock::ticks().since(start).to_nanos() >= COLLECTION.as_nanos() as u64;
        self.interpreters.have_garbage = false;
        for kind in [Kind::Script, Kind::Function] {
            let Some(scripting) = self.interpreters.of(kind) else { continue };
            while scripting.interpreter.has_garbage() && !is_over() {
                scripting.interpreter.collect_some();
            }
            let has_garbage = scripting.interpreter.has_garbage();
            self.interpreters.have_garbage |= has_garbage;
            self.note_memory(kind);
        }
    }

    fn note_memory(&mut self, kind: Kind) {
        let kept = self.interpreters.of(kind).as_ref();
        let bytes = kept.map_or(0, |scripting| scripting.interpreter.memory_bytes() as u64);
        let stats = &self.shared.workers[self.index].stats;
        match kind {
            Kind::Script => stats.script_vm_bytes.set(bytes),
            Kind::Function => stats.function_vm_bytes.set(bytes),
        }
    }
}
