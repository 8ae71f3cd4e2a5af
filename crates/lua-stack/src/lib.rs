//! Functions for scripts that read and write Lua's stack themselves.
//!
//! `mlua` gives every value that crosses between Lua and Rust a reference of its own. That is safe
//! whatever one does with it, and costs a small script more than its commands do: a call of
//! `redis.call` makes half a dozen of them. A [`Stack`] is lent to a function for one call and
//! hands out only what cannot outlive that call, so it needs none. It knows no command and no
//! reply; what it holds is only what [`function`] needs to be sound.
//!
//! # Safety
//!
//! - `Stack::state` is the state that called the function, valid until the function returns; no
//!   `Stack` outlives that, since it is only ever lent.
//! - Bytes read are those of a string on the stack. They borrow the `Stack`, and whatever removes
//!   a value takes it mutably.
//! - `Stack::pushed` counts what lies above the arguments. What takes values off the stack checks
//!   it first, so no argument is ever taken away, and `Stack::room` is what Lua has promised to
//!   have space for.
//! - Lua raises errors by a jump that runs no destructor. None can be raised while a `Stack` is in
//!   use but in `Stack::run`, which catches them: the host's allocations are not limited
//!   (`lua_setscripted`), and what else would raise one (a key that is nil or NaN, a value that is
//!   no table) is checked before. An allocator without memory ends the process, as in all of Rust.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use mlua::{Function, LightUserData, Lua, ffi, lua_State};

unsafe extern "C-unwind" {
    /// Whether it is a script that allocates now (`lua-src`, host.c); returns what it was before.
    fn lua_setscripted(state: *mut lua_State, scripted: c_int) -> c_int;
    /// Undoes what a script has told the collector of garbage.
    fn lua_settlegc(state: *mut lua_State);
    /// What new states tell of their blocks (`lua-src`, host.c).
    fn lua_settally(tally: Tally);
    /// Counts work as so many instructions (`lua-src`, host.c).
    fn luaD_work(state: *mut lua_State, work: usize);
}

/// Is told the sizes of a block before and after a change; 0: there was, or is, none.
pub type Tally = extern "C" fn(before: usize, after: usize);

/// From now on each new state tells `tally` of every block that it takes, resizes or frees, on the
/// thread that does so.
pub fn tally_memory(tally: Tally) {
    // SAFETY: it is stored atomically, and a function lives as long as the process. Its type is
    // that of Lua's `lua_Tally`.
    unsafe { lua_settally(tally) }
}

/// How a function ends: what it has pushed last is what it returns or raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many results.
    Results(u8),
    /// One value, raised as an error.
    Raise,
}

/// A value that is read without a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar<'a> {
    Nil,
    Boolean(bool),
    Number(f64),
    Bytes(&'a [u8]),
    /// A table, a function, or whatever else has to be looked at by other means.
    Other,
}

/// The stack of a call: its arguments, counted from 1, and what was pushed since.
pub struct Stack<'a> {
    state: *mut lua_State,
    arguments: c_int,
    pushed: c_int,
    room: c_int,
    lent: PhantomData<&'a mut lua_State>,
}

type Run = dyn Fn(&mut Stack<'_>) -> Outcome;

/// What a function of Lua keeps alive and calls.
struct Context {
    run: Box<Run>,
}

/// A function of Lua that calls `run`.
pub fn function<F>(lua: &Lua, run: F) -> mlua::Result<Function>
where
    F: Fn(&mut Stack<'_>) -> Outcome + 'static,
{
    let context = Box::new(Context { run: Box::new(run) });
    let address = std::ptr::from_ref(&*context).cast_mut().cast::<c_void>();
    // The box does not move its content when it moves into the value that Lua owns.
    let keeper = lua.create_any_userdata(context)?;
    let enter = enter as extern "C" fn(*mut c_void, *mut lua_State) -> c_int;
    let direct: Function = lua.named_registry_value("host.direct")?;
    direct.call((LightUserData(enter as *mut c_void), LightUserData(address), keeper))
}

/// What `call_direct` (`lua-src`, host.c) calls: the number of results, or -1 for an error. A
/// panic ends the process here, since there is C below.
extern "C" fn enter(context: *mut c_void, state: *mut lua_State) -> c_int {
    // SAFETY: `function` made the address from a box that the calling closure keeps alive, and
    // nobody has it mutably.
    let context = unsafe { &*context.cast::<Context>() };
    // SAFETY: the state is the one that calls.
    let arguments = unsafe { ffi::lua_gettop(state) };
    let room = ffi::LUA_MINSTACK;
    let mut stack = Stack { state, arguments, pushed: 0, room, lent: PhantomData };
    match (context.run)(&mut stack) {
        Outcome::Raise => {
            stack.expect_pushed(1);
            -1
        }
        Outcome::Results(count) => {
            stack.expect_pushed(c_int::from(count));
            c_int::from(count)
        }
    }
}

/// Reading.
impl Stack<'_> {
    /// The number of arguments.
    pub fn len(&self) -> usize {
        self.arguments as usize
    }

    pub fn is_empty(&self) -> bool {
        self.arguments == 0
    }

    /// An argument; nil past the last.
    #[inline]
    pub fn argument(&self, index: usize) -> Scalar<'_> {
        if index == 0 || index > self.len() {
            return Scalar::Nil;
        }
        self.read(index as c_int)
    }

    /// What was pushed last.
    #[inline]
    pub fn last(&self) -> Scalar<'_> {
        self.expect_pushed(1);
        self.read(-1)
    }

    #[inline]
    fn read(&self, index: c_int) -> Scalar<'_> {
        // SAFETY: the callers have checked that the index is on the stack. The bytes are those of a
        // string, not of a number, which `lua_tolstring` would change; they live as long as the
        // string does, which stays where it is while `self` is borrowed.
        unsafe {
            match ffi::lua_type(self.state, index) {
                ffi::LUA_TNIL => Scalar::Nil,
                ffi::LUA_TBOOLEAN => Scalar::Boolean(ffi::lua_toboolean(self.state, index) != 0),
                ffi::LUA_TNUMBER => Scalar::Number(ffi::lua_tonumber(self.state, index)),
                ffi::LUA_TSTRING => {
                    let mut len = 0;
                    let bytes = ffi::lua_tolstring(self.state, index, &mut len);
                    Scalar::Bytes(std::slice::from_raw_parts(bytes.cast(), len))
                }
                _ => Scalar::Other,
            }
        }
    }
}

/// The state as a whole.
impl Stack<'_> {
    /// The bytes that the state takes up, to a KiB.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        // SAFETY: it only reads a number.
        let kilobytes = unsafe { ffi::lua_gc(self.state, ffi::LUA_GCCOUNT, 0) };
        usize::try_from(kilobytes).unwrap_or(0) * 1024
    }

    /// Has the hook that counts instructions called at the next one.
    pub fn hurry(&mut self) {
        // SAFETY: it only changes a counter of the state.
        unsafe { luaD_work(self.state, usize::MAX) }
    }
}

/// Pushing.
impl Stack<'_> {
    pub fn push_nil(&mut self) {
        self.make_room();
        // SAFETY: there is room for a value.
        unsafe { ffi::lua_pushnil(self.state) }
    }

    pub fn push_boolean(&mut self, truth: bool) {
        self.make_room();
        // SAFETY: there is room for a value.
        unsafe { ffi::lua_pushboolean(self.state, c_int::from(truth)) }
    }

    pub fn push_number(&mut self, number: f64) {
        self.make_room();
        // SAFETY: there is room for a value.
        unsafe { ffi::lua_pushnumber(self.state, number) }
    }

    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.make_room();
        // SAFETY: there is room for a value; Lua copies the bytes.
        unsafe {
            ffi::lua_pushlstring_(self.state, bytes.as_ptr().cast(), bytes.len());
        }
    }

    /// A copy of an argument.
    pub fn push_argument(&mut self, index: usize) {
        assert!(index > 0 && index <= self.len(), "there is no such argument");
        self.make_room();
        // SAFETY: the index is on the stack, and there is room for a value.
        unsafe { ffi::lua_pushvalue(self.state, index as c_int) }
    }

    /// A copy of what was pushed last but `depth` values.
    pub fn push_copy(&mut self, depth: usize) {
        self.expect_pushed(depth as c_int + 1);
        self.make_room();
        // SAFETY: the index is on the stack, and there is room for a value.
        unsafe { ffi::lua_pushvalue(self.state, -1 - depth as c_int) }
    }

    /// An empty table with room for so many elements and fields.
    pub fn push_table(&mut self, elements: usize, fields: usize) {
        let clamp = |count: usize| count.min(c_int::MAX as usize) as c_int;
        self.make_room();
        // SAFETY: there is room for a value.
        unsafe { ffi::lua_createtable(self.state, clamp(elements), clamp(fields)) }
    }

    /// Drops what was pushed last.
    pub fn pop(&mut self) {
        self.expect_pushed(1);
        // SAFETY: a value of ours is on top.
        unsafe { ffi::lua_settop(self.state, -2) }
        self.pushed -= 1;
    }

    /// Counts the value that is about to be pushed.
    #[inline]
    fn make_room(&mut self) {
        if self.pushed == self.room {
            self.grow();
        }
        self.pushed += 1;
    }

    #[cold]
    fn grow(&mut self) {
        // SAFETY: it only makes the stack longer, and says so if it can't.
        let is_there = unsafe { ffi::lua_checkstack(self.state, ffi::LUA_MINSTACK) } != 0;
        assert!(is_there, "a function of ours keeps a bounded number of values");
        self.room = self.pushed + ffi::LUA_MINSTACK;
    }

    #[inline]
    fn expect_pushed(&self, count: c_int) {
        assert!(self.pushed >= count, "it has pushed fewer values");
    }
}

/// Those further out.
impl Stack<'_> {
    /// Pushes the name and the value of a local variable, counted from 1: of who called this
    /// function for `level` 1, and so on outwards. Nothing is pushed, and the answer is no, if
    /// there is none.
    pub fn push_local(&mut self, level: usize, index: usize) -> bool {
        let (Ok(level), Ok(index)) = (c_int::try_from(level), c_int::try_from(index)) else {
            return false;
        };
        self.make_room();
        self.make_room();
        self.pushed -= 2;
        // SAFETY: the record is filled in by Lua before it is read, and names a call that is still
        // under way, since this one is. There is room for two values. The name belongs to code
        // that is being run, and is copied.
        unsafe {
            let mut call: ffi::lua_Debug = std::mem::zeroed();
            if ffi::lua_getstack(self.state, level, &mut call) == 0 {
                return false;
            }
            let name = ffi::lua_getlocal(self.state, &call, index);
            if name.is_null() {
                return false;
            }
            ffi::lua_pushstring_(self.state, name);
            ffi::lua_insert(self.state, -2);
        }
        self.pushed += 2;
        true
    }
}

/// Tables, which were pushed before what they get.
impl Stack<'_> {
    /// Takes the last value into the table before it, as element `index`, counted from 1.
    #[inline]
    pub fn set_element(&mut self, index: usize) {
        self.expect_table(1);
        // SAFETY: the table is there, and the value above it is taken.
        unsafe { ffi::lua_rawseti(self.state, -2, index as ffi::lua_Integer) }
        self.pushed -= 1;
    }

    /// Takes the last two values, a key and what belongs to it, into the table before them. A key
    /// that Lua does not allow (nil, NaN) is left out.
    pub fn set_field(&mut self) {
        self.expect_table(2);
        let is_allowed = match self.read(-2) {
            Scalar::Nil => false,
            Scalar::Number(number) => !number.is_nan(),
            _ => true,
        };
        // SAFETY: two values are there above the table, and taken; the key raises no error.
        unsafe {
            if is_allowed {
                ffi::lua_rawset(self.state, -3);
            } else {
                ffi::lua_settop(self.state, -3);
            }
        }
        self.pushed -= 2;
    }

    /// Takes the last value as a global variable, also of globals that scripts cannot change.
    pub fn set_global(&mut self, name: &[u8]) {
        self.expect_pushed(1);
        self.push_bytes(name);
        // SAFETY: the name, which is no nil, is put below the value; both are taken.
        unsafe {
            ffi::lua_insert(self.state, -2);
            ffi::lua_rawset(self.state, ffi::LUA_GLOBALSINDEX);
        }
        self.pushed -= 2;
    }

    /// That a table lies below the last `above` values.
    #[inline]
    fn expect_table(&self, above: c_int) {
        self.expect_pushed(above + 1);
        // SAFETY: the index is on the stack.
        let kind = unsafe { ffi::lua_type(self.state, -1 - above) };
        assert_eq!(kind, ffi::LUA_TTABLE, "a table takes elements");
    }
}

/// Calling.
impl Stack<'_> {
    /// Calls the function that lies below the last `arguments` values, as a script, within its
    /// memory. In their place comes its first result, or what the argument `handler`, a function,
    /// makes of its error; the answer says whether it has returned.
    pub fn run(&mut self, arguments: u8, handler: usize) -> bool {
        let arguments = c_int::from(arguments);
        self.expect_pushed(arguments + 1);
        assert!(handler > 0 && handler <= self.len(), "there is no such argument");
        // SAFETY: the function and its arguments are there, and one value comes in their place.
        // Errors end here. Nobody else has this state while it runs.
        let status = unsafe {
            let before = lua_setscripted(self.state, 1);
            let status = ffi::lua_pcall(self.state, arguments, 1, handler as c_int);
            lua_setscripted(self.state, before);
            lua_settlegc(self.state);
            status
        };
        self.pushed -= arguments;
        status == ffi::LUA_OK
    }
}

#[cfg(test)]
mod tests;
