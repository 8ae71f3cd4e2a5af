//! The last words of a process that a signal ends: SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT. Then
//! the signal does what it does without a handler, so the system finds what it would have found.
//!
//! The handlers take the place of the standard library's, which let a SIGSEGV that somebody has
//! sent pass, once, and tell an overflow of the stack by SIGABRT. They run on the threads'
//! alternate stacks, so that they run when the stack is full: of the standard library's size, or of
//! `STACK_SIZE` where a thread has asked for that.
//!
//! # Safety
//!
//! A handler may only do what is async-signal-safe: atomic operations, reads of what was prepared
//! by [`watch`] and never changes, and system calls. It allocates nothing and takes no lock; what
//! is formatted are numbers and texts, into [`Words`]. The stack of the thread that failed is read
//! by the kernel, through a pipe, which refuses what is not there.

use std::ffi::CString;
use std::fmt::{self, Write};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Relaxed};

use libc::{c_int, c_void, siginfo_t, ucontext_t};

const SIGNALS: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGABRT, "SIGABRT"),
];
/// With room for all registers that a processor may have.
const STACK_SIZE: usize = 64 << 10;
/// Words of the stack that are looked at, in steps of `STEP`, and addresses that are told.
const WORDS_MAX: usize = 8192;
const STEP: usize = 64;
const ADDRESSES_MAX: usize = 100;
/// An address so near to the stack pointer was to be a part of the stack.
const NEAR: usize = 64 << 10;
/// For how long a second thread that fails lets the first one tell.
const PATIENCE_S: u32 = 5;

/// Where the report goes, and what is in it besides the processor's state.
pub struct Report {
    /// Its first lines, with an end of line.
    pub head: String,
    /// Tells what the process was doing; as safe as a handler has to be.
    pub describe: fn(&mut Words),
    pub foot: &'static str,
}

struct Watch {
    report: Report,
    /// `None`: standard output.
    file: Option<CString>,
    /// The program's instructions.
    code: Range<usize>,
    /// Where in memory the program begins.
    base: usize,
}

static WATCH: OnceLock<Watch> = OnceLock::new();
static IS_WANTED: AtomicBool = AtomicBool::new(true);
/// The failure is told of already, or is about to be.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// From now on whatever ends the process by one of the signals is told of, in a file or on standard
/// output. To be called once.
pub fn watch(report: Report, file: Option<&Path>) -> io::Result<()> {
    let file = file.map(|path| CString::new(path.as_os_str().as_bytes())).transpose()?;
    let (base, code) = program();
    if WATCH.set(Watch { report, file, code, base }).is_err() || cfg!(kvasir_sanitized) {
        // A sanitizer has its own.
        return Ok(());
    }
    own_stack();
    // SAFETY: all fields are numbers and pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    for (signal, _) in SIGNALS {
        // SAFETY: the set is a field of the action, which outlives the call.
        unsafe { libc::sigaddset(&raw mut action.sa_mask, signal) };
    }
    for (signal, _) in SIGNALS {
        // SAFETY: the handler does only what the header allows.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether there is to be a report.
pub fn want(is_wanted: bool) {
    IS_WANTED.store(is_wanted, Relaxed);
}

/// Somebody else tells of the failure that ends the process.
pub fn note_told() {
    IS_TOLD.store(true, Relaxed);
}

/// Gives the calling thread, which lives as long as the process, a stack for handlers that is large
/// enough for any processor. Without, it is the standard library's.
pub fn own_stack() {
    let memory = Box::leak(vec![0_u8; STACK_SIZE].into_boxed_slice());
    let stack =
        libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK_SIZE };
    // SAFETY: the memory is the stack's alone, and is never freed.
    unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
}

extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let is_first = !IS_TOLD.swap(true, AcqRel);
    // SAFETY: the kernel gives a handler with SA_SIGINFO both, for as long as it runs.
    let (info, context) = unsafe { (&*info, &*context.cast::<ucontext_t>()) };
    if let Some(watch) = WATCH.get()
        && IS_WANTED.load(Relaxed)
    {
        match is_first {
            true => watch.tell(signal, info, context),
            // SAFETY: it takes a number.
            false if signal != libc::SIGABRT => drop(unsafe { libc::sleep(PATIENCE_S) }),
            false => {}
        }
    }
    // SAFETY: the default action of the signal needs nothing of this process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // What the processor found it finds again, and the kernel acts as without a handler. What was
    // sent has to be sent again: it comes when the handler returns.
    if info.si_code <= 0 {
        let _ = signal_hook::low_level::raise(signal);
    }
}

impl Watch {
    fn tell(&self, signal: c_int, info: &siginfo_t, context: &ucontext_t) {
        let mut words = Words { fd: self.open(), bytes: [0; 256], len: 0 };
        let out = &mut words;
        let name = SIGNALS.iter().find(|(number, _)| *number == signal);
        let name = name.map_or("a signal", |(_, name)| *name);
        // SAFETY: for a signal of the processor it is an address, for one that was sent a number.
        let address = unsafe { info.si_addr() } as usize;
        let registers = Registers::of(context);
        let _ = out.write_str(&self.report.head);
        let _ = write!(out, "signal: {name} code={}", info.si_code);
        if info.si_code <= 0 {
            // SAFETY: as above; the kernel fills it for a signal that was sent.
            let _ = writeln!(out, " sent by pid={}", unsafe { info.si_pid() });
        } else {
            let _ = writeln!(out, " address={address:#x}");
            if signal == libc::SIGSEGV && address.abs_diff(registers.stack) < NEAR {
                let _ = out.write_str("the stack has overflowed\n");
            }
        }
        let _ = writeln!(out, "thread: {}", thread_name(&mut [0; 16]));
        (self.report.describe)(out);
        let _ = out.write_str("\n------ REGISTERS ------\n");
        for (name, value) in registers.all.iter().filter(|(name, _)| !name.is_empty()) {
            let _ = writeln!(out, "{name}={value:#018x}");
        }
        let _ = writeln!(out, "\n------ STACK (program at {:#x}) ------", self.base);
        self.tell_address(out, registers.place);
        self.tell_stack(out, registers.stack);
        let _ = out.write_str(self.report.foot);
        out.flush();
    }

    fn open(&self) -> c_int {
        let Some(file) = &self.file else { return libc::STDOUT_FILENO };
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
        // SAFETY: the path is a text that ends, and is never freed.
        let fd = unsafe { libc::open(file.as_ptr(), flags, 0o666 as libc::c_uint) };
        if fd < 0 { libc::STDERR_FILENO } else { fd }
    }

    /// Tells what on the stack may be addresses to which functions return: what points into the
    /// program. Some are of functions that have returned long ago.
    fn tell_stack(&self, out: &mut Words, stack: usize) {
        let mut pipe = [0; 2];
        // SAFETY: two numbers, which outlive the call.
        if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
            return;
        }
        let (mut at, mut told) = (stack & !(align_of::<usize>() - 1), 0);
        let mut words = [0_usize; STEP];
        for _ in 0..WORDS_MAX / STEP {
            let count = copy(pipe, at, &mut words);
            for word in words[..count].iter().filter(|word| self.code.contains(word)) {
                self.tell_address(out, *word);
                told += 1;
            }
            at += size_of_val(&words);
            if count < STEP || told >= ADDRESSES_MAX {
                return;
            }
        }
    }

    fn tell_address(&self, out: &mut Words, address: usize) {
        let _ = match self.code.contains(&address) {
            true => writeln!(out, "{address:#x} program+{:#x}", address - self.base),
            false => writeln!(out, "{address:#x}"),
        };
    }
}

/// Copies words from an address on; how many there are.
fn copy(pipe: [c_int; 2], from: usize, to: &mut [usize; STEP]) -> usize {
    let size = size_of_val(to);
    // SAFETY: the kernel reads what is there, and fails where nothing is.
    let written = unsafe { libc::write(pipe[1], from as *const c_void, size) };
    let Ok(written) = usize::try_from(written) else { return 0 };
    // SAFETY: there is room for as much as was written at most.
    let read = unsafe { libc::read(pipe[0], to.as_mut_ptr().cast(), written.min(size)) };
    usize::try_from(read).unwrap_or(0) / size_of::<usize>()
}

fn thread_name(name: &mut [u8; 16]) -> &str {
    // SAFETY: the kernel writes 16 bytes at most.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    std::str::from_utf8(&name[..len]).unwrap_or("unnamed")
}

/// What the processor was at.
struct Registers {
    /// The address of the instruction.
    place: usize,
    stack: usize,
    all: [(&'static str, u64); 32],
}

impl Registers {
    #[cfg(target_arch = "x86_64")]
    fn of(context: &ucontext_t) -> Registers {
        const NAMES: [(&str, c_int); 18] = [
            ("rip", libc::REG_RIP),
            ("rsp", libc::REG_RSP),
            ("rbp", libc::REG_RBP),
            ("rax", libc::REG_RAX),
            ("rbx", libc::REG_RBX),
            ("rcx", libc::REG_RCX),
            ("rdx", libc::REG_RDX),
            ("rsi", libc::REG_RSI),
            ("rdi", libc::REG_RDI),
            ("r8", libc::REG_R8),
            ("r9", libc::REG_R9),
            ("r10", libc::REG_R10),
            ("r11", libc::REG_R11),
            ("r12", libc::REG_R12),
            ("r13", libc::REG_R13),
            ("r14", libc::REG_R14),
            ("r15", libc::REG_R15),
            ("eflags", libc::REG_EFL),
        ];
        let value = |register: c_int| context.uc_mcontext.gregs[register as usize] as u64;
        let mut all = [("", 0); 32];
        for (place, (name, register)) in all.iter_mut().zip(NAMES) {
            *place = (name, value(register));
        }
        let [place, stack] = [libc::REG_RIP, libc::REG_RSP].map(|which| value(which) as usize);
        Registers { place, stack, all }
    }

    #[cfg(target_arch = "aarch64")]
    fn of(context: &ucontext_t) -> Registers {
        let state = &context.uc_mcontext;
        let mut all = [("", 0); 32];
        all[0] = ("pc", state.pc);
        all[1] = ("sp", state.sp);
        all[2] = ("fp", state.regs[29]);
        all[3] = ("lr", state.regs[30]);
        for (place, value) in all[4..].iter_mut().zip(state.regs) {
            *place = ("x", value);
        }
        Registers { place: state.pc as usize, stack: state.sp as usize, all }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn of(_: &ucontext_t) -> Registers {
        Registers { place: 0, stack: 0, all: [("", 0); 32] }
    }
}

/// Where this program stands in memory, and where its instructions; nowhere if the system does not
/// tell.
fn program() -> (usize, Range<usize>) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let here = handle as *const () as usize;
    find_program(&maps, here).unwrap_or((0, 0..0))
}

/// The first mapping of the file that has this address, and the mapping with the address.
fn find_program(maps: &str, here: usize) -> Option<(usize, Range<usize>)> {
    let mapping = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let file = rest.split_ascii_whitespace().nth(4)?.to_owned();
        Some((number(from)?..number(to)?, file))
    };
    let all: Vec<_> = maps.lines().filter_map(mapping).collect();
    let (code, file) = all.iter().find(|(range, _)| range.contains(&here))?;
    let (first, _) = all.iter().find(|(_, other)| other == file)?;
    Some((first.start, code.clone()))
}

/// Text on its way to a file, in pieces.
pub struct Words {
    fd: c_int,
    bytes: [u8; 256],
    len: usize,
}

impl Words {
    fn flush(&mut self) {
        let mut rest = &self.bytes[..self.len];
        while !rest.is_empty() {
            // SAFETY: the bytes are ours, and outlive the call.
            let written = unsafe { libc::write(self.fd, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => rest = rest.get(written..).unwrap_or_default(),
                // There is nobody to tell of it.
                _ => break,
            }
        }
        self.len = 0;
    }
}

impl Write for Words {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};

    use super::*;

    /// Set in the child processes that fail, to how they do.
    const CHILD: &str = "KVASIR_TEST_CRASH_CHILD";

    fn child(how: &str) -> Output {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "crash::tests::who_is_ended_by_a_signal_says_so";
        command.args([name, "--exact", "--nocapture"]).env(CHILD, how).output().unwrap()
    }

    #[test]
    fn who_is_ended_by_a_signal_says_so() {
        if let Ok(how) = std::env::var(CHILD) {
            return fail(&how);
        }
        for (signal, name) in SIGNALS {
            let output = child(name);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.signal(), Some(signal), "{text}");
            for part in ["the head\n", &format!("signal: {name} code="), "doing 7\n", "the foot"] {
                assert!(text.contains(part), "{name}: no {part} in {text}");
            }
            assert!(text.contains("thread: failing\n"), "{text}");
            if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
                assert!(text.matches(" program+0x").count() > 1, "{text}");
            }
            let output = child(&format!("silent {name}"));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.signal(), Some(signal), "{text}");
            assert!(!text.contains("signal:") && !text.contains("the head"), "{text}");
        }
        for (how, what) in [("memory", "address=0x10\n"), ("stack", "the stack has overflowed\n")] {
            let output = child(how);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{text}");
            assert!(text.contains(what), "{how}: {text}");
        }
    }

    fn fail(how: &str) {
        let head = "the head\n".to_owned();
        let describe = |out: &mut Words| {
            let _ = writeln!(out, "doing {}", 7);
        };
        watch(Report { head, describe, foot: "the foot\n" }, None).unwrap();
        want(!how.starts_with("silent "));
        let how = how.trim_start_matches("silent ").to_owned();
        let run = move || {
            own_stack();
            match &how[..] {
                // SAFETY: it is not there, which is what is to be told of.
                "memory" => drop(unsafe { std::ptr::read_volatile(0x10 as *const usize) }),
                "stack" => drop(std::hint::black_box(overflow(1))),
                name => {
                    let found = SIGNALS.iter().find(|(_, known)| *known == name).unwrap();
                    signal_hook::low_level::raise(found.0).unwrap();
                }
            }
        };
        let thread = std::thread::Builder::new().name("failing".into()).spawn(run).unwrap();
        thread.join().unwrap();
    }

    fn overflow(depth: usize) -> usize {
        let room = std::hint::black_box([depth; 100]);
        if depth == 0 { 0 } else { overflow(std::hint::black_box(depth + 1)) + room[99] }
    }

    #[test]
    fn the_program_is_found_among_the_mappings() {
        let maps = "1000-2000 r--p 00000000 08:01 7 /bin/a\n2000-4000 r-xp 00001000 08:01 7 /bin/a\n\
                    5000-6000 rw-p 00000000 00:00 0\n7000-8000 r-xp 00000000 08:01 9 /lib/b\n";
        assert_eq!(find_program(maps, 0x3000), Some((0x1000, 0x2000..0x4000)));
        assert_eq!(find_program(maps, 0x7000), Some((0x7000, 0x7000..0x8000)));
        assert_eq!(find_program(maps, 0x9000), None);
    }
}
