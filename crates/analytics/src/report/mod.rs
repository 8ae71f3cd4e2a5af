//! What fills the memory: keys summed up by what they have in common.
//!
//! `survey` takes the records of an image, `table` sums them up, `answer` is what there is to tell,
//! and `text` and `page` tell it to programs and to people.

pub mod answer;
pub mod by;
mod facts;
pub mod page;
pub mod survey;
mod table;
#[cfg(test)]
mod tests;
pub mod text;
mod treemap;
