//! What must be equal of a reply: all but ids and times that pass.

/// The reply with these taken out, and the id that it tells last.
pub fn alike(reply: &[u8]) -> (Vec<u8>, Option<u64>) {
    let (mut out, mut id, mut rest) = (Vec::new(), None, reply);
    while !rest.is_empty() {
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else { break };
        let (line, behind) = (&rest[..end], &rest[end + 2..]);
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let block = match words[..] {
            [b"VALUE", key, flags, len, own] => {
                id = number(own);
                out.extend_from_slice(&[b"VALUE", key, flags, len, b"#"].join(&b' '));
                number(len)
            }
            [b"VALUE", _, _, len] => {
                out.extend_from_slice(line);
                number(len)
            }
            [b"VA", len, ref flags @ ..] => {
                out.extend_from_slice(&[b"VA ", len].concat());
                meta_flags(flags, &mut out, &mut id);
                number(len)
            }
            [first @ (b"HD" | b"NS" | b"EX" | b"NF" | b"EN"), ref flags @ ..] => {
                out.extend_from_slice(first);
                meta_flags(flags, &mut out, &mut id);
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
    (out, id)
}

/// `c`, an id; `t` and `l`, which grow old.
fn meta_flags(flags: &[&[u8]], out: &mut Vec<u8>, id: &mut Option<u64>) {
    for flag in flags {
        out.push(b' ');
        match flag {
            [b'c', own @ ..] if number(own).is_some() => {
                *id = number(own);
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
        for (reply, expect, id) in [
            ("STORED\r\n", "STORED\r\n", None),
            ("VALUE a 1 2 77\r\nc1\r\nEND\r\n", "VALUE a 1 2 #\r\nc1\r\nEND\r\n", Some(77)),
            ("VA 4 t-1 c9 s4\r\nt5 c\r\n", "VA 4 t-1 c# s4\r\nt5 c\r\n", Some(9)),
            ("HD t50 l0 kt5\r\n", "HD t# l# kt5\r\n", None),
        ] {
            assert_eq!(alike(reply.as_bytes()), (expect.as_bytes().to_vec(), id));
        }
    }
}
