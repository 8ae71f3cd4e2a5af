//! What DEBUG does to the bus of a cluster, for tests of Redis.

use kvasir_keyspace::error::Error;
use kvasir_resp::number::parse_integer;

use crate::commands::cluster::node;
use crate::run::server::ServerCx;

pub fn kill_link(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let node = node(cx)?;
    if !cx.args[2].eq_ignore_ascii_case(b"kill") {
        return Err(Error::SYNTAX);
    }
    let (to, from) = match cx.args[3].to_ascii_lowercase().as_slice() {
        b"to" => (true, false),
        b"from" => (false, true),
        b"all" => (true, true),
        _ => return Err(Error::SYNTAX),
    };
    let name = &cx.args[4];
    node.change(|cluster| {
        let id = cluster.find(name).map_err(|text| Error::new(text.into_owned()))?;
        cluster.kill_links(id, to, from);
        Ok::<_, Error>(())
    })?;
    node.wake();
    cx.reply().ok();
    Ok(())
}

pub fn drop_packets(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let kind = parse_integer(&cx.args[2]).ok_or(Error::NOT_INTEGER)?;
    node(cx)?.change(|cluster| cluster.drops = kind);
    cx.reply().ok();
    Ok(())
}

pub fn close_on_drop(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let closes = cx.args[2] != b"0"[..];
    node(cx)?.change(|cluster| cluster.closes_link_on_drop = closes);
    cx.reply().ok();
    Ok(())
}
