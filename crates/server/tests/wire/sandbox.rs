//! The server under filters of system calls, as service managers and containers set them.
//!
//! A test starts this program once more, which gives itself the filter and becomes the server.

use std::os::unix::process::CommandExt;
use std::process::Command;

use kvasir_resp::value::Value;
use seccompiler::{TargetArch, apply_filter, compile_from_json};

use crate::aof::wait_for;
use crate::certificates::free_port;
use crate::harness::Server;
use crate::saving::{directory, path, wait_for_snapshot};

/// The filter, and the words for the server, of the program that is to become it.
const FILTER: &str = "KVASIR_TEST_FILTER";
const WORDS: &str = "KVASIR_TEST_WORDS";

/// What systemd 252 lets through for `SystemCallFilter=@system-service` and
/// `SystemCallFilter=~@privileged @resources`.
const SERVICE: &str = "\
    accept accept4 access add_key alarm arch_prctl bind brk capget chdir chmod clock_getres \
    clock_gettime clock_nanosleep clone clone3 close close_range connect copy_file_range creat dup \
    dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 \
    epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat \
    faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fcntl fdatasync fgetxattr \
    flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_waitv \
    futimesat get_mempolicy get_robust_list get_thread_area getcpu getcwd getdents getdents64 \
    getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid \
    getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt \
    gettid gettimeofday getuid getxattr inotify_add_watch inotify_init inotify_init1 \
    inotify_rm_watch io_cancel io_destroy io_getevents io_setup io_submit io_uring_enter \
    io_uring_register io_uring_setup ioctl ioprio_get kcmp keyctl kill lgetxattr link linkat \
    listen listxattr llistxattr lremovexattr lseek lsetxattr lstat madvise membarrier memfd_create \
    mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify \
    mq_open mq_timedreceive mq_timedsend mq_unlink mremap msgctl msgget msgrcv msgsnd msync \
    munlock munlockall munmap name_to_handle_at nanosleep newfstatat open openat openat2 pause \
    personality pidfd_open pidfd_send_signal pipe pipe2 poll ppoll prctl pread64 preadv preadv2 \
    prlimit64 process_madvise process_vm_readv process_vm_writev pselect6 pwrite64 pwritev \
    pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages \
    removexattr rename renameat renameat2 request_key restart_syscall rmdir rseq rt_sigaction \
    rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait \
    rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity \
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_yield select \
    semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list \
    set_thread_area set_tid_address setfsgid setgid setitimer setns setpgid setregid setresgid \
    setsid setsockopt setxattr shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 \
    socket socketpair splice stat statfs statx symlink symlinkat sync sync_file_range syncfs \
    sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime \
    timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask uname unlink \
    unlinkat unshare userfaultfd utime utimensat utimes vfork vmsplice wait4 waitid write writev";

const IO_URING: &str = "io_uring_enter io_uring_register io_uring_setup";

/// What Docker's profile has refused since 2023, and what else a server could do without.
const REFUSED: &str = "io_uring_enter io_uring_register io_uring_setup sched_setattr \
    sched_setscheduler sched_setaffinity setpriority mbind set_mempolicy ioprio_set chown fchown \
    fchownat bpf userfaultfd";

/// `RestrictAddressFamilies` without AF_INET6.
const NO_IPV6: &str =
    r#"{"syscall":"socket","args":[{"index":0,"type":"dword","op":"eq","val":10}]}"#;

/// A filter that does one thing for these calls and another for all others.
fn filter(rules: &str, action: &str, otherwise: &str) -> String {
    format!(
        r#"{{"main":{{"mismatch_action":{otherwise},"match_action":{action},"filter":[{rules}]}}}}"#
    )
}

/// Rules for whatever these calls are given.
fn rules<'a>(calls: impl Iterator<Item = &'a str>) -> String {
    calls.map(|call| format!(r#"{{"syscall":"{call}"}}"#)).collect::<Vec<_>>().join(",")
}

/// Not a test of its own: what it becomes in another process is.
#[test]
fn becomes_a_server_in_a_sandbox() {
    let (Ok(filter), Ok(words)) = (std::env::var(FILTER), std::env::var(WORDS)) else { return };
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("one of few");
    let programs = compile_from_json(filter.as_bytes(), arch).expect("a sound filter");
    apply_filter(&programs["main"]).expect("anybody may give up rights");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    panic!("{}", command.args(words.split(' ')).exec());
}

/// Has a server do whatever it does for its own sake, and end.
fn check(filter: &str, backend: &str, options: &[&str], log_lines: &[&str]) {
    let directory = directory();
    let log = directory.path().join("log");
    let test_program = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    let script =
        format!("{WORDS}=\"$*\" exec \"$0\" sandbox::becomes_a_server_in_a_sandbox --exact");
    command.args(["-c", &script]).arg(test_program).env(FILTER, filter);
    let own = ["--dir", path(&directory), "--appendonly", "yes", "--logfile", path_of(&log)];
    let more = ["--io-threads", "2", "--unixsocketperm", "700", "--appendonly-liburing", "auto"];
    let mut server = Server::start("sandboxed", command, &[&own[..], &more, options].concat());
    let mut client = server.connect();
    wait_for(&mut client, "\nloading:0");
    client.ask("SET k v");
    client.ask("BGSAVE");
    wait_for_snapshot(&mut client);
    client.ask("BGREWRITEAOF");
    wait_for(&mut client, "aof_rewrites:1\r\n");
    client.ask("FLUSHALL ASYNC");
    assert_eq!(client.ask("EVAL return(1) 0"), Value::Integer(1));
    let io = format!("multiplexing_api:{backend}");
    assert!(client.ask_text("INFO server").contains(&io), "{io}");
    client.send(&["SHUTDOWN"]);
    assert!(server.wait_for_end().success());
    let log = std::fs::read_to_string(log).unwrap();
    for line in log_lines {
        assert!(log.contains(line), "{line} is not in {log}");
    }
    assert!(!log.contains(" # "), "nothing of it is worth a warning: {log}");
}

fn path_of(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

const KILL: &str = r#""kill_process""#;
const ALLOW: &str = r#""allow""#;

#[test]
#[cfg(target_arch = "x86_64")]
fn the_server_starts_under_the_filter_of_debians_unit() {
    let deadly = "a system call filter kills who calls sched_setattr: going on without";
    let service = filter(&rules(SERVICE.split_whitespace()), ALLOW, KILL);
    check(&service, "", &[], &[deadly]);
    let is_other = |call: &&str| !IO_URING.split(' ').any(|other| other == *call);
    let no_ring = filter(&rules(SERVICE.split_whitespace().filter(is_other)), ALLOW, KILL);
    let deadly_too = "a system call filter kills who calls io_uring_setup: going on without";
    check(&no_ring, "epoll", &[], &[deadly, deadly_too]);
    let refusing = filter(&rules(SERVICE.split_whitespace()), ALLOW, r#"{"errno":1}"#);
    check(
        &refusing,
        "",
        &[],
        &["threads are scheduled as all others are reason=Operation not perm"],
    );
}

#[test]
fn without_ipv6_the_server_listens_all_the_same() {
    let filter = filter(NO_IPV6, r#"{"errno":97}"#, ALLOW);
    let port = free_port().to_string();
    let lines =
        ["listening without an address reason=Could not create server TCP listening socket"];
    check(&filter, "", &["--port", &port], &lines);
}

#[test]
fn what_a_sandbox_refuses_is_done_without() {
    for errno in [nix::libc::EPERM, nix::libc::ENOSYS, nix::libc::ECANCELED] {
        let filter =
            filter(&rules(REFUSED.split_whitespace()), &format!(r#"{{"errno":{errno}}}"#), ALLOW);
        check(&filter, "epoll", &[], &["io_uring is not available, using epoll reason="]);
    }
}
