//! Every `sslmode` against a real server: with the right authority and a wrong one, another host name, and no TLS at all.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;
use windlass::store::PostgresStore;
use windlass::{Client, Error, NewJob, Payload};

use crate::server::{Server, run};
use crate::{admin, as_role, new_schema, options};

/// A password that must not be seen anywhere.
const PASSWORD: &str = "hunter2-do-not-show";

/// An authority, in a folder.
struct Authority {
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let authority = Authority { folder: tempfile::TempDir::new().expect("a folder") };
        // A name of its own: two authorities of one name would differ only in their signatures.
        let name = format!("/CN=authority {}", uuid::Uuid::new_v4().simple());
        let new = ["req", "-x509", "-nodes", "-days", "2", "-subj", &name];
        let may_sign = ["-addext", "keyUsage=critical,keyCertSign"];
        let (key, certificate) = (authority.path("ca.key"), authority.certificate());
        let mut command = openssl(&new);
        run(command.args(may_sign).args(NEW_KEY).arg("-keyout").arg(key).arg("-out").arg(certificate));
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn certificate(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// Signs a certificate for a host; gives it and its key.
    fn sign(&self, host: &str) -> (PathBuf, PathBuf) {
        let (key, request, names) = (self.path("server.key"), self.path("server.csr"), self.path("names"));
        let mut command = openssl(&["req", "-nodes", "-subj", "/CN=a server for tests"]);
        run(command.args(NEW_KEY).arg("-keyout").arg(&key).arg("-out").arg(&request));
        std::fs::write(&names, format!("subjectAltName=DNS:{host}\n")).expect("a file");
        let certificate = self.path("server.crt");
        let mut command = openssl(&["x509", "-req", "-days", "2", "-CAcreateserial"]);
        command.arg("-in").arg(&request).arg("-CA").arg(self.certificate()).arg("-CAkey").arg(self.path("ca.key"));
        run(command.arg("-extfile").arg(&names).arg("-out").arg(&certificate));
        (certificate, key)
    }
}

const NEW_KEY: [&str; 4] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];

fn openssl(arguments: &[&str]) -> Command {
    let mut command = Command::new("openssl");
    command.args(arguments);
    command
}

/// A server with TLS, whose certificate is for `localhost`, and a role that needs its password.
async fn server_with_tls(authority: &Authority) -> Server {
    let server = Server::start("");
    let role = format!("create role app login password '{PASSWORD}'; grant create on database postgres to app");
    admin(&server.url).await.batch_execute(&role).await.expect("a role");
    let (certificate, key) = authority.sign("localhost");
    server.give(&certificate, "server.crt");
    server.give(&key, "server.key");
    server.append("postgresql.conf", "ssl = on");
    server.prepend("pg_hba.conf", "host all app all scram-sha-256");
    server.restart();
    server
}

/// Opens a store as the role; gives whether its connections are encrypted.
async fn encrypted(server: &Server, host: &str, parameters: &str) -> Result<bool, Error> {
    let schema = new_schema();
    let port = server.port();
    let url = format!("postgres://app:{PASSWORD}@{host}:{port}/postgres?application_name={schema}&{parameters}");
    let store = PostgresStore::with(options_of(&url, &schema)?).await?;
    assert!(!format!("{store:?}").contains(PASSWORD), "{store:?}");
    let client = Client::with_store(Arc::new(store));
    client.enqueue(NewJob::new("test", Payload::default())).await?;
    let look = "select bool_and(s.ssl), bool_or(s.ssl) from pg_stat_ssl s join pg_stat_activity a using (pid)
         where a.application_name = $1";
    let row = admin(&server.url).await.query_one(look, &[&schema]).await.expect("a row");
    let (all, any): (bool, bool) = (row.get(0), row.get(1));
    assert_eq!(all, any, "every connection is like the others");
    Ok(all)
}

fn options_of(url: &str, schema: &str) -> Result<windlass::store::PostgresOptions, Error> {
    let options = windlass::store::PostgresOptions::new(url)?.schema(schema)?;
    assert!(!format!("{options:?}").contains(PASSWORD), "{options:?}");
    Ok(options)
}

/// It does not open, says why in these words, and shows no password.
async fn refused(server: &Server, host: &str, parameters: &str, why: &str) {
    let error = encrypted(server, host, parameters).await.expect_err(parameters);
    let told = format!("{error} {error:?}");
    assert!(error.to_string().contains(why), "{parameters} at {host}: {error}");
    assert!(!told.contains(PASSWORD), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sslmode_asks_for_what_it_says() {
    let (right, wrong) = (Authority::new(), Authority::new());
    let server = server_with_tls(&right).await;
    let trusting =
        |mode: &str, authority: &Authority| format!("sslmode={mode}&sslrootcert={}", authority.certificate().display());
    for (parameters, is_encrypted) in [("sslmode=disable", false), ("", true), ("sslmode=prefer", true)] {
        assert_eq!(encrypted(&server, "127.0.0.1", parameters).await.expect(parameters), is_encrypted, "{parameters}");
    }
    assert!(encrypted(&server, "127.0.0.1", "sslmode=require").await.expect("any certificate will do"));
    assert!(encrypted(&server, "127.0.0.1", &trusting("require", &wrong)).await.expect("it is not looked at"));
    assert!(encrypted(&server, "127.0.0.1", &trusting("verify-ca", &right)).await.expect("any host will do"));
    refused(&server, "127.0.0.1", &trusting("verify-ca", &wrong), "UnknownIssuer").await;
    refused(&server, "127.0.0.1", "sslmode=verify-ca", "needs sslrootcert").await;
    assert!(encrypted(&server, "localhost", &trusting("verify-full", &right)).await.expect("all fits"));
    refused(&server, "127.0.0.1", &trusting("verify-full", &right), "not valid for name").await;
    refused(&server, "localhost", &trusting("verify-full", &wrong), "UnknownIssuer").await;
    refused(&server, "localhost", "sslmode=verify-full", "UnknownIssuer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_tls_is_asked_for() {
    let authority = Authority::new();
    let server = Server::start("");
    admin(&server.url)
        .await
        .batch_execute("create role app login; grant create on database postgres to app")
        .await
        .expect("a role");
    assert!(!encrypted(&server, "127.0.0.1", "sslmode=prefer").await.expect("it does without"));
    let file = authority.certificate();
    for mode in ["require", "verify-ca", "verify-full"] {
        let parameters = format!("sslmode={mode}&sslrootcert={}", file.display());
        refused(&server, "localhost", &parameters, "server does not support TLS").await;
    }
}

#[tokio::test]
async fn a_file_of_authorities_that_cannot_be_used_is_named() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let (absent, empty) = (folder.path().join("absent.crt"), folder.path().join("empty.crt"));
    std::fs::write(&empty, "nothing of the kind\n").expect("a file");
    for file in [absent, empty] {
        let name = Path::file_name(&file).and_then(|name| name.to_str()).expect("a name").to_owned();
        let url = format!("postgres://app:{PASSWORD}@h/db?sslmode=verify-full&sslrootcert={}", file.display());
        let error = options_of(&url, "windlass").expect_err("no authorities");
        assert_eq!(error.name(), "InvalidArgument");
        assert!(error.to_string().contains(&name), "{error}");
        assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
    }
}

/// Everything that was logged.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
    }

    /// A subscriber that writes here, down to the finest level.
    pub(crate) fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + use<> {
        let builder = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        builder.with_writer(self.clone()).finish()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}

/// One thread, so that what is logged anywhere is logged here.
#[tokio::test(flavor = "current_thread")]
async fn the_password_is_neither_logged_nor_told_when_the_server_refuses_it() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.subscriber());
    let authority = Authority::new();
    let server = server_with_tls(&authority).await;
    let wrong = as_role(&server.url, "app:wrong-and-not-to-be-shown");
    let error = PostgresStore::with(options(&wrong, &new_schema())).await.expect_err("a wrong password");
    assert!(error.to_string().contains("password authentication failed"), "{error}");
    assert!(!format!("{error} {error:?}").contains("not-to-be-shown"), "{error:?}");
    // A worker that loses its server complains for a while.
    let right = as_role(&server.url, &format!("app:{PASSWORD}"));
    let client = Client::with_store(crate::open(options(&right, &new_schema())).await);
    let worker = windlass::Worker::new(&client).queue("default", 1).poll_interval(std::time::Duration::from_millis(20));
    let running = worker.handle(crate::visit).start().await.expect("start");
    tracing::info!("the log works");
    drop(server);
    let complained = async {
        while !log.text().contains("WARN") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::SOON, complained).await.expect("the worker tells that the server is away");
    running.stop_handle().abort();
    running.ended().await;
    let text = log.text();
    assert!(text.contains("the log works") && !text.contains(PASSWORD) && !text.contains("not-to-be-shown"), "{text}");
}
