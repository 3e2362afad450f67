//! How the store is reached: the connection URL, TLS by `sslmode`, the schema, the pool.
//!
//! The password stays inside the driver's configuration, which is never shown.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::hosts::Hosts;
use super::lent::{ApplicationPool, Lender};
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

/// How long a host may take to connect and to say who it is, unless the URL has a `connect_timeout`.
const CONNECT_WAIT_DEFAULT: Duration = Duration::from_secs(3);
/// After this long without a word from the network a connection is given up, unless the URL says otherwise.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// How often, and how many times, a silent connection is asked whether it lives before it is given up.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;

/// How a PostgreSQL store is opened.
///
/// The URL is `postgres://user:password@host:port/database?sslmode=verify-full&schema=windlass`. Beside the driver's
/// own parameters it knows `sslmode` (`disable`, `prefer`, `require`, `verify-ca`, `verify-full`), `sslrootcert` (a file
/// of certificates to trust instead of the public ones), `schema`, `pooler` (`auto`, `none`, `transaction`),
/// `notifications` (`on`, `off`) and `connections` (how many at most).
///
/// The URL may name several hosts, `postgres://user@one,two:5433/database`: a primary and its standbys. The store then uses
/// the one that can be written to, and follows a promotion by itself.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) reach: Reach,
    /// Shared with the store that these options were taken from.
    pub(super) hosts: Option<Arc<Hosts>>,
    pub(super) schema: String,
    pub(super) connections: usize,
    pub(super) wait: Duration,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) migrate: bool,
    pub(super) under_workers: UnderWorkers,
    pub(super) listen: bool,
    /// Whether a transaction pooler is between; `None` to look.
    pub(super) pooled: Option<bool>,
    /// The application's pool, if calls go over that one.
    pub(super) lender: Option<Arc<dyn Lender>>,
}

impl PostgresOptions {
    /// Reads a connection URL.
    pub fn new(url: &str) -> Result<Self> {
        // Drivers look for the `@` first: where it comes late, all that looks like parameters may be a piece of a password.
        let is_late = url.split_once('?').is_some_and(|(_, query)| query.contains('@'));
        PostgresOptions::read(url).map_err(|error| match error {
            Error::InvalidArgument { field: "schema", .. } if names_password(url) => {
                Error::invalid("schema", NO_SCHEMA)
            }
            _ if is_late => Error::invalid(
                "store url",
                "has a parameter that is not known; in a password write %3F for ? and %40 for @",
            ),
            error => error,
        })
    }

    fn read(url: &str) -> Result<Self> {
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
        own.fill_in(&mut config);
        let tls = match mode {
            SslMode::Disable => None,
            _ => Some(tls::connector(verify, own.sslrootcert.as_deref())?),
        };
        let options = PostgresOptions {
            reach: Reach::new(config, tls, own.target_session_attrs),
            hosts: None,
            schema: SCHEMA_DEFAULT.to_owned(),
            connections: own.connections()?,
            wait: Duration::from_secs(30),
            clock: None,
            migrate: true,
            under_workers: UnderWorkers::Refuse,
            listen: own.listen()?,
            pooled: own.pooled()?,
            lender: None,
        };
        match own.schema {
            None => Ok(options),
            Some(schema) => options.schema(schema),
        }
    }

    /// Makes every call on connections of the application's own pool: a `deadpool_postgres::Pool`, or an `sqlx::PgPool` with
    /// the features `sqlx-0_8` and `sqlx-0_9`. The store then opens no connection itself.
    ///
    /// So nothing listens: a worker hears at once of what its own client enqueues, and finds the rest by polling. Heartbeats,
    /// claims and settlements wait for a connection as everybody does, so a pool that is used up for longer than a lease
    /// costs leases, and so does a handler that blocks every thread of the application's runtime. Nothing watches for a failover either: start the program again after one in which commits were lost. A
    /// URL with `connections=N` is the better choice for a process that mostly runs jobs.
    pub fn on_pool(pool: impl Into<ApplicationPool>) -> Self {
        let ApplicationPool { lender, size } = pool.into();
        let reach = Reach::new(tokio_postgres::Config::new(), None, false);
        PostgresOptions {
            // There is nobody to be reached but through the pool.
            hosts: Some(Arc::new(Hosts::new(&reach))),
            reach,
            schema: SCHEMA_DEFAULT.to_owned(),
            connections: size,
            wait: Duration::from_secs(30),
            clock: None,
            migrate: true,
            under_workers: UnderWorkers::Refuse,
            listen: false,
            pooled: Some(false),
            lender: Some(lender),
        }
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

/// What it takes to reach the hosts of a URL.
#[derive(Clone)]
pub(super) struct Reach {
    pub(super) config: tokio_postgres::Config,
    pub(super) tls: Option<Tls>,
    /// Which kind of server will do.
    pub(super) wanted: TargetSessionAttrs,
    /// How long one host may take in all.
    pub(super) connect_limit: Duration,
}

impl Reach {
    /// Takes whether the URL says which kind of server will do: of several hosts only one can be written to.
    fn new(config: tokio_postgres::Config, tls: Option<Tls>, chosen: bool) -> Self {
        let several = config.get_hosts().len().max(config.get_hostaddrs().len()) > 1;
        let wanted = match several && !chosen {
            true => TargetSessionAttrs::ReadWrite,
            false => config.get_target_session_attrs(),
        };
        let connect_limit = config.get_connect_timeout().copied().unwrap_or(CONNECT_WAIT_DEFAULT);
        Reach { config, tls, wanted, connect_limit }
    }

    /// The name of one of the hosts, for people, and how to reach it alone.
    pub(super) fn host(&self, place: usize) -> (String, tokio_postgres::Config) {
        let all = &self.config;
        let mut one = tokio_postgres::Config::new();
        let mut name = "the local server".to_owned();
        match all.get_hosts().get(place) {
            Some(Host::Tcp(host)) => {
                one.host(host);
                name.clone_from(host);
            }
            #[cfg(unix)]
            Some(Host::Unix(path)) => {
                one.host_path(path);
                name = path.display().to_string();
            }
            None => {}
        }
        if let Some(address) = all.get_hostaddrs().get(place) {
            one.hostaddr(*address);
            if all.get_hosts().is_empty() {
                name = address.to_string();
            }
        }
        let ports = all.get_ports();
        if let Some(port) = ports.get(place).or(if ports.len() == 1 { ports.first() } else { None }) {
            one.port(*port);
            name = format!("{name}:{port}");
        }
        copy_settings(all, &mut one);
        (name, one)
    }
}

/// Copies everything but the hosts. Which kind of server it is, the store asks for itself.
fn copy_settings(all: &tokio_postgres::Config, one: &mut tokio_postgres::Config) {
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(name) = all.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(name) = all.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = all.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(all.get_keepalives());
    one.keepalives_idle(all.get_keepalives_idle());
    one.ssl_mode(all.get_ssl_mode());
    one.ssl_negotiation(all.get_ssl_negotiation());
    one.channel_binding(all.get_channel_binding());
}

/// Refuses a name that would need quoting.
pub(super) fn check_schema(schema: &str) -> Result<()> {
    let first = schema.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let rest = schema.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if first && rest && schema.len() <= SCHEMA_BYTES_MAX && !schema.starts_with("pg_") {
        return Ok(());
    }
    // What follows a sign of URLs may be a piece of a password.
    let shown = schema.split([':', '/', '@', '?']).next().unwrap_or_default();
    Err(Error::invalid("schema", format!("{NO_SCHEMA}, is {shown:?}")))
}

/// What a schema is that needs no quoting.
const NO_SCHEMA: &str = "must be [a-z_][a-z0-9_]{0,62} and not begin with pg_";

/// Whether a password is given by its key: a `?` or `&` in it makes parameters of its rest, which must not be repeated.
fn names_password(url: &str) -> bool {
    url.to_ascii_lowercase().contains("password")
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
    /// Whether the URL names what the driver has a default for.
    target_session_attrs: bool,
    keepalives_idle: bool,
}

impl OwnParameters {
    /// Sets what the URL leaves open, so that a connection to a machine that has gone ends within seconds.
    fn fill_in(&self, config: &mut tokio_postgres::Config) {
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENT_MAX);
        }
        if !self.keepalives_idle {
            config.keepalives_idle(SILENT_MAX);
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_interval(KEEPALIVE_INTERVAL);
        }
        if config.get_keepalives_retries().is_none() {
            config.keepalives_retries(KEEPALIVE_RETRIES);
        }
    }

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
                    self.target_session_attrs |= name == "target_session_attrs";
                    self.keepalives_idle |= name == "keepalives_idle";
                    check_driver_parameter(url, name, pair)?;
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
fn check_driver_parameter(url: &str, name: &str, pair: &str) -> Result<()> {
    if format!("postgres://host/?{pair}").parse::<tokio_postgres::Config>().is_ok() {
        return Ok(());
    }
    // What is no name may be a piece of a password.
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let name = match is_name && !names_password(url) {
        true => format!("{name:?}"),
        false => "(hidden: it may be a piece of a password)".to_owned(),
    };
    let problem =
        format!("the parameter {name} is not known, or its value cannot be meant; docs/postgres.md lists them");
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
        assert_eq!((options.schema.as_str(), options.reach.tls.is_none()), ("jobs_2", true));
        assert_eq!(options.reach.config.get_application_name(), Some("x"));
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
        let refused = check_schema("x6:a:TOPSECRET@h").expect_err("no name").to_string();
        assert!(refused.contains("x6") && !refused.contains("TOPSECRET"), "{refused}");
        for good in ["a", "_x1", &"a".repeat(63)] {
            assert!(check_schema(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "1a", "a-b", "a b", "a\"", "pg_x", &"a".repeat(64)] {
            assert!(check_schema(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_that_looks_like_a_parameter_is_not_repeated() {
        let refused = PostgresOptions::new("postgres://ada:x/db?secret=1&v@host/db").expect_err("no such parameter");
        assert!(!refused.to_string().contains("secret"), "{refused}");
        let refused = PostgresOptions::new("postgres://ada:x/db?schema=secret-&v@host/db").expect_err("no such schema");
        assert!(!refused.to_string().contains("secret"), "{refused}");
        for url in
            ["host=h password=?secret", "postgres://host/db?password=a&secret", "host=h password=a?schema=Secret"]
        {
            let refused = PostgresOptions::new(url).expect_err("no such parameter").to_string();
            assert!(!refused.to_ascii_lowercase().contains("secret"), "{refused}");
        }
        let named = PostgresOptions::new("postgres://ada@host/db?sslmod=1").expect_err("no such parameter").to_string();
        assert!(named.contains("sslmod"), "{named}");
    }

    #[test]
    fn the_password_is_not_shown() {
        let options = PostgresOptions::new("postgres://u:hunter2@h/db").expect("valid");
        assert!(!format!("{options:?}").contains("hunter2"));
        let refused = PostgresOptions::new("postgres://u:hunter2@h:no/db").expect_err("bad port");
        assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{refused}");
    }
}
