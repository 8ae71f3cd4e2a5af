//! Moments as text, as RFC 3339 has them: `2026-07-28T12:30:00.5Z`, or a day alone.

const DAY_MS: i64 = 86_400_000;

/// Milliseconds since 1970, if this is a moment. Digits past those of milliseconds are dropped.
pub fn parse_timestamp_ms(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = [&date[..4], &date[5..7], &date[8..]].map(digits);
    if date[4] != b'-' || date[7] != b'-' {
        return None;
    }
    let days = days_of(year?, month?, day?)?;
    let Some((b'T' | b't' | b' ', rest)) = rest.split_first() else {
        return rest.is_empty().then_some(days * DAY_MS);
    };
    let (clock, rest) = rest.split_at_checked(8)?;
    let [hour, minute, second] = [&clock[..2], &clock[3..5], &clock[6..]].map(digits);
    let (hour, minute, second) = (hour?, minute?, second?);
    if clock[2] != b':' || clock[5] != b':' || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction_ms, zone) = match rest.split_first() {
        Some((b'.', rest)) => {
            let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (fraction, zone) = rest.split_at(len);
            let mut ms = [b'0'; 3];
            let kept = len.min(3);
            ms[..kept].copy_from_slice(&fraction[..kept]);
            (digits(&ms).filter(|_| len > 0)?, zone)
        }
        _ => (0, rest),
    };
    let seconds = (hour * 60 + minute) * 60 + second - 60 * offset_minutes(zone)?;
    Some(days * DAY_MS + seconds * 1000 + fraction_ms)
}

/// `Z`, nothing, or `+02:00`.
fn offset_minutes(zone: &[u8]) -> Option<i64> {
    match zone {
        [] | [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (digits(&[*h1, *h2])?, digits(&[*m1, *m2])?);
            let minutes = (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)?;
            Some(if *sign == b'-' { -minutes } else { minutes })
        }
        _ => None,
    }
}

fn digits(text: &[u8]) -> Option<i64> {
    let add =
        |sum: i64, byte: &u8| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'));
    text.iter().try_fold(0, add)
}

/// Days since 1970 of a day of the Gregorian calendar. Years begin in March here, so that the
/// leap day is a year's last.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    let year = if month < 3 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let check = |text: &str, expect: Option<i64>| {
            assert_eq!(parse_timestamp_ms(text.as_bytes()), expect, "{text}");
        };
        check("1970-01-01", Some(0));
        check("1970-01-01T00:00:00Z", Some(0));
        check("2024-02-29T12:00:00.1234Z", Some(1_709_208_000_123));
        check("2024-02-29 14:00:00+02:00", Some(1_709_208_000_000));
        check("1969-12-31T23:59:59.5", Some(-500));
        check("0001-01-01", Some(-62_135_596_800_000));
        for wrong in ["2023-02-29", "2024-13-01", "2024-1-1", "2024-01-01T", "2024-01-01T24:00:00"]
        {
            check(wrong, None);
        }
        check("2024-01-01T00:00:00.", None);
        check("2024-01-01T00:00:00+2", None);
        check("", None);
    }
}
