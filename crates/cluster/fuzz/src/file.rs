//! Any nodes.conf is refused, or means the same when it is written and read again.
//!
//! The input is taken twice: as lines, and as changes of a sound file.
#![no_main]

use kvasir_cluster::options::Options;
use kvasir_cluster::state::Cluster;
use libfuzzer_sys::fuzz_target;

const SOUND: &str = concat!(
    "07c37dfeb235213a872192d90877d0cd55635b91 127.0.0.1:30004@31004,,tls-port=0,shard-id=e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca slave e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 0 9 1 connected\n",
    "e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 127.0.0.1:30001@31001,h myself,master - 0 0 1 connected 0-5460 [93->-07c37dfeb235213a872192d90877d0cd55635b91]\n",
    "vars currentEpoch 6 lastVoteEpoch 3\n",
);

fuzz_target!(|bytes: &[u8]| {
    check(&String::from_utf8_lossy(bytes));
    let mut changed = SOUND.as_bytes().to_vec();
    for change in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % changed.len();
        changed[place] = change[2];
    }
    check(&String::from_utf8_lossy(&changed));
});

fn check(text: &str) {
    let read = |text: &str| Cluster::from_file(text, Options::default(), 1, 1000);
    let Ok(first) = read(text) else { return };
    let mut file = first.file();
    // The bug that the fuzzer must find.
    if cfg!(feature = "canary") && first.epochs() != (6, 3) {
        file = file.replace("lastVoteEpoch", "lastVotedEpoch");
    }
    let again = read(&file).expect("what is written is read");
    assert_eq!(again.epochs(), first.epochs());
    assert_eq!(again.file(), file);
}
