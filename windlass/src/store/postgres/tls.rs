//! TLS as `sslmode` asks for it, on rustls with an explicit provider: a program with two would panic on the default.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::{Error, Result};

/// Makes TLS connections.
pub(super) type Tls = tokio_postgres_rustls::MakeRustlsConnect;

/// What is asked of the server's certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verify {
    /// Encryption only.
    Nothing,
    /// Signed by an authority that is trusted.
    Authority,
    /// The same, and for this host.
    Full,
}

/// A connector that verifies so much, against the authorities in a file or else the public ones.
pub(super) fn connector(verify: Verify, file: Option<&str>) -> Result<Tls> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::store("set up TLS", error))?;
    let roots = Arc::new(roots(file)?);
    let config = match verify {
        Verify::Full => builder.with_root_certificates(roots).with_no_client_auth(),
        Verify::Authority | Verify::Nothing => {
            let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .build()
                .map_err(|error| Error::store("set up TLS", error))?;
            let lenient = Lenient { inner, provider, verify };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(lenient)).with_no_client_auth()
        }
    };
    Ok(Tls::new(config))
}

fn roots(file: Option<&str>) -> Result<RootCertStore> {
    let Some(file) = file else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let unreadable = |problem: String| Error::invalid("sslrootcert", format!("cannot read {file:?}: {problem}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unreadable(error.to_string()))? {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unreadable("it holds no certificate".to_owned()));
    }
    Ok(roots)
}

/// Asks less of a certificate than a name that fits: what `require` and `verify-ca` mean.
#[derive(Debug)]
struct Lenient {
    inner: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
    verify: Verify,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.verify == Verify::Nothing {
            return Ok(ServerCertVerified::assertion());
        }
        match self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            answer => answer,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
