//! TLS of the server's own: a certificate and its key from files, taken anew when the files change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Where the files are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// The certificate and those between it and its authority, as PEM.
    pub cert: PathBuf,
    /// Its key, as PEM.
    pub key: PathBuf,
    /// Authorities whose certificates every client must have one of, as PEM; `None` for no such demand.
    pub clients: Option<PathBuf>,
}

/// The certificate in force.
pub(super) struct Tls {
    files: Files,
    config: RwLock<(Arc<ServerConfig>, Vec<Option<SystemTime>>)>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files; they must be good.
    pub(super) fn read(files: Files) -> anyhow::Result<Self> {
        let stamps = files.stamps();
        let config = RwLock::new((Arc::new(config(&files)?), stamps));
        Ok(Tls { files, config })
    }

    /// What a new connection is secured with.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config.read().expect("nothing panics while it holds this lock").0))
    }

    /// Takes the files as they are now, if they have changed. Files that are no good change nothing.
    pub(super) fn reread(&self) {
        let stamps = self.files.stamps();
        if self.config.read().expect("nothing panics while it holds this lock").1 == stamps {
            return;
        }
        match config(&self.files) {
            Ok(config) => {
                *self.config.write().expect("nothing panics while it holds this lock") = (Arc::new(config), stamps);
                tracing::info!("the certificate was read again");
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "the certificate cannot be read again; the one from before stays in force");
            }
        }
    }

    /// Looks at the files now and then.
    pub(super) async fn keep_reading(&self, stopping: CancellationToken) {
        while tokio::time::timeout(LOOK_EVERY, stopping.cancelled()).await.is_err() {
            self.reread();
        }
    }
}

impl Files {
    /// When each was last changed.
    fn stamps(&self) -> Vec<Option<SystemTime>> {
        let changed = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
        [Some(&self.cert), Some(&self.key), self.clients.as_ref()]
            .into_iter()
            .flatten()
            .map(|path| changed(path))
            .collect()
    }
}

fn config(files: &Files) -> anyhow::Result<ServerConfig> {
    let certs = certificates(&files.cert, "tls.cert")?;
    let shown = files.key.display();
    let key =
        PrivateKeyDer::from_pem_file(&files.key).with_context(|| format!("tls.key: cannot read a key in {shown}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match &files.clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = rustls::RootCertStore::empty();
            for authority in certificates(path, "tls.clients")? {
                roots.add(authority).context("tls.clients: a certificate is no authority's")?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().context("tls.clients")?)
        }
    };
    builder.with_single_cert(certs, key).context("tls: the certificate and the key do not fit")
}

fn certificates(path: &Path, key: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let shown = path.display();
    let found = CertificateDer::pem_file_iter(path).with_context(|| format!("{key}: cannot read {shown}"))?;
    let found = found.collect::<Result<Vec<_>, _>>().with_context(|| format!("{key}: {shown} is no PEM"))?;
    anyhow::ensure!(!found.is_empty(), "{key}: {shown} holds no certificate");
    Ok(found)
}
