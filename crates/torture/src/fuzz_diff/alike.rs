//! How two replies may be alike without being equal.

use kvasir_harness::raw::Raw;
use kvasir_resp::number;

/// Replies that read a clock may be so far apart.
pub const CLOCK_TOLERANCE_MS: u64 = 5000;

/// The texts of an array, each up to its first zero byte.
pub fn until_zero(raw: &Raw) -> Vec<&[u8]> {
    let texts = raw.items().iter().filter_map(Raw::text);
    texts.filter_map(|text| text.split(|byte| *byte == 0).next()).collect()
}

/// Whether these are the two texts.
pub fn are(ours: &Raw, theirs: &Raw, wanted_ours: &[u8], wanted_theirs: &[u8]) -> bool {
    ours.text() == Some(wanted_ours) && theirs.text() == Some(wanted_theirs)
}

/// Equal but for doubles that they write with all digits, and we with fewer; and for signs of 0.
pub fn are_equal_doubles(ours: &Raw, theirs: &Raw) -> bool {
    are_alike(ours, theirs, |ours, theirs| {
        let is_long = |value| {
            let mut long = Vec::new();
            number::write_double(value, &mut long);
            theirs.text() == Some(&long)
        };
        are(ours, theirs, b"-0", b"0") || shortest(ours).is_some_and(is_long)
    })
}

/// Equal but for doubles that are the same, and that we write as short as can be.
pub fn read_alike(ours: &Raw, theirs: &Raw) -> bool {
    are_alike(ours, theirs, |ours, theirs| {
        let theirs = theirs.text().and_then(number::parse_double);
        shortest(ours).is_some_and(|value| theirs == Some(value))
    })
}

/// Of the same shape, and each leaf equal or excused.
fn are_alike(ours: &Raw, theirs: &Raw, excuses: fn(&Raw, &Raw) -> bool) -> bool {
    if let (Raw::Node(ours_header, ours), Raw::Node(theirs_header, theirs)) = (ours, theirs) {
        let mut pairs = ours.iter().zip(theirs);
        return ours_header == theirs_header
            && pairs.all(|(ours, theirs)| are_alike(ours, theirs, excuses));
    }
    ours == theirs || excuses(ours, theirs)
}

/// A double, if this is the shortest text of it.
fn shortest(raw: &Raw) -> Option<f64> {
    let value = raw.text().and_then(number::parse_double)?;
    let mut short = Vec::new();
    number::write_double_shortest(value, &mut short);
    (raw.text() == Some(&short)).then_some(value)
}

/// Equal but for integers that are times: apart by at most `slack`, or, where they are unix times
/// in ms or a name before them says that they are ages, by the tolerance.
pub fn is_near(ours: &Raw, theirs: &Raw, slack: u64) -> bool {
    const UNIX_MS_MIN: i64 = 1_000_000_000_000;
    const AGES: [&[u8]; 4] = [b"idle", b"inactive", b"seen-time", b"active-time"];
    if let (Raw::Node(ours_header, ours), Raw::Node(theirs_header, theirs)) = (ours, theirs) {
        // An entry of XPENDING: id, consumer, how long ago, how often.
        let is_pending = ours.len() == 4 && ours[3].integer().is_some();
        let is_age = |at: usize| {
            let is_named = at > 0 && ours[at - 1].text().is_some_and(|name| AGES.contains(&name));
            is_named || (is_pending && at == 2)
        };
        let slack = |at: usize| if is_age(at) { CLOCK_TOLERANCE_MS } else { 0 };
        return ours_header == theirs_header
            && ours.len() == theirs.len()
            && (0..ours.len()).all(|at| is_near(&ours[at], &theirs[at], slack(at)));
    }
    let (Some(one), Some(other)) = (ours.integer(), theirs.integer()) else {
        return ours == theirs;
    };
    let is_moment = one > UNIX_MS_MIN && other > UNIX_MS_MIN;
    let slack = if is_moment { slack.max(CLOCK_TOLERANCE_MS) } else { slack };
    one == other || (one >= 0 && other >= 0 && one.abs_diff(other) <= slack)
}

/// A reply without these fields, in maps at any depth.
pub fn without(raw: &Raw, names: &[&str]) -> Raw {
    let Raw::Node(header, items) = raw else { return raw.clone() };
    let is_named = |item: &Raw| {
        item.text().is_some_and(|text| names.iter().any(|name| name.as_bytes() == text))
    };
    let mut kept = Vec::new();
    let mut rest = items.iter();
    while let Some(item) = rest.next() {
        if is_named(item) {
            rest.next();
        } else {
            kept.push(without(item, names));
        }
    }
    let per_count = if header.starts_with(b"%") { 2 } else { 1 };
    let header = match kept.len() == items.len() {
        true => header.clone(),
        false => format!("{}{}\r\n", char::from(header[0]), kept.len() / per_count).into_bytes(),
    };
    Raw::Node(header, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Raw {
        Raw::parse(text.as_bytes()).expect("complete").0
    }

    #[test]
    fn only_times_may_be_apart() {
        let near = |one: &str, other: &str| is_near(&parse(one), &parse(other), 0);
        let pending =
            |idle: i64, count: i64| format!("*4\r\n+1-1\r\n+c\r\n:{idle}\r\n:{count}\r\n");
        assert!(near(&pending(10, 1), &pending(12, 1)));
        assert!(!near(&pending(10, 1), &pending(10, 2)));
        assert!(!near(&pending(10, 1), &pending(60_000, 1)));
        assert!(near("*2\r\n+idle\r\n:5\r\n", "*2\r\n+idle\r\n:9\r\n"));
        assert!(!near("*2\r\n+pending\r\n:5\r\n", "*2\r\n+pending\r\n:9\r\n"));
        assert!(near("*1\r\n:1700000000000\r\n", "*1\r\n:1700000000009\r\n"));
    }

    #[test]
    fn only_the_text_of_a_double_may_be_another() {
        let alike = |one: &str, other: &str| read_alike(&parse(one), &parse(other));
        assert!(alike("$18\r\n1076129903063676.8\r\n", "$18\r\n1076129903063676.7\r\n"));
        assert!(alike("*2\r\n+a\r\n,0.1\r\n", "*2\r\n+a\r\n,0.10000000000000001\r\n"));
        assert!(!alike("$4\r\n0.10\r\n", "$3\r\n0.1\r\n") && !alike("+a\r\n", "+b\r\n"));
        assert!(!alike("$3\r\n0.1\r\n", "$3\r\n0.2\r\n"));
    }

    #[test]
    fn fields_are_left_out_at_any_depth() {
        let full = parse("*2\r\n+a\r\n%2\r\n+x\r\n:1\r\n+y\r\n:2\r\n");
        assert_eq!(without(&full, &["y"]), parse("*2\r\n+a\r\n%1\r\n+x\r\n:1\r\n"));
        assert_eq!(without(&full, &["z"]), full);
    }
}
