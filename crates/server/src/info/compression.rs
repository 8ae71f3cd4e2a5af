//! What INFO tells of strings that are kept compressed: in Memory what there is at present, in
//! Stats what the work has come to.

use kvasir_reactor::clock::Ticks;
use kvasir_structures::compressed::Counts;

use crate::info::{Lines, ratio};
use crate::stats::compression::CompressionStats;

pub fn memory(lines: &mut Lines) {
    let Counts { held, text_bytes, bytes, .. } = Counts::now();
    lines.field("value_compression_values", held);
    lines.field("value_compression_raw_bytes", text_bytes);
    lines.field("value_compression_stored_bytes", bytes);
    lines.field("value_compression_ratio", format!("{:.2}", ratio(text_bytes, bytes)));
}

pub fn stats(stats: &CompressionStats, lines: &mut Lines) {
    let (before, now) = (stats.before(), Counts::now());
    let since = |count: fn(&Counts) -> u64| count(&now).saturating_sub(count(&before));
    let usec = |ticks: u64| Ticks::from_count(ticks).to_nanos() / 1000;
    lines.field("value_compression_compressed", since(|counts| counts.compressions));
    lines.field("value_compression_unpaid", since(|counts| counts.unpaid));
    lines.field("value_compression_compress_usec", usec(since(|counts| counts.compress_ticks)));
    lines.field("value_compression_decompressed", since(|counts| counts.decompressions));
    lines.field("value_compression_decompress_usec", usec(since(|counts| counts.decompress_ticks)));
}
