//! A link of so many bytes a second: a program between a replica and its primary that lets through
//! what a token bucket has.
//!
//! What comes the other way is little, and passes as it is.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Taken at once, and what the bucket holds: a hundredth of a second at 100 Mbit/s.
const PIECE: usize = 128 << 10;

pub struct SlowLink {
    port: u16,
    passed: Arc<AtomicU64>,
    /// Connections of replicas, open ones among them.
    replicas: Arc<Mutex<Vec<TcpStream>>>,
}

impl SlowLink {
    /// Leads to a port of this machine. Ends with the process.
    pub fn to(port: u16, bytes_per_second: u64) -> Result<SlowLink> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (passed, replicas) = (Arc::<AtomicU64>::default(), Arc::<Mutex<Vec<_>>>::default());
        let link = SlowLink {
            port: listener.local_addr()?.port(),
            passed: Arc::clone(&passed),
            replicas: Arc::clone(&replicas),
        };
        thread::spawn(move || {
            for replica in listener.incoming().flatten() {
                let Ok(primary) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
                let passed = Arc::clone(&passed);
                let copies = (replica.try_clone(), replica.try_clone(), primary.try_clone());
                let (Ok(back), Ok(kept), Ok(answers)) = copies else { return };
                replicas.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
                thread::spawn(move || pass(&replica, &primary, None, &AtomicU64::new(0)));
                thread::spawn(move || pass(&answers, &back, Some(bytes_per_second), &passed));
            }
        });
        Ok(link)
    }

    /// Where replicas connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Breaks all connections; replicas may come back at once.
    pub fn cut(&self) {
        let mut replicas = self.replicas.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are gone already cannot be shut down.
        replicas.drain(..).for_each(|replica| drop(replica.shutdown(Shutdown::Both)));
    }

    /// Bytes that went to replicas.
    pub fn passed(&self) -> u64 {
        self.passed.load(Relaxed)
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, rate: Option<u64>, passed: &AtomicU64) {
    let mut piece = vec![0; PIECE];
    let mut next = Instant::now();
    while let Ok(len @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..len]).is_err() {
            break;
        }
        passed.fetch_add(len as u64, Relaxed);
        if let Some(rate) = rate {
            // A pause is not made up for by a burst.
            next = next.max(Instant::now()) + Duration::from_secs_f64(len as f64 / rate as f64);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    // Either end may be gone already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
