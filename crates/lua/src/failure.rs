//! Why a script could not be compiled or did not run to its end.

/// An error for the client: a text that starts with its code, such as `ERR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub text: Vec<u8>,
    /// True if the host has already counted the error, because a command gave it.
    pub counted: bool,
}

impl Failure {
    pub(crate) fn new(text: impl Into<Vec<u8>>) -> Failure {
        Failure { text: text.into(), counted: false }
    }

    /// With a place behind the text.
    pub(crate) fn at(mut self, place: &[u8]) -> Failure {
        self.text.extend_from_slice(place);
        self
    }
}
