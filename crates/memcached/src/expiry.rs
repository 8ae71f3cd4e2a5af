//! When items die, as memcached's clients say it.

use kvasir_keyspace::event::Class;
use kvasir_keyspace::view::View;

/// Seconds up to which a time is relative to now: 30 days. Beyond, it is one since 1970.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

/// When an item dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    Never,
    /// In ms since 1970; it has not come.
    At(u64),
    /// It has come: the item is set, and gone.
    Past,
}

impl Expiry {
    pub fn of(exptime: i32, now_ms: u64) -> Expiry {
        let seconds = i64::from(exptime);
        let at_ms = match seconds {
            0 => return Expiry::Never,
            ..0 => return Expiry::Past,
            1..=RELATIVE_MAX => now_ms + seconds as u64 * 1000,
            _ => seconds as u64 * 1000,
        };
        if at_ms <= now_ms { Expiry::Past } else { Expiry::At(at_ms) }
    }

    pub fn at_ms(self) -> Option<u64> {
        match self {
            Expiry::At(at_ms) => Some(at_ms),
            Expiry::Never | Expiry::Past => None,
        }
    }
}

/// Whole seconds until then, as memcached counts them: the one that has begun is one.
pub fn seconds_left(at_ms: u64, now_ms: u64) -> u64 {
    at_ms.saturating_sub(now_ms).div_ceil(1000)
}

/// Gives the key of a call another expiry, and logs it. The key is there.
pub fn touch(view: &mut View<'_, '_>, expiry: Expiry) {
    let key = view.key(0);
    match expiry {
        Expiry::Past => {
            view.expire(0);
            view.log(&[&[b"DEL", key]]);
        }
        Expiry::Never => {
            if view.peek(0).is_some_and(|record| record.expiry_ms().is_some()) {
                view.set_expiry(0, None);
                view.changed(0, Class::GENERIC, "persist");
                view.log(&[&[b"PERSIST", key]]);
            }
        }
        Expiry::At(at_ms) => {
            view.set_expiry(0, Some(at_ms));
            view.changed(0, Class::GENERIC, "expire");
            view.log(&[&[b"PEXPIREAT", key, at_ms.to_string().as_bytes()]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_up_to_thirty_days() {
        let now_ms = 1_700_000_000_123;
        for (exptime, expiry) in [
            (0, Expiry::Never),
            (-1, Expiry::Past),
            (i32::MIN, Expiry::Past),
            (1, Expiry::At(now_ms + 1000)),
            (2_592_000, Expiry::At(now_ms + 2_592_000_000)),
            (2_592_001, Expiry::Past),
            (1_700_000_000, Expiry::Past),
            (1_700_000_001, Expiry::At(1_700_000_001_000)),
            (i32::MAX, Expiry::At(i32::MAX as u64 * 1000)),
        ] {
            assert_eq!(Expiry::of(exptime, now_ms), expiry, "{exptime}");
        }
        assert_eq!([0, 1, 1000, 1001].map(|ms| seconds_left(now_ms + ms, now_ms)), [0, 1, 1, 2]);
    }
}
