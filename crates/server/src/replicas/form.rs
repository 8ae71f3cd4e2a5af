//! How the stream goes over a link: as it is, or between servers of this kind in packed pieces
//! (`kvasir_structures::packing`), each behind its size in four bytes, little endian. Who wants
//! the latter says so by `REPLCONF capa packed`, and is told behind the answer to PSYNC.

use kvasir_persistence::cold::PIECE_SIZE;
use kvasir_resp::reply::Reply;
use kvasir_structures::packing::{self, Unsound};

/// The word for it, in both directions.
pub const PACKED: &str = "packed";
/// The word for going on in a snapshot, in both directions; a replica says in which one, and where.
pub const RESUME: &str = "resume";
const SIZE: usize = 4;
/// A piece that does not shrink is as long as it was, and has a header.
const PACKED_MAX: usize = PIECE_SIZE + packing::HEADER_SIZE;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Plain,
    Packed,
}

impl Form {
    /// Behind the answer to PSYNC.
    pub fn word(self) -> &'static str {
        if self == Form::Packed { " packed" } else { "" }
    }

    /// Adds bytes of the stream, at most a piece.
    pub fn put(self, bytes: &[u8], reply: &mut Reply) {
        if self == Form::Packed {
            let header = packing::raw_header(bytes.len());
            reply.raw(&size_bytes(header.len() + bytes.len()));
            reply.raw(&header);
        }
        reply.raw(bytes);
    }

    /// Adds a piece that is packed already.
    pub fn put_packed(packed: &[u8], reply: &mut Reply) {
        reply.raw(&size_bytes(packed.len()));
        reply.raw(packed);
    }
}

fn size_bytes(size: usize) -> [u8; SIZE] {
    u32::try_from(size).expect("pieces are short").to_le_bytes()
}

/// Takes the first packed piece off, as soon as all of it is there; says how many bytes it took.
///
/// # Errors
///
/// If it is none.
pub fn take_packed(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Unsound> {
    let Some((size, behind)) = bytes.split_first_chunk::<SIZE>() else { return Ok(None) };
    let size = u32::from_le_bytes(*size);
    if size as usize > PACKED_MAX {
        return Err(Unsound::Long(size));
    }
    let Some(packed) = behind.get(..size as usize) else { return Ok(None) };
    let piece = packing::unpack(packed, PIECE_SIZE as u32)?;
    Ok(Some((piece, SIZE + size as usize)))
}

#[cfg(test)]
mod tests {
    use kvasir_structures::compressed::Algorithm;
    use kvasir_structures::packing::Packer;

    use super::*;

    #[test]
    fn pieces_come_out_as_they_went_in() {
        let mut reply = Reply::default();
        Form::Packed.put(b"raw", &mut reply);
        let text = b"text ".repeat(1000);
        let packed = Packer::new(Some(Algorithm::Zstd), 1).pack(&text);
        Form::put_packed(&packed, &mut reply);
        let bytes = reply.bytes().to_vec();
        for len in 0..SIZE + packing::HEADER_SIZE + 3 {
            assert_eq!(take_packed(&bytes[..len]), Ok(None));
        }
        let (raw, size) = take_packed(&bytes).unwrap().expect("it is whole");
        assert_eq!(raw, b"raw");
        let (piece, second) = take_packed(&bytes[size..]).unwrap().expect("it is whole");
        assert_eq!((piece, size + second), (text, bytes.len()));
        assert_eq!(take_packed(&[255; 8]), Err(Unsound::Long(u32::MAX)));
    }
}
