//! One suite for both backends. Each test is a function of the backend; `for_each_backend!` makes
//! two tests of it. Peers are plain blocking sockets, in threads where they have to be.
// Clippy lets tests unwrap, but not the functions that they share.
#![allow(clippy::unwrap_used)]

mod connecting;
mod harness;
mod listening;
mod receiving;
mod ring;
mod sending;

use kvasir_reactor::{Backend, BackendChoice, Options, Reactor};

macro_rules! for_each_backend {
    ($($name:ident)*) => {
        mod uring {
            $(#[test] fn $name() { super::$name(kvasir_reactor::BackendChoice::Uring); })*
        }
        mod epoll {
            $(#[test] fn $name() { super::$name(kvasir_reactor::BackendChoice::Epoll); })*
        }
    };
}
pub(crate) use for_each_backend;

#[test]
fn a_refusal_of_io_uring_falls_back_and_says_why() {
    // The kernel refuses a ring without entries as it would refuse an unknown flag.
    let mut options = Options { ring_entries: 0, ..Options::default() };
    let reactor = Reactor::new(&options).unwrap();
    assert_eq!(reactor.backend(), Backend::Epoll);
    let reason = reactor.fallback_reason().unwrap();
    assert!(reason.starts_with("io_uring_setup: Invalid argument"), "{reason}");

    options.backend = BackendChoice::Uring;
    assert!(Reactor::new(&options).is_err());
}

#[test]
fn the_choice_is_respected() {
    for (choice, name) in [(BackendChoice::Uring, "io_uring"), (BackendChoice::Epoll, "epoll")] {
        let reactor = Reactor::new(&Options { backend: choice, ..Options::default() }).unwrap();
        assert_eq!((reactor.backend().name(), reactor.fallback_reason()), (name, None));
    }
}
