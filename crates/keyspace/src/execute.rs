//! Running a call: lock its slots in ascending order, run, unlock.

use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;
use kvasir_structures::gate::Pass;
use kvasir_structures::slot::{Slot, SlotGuard};
use smallvec::SmallVec;

use crate::command::{Command, Cx, Roam, Run, World};
use crate::database::Keyspace;
use crate::effect::Effect;
use crate::error::Error;
use crate::logging::{fence_all, log_and_fence, log_changes};
use crate::place::DbIndex;
use crate::plan::KeyAt;
use crate::rng::Rng;
use crate::spec::Flags;
use crate::value::Object;
use crate::view::{Env, Guard, Guards, Tally, View};
use crate::waiting::{Blocked, Blocking, Wait, Woken};

/// One call: a command with arguments of the right number, and its keys as `plan::keys` found them.
pub struct Call<'a> {
    pub command: &'static Command,
    pub args: Args<'a>,
    pub db: DbIndex,
    pub keys: &'a [KeyAt],
}

/// What is run on one key for a protocol whose calls are no commands of the table.
#[derive(Clone, Copy)]
pub struct KeyCall<'a> {
    pub args: Args<'a>,
    pub key: &'a KeyAt,
    pub is_read_only: bool,
}

/// What a worker brings to every call.
pub struct Context<'a> {
    pub env: &'a Env,
    pub tally: &'a mut Tally,
    pub rng: &'a mut Rng,
    pub reply: &'a mut Reply,
    pub blocking: Blocking,
}

/// Runs a call that does not need the world to stand still. On an error the reply has what the
/// command wrote before; the caller drops that and writes the error. If the call has to wait there
/// is no reply, and the tally says so.
///
/// Inline, as what it calls: handed on, the structures of a call would be copied right after they
/// were written, and wait for those stores.
#[inline(always)]
pub fn execute(
    keyspace: &Keyspace,
    pass: &Pass<'_>,
    call: &Call<'_>,
    context: Context<'_>,
) -> Result<Effect, Error> {
    let Call { command, args, db, keys } = *call;
    match command.run {
        Run::Keys(_) | Run::Planned(..) => match keys {
            // Most calls have one key, whose guard needs no list.
            [key] if !matches!(context.blocking, Blocking::Resumed(_)) => {
                let guard = lock_one_unless_busy(keyspace, pass, key)?;
                execute_and_log(keyspace, pass, &mut [guard], call, context)
            }
            keys => match lock_unless_busy(keyspace, pass, keys) {
                Ok(mut guards) => {
                    if let Blocking::Resumed(woken) = context.blocking
                        && !woken.is_due(call, &guards, context.env)
                    {
                        meet(keyspace, pass, &mut guards, call, context.env, context.tally, woken);
                        context.tally.blocked = Some(Blocked::Still);
                        return Ok(Effect::None);
                    }
                    execute_and_log(keyspace, pass, &mut guards, call, context)
                }
                Err(error) => give_up(context, error),
            },
        },
        Run::Roam(run) => {
            let Context { env, tally, rng, reply, .. } = context;
            fence_all(keyspace, env, tally);
            run(&mut Roam { args, db, keyspace, pass, env, tally, reply, rng })
        }
        Run::World(_) => unreachable!("the caller closes the gate for such a command"),
        Run::Container(_) => unreachable!("the caller resolves subcommands"),
    }
}

/// Runs something on one key, as [`execute`] runs a call: for protocols whose calls are no commands
/// of the table. What it does it logs itself ([`View::log`]).
#[inline(always)]
pub fn execute_on_key<R>(
    keyspace: &Keyspace,
    pass: &Pass<'_>,
    call: KeyCall<'_>,
    env: &Env,
    tally: &mut Tally,
    run: impl FnOnce(&mut View<'_, '_>) -> R,
) -> Result<R, Error> {
    let KeyCall { args, key, is_read_only } = call;
    let mut guards = [lock_one_unless_busy(keyspace, pass, key)?];
    let keys = std::slice::from_ref(key);
    let mut view = View::new(env, tally, keyspace, args, keys, &mut guards);
    view.keep_expired(is_read_only);
    let result = run(&mut view);
    log_and_fence(keyspace, pass, &guards, env, tally);
    Ok(result)
}

/// Looks at the key that a call waits for in vain: one that has expired goes when it is met.
#[cold]
fn meet(
    keyspace: &Keyspace,
    pass: &Pass<'_>,
    guards: &mut [Guard<'_>],
    call: &Call<'_>,
    env: &Env,
    tally: &mut Tally,
    woken: Woken,
) {
    View::new(env, tally, keyspace, call.args, call.keys, guards).exists(woken.key);
    log_and_fence(keyspace, pass, guards, env, tally);
}

/// Nothing was done, since a busy script holds a slot. A call that waits already goes on waiting.
#[cold]
fn give_up(context: Context<'_>, error: Error) -> Result<Effect, Error> {
    if matches!(context.blocking, Blocking::Resumed(_)) {
        context.tally.blocked = Some(Blocked::Locked);
    }
    Err(error)
}

/// Runs a call on its locked slots, and appends what it did while they are.
#[inline(always)]
fn execute_and_log(
    keyspace: &Keyspace,
    pass: &Pass<'_>,
    guards: &mut [Guard<'_>],
    call: &Call<'_>,
    context: Context<'_>,
) -> Result<Effect, Error> {
    let Context { env, tally, rng, reply, blocking } = context;
    let context = Context { env, tally: &mut *tally, rng, reply, blocking };
    let result = execute_locked(keyspace, guards, call, context);
    log_and_fence(keyspace, pass, guards, env, tally);
    result
}

/// Runs a call on keys whose slots are locked, perhaps together with others, as in a transaction.
#[inline(always)]
pub fn execute_locked(
    keyspace: &Keyspace,
    guards: &mut [Guard<'_>],
    call: &Call<'_>,
    context: Context<'_>,
) -> Result<Effect, Error> {
    let Context { env, tally, rng, reply, blocking } = context;
    let Call { command, args, db, keys } = *call;
    let (Run::Keys(run) | Run::Planned(run, _)) = command.run else {
        unreachable!("such a command locks what it needs itself");
    };
    let mut view = View::new(env, tally, keyspace, args, keys, guards);
    view.keep_expired(command.spec.flags.contains(Flags::READONLY));
    let mut cx = Cx { args, db, view, reply, rng, blocking, wait: None };
    let result = run(&mut cx);
    cx.view.tally.note_effect(env, db, args, &result);
    if let Some(wait) = cx.wait.take() {
        block(keyspace, call, cx, *wait);
    }
    #[expect(
        clippy::needless_match,
        reason = "to copy what was just written would be to wait until it is"
    )]
    match result {
        Ok(Effect::None) => Ok(Effect::None),
        Ok(Effect::AsGiven) => Ok(Effect::AsGiven),
        rare => rare,
    }
}

/// Runs a call with the gate closed.
pub fn execute_world(
    run: fn(&mut World<'_, '_>) -> Result<Effect, Error>,
    world: &mut World<'_, '_>,
) -> Result<Effect, Error> {
    let result = run(world);
    let World { args, db, keyspace, pass, env, tally, .. } = world;
    if let Ok(effect) = &result {
        tally.log_effect(env, *db, *args, effect);
    }
    log_changes(keyspace, pass, [], env, tally);
    fence_all(keyspace, env, tally);
    result
}

/// Whether the slots of all keys are among those locked.
pub fn covers(guards: &[Guard<'_>], keys: &[KeyAt]) -> bool {
    let is_locked =
        |key: &KeyAt| guards.binary_search_by_key(&(key.db, key.slot), |guard| guard.place).is_ok();
    keys.iter().all(is_locked)
}

/// Lets a call wait, while its slots are locked.
#[cold]
fn block(keyspace: &Keyspace, call: &Call<'_>, cx: Cx<'_, '_>, wait: Wait) {
    cx.view.tally.blocked = Some(match cx.blocking {
        Blocking::For(caller) => Blocked::Waits(keyspace.waiting.add(caller, call, cx.reply, wait)),
        Blocking::Resumed(_) => Blocked::Still,
        Blocking::Never => unreachable!("`Cx::wait` answers such a call"),
    });
}

/// Locks the slots of all keys, each once, in ascending order of database and slot: for whoever is
/// inside the gate alone, since it waits for as long as another one has a slot.
#[inline]
pub fn lock<'a>(keyspace: &'a Keyspace, pass: &'a Pass<'a>, keys: &[KeyAt]) -> Guards<'a> {
    lock_each(keys, |key| Ok(guard(keyspace, pass, key, slot(keyspace, pass, key).lock(pass))))
        .unwrap_or_else(|_: Error| unreachable!("nobody gives up"))
}

/// As [`lock`], but fails, with nothing locked, if a busy script holds one of the slots.
#[inline]
pub fn lock_unless_busy<'a>(
    keyspace: &'a Keyspace,
    pass: &'a Pass<'a>,
    keys: &[KeyAt],
) -> Result<Guards<'a>, Error> {
    lock_each(keys, |key| lock_one_unless_busy(keyspace, pass, key))
}

#[inline(always)]
fn lock_one_unless_busy<'a>(
    keyspace: &'a Keyspace,
    pass: &'a Pass<'a>,
    key: &KeyAt,
) -> Result<Guard<'a>, Error> {
    let locked = slot(keyspace, pass, key).lock_unless(pass, || keyspace.busy.is_busy());
    Ok(guard(keyspace, pass, key, locked.ok_or_else(|| keyspace.busy.error())?))
}

#[inline]
fn slot<'a>(keyspace: &'a Keyspace, pass: &'a Pass<'a>, key: &KeyAt) -> &'a Slot<Object> {
    let database = keyspace.database(key.db, pass);
    database.note_use();
    database.slot(key.slot)
}

/// Inline, as `execute`: what it returns would be copied right after it was written.
#[inline(always)]
fn guard<'a>(
    keyspace: &'a Keyspace,
    pass: &'a Pass<'a>,
    key: &KeyAt,
    slot: SlotGuard<'a, Object>,
) -> Guard<'a> {
    Guard { place: (key.db, key.slot), slot, images: keyspace.images(key.db, pass) }
}

#[inline]
fn lock_each<'a>(
    keys: &[KeyAt],
    lock: impl Fn(&KeyAt) -> Result<Guard<'a>, Error>,
) -> Result<Guards<'a>, Error> {
    let mut guards = Guards::new();
    match keys {
        [] => {}
        [key] => guards.push(lock(key)?),
        keys => {
            let mut sorted: SmallVec<[&KeyAt; 16]> = keys.iter().collect();
            sorted.sort_unstable_by_key(|key| (key.db, key.slot));
            sorted.dedup_by_key(|key| (key.db, key.slot));
            for key in sorted {
                guards.push(lock(key)?);
            }
        }
    }
    Ok(guards)
}
