//! What scripts reply, in a form in which two servers reply the same.

use kvasir_harness::raw::Raw;

/// A reply with the texts of a script's errors as Valkey has them.
pub fn in_words_of_valkey(raw: &Raw) -> Raw {
    const WORDS: [(&str, &str); 9] = [
        ("This Redis command", "This Valkey command"),
        ("calling Redis command", "calling command"),
        ("Unknown Redis command", "Unknown command"),
        ("Lua redis lib command arguments", "Command arguments"),
        ("this redis lib call", "this call"),
        ("redis.log()", "server.log()"),
        ("redis.acl_check_cmd", "server.acl_check_cmd"),
        (" Please use EVAL.", ""),
        (", on @user_", "on @user_"),
    ];
    let (kind, text) = match raw {
        Raw::Node(header, items) => {
            let items = items.iter().map(in_words_of_valkey).collect();
            return Raw::Node(header.clone(), items);
        }
        // An error may be caught and be a text.
        Raw::Leaf(bytes) => match raw.text().filter(|_| raw.is_error() || bytes[0] == b'$') {
            Some(text) => (bytes[0], text),
            None => return raw.clone(),
        },
    };
    let mut text = String::from_utf8_lossy(text).into_owned();
    // The script's hash or function's name stands in front of the place.
    if let Some(place) = text.find(", on @user_")
        && let Some(before) = text[..place].rfind("script: ")
    {
        text.replace_range(before + "script: ".len()..place, "");
    }
    for (ours, theirs) in WORDS {
        text = text.replace(ours, theirs);
    }
    Raw::Leaf([&[kind], text.as_bytes()].concat())
}

/// A reply whose arrays of pairs, such as a map becomes in RESP2, are in the order of their bytes.
pub fn with_pairs_sorted(raw: &Raw) -> Raw {
    let Raw::Node(header, items) = raw else { return raw.clone() };
    let items: Vec<Raw> = items.iter().map(with_pairs_sorted).collect();
    let are_pairs = items.len().is_multiple_of(2);
    let node = Raw::Node(header.clone(), items);
    if are_pairs { node.sorted(2) } else { node }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Raw {
        Raw::parse(text.as_bytes()).unwrap().0
    }

    #[test]
    fn only_words_of_scripts_may_be_others() {
        let words = |text: &str| in_words_of_valkey(&parse(text));
        let place = |script: &str| format!("-ERR no script: {script}on @user_script:1.\r\n");
        assert_eq!(words(&place("0123, ")), words(&place("")));
        let unknown = |what: &str| words(&format!("*1\r\n-ERR Unknown {what}\r\n"));
        assert_eq!(unknown("Redis command"), unknown("command"));
        assert_ne!(words("-ERR no\r\n"), words("-ERR yes\r\n"));
        assert!(words("$-1\r\n") != words("$0\r\n\r\n") && words("-x\r\n") != words("$1\r\nx\r\n"));
    }

    #[test]
    fn only_the_order_of_pairs_may_be_another() {
        let sorted = |text: &str| with_pairs_sorted(&parse(text));
        assert_eq!(
            sorted("*4\r\n+a\r\n:1\r\n+b\r\n:2\r\n"),
            sorted("*4\r\n+b\r\n:2\r\n+a\r\n:1\r\n")
        );
        assert_ne!(
            sorted("*4\r\n+a\r\n:1\r\n+b\r\n:2\r\n"),
            sorted("*4\r\n+a\r\n:2\r\n+b\r\n:1\r\n")
        );
        assert_ne!(sorted("*3\r\n:1\r\n:2\r\n:3\r\n"), sorted("*3\r\n:2\r\n:1\r\n:3\r\n"));
        let inner = |pairs: &str| format!("*1\r\n*4\r\n{pairs}");
        let (one, other) = (inner(":1\r\n:2\r\n:3\r\n:4\r\n"), inner(":3\r\n:4\r\n:1\r\n:2\r\n"));
        assert_eq!(sorted(&one), sorted(&other));
    }
}
