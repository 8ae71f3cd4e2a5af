//! What must be equal of a reply: all but ids and times that pass.

/// An id, and the key that it is of, if the reply says which.
pub type Id = (Option<Vec<u8>>, u64);

/// The reply with these taken out, and the ids that it tells.
pub fn alike(reply: &[u8]) -> (Vec<u8>, Vec<Id>) {
    let (mut out, mut ids, mut rest) = (Vec::new(), Vec::new(), reply);
    while !rest.is_empty() {
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else { break };
        let (line, behind) = (&rest[..end], &rest[end + 2..]);
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let block = match words[..] {
            [b"VALUE", key, flags, len, own] => {
                ids.extend(number(own).map(|id| (Some(key.to_vec()), id)));
                out.extend_from_slice(&[b"VALUE", key, flags, len, b"#"].join(&b' '));
                number(len)
            }
            [b"VALUE", _, _, len] => {
                out.extend_from_slice(line);
                number(len)
            }
            [b"VA", len, ref flags @ ..] => {
                out.extend_from_slice(&[b"VA ", len].concat());
                meta_flags(flags, &mut out, &mut ids);
                number(len)
            }
            [first @ (b"HD" | b"NS" | b"EX" | b"NF" | b"EN"), ref flags @ ..] => {
                out.extend_from_slice(first);
                meta_flags(flags, &mut out, &mut ids);
                None
            }
            _ => {
                out.extend_from_slice(line);
                None
            }
        };
        out.extend_from_slice(b"\r\n");
        rest = behind;
        if let Some(len) = block.map(|len| len as usize + 2).filter(|len| *len <= rest.len()) {
            out.extend_from_slice(&rest[..len]);
            rest = &rest[len..];
        }
    }
    out.extend_from_slice(rest);
    (out, ids)
}

/// `c`, an id; `t` and `l`, which grow old.
fn meta_flags(flags: &[&[u8]], out: &mut Vec<u8>, ids: &mut Vec<Id>) {
    for flag in flags {
        out.push(b' ');
        match flag {
            [b'c', own @ ..] if number(own).is_some() => {
                ids.extend(number(own).map(|id| (None, id)));
                out.extend_from_slice(b"c#");
            }
            [kind @ (b't' | b'l'), time @ ..] if number(time).is_some() => {
                out.extend_from_slice(&[*kind, b'#']);
            }
            flag => out.extend_from_slice(flag),
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_times_are_left_out_and_values_are_not() {
        for (reply, expect, ids) in [
            ("STORED\r\n", "STORED\r\n", vec![]),
            (
                "VALUE a 1 2 77\r\nc1\r\nEND\r\n",
                "VALUE a 1 2 #\r\nc1\r\nEND\r\n",
                vec![(Some(b"a".to_vec()), 77)],
            ),
            ("VA 4 t-1 c9 s4\r\nt5 c\r\n", "VA 4 t-1 c# s4\r\nt5 c\r\n", vec![(None, 9)]),
            ("HD t50 l0 kt5\r\n", "HD t# l# kt5\r\n", vec![]),
        ] {
            assert_eq!(alike(reply.as_bytes()), (expect.as_bytes().to_vec(), ids));
        }
    }
}
