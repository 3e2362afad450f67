//! Behind PgBouncer with transaction pooling, of whatever version: nothing prepared, no settings left to others, no
//! notifications, and all rules kept.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass::store::conformance::{Case, Subject};
use windlass::store::{PostgresStore, Store};
use windlass::{Client, ManualClock};

use crate::SOON;
use crate::server::run;
use crate::tls::Log;
use crate::{admin, hold, new_schema, open, options, url, work_through};

/// Fewer connections to the server than the tests have to the pooler, so that they are shared all the time.
const SERVER_CONNECTIONS: usize = 4;

/// The program, where it is installed; `None`, loudly, only if `scripts/test` found that it cannot be.
fn program() -> Option<PathBuf> {
    if let Ok(why) = std::env::var("WINDLASS_NO_PGBOUNCER") {
        println!("SKIPPED: PgBouncer cannot be installed here: {why}");
        return None;
    }
    let named = std::env::var_os("WINDLASS_PGBOUNCER").map(PathBuf::from);
    let usual = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"].map(PathBuf::from);
    let found = named.into_iter().chain(usual).find(|path| path.exists());
    Some(found.expect("PgBouncer is not installed; scripts/postgres pooler installs it"))
}

/// A pooler in front of the test server.
struct Pooler {
    process: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Pooler {
    fn start() -> Option<Self> {
        let program = program()?;
        let server: tokio_postgres::Config = url().parse().expect("a URL");
        let (port, user) = (server.get_ports()[0], server.get_user().expect("a user"));
        let own = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let folder = tempfile::Builder::new().prefix("windlass-pooler-").tempdir_in("/tmp").expect("a folder");
        let settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={port} dbname=postgres user={user}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {own}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {SERVER_CONNECTIONS}\nmax_client_conn = 400\n"
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("a file");
        run(Command::new("chmod").args(["-R", "a+rX"]).arg(folder.path()));
        // It refuses to run as root, like the server.
        let is_root = run(Command::new("id").arg("-u")) == "0";
        let mut command = match is_root {
            true => Command::new("setpriv"),
            false => Command::new(&program),
        };
        if is_root {
            command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--"]).arg(&program);
        }
        let process = command.arg("-q").arg(&file).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
        let process = process.expect("the pooler starts");
        let pooler = Pooler { process, url: format!("postgres://{user}@127.0.0.1:{own}/postgres"), _folder: folder };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", own)).is_err() {
            assert!(begun.elapsed() < SOON, "the pooler does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(pooler)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "current_thread")]
async fn the_store_notices_the_pooler_warns_once_and_works() {
    let Some(pooler) = Pooler::start() else { return };
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.subscriber());
    let store = open(options(&pooler.url, &new_schema()).connections(8)).await;
    assert_eq!(log.text().matches("transaction pooler").count(), 1, "{}", log.text());
    // Nobody waits for the child processes of the pool to be told: what another store enqueues is found by polling.
    work_through(&Client::with_store(store)).await;
    assert_eq!(log.text().matches("transaction pooler").count(), 1, "the heartbeats' store knows it: {}", log.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_connection_is_not_taken_for_a_pooled_one() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.subscriber());
    for _ in 0..5 {
        PostgresStore::with(options(&url(), &new_schema())).await.expect("open");
    }
    assert!(!log.text().contains("pooler"), "{}", log.text());
}

/// A store behind the pooler.
struct Pooled(Pooler);

impl std::fmt::Debug for Pooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pooled")
    }
}

#[async_trait::async_trait]
impl Subject for Pooled {
    fn name(&self) -> &'static str {
        "postgres behind a pooler"
    }

    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
        open(options(&self.0.url, &new_schema()).clock(clock).connections(6).without_notifications()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_the_pooler_the_rules_are_kept_and_nothing_is_left_behind() {
    let Some(pooler) = Pooler::start() else { return };
    let through = pooler.url.clone();
    let wanted = |case: &Case| ["d", "i", "l", "w"].iter().any(|letter| case.name.starts_with(letter));
    let pooled = Pooled(pooler);
    // The pooler must outlive the look at what is left.
    let subject = Arc::new(pooled);
    let count = hold(Shared(Arc::clone(&subject)), wanted).await;
    assert!(count > 40, "only {count} cases");
    for _ in 0..SERVER_CONNECTIONS * 3 {
        let client = admin(&through).await;
        let look = "select (select count(*) from pg_prepared_statements) || ' ' || current_setting('enable_seqscan')";
        let answer = client.simple_query(look).await.expect("an answer");
        let left = answer.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        assert_eq!(left.as_deref(), Some("0 on"), "prepared statements, and a setting of the store's own");
    }
}

/// A subject that somebody else keeps too.
#[derive(Debug)]
struct Shared(Arc<Pooled>);

#[async_trait::async_trait]
impl Subject for Shared {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
        self.0.fresh(clock).await
    }
}
