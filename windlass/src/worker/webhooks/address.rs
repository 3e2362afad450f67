//! Which addresses a webhook may be sent to: those of the public internet, and what the configuration allows.
//!
//! Every producer may name a URL, and the server stands where producers do not: beside its own database, the cloud's
//! metadata service, other people's printers. So every address is checked, literal or looked up, and the connection is
//! made to an address that was.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::{Error, Result};

/// A target that is not allowed, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refused {
    words: &'static str,
    /// The address that it would have been sent to.
    pub(super) address: Option<IpAddr>,
}

impl Refused {
    /// For what the URL itself shows.
    pub(super) fn new(words: &'static str) -> Self {
        Refused { words, address: None }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)
    }
}

impl std::error::Error for Refused {}

/// Private targets that are allowed all the same: host names, addresses, and ranges of addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Allowed {
    names: Vec<String>,
    ranges: Vec<(IpAddr, u8)>,
}

impl Allowed {
    /// Reads entries such as `hooks.internal`, `10.1.2.3` and `10.0.0.0/8`.
    pub fn parse(entries: &[String]) -> Result<Self> {
        let refused = |entry: &str, what: &str| Error::invalid("webhooks.allow", format!("{entry:?} is no {what}"));
        let mut allowed = Allowed::default();
        for entry in entries {
            let (address, prefix) = entry.split_once('/').map_or((entry.as_str(), None), |(a, p)| (a, Some(p)));
            match (address.parse::<IpAddr>(), prefix) {
                (Ok(ip), None) => allowed.ranges.push((ip, bits(ip))),
                (Ok(ip), Some(prefix)) => {
                    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= bits(ip));
                    let prefix = prefix.ok_or_else(|| refused(entry, "range of addresses"))?;
                    allowed.ranges.push((ip, prefix));
                }
                (Err(_), None) => {
                    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
                    if entry.is_empty() || entry.len() > 253 || !entry.chars().all(plain) {
                        return Err(refused(entry, "host name; write hooks.example.com"));
                    }
                    allowed.names.push(entry.trim_end_matches('.').to_ascii_lowercase());
                }
                (Err(_), Some(_)) => return Err(refused(entry, "range of addresses")),
            }
        }
        Ok(allowed)
    }

    /// Whether any address will do for this name.
    pub(super) fn name(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.names.contains(&host)
    }

    fn address(&self, ip: IpAddr) -> bool {
        self.ranges.iter().any(|(range, prefix)| within(ip, *range, *prefix))
    }

    /// Refuses an address that is neither public nor allowed.
    pub(super) fn check(&self, ip: IpAddr) -> Result<(), Refused> {
        let plain = ip.to_canonical();
        if is_public(ip) || self.address(plain) {
            return Ok(());
        }
        // The address is not named: a producer could find out where internal names lead.
        let words = "its host is not on the public internet, and not in webhooks.allow";
        Err(Refused { words, address: Some(ip) })
    }
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn within(ip: IpAddr, range: IpAddr, prefix: u8) -> bool {
    match (ip, range) {
        (IpAddr::V4(ip), IpAddr::V4(range)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            ip.to_bits() & mask == range.to_bits() & mask
        }
        (IpAddr::V6(ip), IpAddr::V6(range)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            ip.to_bits() & mask == range.to_bits() & mask
        }
        _ => false,
    }
}

/// Whether an address belongs to the public internet. What is not known to is not.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !PRIVATE_V4.iter().any(|(range, prefix)| within(ip.into(), (*range).into(), *prefix)),
        // Of IPv6 only 2000::/3 is given out. Mapped, translated, local and multicast addresses all lie outside.
        IpAddr::V6(ip) => {
            let in_range = |range: Ipv6Addr, prefix| within(ip.into(), range.into(), prefix);
            in_range(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3)
                && !PRIVATE_V6.iter().any(|(range, prefix)| in_range(*range, *prefix))
        }
    }
}

/// The special ranges of IPv4, from the registry of special-purpose addresses.
const PRIVATE_V4: [(Ipv4Addr, u8); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),       // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),      // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),   // carrier-grade NAT
    (Ipv4Addr::new(127, 0, 0, 0), 8),     // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16),  // link-local, cloud metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12),   // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),    // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),    // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),  // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16),  // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),   // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),  // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),     // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),     // reserved, broadcast
];

/// The special ranges inside 2000::/3.
const PRIVATE_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments, Teredo among them
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4: any IPv4 address may be inside
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_allowed() {
        for ip in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.215.14",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "2a00:1450:4001::1",
        ] {
            assert!(Allowed::default().check(ip.parse().expect("an address")).is_ok(), "{ip}");
        }
    }

    #[test]
    fn allowed_targets_are_names_addresses_and_ranges() {
        let entries = ["10.1.0.0/16", "192.168.1.7", "fd00::/8", "Hooks.Internal."].map(str::to_owned);
        let allowed = Allowed::parse(&entries).expect("valid");
        for (ip, fine) in [
            ("10.1.200.3", true),
            ("10.2.0.1", false),
            ("192.168.1.7", true),
            ("192.168.1.8", false),
            ("fd12::1", true),
            ("fc00::1", false),
            ("::ffff:10.1.2.3", true),
            ("::ffff:10.2.2.3", false),
        ] {
            assert_eq!(allowed.check(ip.parse().expect("an address")).is_ok(), fine, "{ip}");
        }
        assert!(allowed.name("hooks.internal") && allowed.name("HOOKS.internal."));
        assert!(!allowed.name("evil.hooks.internal"));
        for bad in ["10.0.0.0/33", "fd00::/129", "10.0.0.0/x", "host/8", "", "a b"] {
            assert!(Allowed::parse(&[bad.to_owned()]).is_err(), "{bad}");
        }
        let all = Allowed::parse(&["0.0.0.0/0".to_owned()]).expect("valid");
        assert!(all.check("127.0.0.1".parse().expect("an address")).is_ok());
        assert!(all.check("::1".parse().expect("an address")).is_err());
    }
}
