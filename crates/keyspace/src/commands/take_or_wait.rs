//! Taking from the first of several keys that holds something, and waiting for one if none does.

use crate::command::Cx;
use crate::effect::Effect;
use crate::error::Error;
use crate::value::Kind;
use crate::waiting::{Nothing, Wait};

/// Lets `take` at the first key that holds something, unless others wait for that already; waits if
/// there is none.
pub fn take_or_wait(
    cx: &mut Cx<'_, '_>,
    kind: Kind,
    deadline_ms: Option<u64>,
    take: impl Fn(&mut Cx<'_, '_>, usize) -> Result<Effect, Error>,
) -> Result<Effect, Error> {
    for key in 0..cx.view.key_count() {
        if cx.view.expect_kind(key, kind)? && !cx.is_behind_others(key) {
            return take(cx, key);
        }
    }
    cx.wait(Wait {
        kind,
        deadline_ms,
        nothing: Nothing::NullArray,
        wakes_on_removal: false,
        call: None,
    })
}
