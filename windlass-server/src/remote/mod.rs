//! A store that is reached over HTTP: the same trait, so that whatever works on a store works on a server.
//!
//! `call.rs` sends and reads, `listen.rs` follows the server's hints. Nothing is decided here: what the server answers is
//! what the store behind it said, and its problems become the library's errors again.

mod call;
mod listen;
mod store;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Url;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;
use windlass::store::Wake;
use windlass::{Error, Result};

/// How many hints a slow listener may fall behind.
const WAKES_KEPT: usize = 1024;
/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer may take: longer than the server takes to give up on a submission.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

/// A store behind a Windlass server. Clones share connections.
#[derive(Clone)]
pub struct HttpStore {
    inner: Arc<Inner>,
    asks_for_upkeep: bool,
}

struct Inner {
    base: Url,
    token: Option<String>,
    tls: ClientTls,
    http: reqwest::Client,
    wakes: broadcast::Sender<Wake>,
    listener: Mutex<Option<AbortHandle>>,
}

/// What a client trusts and shows beyond what is usual: for a private authority, and for servers that ask for a certificate.
#[derive(Clone, Default)]
pub struct ClientTls {
    /// Certificates of authorities to trust beside the system's, in PEM.
    pub authorities: Option<Vec<u8>>,
    /// The certificate to show and its key, in PEM.
    pub identity: Option<Vec<u8>>,
}

impl ClientTls {
    fn onto(&self, mut builder: reqwest::ClientBuilder) -> Result<reqwest::ClientBuilder> {
        if let Some(pem) = &self.authorities {
            let unreadable = |_| Error::invalid("tls authorities", "hold no certificate in PEM");
            let authorities = reqwest::Certificate::from_pem_bundle(pem).map_err(unreadable)?;
            builder = builder.tls_certs_merge(authorities);
        }
        if let Some(pem) = &self.identity {
            let unreadable = |_| Error::invalid("tls identity", "is no certificate with its key, in PEM");
            builder = builder.identity(reqwest::Identity::from_pem(pem).map_err(unreadable)?);
        }
        Ok(builder)
    }
}

impl HttpStore {
    /// The store behind the server at this URL; `token` is sent with every request.
    ///
    /// Nothing is sent yet: the first call finds out whether the server is there.
    pub fn connect(url: &str, token: Option<String>) -> Result<Self> {
        HttpStore::connect_with(url, token, ClientTls::default())
    }

    /// The same with certificates of the caller's own.
    pub fn connect_with(url: &str, token: Option<String>, tls: ClientTls) -> Result<Self> {
        let base = base(url)?;
        // Another part of the process may have chosen already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
        let http = tls.onto(builder)?.build().map_err(|error| Error::store("set up the HTTP client", error))?;
        let (wakes, _) = broadcast::channel(WAKES_KEPT);
        let inner = Inner { base, token, tls, http, wakes, listener: Mutex::new(None) };
        Ok(HttpStore { inner: Arc::new(inner), asks_for_upkeep: true })
    }

    /// For workers: leaves upkeep to the server, which does it anyway and lets only an admin ask for it.
    #[must_use]
    pub fn leave_upkeep(mut self) -> Self {
        self.asks_for_upkeep = false;
        self
    }

    /// The policies of the server, which jobs that are checked here must be checked under; none of a server that knows no such
    /// thing.
    pub async fn policies(&self) -> Result<windlass::Policies> {
        let told: Result<crate::wire::Policies> = self.get("read the policies", &["policies"]).answer().await;
        match told {
            Ok(policies) => policies.check(),
            // An older server has no such route.
            Err(Error::NotFound { .. } | Error::InvalidArgument { .. }) => Ok(windlass::Policies::default()),
            Err(error) => Err(error),
        }
    }

    /// Lets the server read its tokens again; gives how many are in force.
    pub async fn reload_tokens(&self) -> Result<usize> {
        let call = self.write("reload the tokens", reqwest::Method::POST, &["tokens", "reload"]);
        let reloaded: crate::wire::Reloaded = call.answer().await?;
        Ok(reloaded.tokens)
    }

    /// The server's URL, without a token.
    pub fn url(&self) -> &str {
        self.inner.base.as_str()
    }
}

/// Reads the URL of a server: `http://host:port`, perhaps with a path that stands before `/v1`.
fn base(url: &str) -> Result<Url> {
    let refuse = |problem: &str| Error::invalid("server", format!("{problem}, such as http://127.0.0.1:7654"));
    let mut base = Url::parse(url).map_err(|_| refuse("must be a URL"))?;
    if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
        return Err(refuse("must be an http or https URL"));
    }
    if !base.username().is_empty() || base.password().is_some() {
        return Err(refuse("must not carry a user name or password"));
    }
    base.set_query(None);
    base.set_fragment(None);
    let path = base.path().trim_end_matches('/').to_owned() + "/";
    base.set_path(&path);
    Ok(base)
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get_mut().ok().and_then(Option::take) {
            listener.abort();
        }
    }
}

impl fmt::Debug for HttpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStore").field("url", &self.url()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_an_http_url() {
        let store = HttpStore::connect("http://127.0.0.1:7654/jobs?x=1#y", Some("secret".into())).expect("a URL");
        assert_eq!(store.url(), "http://127.0.0.1:7654/jobs/");
        assert!(!format!("{store:?}").contains("secret"));
        for url in ["", "127.0.0.1:7654", "ftp://host", "http://", "http://ada:secret@host"] {
            let refused = HttpStore::connect(url, None).expect_err(url);
            assert_eq!(refused.name(), "InvalidArgument", "{url}");
            assert!(!refused.to_string().contains("secret"));
        }
    }
}
