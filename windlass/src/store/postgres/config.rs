//! How the store is reached: the connection URL, TLS by `sslmode`, the schema, the pool.
//!
//! The password stays inside the driver's configuration, which is never shown.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::SslMode;

use super::lent::{LentPool, PostgresPool};
use super::tls::{self, Tls, Verify};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::store::open::UnderWorkers;

/// The schema of a store that names none.
pub const SCHEMA_DEFAULT: &str = "windlass";
/// Longest schema name: what PostgreSQL keeps of an identifier.
const SCHEMA_BYTES_MAX: usize = 63;
/// Connections of one store unless said otherwise: enough to keep a small server busy, few enough for its limit of 100.
const CONNECTIONS_DEFAULT: usize = 10;
/// More connections than this from one process are a slip of the finger: a large server takes a few hundred in all.
const CONNECTIONS_MAX: usize = 1000;

/// How a PostgreSQL store is opened.
///
/// The URL is `postgres://user:password@host:port/database?sslmode=verify-full&schema=windlass`. Beside the driver's
/// own parameters it knows `sslmode` (`disable`, `prefer`, `require`, `verify-ca`, `verify-full`), `sslrootcert` (a file
/// of certificates to trust instead of the public ones), `schema`, `pooler` (`auto`, `none`, `transaction`),
/// `notifications` (`on`, `off`) and `connections` (how many at most).
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) config: tokio_postgres::Config,
    pub(super) tls: Option<Tls>,
    pub(super) schema: String,
    pub(super) connections: usize,
    pub(super) wait: Duration,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) migrate: bool,
    pub(super) under_workers: UnderWorkers,
    pub(super) listen: bool,
    /// Whether a transaction pooler is between; `None` to look.
    pub(super) pooled: Option<bool>,
    /// The application's own pool, in place of one of the store's.
    pub(super) lent: Option<LentPool>,
    /// Whether the server can be reached beside that pool.
    pub(super) has_url: bool,
}

impl PostgresOptions {
    /// Reads a connection URL.
    pub fn new(url: &str) -> Result<Self> {
        let mut own = OwnParameters::default();
        let plain = own.take_from(url)?;
        // What the driver says of a URL it cannot read never quotes it.
        let mut config: tokio_postgres::Config =
            plain.parse().map_err(|error| Error::invalid("store url", format!("{error}")))?;
        let (mode, verify) = match own.sslmode.as_deref() {
            None | Some("prefer") => (SslMode::Prefer, Verify::Nothing),
            Some("disable") => (SslMode::Disable, Verify::Nothing),
            Some("require") => (SslMode::Require, Verify::Nothing),
            Some("verify-ca") => (SslMode::Require, Verify::Authority),
            Some("verify-full") => (SslMode::Require, Verify::Full),
            Some(_) => {
                let known = "must be disable, prefer, require, verify-ca or verify-full";
                return Err(Error::invalid("sslmode", known));
            }
        };
        if verify == Verify::Authority && own.sslrootcert.is_none() {
            // Any server with a certificate of a public authority, for whatever name, would be trusted.
            let problem = "verify-ca needs sslrootcert, the authorities to trust; verify-full does not";
            return Err(Error::invalid("sslmode", problem));
        }
        config.ssl_mode(mode);
        if config.get_application_name().is_none() {
            config.application_name("windlass");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        let tls = match mode {
            SslMode::Disable => None,
            _ => Some(tls::connector(verify, own.sslrootcert.as_deref())?),
        };
        let options = PostgresOptions {
            config,
            tls,
            schema: SCHEMA_DEFAULT.to_owned(),
            connections: own.connections()?,
            wait: Duration::from_secs(30),
            clock: None,
            migrate: true,
            under_workers: UnderWorkers::Refuse,
            listen: own.listen()?,
            pooled: own.pooled()?,
            lent: None,
            has_url: true,
        };
        match own.schema {
            None => Ok(options),
            Some(schema) => options.schema(schema),
        }
    }

    /// Everything over the application's own pool, of deadpool-postgres or of sqlx.
    ///
    /// Without a URL the store cannot listen for notifications, so that jobs of other processes are found by polling, and
    /// heartbeats share the pool: keep a connection free for them. [`pool`](Self::pool) on the options of a URL has both.
    pub fn of_pool(pool: impl PostgresPool) -> Self {
        PostgresOptions {
            config: tokio_postgres::Config::new(),
            tls: None,
            schema: SCHEMA_DEFAULT.to_owned(),
            connections: CONNECTIONS_DEFAULT,
            wait: Duration::from_secs(30),
            clock: None,
            migrate: true,
            under_workers: UnderWorkers::Refuse,
            listen: false,
            pooled: Some(true),
            lent: Some(pool.lent()),
            has_url: false,
        }
    }

    /// Runs statements over the application's own pool; only the listener and the heartbeats of workers have connections of
    /// their own, three in all.
    #[must_use]
    pub fn pool(mut self, pool: impl PostgresPool) -> Self {
        self.lent = Some(pool.lent());
        self
    }

    /// The schema that holds the store: `[a-z_][a-z0-9_]{0,62}`. Several can live in one database.
    pub fn schema(mut self, schema: impl Into<String>) -> Result<Self> {
        let schema = schema.into();
        check_schema(&schema)?;
        self.schema = schema;
        Ok(self)
    }

    /// How many connections the store keeps at most, at least 2.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(2);
        self
    }

    /// How long a call waits for a free connection before it fails.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Puts another clock in place of the database's, for tests. This is the one place.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Does not migrate on opening: for roles that may not, where another role applies [`PostgresStore::sql`](super::PostgresStore::sql).
    #[must_use]
    pub fn without_migrations(mut self) -> Self {
        self.migrate = false;
        self
    }

    /// Migrates on opening even while workers live that use the schema as it is. They are of an older program, whose statements
    /// may fail from then on; without this, opening is refused.
    #[must_use]
    pub fn migrate_under_workers(mut self) -> Self {
        self.under_workers = UnderWorkers::Migrate;
        self
    }

    /// Whether connections go through a pooler that hands them out by transaction; the store looks for itself unless told.
    ///
    /// Behind one, nothing is prepared, no setting is made for a session, and jobs are found by polling.
    #[must_use]
    pub fn pooled(mut self, pooled: bool) -> Self {
        self.pooled = Some(pooled);
        self
    }

    /// Neither sends nor waits for notifications: workers find jobs by polling alone.
    #[must_use]
    pub fn without_notifications(mut self) -> Self {
        self.listen = false;
        self
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (schema, connections) = (&self.schema, &self.connections);
        f.debug_struct("PostgresOptions").field("schema", schema).field("connections", connections).finish()
    }
}

/// Refuses a name that would need quoting.
pub(super) fn check_schema(schema: &str) -> Result<()> {
    let first = schema.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let rest = schema.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if first && rest && schema.len() <= SCHEMA_BYTES_MAX && !schema.starts_with("pg_") {
        return Ok(());
    }
    Err(Error::invalid("schema", format!("must be [a-z_][a-z0-9_]{{0,62}} and not begin with pg_, is {schema:?}")))
}

/// The parameters that the driver does not know.
#[derive(Default)]
struct OwnParameters {
    sslmode: Option<String>,
    sslrootcert: Option<String>,
    schema: Option<String>,
    pooler: Option<String>,
    notifications: Option<String>,
    connections: Option<String>,
}

impl OwnParameters {
    /// Takes them out of a URL and gives the rest.
    fn take_from(&mut self, url: &str) -> Result<String> {
        let Some((base, query)) = url.split_once('?') else { return Ok(url.to_owned()) };
        let mut kept = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match name {
                "sslmode" => &mut self.sslmode,
                "sslrootcert" => &mut self.sslrootcert,
                "schema" => &mut self.schema,
                "pooler" => &mut self.pooler,
                "notifications" => &mut self.notifications,
                "connections" => &mut self.connections,
                _ => {
                    check_driver_parameter(name, pair)?;
                    kept.push(pair);
                    continue;
                }
            };
            *place = Some(decode(value)?);
        }
        Ok(if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) })
    }
}

impl OwnParameters {
    fn pooled(&self) -> Result<Option<bool>> {
        match self.pooler.as_deref() {
            None | Some("auto") => Ok(None),
            Some("none") => Ok(Some(false)),
            Some("transaction") => Ok(Some(true)),
            Some(_) => Err(Error::invalid("pooler", "must be auto, none or transaction")),
        }
    }

    fn connections(&self) -> Result<usize> {
        let Some(text) = &self.connections else { return Ok(CONNECTIONS_DEFAULT) };
        let number = text.parse().ok().filter(|number| (2..=CONNECTIONS_MAX).contains(number));
        number.ok_or_else(|| Error::invalid("connections", format!("must be 2 to {CONNECTIONS_MAX}")))
    }

    fn listen(&self) -> Result<bool> {
        match self.notifications.as_deref() {
            None | Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(_) => Err(Error::invalid("notifications", "must be on or off")),
        }
    }
}

/// Asks the driver about one parameter alone, because it does not say which of several it refuses.
fn check_driver_parameter(name: &str, pair: &str) -> Result<()> {
    if format!("postgres://host/?{pair}").parse::<tokio_postgres::Config>().is_ok() {
        return Ok(());
    }
    let problem =
        format!("the parameter {name:?} is not known, or its value cannot be meant; docs/postgres.md lists them");
    Err(Error::invalid("store url", problem))
}

/// Percent-decodes a parameter.
fn decode(text: &str) -> Result<String> {
    let bad = || Error::invalid("store url", "has a parameter that is not percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(bad);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).expect("two hexadecimal digits fit a byte"));
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_parameters_are_taken_out_of_the_url() {
        let options = PostgresOptions::new("postgres://u:p@h/db?sslmode=disable&schema=jobs_2&application_name=x");
        let options = options.expect("valid");
        assert_eq!((options.schema.as_str(), options.tls.is_none()), ("jobs_2", true));
        assert_eq!(options.config.get_application_name(), Some("x"));
        assert!(options.listen);
        assert!(!PostgresOptions::new("postgres://h/db?notifications=off").expect("valid").listen);
        assert_eq!(PostgresOptions::new("postgres://h/db?connections=3").expect("valid").connections, 3);
        let refused = PostgresOptions::new("postgres://h/db?sslmode=verify-ca").expect_err("any authority");
        assert!(refused.to_string().contains("sslrootcert"), "{refused}");
        assert!(PostgresOptions::new("postgres://h/db?sslmode=verify-full").is_ok());
        for bad in ["sslmode=sometimes", "pooler=maybe", "notifications=2", "connections=1", "connections=x"] {
            assert!(PostgresOptions::new(&format!("postgres://h/db?{bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_parameter_that_is_not_known_is_named_without_its_value() {
        for bad in ["pool_size=hunter2", "keepalives=hunter2", "connect_timeout=soon&application_name=x"] {
            let refused = PostgresOptions::new(&format!("postgres://h/db?application_name=x&{bad}"));
            let refused = refused.expect_err(bad).to_string();
            let name = bad.split('=').next().expect("a name");
            assert!(refused.contains(&format!("{name:?}")) && !refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn a_schema_name_needs_no_quoting() {
        for good in ["a", "_x1", &"a".repeat(63)] {
            assert!(check_schema(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "1a", "a-b", "a b", "a\"", "pg_x", &"a".repeat(64)] {
            assert!(check_schema(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_password_is_not_shown() {
        let options = PostgresOptions::new("postgres://u:hunter2@h/db").expect("valid");
        assert!(!format!("{options:?}").contains("hunter2"));
        let refused = PostgresOptions::new("postgres://u:hunter2@h:no/db").expect_err("bad port");
        assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{refused}");
    }
}
