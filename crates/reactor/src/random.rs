//! Random bytes from the kernel: seeds, run ids, secrets.

use std::io;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

#[cfg(feature = "sim")]
thread_local! {
    /// What a simulated world draws from; never 0.
    static SIMULATED: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Has all that is drawn on this thread be a function of a seed.
#[cfg(feature = "sim")]
pub fn simulate(seed: u64) {
    SIMULATED.set(Some(seed | 1));
}

#[cfg(feature = "sim")]
fn fill_simulated(bytes: &mut [u8], mut state: u64) {
    for byte in bytes {
        // Xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 32) as u8;
    }
    SIMULATED.set(Some(state));
}

/// Fills all of `bytes`. Blocks only while a machine that just started has too little entropy.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    #[cfg(feature = "sim")]
    if let Some(state) = SIMULATED.get() {
        fill_simulated(bytes, state);
        return Ok(());
    }
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_part_is_filled() {
        let mut bytes = [0; 4096];
        super::fill(&mut bytes).unwrap();
        assert!(bytes.chunks(16).all(|chunk| chunk.iter().any(|&byte| byte != 0)));
    }
}
