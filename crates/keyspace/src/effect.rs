//! What a call changed, as the log will carry it.
//!
//! A command's effect replayed on the same data gives the same data, at any time and with any
//! random generator: relative times become absolute, draws become what was drawn.

/// What a command returns for the log.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing changed.
    None,
    /// The call as the client gave it.
    AsGiven,
    /// These calls instead. Empty where nobody reads the log (`Env::logs` is false).
    Rewritten(Vec<Vec<Vec<u8>>>),
}

impl Effect {
    /// `AsGiven` if something changed.
    pub fn given_if(changed: bool) -> Effect {
        if changed { Effect::AsGiven } else { Effect::None }
    }
}

/// One call of an effect.
pub fn call(parts: &[&[u8]]) -> Vec<Vec<u8>> {
    parts.iter().map(|part| part.to_vec()).collect()
}
