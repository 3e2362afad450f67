//! From a callback URL to addresses that were checked: one way for the first delivery and every retry.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::{Allowed, Refused};

/// Looks names up.
#[async_trait]
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of a host.
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The operating system's way of looking names up.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Refuses a URL whose form alone says that it must not be called.
pub(super) fn check(text: &str, allowed: &Allowed, allow_http: bool) -> Result<Url, Refused> {
    let url = Url::parse(text).map_err(|_| Refused::new("the callback URL cannot be read"))?;
    match url.scheme() {
        "https" => {}
        "http" if allow_http => {}
        "http" => return Err(Refused::new("plain http is not allowed; see webhooks.allow_http")),
        _ => return Err(Refused::new("the callback URL is neither https nor http")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refused::new("the callback URL carries a user name or password"));
    }
    // Numbers in whatever base and grouping have become a plain address by now.
    let host = url.host_str().ok_or_else(|| Refused::new("the callback URL names no host"))?;
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    if let Ok(ip) = literal {
        allowed.check(ip)?;
    }
    Ok(url)
}

/// A resolver that answers with checked addresses or not at all.
pub(super) struct Checked {
    pub(super) lookup: Arc<dyn Lookup>,
    pub(super) allowed: Arc<Allowed>,
}

impl Checked {
    async fn addresses(lookup: &dyn Lookup, allowed: &Allowed, host: &str) -> Result<Vec<SocketAddr>, Failed> {
        let found = lookup.addresses(host).await?;
        if found.is_empty() {
            return Err(Box::new(io::Error::new(io::ErrorKind::NotFound, "the host has no address")));
        }
        if !allowed.name(host) {
            // One bad address is enough: a name server that answers with both is not to be trusted.
            for ip in &found {
                allowed.check(*ip)?;
            }
        }
        Ok(found.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect())
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, allowed) = (Arc::clone(&self.lookup), Arc::clone(&self.allowed));
        Box::pin(async move {
            let found = Checked::addresses(&*lookup, &allowed, name.as_str()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that lead where their name says, for want of a network.
    struct Told(Vec<IpAddr>);

    #[async_trait]
    impl Lookup for Told {
        async fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            Ok(self.0.clone())
        }
    }

    /// URLs and what their host looks up to, where it is a name.
    const HOSTILE: [(&str, &str); 74] = [
        ("https://localhost/", "127.0.0.1"),
        ("https://localhost/", "::1"),
        ("https://localhost./", "127.0.0.1"),
        ("https://LOCALHOST:8443/", "127.0.0.1"),
        ("https://localtest.me/", "127.0.0.1"),
        ("https://127.0.0.1.nip.io/", "127.0.0.1"),
        ("https://127.0.0.1/", ""),
        ("https://127.0.0.1:7654/v1/jobs", ""),
        ("https://127.1/", ""),
        ("https://127.0.1/", ""),
        ("https://127.255.255.254/", ""),
        ("https://2130706433/", ""),
        ("https://0x7f000001/", ""),
        ("https://0x7f.0.0.1/", ""),
        ("https://0177.0.0.1/", ""),
        ("https://017700000001/", ""),
        ("https://127.0.0.1./", ""),
        ("https://①②⑦.⓪.⓪.①/", ""),
        ("https://0/", ""),
        ("https://0.0.0.0/", ""),
        ("https://0.1.2.3/", ""),
        ("https://10.0.0.1/", ""),
        ("https://10.255.255.255/", ""),
        ("https://167772161/", ""),
        ("https://172.16.0.1/", ""),
        ("https://172.31.255.255/", ""),
        ("https://192.168.0.1/", ""),
        ("https://192.168.1.1:22/", ""),
        ("https://100.64.0.1/", ""),
        ("https://100.127.255.255/", ""),
        ("https://100.100.100.200/", ""),
        ("https://169.254.169.254/latest/meta-data/", ""),
        ("https://169.254.170.2/", ""),
        ("https://0xa9fea9fe/", ""),
        ("https://2852039166/", ""),
        ("https://metadata.google.internal/", "169.254.169.254"),
        ("https://192.0.0.192/", ""),
        ("https://192.0.2.1/", ""),
        ("https://192.88.99.1/", ""),
        ("https://198.18.0.1/", ""),
        ("https://198.51.100.1/", ""),
        ("https://203.0.113.1/", ""),
        ("https://224.0.0.1/", ""),
        ("https://239.255.255.250/", ""),
        ("https://240.0.0.1/", ""),
        ("https://255.255.255.255/", ""),
        ("https://[::]/", ""),
        ("https://[::1]/", ""),
        ("https://[0:0:0:0:0:0:0:1]/", ""),
        ("https://[::ffff:127.0.0.1]/", ""),
        ("https://[::ffff:7f00:1]/", ""),
        ("https://[::ffff:10.0.0.1]/", ""),
        ("https://[::ffff:169.254.169.254]/", ""),
        ("https://[::ffff:8.8.8.8]/", ""),
        ("https://[::127.0.0.1]/", ""),
        ("https://[64:ff9b::127.0.0.1]/", ""),
        ("https://[64:ff9b::a9fe:a9fe]/", ""),
        ("https://[64:ff9b:1::1]/", ""),
        ("https://[2002:7f00:1::]/", ""),
        ("https://[2002:a9fe:a9fe::1]/", ""),
        ("https://[2001:0:7f00:1::]/", ""),
        ("https://[2001:db8::1]/", ""),
        ("https://[fc00::1]/", ""),
        ("https://[fd00:ec2::254]/", ""),
        ("https://[fe80::1]/", ""),
        ("https://[fec0::1]/", ""),
        ("https://[ff02::1]/", ""),
        ("https://[100::1]/", ""),
        ("https://six.example/", "::ffff:192.168.0.1"),
        ("https://six.example/", "fd12:3456::1"),
        ("https://user:secret@example.com/", "93.184.215.14"),
        ("http://example.com/", "93.184.215.14"),
        ("ftp://example.com/", "93.184.215.14"),
        ("file:///etc/passwd", ""),
    ];

    async fn refused(url: &str, leads_to: Vec<IpAddr>) -> bool {
        let allowed = Allowed::default();
        let Ok(url) = check(url, &allowed, false) else { return true };
        let host = url.host_str().expect("a checked URL has a host");
        Checked::addresses(&Told(leads_to), &allowed, host).await.is_err()
    }

    #[tokio::test]
    async fn x7_hostile_targets_are_refused() {
        for (url, leads_to) in HOSTILE {
            // A literal must be refused by its form: nobody would look it up.
            let leads_to = leads_to.parse().unwrap_or(IpAddr::from([93, 184, 215, 14]));
            assert!(refused(url, vec![leads_to]).await, "{url}");
        }
        assert!(!refused("https://example.com/", vec![IpAddr::from([93, 184, 215, 14])]).await);
        assert!(!refused("https://93.184.215.14/", vec![IpAddr::from([93, 184, 215, 14])]).await);
    }

    #[tokio::test]
    async fn x7_one_private_address_among_public_ones_is_enough() {
        let (public, private) = (IpAddr::from([93, 184, 215, 14]), IpAddr::from([10, 0, 0, 1]));
        assert!(refused("https://example.com/", vec![public, private]).await);
        assert!(refused("https://example.com/", vec![]).await);
    }
}
