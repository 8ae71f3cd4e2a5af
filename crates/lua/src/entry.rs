//! How a script is entered: its arguments onto Lua's stack, the call, and, as most scripts return a
//! number or a text, the reply off it.

use std::rc::Rc;

use kvasir_lua_stack::{Outcome, Scalar, Stack};
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::reply::Reply;
use mlua::{Function, Lua, Value};

use crate::interpreter::State;
use crate::to_reply;

/// What is entered with, and what it returned.
#[derive(Default)]
pub struct Call {
    pub args: ArgsBuf,
    /// How many of the arguments are keys.
    pub keys: usize,
    pub passing: Passing,
    pub reply: Reply,
}

/// How code gets its keys and arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passing {
    /// It gets none.
    #[default]
    Nothing,
    /// As `KEYS` and `ARGV`.
    Globals,
    /// As two tables.
    Parameters,
}

/// How a run ended.
pub enum End {
    /// What it returned is in the reply.
    Answered,
    Returned(Value),
    Raised(Value),
}

/// The function of Lua by which code is entered.
pub struct Entry {
    enter: Function,
    /// Called with an error where it is raised.
    handler: Function,
}

impl Entry {
    pub fn new(lua: &Lua, state: &Rc<State>, handler: Function) -> mlua::Result<Entry> {
        let state = Rc::clone(state);
        let enter = kvasir_lua_stack::function(lua, move |stack| enter(&state, stack))?;
        Ok(Entry { enter, handler })
    }

    /// Calls a function with what `State::call` holds.
    pub fn call(&self, function: &Function) -> mlua::Result<End> {
        let (has_returned, value) =
            self.enter.call::<(Option<bool>, Value)>((&self.handler, function))?;
        Ok(match has_returned {
            None => End::Answered,
            Some(true) => End::Returned(value),
            Some(false) => End::Raised(value),
        })
    }
}

const HANDLER: usize = 1;
const FUNCTION: usize = 2;

/// Returns nothing if the reply is written, else whether the code has returned, and its value.
fn enter(state: &State, stack: &mut Stack<'_>) -> Outcome {
    stack.push_argument(FUNCTION);
    let parameters = push_arguments(&state.call.borrow(), stack);
    let has_returned = stack.run(parameters, HANDLER);
    let value = stack.last();
    if has_returned && value != Scalar::Other && state.killed.get().is_none() {
        to_reply::scalar(value, state, &mut state.call.borrow_mut().reply);
        return Outcome::Results(0);
    }
    stack.push_boolean(has_returned);
    stack.push_copy(1);
    Outcome::Results(2)
}

/// Says how many parameters were pushed.
fn push_arguments(call: &Call, stack: &mut Stack<'_>) -> u8 {
    let args = call.args.as_args();
    let (keys, argv) = (args.first(call.keys), args.from(call.keys));
    match call.passing {
        Passing::Nothing => 0,
        Passing::Globals => {
            push_table(stack, keys);
            stack.set_global(b"KEYS");
            push_table(stack, argv);
            stack.set_global(b"ARGV");
            0
        }
        Passing::Parameters => {
            push_table(stack, keys);
            push_table(stack, argv);
            2
        }
    }
}

fn push_table(stack: &mut Stack<'_>, args: Args<'_>) {
    stack.push_table(args.len(), 0);
    for (index, arg) in args.iter().enumerate() {
        stack.push_bytes(arg);
        stack.set_element(index + 1);
    }
}
