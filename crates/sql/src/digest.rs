//! `md5` and `sha256`, as DataFusion has them: the first as hexadecimal text, the second as bytes.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use sha2::{Digest, Sha256};

/// A function of a text, or of bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Hash {
    kind: Kind,
    signature: Signature,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Md5,
    Sha256,
}

impl Hash {
    pub fn new(kind: Kind) -> Hash {
        let types = vec![
            DataType::Utf8,
            DataType::LargeUtf8,
            DataType::Utf8View,
            DataType::Binary,
            DataType::LargeBinary,
            DataType::BinaryView,
        ];
        Hash { kind, signature: Signature::uniform(1, types, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Hash {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Md5 => "md5",
            Kind::Sha256 => "sha256",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::Md5 => DataType::Utf8,
            Kind::Sha256 => DataType::Binary,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [of] = &args.args[..] else {
            return internal_err!("{} is of one value", self.name());
        };
        let bytes = cast(&of.to_array(args.number_rows)?, &DataType::Binary)?;
        let bytes = bytes.as_binary::<i32>();
        let hashes: ArrayRef = match self.kind {
            Kind::Md5 => Arc::new(bytes.iter().map(|of| of.map(md5)).collect::<StringArray>()),
            Kind::Sha256 => {
                let hash = |of: &[u8]| Sha256::digest(of).to_vec();
                Arc::new(bytes.iter().map(|of| of.map(hash)).collect::<BinaryArray>())
            }
        };
        Ok(ColumnarValue::Array(hashes))
    }
}

/// How far each of a round's steps turns; each four of them come four times.
const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// RFC 1321. It tells rows apart, and protects nothing.
fn md5(bytes: &[u8]) -> String {
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut blocks = bytes.chunks_exact(64);
    blocks.by_ref().for_each(|block| mix(&mut state, block));
    let mut last = blocks.remainder().to_vec();
    last.push(0x80);
    last.resize((last.len() + 8).next_multiple_of(64) - 8, 0);
    last.extend((bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    last.chunks_exact(64).for_each(|block| mix(&mut state, block));
    state.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect()
}

fn mix(state: &mut [u32; 4], block: &[u8]) {
    let word = |at: usize| {
        let bytes = &block[4 * at..4 * at + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    };
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64usize {
        let (mixed, at) = match step / 16 {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), (7 * step) % 16),
        };
        // The digits of a sine, which nobody has chosen.
        let constant = (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
        let sum = a.wrapping_add(mixed).wrapping_add(constant).wrapping_add(word(at));
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(TURNS[step / 16][step % 4]));
    }
    for (word, mixed) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(mixed);
    }
}
