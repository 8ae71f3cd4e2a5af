//! The value of `notify-keyspace-events`: which classes of events are told, and on which channels.
//!
//! Its letters are those of <https://redis.io/docs/latest/develop/use/keyspace-notifications/>.

use kvasir_keyspace::event::Class;

/// Letters and classes, in the order in which Redis prints them behind `A`.
const CLASSES: [(u8, Class); 11] = [
    (b'g', Class::GENERIC),
    (b'$', Class::STRING),
    (b'l', Class::LIST),
    (b's', Class::SET),
    (b'h', Class::HASH),
    (b'z', Class::SORTED_SET),
    (b'x', Class::EXPIRED),
    (b'e', Class::EVICTED),
    (b't', Class::STREAM),
    (b'd', Class::MODULE),
    (b'n', Class::NEW),
];

/// What is printed behind the classes.
const OTHERS: [(u8, Class); 3] =
    [(b'K', Class::KEYSPACE), (b'E', Class::KEYEVENT), (b'm', Class::MISS)];

/// The classes that `A` stands for.
const ALL: Class = Class::GENERIC
    .union(Class::STRING)
    .union(Class::LIST)
    .union(Class::SET)
    .union(Class::HASH)
    .union(Class::SORTED_SET)
    .union(Class::EXPIRED)
    .union(Class::EVICTED)
    .union(Class::STREAM)
    .union(Class::MODULE);

/// The ways to be told.
const WAYS: Class = Class::KEYSPACE.union(Class::KEYEVENT);

/// The value of `notify-keyspace-events`.
pub fn parse(letters: &[u8]) -> Result<Class, String> {
    let class = |letter: &u8| match letter {
        b'A' => Some(ALL),
        _ => {
            let found = CLASSES.iter().chain(&OTHERS).find(|(known, _)| known == letter);
            found.map(|(_, class)| *class)
        }
    };
    let classes: Option<Class> = letters.iter().map(class).collect();
    classes.ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into())
}

/// As Redis prints it: without `n` behind `A`.
pub fn print(classes: Class) -> String {
    let is_set = |(_, class): &&(u8, Class)| classes.contains(*class);
    let (all, each): (&[u8], &[_]) =
        if classes.contains(ALL) { (b"A", &[]) } else { (b"", &CLASSES) };
    let letters = each.iter().chain(&OTHERS).filter(is_set).map(|(letter, _)| letter);
    all.iter().chain(letters).map(|letter| char::from(*letter)).collect()
}

/// The events that commands have to note: none if there is no way to tell of them.
pub fn noted(classes: Class) -> Class {
    if classes.intersects(WAYS) { classes } else { Class::empty() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_printed_as_redis_does() {
        for (given, printed) in [
            ("", ""),
            ("KEA", "AKE"),
            ("mKEAn", "AKEm"),
            ("EKlg$", "g$lKE"),
            ("nEmK", "nKEm"),
            ("g$lshzxetd", "A"),
            ("tezhslg$x", "g$lshzxet"),
        ] {
            let classes = parse(given.as_bytes()).expect(given);
            assert_eq!(print(classes), printed, "{given}");
        }
        assert!(parse(b"Kq").is_err());
    }

    #[test]
    fn nothing_is_noted_that_cannot_be_told() {
        for (letters, notes) in [("g$", false), ("K", true), ("Eg", true), ("", false)] {
            let classes = parse(letters.as_bytes()).expect(letters);
            assert_eq!(!noted(classes).is_empty(), notes, "{letters}");
        }
    }
}
