//! What is mixed in between the data commands: transactions, scripts, Pub/Sub, what a client says
//! about itself, and how it is done to keep quiet.

use kvasir_harness::link::Call;
use kvasir_harness::random::Random;

use super::draw::Drawer;
use super::intended::Peer;
use super::pair::CONNECTIONS;
use super::{script, special};

/// Of a thousand calls of a connection that is in no transaction so many are ...
const MULTI_PER_MILLE: usize = 12;
const WATCH_PER_MILLE: usize = 20;
const UNWATCH_PER_MILLE: usize = 3;
const EXEC_PER_MILLE: usize = 2;
const SCRIPT_PER_MILLE: usize = 50;
const FIXED_PER_MILLE: usize = 40;
const PUBLISH_PER_MILLE: usize = 15;
const GETKEYS_PER_MILLE: usize = 10;
const SILENT_PER_MILLE: usize = 2;
const NOTIFY_PER_MILLE: usize = 1;

/// In a transaction, so many of a hundred calls end it.
const END_PERCENT: u64 = 15;

/// What `notify-keyspace-events` is set to. Not A with n, since Valkey shows it without the n, and
/// sets it to what it shows when a later CONFIG SET fails; nor g without x, since a key that is
/// told to have died is deleted for Redis 7.0 and expired for Valkey and Kvasir.
const NOTIFY: [&str; 12] =
    ["", "KEA", "KA", "EA", "KE$lshzt", "KEgx", "KEgxn", "KEmn", "KEtd", "K$", "AKEm", "KEx"];

/// Draws the calls of all connections.
pub struct Mixer<'a> {
    drawer: Drawer<'a>,
    /// Whether a transaction is open, as far as one can say without replies.
    in_multi: [bool; CONNECTIONS],
    peer: Peer,
    /// Else only data commands are drawn.
    mixes: bool,
}

impl<'a> Mixer<'a> {
    pub fn new(drawer: Drawer<'a>, peer: Peer, mixes: bool) -> Mixer<'a> {
        Mixer { drawer, in_multi: [false; CONNECTIONS], peer, mixes }
    }

    /// The next call of a connection.
    pub fn call(&mut self, connection: usize, random: &mut Random) -> Call {
        if !self.mixes {
            return self.drawer.call(random);
        }
        if connection >= CONNECTIONS {
            return listeners_call(random);
        }
        if self.in_multi[connection] {
            return self.inside_multi(connection, random);
        }
        let mut left = random.below(1000);
        let mut is = |per_mille: usize| {
            let is_it = left < per_mille;
            left = left.wrapping_sub(per_mille);
            is_it
        };
        if is(MULTI_PER_MILLE) {
            self.in_multi[connection] = true;
            words("MULTI")
        } else if is(WATCH_PER_MILLE) {
            self.watch(random)
        } else if is(UNWATCH_PER_MILLE) {
            words("UNWATCH")
        } else if is(EXEC_PER_MILLE) {
            let end: &&str = random.pick(&["EXEC", "DISCARD"]);
            words(end)
        } else if is(SCRIPT_PER_MILLE) {
            script::draw(&self.drawer, random)
        } else if is(FIXED_PER_MILLE) {
            words(fixed(self.peer, random))
        } else if is(PUBLISH_PER_MILLE) {
            publish(random)
        } else if is(GETKEYS_PER_MILLE) {
            let name = *random.pick(&["COMMAND GETKEYS", "COMMAND GETKEYSANDFLAGS"]);
            [words(name), self.drawer.call(random)].concat()
        } else if is(SILENT_PER_MILLE) {
            self.silent(random)
        } else if is(NOTIFY_PER_MILLE) {
            notify(random)
        } else {
            self.drawer.call(random)
        }
    }

    fn inside_multi(&mut self, connection: usize, random: &mut Random) -> Call {
        if random.percent(END_PERCENT) {
            self.in_multi[connection] = false;
            return words(if random.once_in(8) { "DISCARD" } else { "EXEC" });
        }
        match random.below(40) {
            // Redis 7.0 goes on after these, where Valkey and Kvasir spoil the transaction.
            0 if self.peer == Peer::Valkey => words("MULTI"),
            1 if self.peer == Peer::Valkey => self.watch(random),
            2 => words("UNWATCH"),
            3 => publish(random),
            4 | 5 => script::draw(&self.drawer, random),
            6 => self.fixed_inside_multi(random),
            _ => self.plain(random),
        }
    }

    /// Redis 7.0 queues CLIENT REPLY, which Valkey and Kvasir refuse in a transaction.
    fn fixed_inside_multi(&self, random: &mut Random) -> Call {
        loop {
            let line = fixed(self.peer, random);
            if self.peer == Peer::Valkey || !line.starts_with("CLIENT REPLY") {
                return words(line);
            }
        }
    }

    /// A call that leaves the connection what it is: one that subscribes reads no replies any more.
    fn plain(&self, random: &mut Random) -> Call {
        loop {
            let call = script::inner(&self.drawer, random);
            if !matches!(&call[0][..], b"MULTI" | b"WATCH" | b"SUBSCRIBE") {
                return call;
            }
        }
    }

    fn watch(&self, random: &mut Random) -> Call {
        const GROUPS: [&str; 7] =
            ["string", "hash", "list", "set", "sorted-set", "stream", "generic"];
        let mut call = words("WATCH");
        for _ in 0..random.below(4) {
            let group = *random.pick(&GROUPS);
            call.push(self.drawer.values.key(group, random));
        }
        call
    }

    /// Calls that are not answered.
    fn silent(&self, random: &mut Random) -> Call {
        let mut step: Call = vec![special::SILENT.to_vec()];
        for _ in 0..1 + random.below(3) {
            let call = self.plain(random);
            step.push(call.len().to_string().into_bytes());
            step.extend(call);
        }
        step
    }
}

pub fn notify(random: &mut Random) -> Call {
    let mut call = words("CONFIG SET notify-keyspace-events");
    call.push(random.pick(&NOTIFY).as_bytes().to_vec());
    call
}

fn channel(random: &mut Random) -> String {
    format!("c{}", random.below(4))
}

fn publish(random: &mut Random) -> Call {
    let name = if random.once_in(4) { "SPUBLISH" } else { "PUBLISH" };
    words(&format!("{name} {} message{}", channel(random), random.below(100)))
}

/// Calls of a connection that has subscribed, or has not yet.
fn listeners_call(random: &mut Random) -> Call {
    const PATTERNS: [&str; 4] = ["c*", "c?", "c[12]", "*[0-9]"];
    let pattern = *random.pick(&PATTERNS);
    let (one, other) = (channel(random), channel(random));
    let line = match random.below(16) {
        0..4 => format!("SUBSCRIBE {one} {other}"),
        4..6 => format!("PSUBSCRIBE {pattern}"),
        6..8 => format!("SSUBSCRIBE {one}"),
        8 => format!("UNSUBSCRIBE {one} {other} {one}"),
        9 => format!("PUNSUBSCRIBE {pattern}"),
        10 => format!("SUNSUBSCRIBE {one}"),
        11 => random.pick(&["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"]).to_string(),
        12 => "GET nosuch".to_string(),
        13 => "PING".to_string(),
        14 => "CLIENT GETNAME".to_string(),
        _ => random.pick(&["SUBSCRIBE", "SSUBSCRIBE", "MULTI", "EXEC", "ECHO x"]).to_string(),
    };
    words(&line)
}

/// A call with a fixed text that every server answers alike.
fn fixed(peer: Peer, random: &mut Random) -> &'static str {
    let newer = if peer == Peer::Valkey { NEWER.len() } else { 0 };
    let at = random.below(FIXED.len() + newer);
    FIXED.get(at).or_else(|| NEWER.get(at - FIXED.len())).expect("below the sum")
}

pub fn words(line: &str) -> Call {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

const FIXED: [&str; 78] = [
    "CLIENT SETNAME a",
    "CLIENT SETNAME b-1",
    "CLIENT SETNAME a\nb",
    "CLIENT SETNAME ",
    "CLIENT SETNAME",
    "CLIENT GETNAME",
    "CLIENT GETNAME",
    "CLIENT NO-EVICT ON",
    "CLIENT NO-EVICT off",
    "CLIENT NO-EVICT maybe",
    "CLIENT KILL ID 99999999",
    "CLIENT KILL ID 0",
    "CLIENT KILL ID",
    "CLIENT KILL 1.2.3.4:5",
    "CLIENT KILL ADDR 1.2.3.4:5 SKIPME no",
    "CLIENT KILL LADDR 1.2.3.4:5",
    "CLIENT KILL TYPE nosuch",
    "CLIENT KILL TYPE replica",
    "CLIENT KILL TYPE master",
    "CLIENT KILL USER nobody",
    "CLIENT KILL SKIPME maybe",
    "CLIENT UNBLOCK 99999999",
    "CLIENT UNBLOCK 99999999 ERROR",
    "CLIENT UNBLOCK 99999999 nothing",
    "CLIENT UNBLOCK x",
    "CLIENT NOSUCH",
    "CLIENT",
    "CLIENT REPLY ON",
    "CLIENT REPLY maybe",
    "CLIENT LIST TYPE nosuch",
    "CLIENT LIST ID 99999999",
    "CLIENT ID x",
    "AUTH x",
    "AUTH default x",
    "AUTH nobody x",
    "AUTH",
    "ACL WHOAMI",
    "ACL CAT nosuch",
    "ACL GETUSER nobody",
    "ACL DELUSER nobody",
    "ACL DRYRUN default GET k",
    "ACL DRYRUN nobody GET k",
    "ACL NOSUCH",
    "PUBSUB NUMSUB c0 c1 c2",
    "PUBSUB SHARDNUMSUB c0 c1",
    "PUBSUB NUMPAT",
    "PUBSUB NOSUCH",
    "SCRIPT EXISTS 0123456789012345678901234567890123456789",
    "SCRIPT FLUSH",
    "SCRIPT FLUSH x",
    "SCRIPT KILL",
    "SCRIPT LOAD +",
    "SCRIPT NOSUCH",
    "EVALSHA 0123456789012345678901234567890123456789 0",
    "EVAL + 0",
    "EVAL return -1",
    "EVAL return x",
    "EVAL return 1",
    "FUNCTION KILL",
    "FUNCTION FLUSH",
    "FUNCTION FLUSH x",
    "FUNCTION DELETE lib",
    "FUNCTION LOAD x",
    "FUNCTION LOAD #!lua",
    "FUNCTION LIST",
    "FCALL nosuch 0",
    "FCALL f x",
    "FCALL f -1",
    "FCALL f 1",
    "COMMAND COUNT x",
    "COMMAND INFO nosuch",
    "CONFIG GET nosuch",
    "CONFIG SET nosuch 1",
    "CONFIG SET notify-keyspace-events q",
    "RESET",
    "HELLO 2",
    "HELLO 3",
    "HELLO 3 SETNAME c",
];

/// What Redis 7.0 does not know.
const NEWER: [&str; 8] = [
    "CLIENT NO-TOUCH ON",
    "CLIENT NO-TOUCH OFF",
    "CLIENT NO-TOUCH maybe",
    "CLIENT SETINFO LIB-NAME x",
    "CLIENT SETINFO LIB-VER 1",
    "CLIENT SETINFO NOSUCH x",
    "CLIENT KILL MAXAGE 1000000",
    "CLIENT KILL MAXAGE x",
];
