//! Messages to the system's log, as RFC 3164 datagrams to its unix socket.

use std::os::unix::net::UnixDatagram;

use kvasir_config::{Config, Loglevel, SyslogFacility};

/// Where Linux has it.
const SOCKET: &str = "/dev/log";

/// The way to the system's log.
pub struct Syslog {
    socket: UnixDatagram,
    ident: String,
    facility: u8,
}

impl Syslog {
    /// Where the configuration wants it and the system has one.
    pub fn open(config: &Config) -> Option<Syslog> {
        if !config.syslog.enabled {
            return None;
        }
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        let ident = String::from_utf8_lossy(&config.syslog.ident).into_owned();
        Some(Syslog { socket, ident, facility: facility(config.syslog.facility) })
    }

    /// A message that the log has no room for, or nobody to take it, is lost.
    pub fn send(&self, severity: Loglevel, message: &str) {
        let _ = self.socket.send_to(self.datagram(severity, message).as_bytes(), SOCKET);
    }

    fn datagram(&self, severity: Loglevel, message: &str) -> String {
        let priority = self.facility << 3 | priority(severity);
        format!("<{priority}>{}[{}]: {message}", self.ident, std::process::id())
    }
}

fn facility(facility: SyslogFacility) -> u8 {
    match facility {
        SyslogFacility::User => 1,
        SyslogFacility::Local0 => 16,
        SyslogFacility::Local1 => 17,
        SyslogFacility::Local2 => 18,
        SyslogFacility::Local3 => 19,
        SyslogFacility::Local4 => 20,
        SyslogFacility::Local5 => 21,
        SyslogFacility::Local6 => 22,
        SyslogFacility::Local7 => 23,
    }
}

/// As Redis maps them: debug, info, notice, warning.
fn priority(severity: Loglevel) -> u8 {
    match severity {
        Loglevel::Debug => 7,
        Loglevel::Verbose => 6,
        Loglevel::Notice => 5,
        Loglevel::Warning | Loglevel::Nothing => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_name_facility_severity_and_program() {
        assert!(Syslog::open(&Config::of_table()).is_none());
        let mut config = Config::of_table();
        (config.syslog.enabled, config.syslog.facility) = (true, SyslogFacility::Local7);
        let datagram = Syslog::open(&config).unwrap().datagram(Loglevel::Warning, "a b=1");
        assert_eq!(datagram, format!("<188>kvasir[{}]: a b=1", std::process::id()));
    }
}
