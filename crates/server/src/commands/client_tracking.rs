//! CLIENT TRACKING and its kin: caches at clients. How they are kept up to date stands in
//! `crate::tracking`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;

use crate::clients::tracker::{Mode, Tracker, redirect};
use crate::commands::{ANY_TIME_NOSCRIPT, ON_OFF, is_word, parse_switch};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static CLIENT_TRACKING: ServerCommand = ServerCommand {
    spec: Spec {
        name: "tracking",
        summary: "Has the connection told of changes to keys that it may cache.",
        since: "6.0.0",
        group: Group::Connection,
        complexity: "O(1), and more with some options.",
        arity: -3,
        flags: ANY_TIME_NOSCRIPT,
        arguments: &[
            Argument::one_of("status", ON_OFF),
            Argument::integer("client-id").token("REDIRECT").optional(),
            Argument {
                multiple_token: true,
                ..Argument::string("prefix").token("PREFIX").optional().multiple()
            },
            Argument::word("bcast", "BCAST").optional(),
            Argument::word("optin", "OPTIN").optional(),
            Argument::word("optout", "OPTOUT").optional(),
            Argument::word("noloop", "NOLOOP").optional(),
        ],
        ..Spec::BLANK
    },
    // With the gate closed: no write overlooks the first client that tracks.
    run: ServerRun::World(tracking),
};

/// What a call asks for.
#[derive(Default)]
struct Wanted<'a> {
    redirect: Option<u64>,
    prefixes: Vec<&'a [u8]>,
    broadcasts: bool,
    opts_in: bool,
    opts_out: bool,
    no_loop: bool,
}

fn tracking(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let wanted = Wanted::parse(cx, cx.args)?;
    if parse_switch(&cx.args[2], "on", "off")? {
        let current = cx.connection.client.tracker();
        wanted.check(current.as_deref())?;
        let tracker = wanted.tracker(cx, current.as_deref());
        cx.shared.tracking.start(&mut cx.connection.listening.tracking, tracker);
    } else {
        cx.shared.tracking.stop(&mut cx.connection.listening.tracking);
    }
    cx.core.see_listeners(cx.shared);
    cx.reply().ok();
    Ok(())
}

impl<'a> Wanted<'a> {
    fn parse(cx: &ServerCx<'_>, args: Args<'a>) -> Result<Wanted<'a>, Error> {
        let mut wanted = Wanted::default();
        let mut words = args.from(3).iter();
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"redirect" => {
                    let id = words.next().ok_or(Error::SYNTAX)?;
                    if wanted.redirect.is_some() {
                        let text = "ERR A client can only redirect to a single other client";
                        return Err(Error::fixed(text));
                    }
                    wanted.redirect = parse_redirect(cx, id)?;
                }
                b"bcast" => wanted.broadcasts = true,
                b"optin" => wanted.opts_in = true,
                b"optout" => wanted.opts_out = true,
                b"noloop" => wanted.no_loop = true,
                b"prefix" => wanted.prefixes.push(words.next().ok_or(Error::SYNTAX)?),
                _ => return Err(Error::SYNTAX),
            }
        }
        Ok(wanted)
    }

    /// Whether the options agree with each other, and with how the client tracks so far.
    fn check(&self, current: Option<&Tracker>) -> Result<(), Error> {
        let refuse = |text| Err(Error::fixed(text));
        if !self.broadcasts && !self.prefixes.is_empty() {
            return refuse("ERR PREFIX option requires BCAST mode to be enabled");
        }
        let mode = current.map(|tracker| tracker.mode);
        if mode.is_some_and(|mode| (mode == Mode::Broadcast) != self.broadcasts) {
            return refuse(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this \
                 client, and then re-enabling it with a different mode.",
            );
        }
        if self.broadcasts && (self.opts_in || self.opts_out) {
            return refuse("ERR OPTIN and OPTOUT are not compatible with BCAST");
        }
        if self.opts_in && self.opts_out {
            return refuse("ERR You can't specify both OPTIN mode and OPTOUT mode");
        }
        if self.opts_in && mode == Some(Mode::OptOut) || self.opts_out && mode == Some(Mode::OptIn)
        {
            return refuse(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this \
                 client, and then re-enabling it with a different mode.",
            );
        }
        self.check_prefixes(current)
    }

    /// No prefix may be the beginning of another one, or a key would be told of twice.
    fn check_prefixes(&self, current: Option<&Tracker>) -> Result<(), Error> {
        let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
        for (index, prefix) in self.prefixes.iter().enumerate() {
            let known = current.iter().flat_map(|tracker| &tracker.prefixes);
            if let Some(known) = known.map(|known| &**known).find(|known| overlap(prefix, known)) {
                return Err(overlapping(prefix, b"an existing prefix", known));
            }
            let mut later = self.prefixes[index + 1..].iter();
            if let Some(other) = later.find(|other| overlap(prefix, other)) {
                return Err(overlapping(prefix, b"another provided prefix", other));
            }
        }
        Ok(())
    }

    fn tracker(self, cx: &ServerCx<'_>, current: Option<&Tracker>) -> Tracker {
        let mode = match &self {
            Wanted { broadcasts: true, .. } => Mode::Broadcast,
            Wanted { opts_in: true, .. } => Mode::OptIn,
            Wanted { opts_out: true, .. } => Mode::OptOut,
            _ => Mode::Read,
        };
        let mut prefixes = current.map_or(Vec::new(), |tracker| tracker.prefixes.clone());
        prefixes.extend(self.prefixes.iter().map(|prefix| Arc::from(*prefix)));
        if self.broadcasts && self.prefixes.is_empty() && !prefixes.iter().any(|own| own.is_empty())
        {
            prefixes.push(Arc::from(*b""));
        }
        prefixes.sort_unstable();
        Tracker {
            client: Arc::clone(&cx.connection.client),
            mode,
            no_loop: self.no_loop,
            redirect: self.redirect.filter(|id| *id > 0),
            prefixes,
            is_broken: AtomicBool::new(false),
        }
    }
}

/// The client has to be there now; it may go later.
fn parse_redirect(cx: &ServerCx<'_>, id: &[u8]) -> Result<Option<u64>, Error> {
    let id = parse_integer(id).ok_or(Error::NOT_INTEGER)?;
    let id = u64::try_from(id).ok().filter(|id| cx.shared.clients.find(*id).is_some());
    let none = Error::fixed("ERR The client ID you want redirect to does not exist");
    id.ok_or(none).map(Some)
}

fn overlapping(prefix: &[u8], what: &[u8], other: &[u8]) -> Error {
    let after = b"'. Prefixes for a single client must not overlap.";
    let parts: [&[u8]; 7] =
        [b"ERR Prefix '", prefix, b"' overlaps with ", what, b" '", other, after];
    Error::from_bytes(parts.concat())
}

pub static CLIENT_CACHING: ServerCommand = ServerCommand {
    spec: Spec {
        name: "caching",
        summary: "Says whether the connection caches what its next call reads.",
        since: "6.0.0",
        group: Group::Connection,
        arity: 3,
        flags: ANY_TIME_NOSCRIPT,
        arguments: &[Argument::one_of(
            "mode",
            &[Argument::word("yes", "YES"), Argument::word("no", "NO")],
        )],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(caching),
};

fn caching(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let Some(tracked) = &mut cx.connection.listening.tracking else {
        return Err(Error::fixed(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        ));
    };
    let word = &cx.args[2];
    let (mode, text) = if is_word(word, "yes") {
        (
            Mode::OptIn,
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        )
    } else if is_word(word, "no") {
        (
            Mode::OptOut,
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        )
    } else {
        return Err(Error::SYNTAX);
    };
    if tracked.tracker.mode != mode {
        return Err(Error::fixed(text));
    }
    tracked.has_choice = true;
    cx.reply().ok();
    Ok(())
}

pub static CLIENT_GETREDIR: ServerCommand = ServerCommand {
    spec: Spec {
        name: "getredir",
        summary: "Tells which client is told of changes in this one's place.",
        since: "6.0.0",
        group: Group::Connection,
        arity: 2,
        flags: ANY_TIME_NOSCRIPT,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let redirect = redirect(cx.connection.client.tracker().as_deref());
        cx.reply().integer(redirect);
        Ok(())
    }),
};

pub static CLIENT_TRACKINGINFO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "trackinginfo",
        summary: "Tells how the connection tracks keys.",
        since: "6.2.0",
        group: Group::Connection,
        arity: 2,
        flags: ANY_TIME_NOSCRIPT,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(tracking_info),
};

fn tracking_info(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let tracker = cx.connection.client.tracker();
    let has_choice =
        cx.connection.listening.tracking.as_ref().is_some_and(|tracked| tracked.has_choice);
    let flags = flags(tracker.as_deref(), has_choice);
    let reply = cx.reply();
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(redirect(tracker.as_deref()));
    reply.bulk(b"prefixes");
    let prefixes = tracker.as_ref().map_or(&[][..], |tracker| &tracker.prefixes);
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

fn flags(tracker: Option<&Tracker>, has_choice: bool) -> Vec<&'static str> {
    let Some(tracker) = tracker else { return vec!["off"] };
    let all = [
        ("on", true),
        ("bcast", tracker.mode == Mode::Broadcast),
        ("optin", tracker.mode == Mode::OptIn),
        ("caching-yes", tracker.mode == Mode::OptIn && has_choice),
        ("optout", tracker.mode == Mode::OptOut),
        ("caching-no", tracker.mode == Mode::OptOut && has_choice),
        ("noloop", tracker.no_loop),
        ("broken_redirect", tracker.is_broken.load(Relaxed)),
    ];
    all.into_iter().filter_map(|(flag, is_set)| is_set.then_some(flag)).collect()
}
