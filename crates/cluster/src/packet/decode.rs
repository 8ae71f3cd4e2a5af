//! Bytes to packets. What comes may be anybody's, so everything is looked at before it is believed.

use crate::id::NodeId;
use crate::node::{Address, Flags};
use crate::packet::{
    Body, EPOCH_MAX, EXT_DATA, EXTENSION_SIZE, Extension, GOSSIP_SIZE, Gossip, HEADER_SIZE, Header,
    IP_SIZE, LENGTH_MAX, NAME_MAX, OFFSET_MAX, Packet, Rumour, SIGNATURE, VERSION,
};
use crate::slots::{BITMAP_SIZE, SlotSet};

/// Why bytes are no packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    Signature,
    Version,
    Length,
    /// A name that is none, or a text that is no text.
    Content,
}

/// Length of all of a packet that begins so, once its first eight bytes are there.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Refusal> {
    let start = &bytes[..bytes.len().min(4)];
    if !SIGNATURE.starts_with(start) {
        return Err(Refusal::Signature);
    }
    let Some(word) = bytes.get(4..8) else { return Ok(None) };
    let word: [u8; 4] = word.try_into().map_err(|_| Refusal::Length)?;
    let length = u32::from_be_bytes(word) as usize;
    // What a light header would take; shorter ones are nobody's.
    if !(16..=LENGTH_MAX).contains(&length) {
        return Err(Refusal::Length);
    }
    Ok(Some(length))
}

/// A whole packet, and nothing else.
pub fn parse(bytes: &[u8]) -> Result<Packet, Refusal> {
    if length(bytes)? != Some(bytes.len()) || bytes.len() < HEADER_SIZE {
        return Err(Refusal::Length);
    }
    let mut reader = Reader(&bytes[8..]);
    if reader.u16()? != VERSION {
        return Err(Refusal::Version);
    }
    let port = reader.u16()?;
    let kind = reader.u16()?;
    let count = usize::from(reader.u16()?);
    let (current_epoch, config_epoch, offset) =
        (reader.epoch()?, reader.epoch()?, reader.offset()?);
    let sender = reader.id()?;
    let slots = SlotSet::from_bytes(reader.take(BITMAP_SIZE)?);
    let primary = reader.optional_id()?;
    let ip = reader.text(IP_SIZE)?;
    let extensions = usize::from(reader.u16()?);
    reader.take(30)?;
    let (tls_port, bus_port) = (reader.u16()?, reader.u16()?);
    let flags = Flags::from_bits_truncate(reader.u16()?);
    let is_ok = reader.take(1)? == [0];
    let message_flags = reader.take(3)?[0];
    let address = Address { ip, port, tls_port, bus_port };
    let has_extensions = message_flags & EXT_DATA != 0;
    let header = Header {
        sender,
        current_epoch,
        config_epoch,
        offset,
        slots,
        primary,
        address,
        flags,
        is_ok,
        message_flags,
    };
    let extensions = if has_extensions { extensions } else { 0 };
    let body = body(&mut reader, kind, count, extensions)?;
    Ok(Packet { header, body })
}

fn body(
    reader: &mut Reader<'_>,
    kind: u16,
    count: usize,
    extensions: usize,
) -> Result<Body, Refusal> {
    let body = match kind {
        0 => Body::Ping(gossip(reader, count, extensions)?),
        1 => Body::Pong(gossip(reader, count, extensions)?),
        2 => Body::Meet(gossip(reader, count, extensions)?),
        3 => Body::Fail(reader.id()?),
        4 | 10 => {
            let (channel, message) = (reader.u32()? as usize, reader.u32()? as usize);
            Body::Publish {
                channel: reader.take(channel)?.to_vec(),
                message: reader.take(message)?.to_vec(),
                is_sharded: kind == 10,
            }
        }
        5 => Body::AuthRequest,
        6 => Body::AuthAck,
        7 => Body::Update {
            config_epoch: reader.epoch()?,
            node: reader.id()?,
            slots: SlotSet::from_bytes(reader.take(BITMAP_SIZE)?),
        },
        8 => Body::ManualStart,
        // Its length is its own affair.
        other => return Ok(Body::Other(other)),
    };
    if reader.0.is_empty() { Ok(body) } else { Err(Refusal::Length) }
}

fn gossip(reader: &mut Reader<'_>, count: usize, extensions: usize) -> Result<Gossip, Refusal> {
    if reader.0.len() < count * GOSSIP_SIZE {
        return Err(Refusal::Length);
    }
    let entries = (0..count).map(|_| rumour(reader)).collect::<Result<_, _>>()?;
    let mut gossip = Gossip { entries, extensions: Vec::new() };
    for _ in 0..extensions {
        let length = reader.u32()? as usize;
        let kind = reader.u16()?;
        reader.take(2)?;
        let size = length.checked_sub(EXTENSION_SIZE).ok_or(Refusal::Length)?;
        if !length.is_multiple_of(8) {
            return Err(Refusal::Length);
        }
        let mut data = Reader(reader.take(size)?);
        gossip.extensions.extend(match kind {
            0 => data.name(b"-.").map(Extension::Hostname),
            1 => data.name(b"-._").map(Extension::Nodename),
            2 => Some(Extension::Forgotten { node: data.id()?, ttl_s: data.u64()? }),
            3 => Some(Extension::Shard(data.id()?)),
            // Vendors do not agree on what these are.
            _ => None,
        });
    }
    Ok(gossip)
}

fn rumour(reader: &mut Reader<'_>) -> Result<Rumour, Refusal> {
    let node = reader.id()?;
    let (ping_sent_s, pong_received_s) = (reader.u32()?, reader.u32()?);
    let ip = reader.text(IP_SIZE)?;
    let (port, bus_port) = (reader.u16()?, reader.u16()?);
    let flags = Flags::from_bits_truncate(reader.u16()?);
    let tls_port = reader.u16()?;
    reader.u16()?;
    let address = Address { ip, port, tls_port, bus_port };
    Ok(Rumour { node, ping_sent_s, pong_received_s, address, flags })
}

/// What is left of the bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8], Refusal> {
        let (taken, rest) = self.0.split_at_checked(size).ok_or(Refusal::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        self.take(N)?.try_into().map_err(|_| Refusal::Length)
    }

    fn u16(&mut self) -> Result<u16, Refusal> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Refusal> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Refusal> {
        self.array().map(u64::from_be_bytes)
    }

    fn epoch(&mut self) -> Result<u64, Refusal> {
        self.u64()
            .and_then(|epoch| if epoch > EPOCH_MAX { Err(Refusal::Content) } else { Ok(epoch) })
    }

    fn offset(&mut self) -> Result<u64, Refusal> {
        self.u64()
            .and_then(|offset| if offset > OFFSET_MAX { Err(Refusal::Content) } else { Ok(offset) })
    }

    fn id(&mut self) -> Result<NodeId, Refusal> {
        NodeId::parse(self.take(40)?).ok_or(Refusal::Content)
    }

    /// Zeros are none.
    fn optional_id(&mut self) -> Result<Option<NodeId>, Refusal> {
        match self.take(40)? {
            [0, ..] => Ok(None),
            digits => NodeId::parse(digits).map(Some).ok_or(Refusal::Content),
        }
    }

    /// All of it, up to the first zero: letters, digits and these. It goes into files and replies;
    /// who has another name is known without it.
    fn name(&mut self, others: &[u8]) -> Option<String> {
        let text = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || others.contains(byte);
        let is_name = text.len() <= NAME_MAX && text.iter().all(is_fine);
        is_name.then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Up to the first zero. It goes into files and replies, so it has no blanks or commas.
    fn text(&mut self, size: usize) -> Result<String, Refusal> {
        let bytes = self.take(size)?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let is_fine = text.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',');
        if !is_fine {
            return Err(Refusal::Content);
        }
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}
