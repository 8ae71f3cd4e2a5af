//! Random bytes from the kernel: seeds, run ids, secrets.

use std::io;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills all of `bytes`. Blocks only while a machine that just started has too little entropy.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
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
