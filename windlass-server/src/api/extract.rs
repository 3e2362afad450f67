//! What handlers take out of a request, each refused with a problem that says what is wrong.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query as AxumQuery, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use windlass::job::SimpleState;
use windlass::store::{Cursor, PAGE_MAX};
use windlass::{Error, Timestamp};

use super::error::Refusal;
use crate::wire::{self, Kind, Span};

/// Longest piece of what a caller sent that an answer repeats.
const SHOWN_CHARS_MAX: usize = 64;
/// Rows on a page that names no limit.
pub(super) const PAGE_DEFAULT: usize = 50;

/// Who calls, as far as the guard knows; left by it in the request's extensions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// The caller's name, for the record of acts. It wins over what a request says.
    pub name: Option<String>,
    /// Whether the caller may not see payloads, results and checkpoints.
    pub payloads_hidden: bool,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Caller>().cloned().unwrap_or_default())
    }
}

/// A JSON body of the right shape.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let is_json = is_json(request.headers());
        let bytes = read(request, state).await?;
        if !is_json {
            let detail = "the body must be JSON, with the content type application/json";
            return Err(Refusal::new(Kind::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        parse(&bytes).map(Body)
    }
}

/// A JSON body that may be left out.
#[derive(Debug)]
pub(super) struct MaybeBody<T>(pub(super) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for MaybeBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let is_json = is_json(request.headers());
        let bytes = read(request, state).await?;
        if bytes.is_empty() {
            return Ok(MaybeBody(T::default()));
        }
        if !is_json {
            let detail = "the body must be JSON, with the content type application/json";
            return Err(Refusal::new(Kind::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        parse::<Option<T>>(&bytes).map(|body| MaybeBody(body.unwrap_or_default()))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|value| value.split(';').next()).map(str::trim);
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
}

/// Refuses a body that is packed: what is not unpacked here would be taken for broken JSON.
fn check_encodings(headers: &HeaderMap) -> Result<(), Refusal> {
    for (name, plain) in [(header::CONTENT_ENCODING, "identity"), (header::TRANSFER_ENCODING, "chunked")] {
        for value in headers.get_all(&name) {
            if !value.to_str().is_ok_and(|value| value.trim().eq_ignore_ascii_case(plain)) {
                let detail = format!("bodies are read as they are: {name} may only be {plain}");
                return Err(Refusal::new(Kind::UNSUPPORTED_MEDIA_TYPE, detail).field(name.as_str()));
            }
        }
    }
    Ok(())
}

async fn read<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Refusal> {
    check_encodings(request.headers())?;
    Bytes::from_request(request, state).await.map_err(|rejection| {
        if rejection.status().as_u16() == Kind::PAYLOAD_TOO_LARGE.status {
            Refusal::new(Kind::PAYLOAD_TOO_LARGE, "the body is larger than this server reads")
        } else {
            Refusal::new(Kind::INVALID_BODY, "the body cannot be read to its end")
        }
    })
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    // The derived readers would take an array for an object, member by member.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Refusal::new(Kind::INVALID_BODY, "the body must be an object"));
    }
    wire::read(bytes).map_err(|error| {
        let refusal = Refusal::new(Kind::INVALID_BODY, error.to_string());
        match field_of::<T>(bytes) {
            Some(field) => refusal.field(&field),
            None => refusal,
        }
    })
}

/// The member at which a body stops being of the right shape: `jobs[3].max_attempts`. Read a second time for it, because
/// keeping the way costs every reader.
fn field_of<T: DeserializeOwned>(bytes: &[u8]) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let error = serde_path_to_error::deserialize::<_, T>(&mut reader).err()?;
    let field = error.path().to_string();
    Some(shown(&field)).filter(|field| field != ".")
}

/// An id in the path.
#[derive(Debug)]
pub(super) struct Id<T>(pub(super) T);

impl<T: FromStr<Err = Error> + Send, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Name(text) = Name::from_request_parts(parts, state).await?;
        Ok(Id(text.parse()?))
    }
}

/// A name in the path. A leading tilde is taken off: `~..` is how a URL can name the queue `..`.
#[derive(Debug)]
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(name) = path.map_err(|_| Error::invalid("name", "in the path is not percent-encoded UTF-8"))?;
        Ok(Name(name.strip_prefix('~').map_or_else(|| name.clone(), str::to_owned)))
    }
}

/// Two names in a path: a queue and a key of it.
#[derive(Debug)]
pub(super) struct Names(pub(super) String, pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((one, other)) =
            path.map_err(|_| Error::invalid("name", "in the path is not percent-encoded UTF-8"))?;
        let plain = |name: String| name.strip_prefix('~').map_or_else(|| name.clone(), str::to_owned);
        Ok(Names(plain(one), plain(other)))
    }
}

/// The parameters of a query. Each is taken once; what is left over is refused.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let pairs = AxumQuery::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let AxumQuery(pairs) = pairs.map_err(|_| Error::invalid("query", "cannot be read"))?;
        Ok(Query(pairs))
    }
}

impl Query {
    /// A parameter that may come once.
    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, Error> {
        let mut found = None;
        while let Some(at) = self.0.iter().position(|(key, _)| key == name) {
            let (_, value) = self.0.swap_remove(at);
            if found.replace(value).is_some() {
                return Err(Error::invalid(name, "is given twice"));
            }
        }
        Ok(found)
    }

    /// A parameter that may come several times.
    pub(super) fn texts(&mut self, name: &str) -> Vec<String> {
        let (known, rest) = std::mem::take(&mut self.0).into_iter().partition(|(key, _)| key == name);
        self.0 = rest;
        let known: Vec<(String, String)> = known;
        known.into_iter().map(|(_, value)| value).collect()
    }

    /// A parameter of some type.
    pub(super) fn parsed<T: FromStr>(&mut self, name: &'static str, is: &str) -> Result<Option<T>, Error> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let refuse = |_| Error::invalid(name, format!("must be {is}, is {:?}", shown(&text)));
        text.parse().map(Some).map_err(refuse)
    }

    /// A number within bounds.
    pub(super) fn number(
        &mut self,
        name: &'static str,
        bounds: RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, Error> {
        let is = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        let number = self.parsed::<u64>(name, &is)?.unwrap_or(default);
        if bounds.contains(&number) {
            return Ok(number);
        }
        Err(Error::invalid(name, format!("must be {is}, is {number}")))
    }

    /// How many rows a page shall have.
    pub(super) fn limit(&mut self) -> Result<usize, Error> {
        let limit = self.number("limit", 1..=PAGE_MAX as u64, PAGE_DEFAULT as u64)?;
        Ok(usize::try_from(limit).expect("a page fits into memory"))
    }

    /// Where the last page ended.
    pub(super) fn cursor(&mut self) -> Result<Option<Cursor>, Error> {
        Ok(self.text("cursor")?.map(Cursor))
    }

    /// A duration up to a longest one.
    pub(super) fn duration(
        &mut self,
        name: &'static str,
        longest: Duration,
        default: Duration,
    ) -> Result<Duration, Error> {
        let Span(duration) = self.parsed(name, "a duration such as 30s")?.unwrap_or(Span(default));
        check_duration(name, duration, longest)?;
        Ok(duration)
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, name: &'static str, default: bool) -> Result<bool, Error> {
        Ok(self.parsed(name, "true or false")?.unwrap_or(default))
    }

    /// A moment.
    pub(super) fn time(&mut self, name: &'static str) -> Result<Option<Timestamp>, Error> {
        self.parsed(name, "an RFC 3339 time")
    }

    /// The conditions of a list: `state` may come several times or hold several, tags come as `tag.key=value`.
    pub(super) fn filter(&mut self) -> Result<windlass::store::Filter, Error> {
        let mut state = Vec::new();
        let mut simple_state = Vec::new();
        let mut tags = BTreeMap::new();
        let (known, rest) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(key, _)| key == "state" || key == "simple_state" || key.starts_with("tag."));
        self.0 = rest;
        for (key, value) in known {
            match key.strip_prefix("tag.") {
                Some(tag) => {
                    if tags.insert(tag.to_owned(), value).is_some() {
                        return Err(Error::invalid("tags", format!("{:?} is given twice", shown(tag))));
                    }
                }
                None if key == "state" => {
                    for name in value.split(',') {
                        state.push(name.parse()?);
                    }
                }
                None => {
                    for name in value.split(',') {
                        simple_state.push(parse_simple_state(name)?);
                    }
                }
            }
        }
        let filter = wire::Filter {
            state,
            simple_state,
            queue: self.text("queue")?,
            job_type: self.text("type")?,
            tags,
            workflow: self.parsed("workflow", "a UUID")?,
            schedule: self.text("schedule")?,
            correlation_id: self.text("correlation_id")?,
            code: self.text("code")?,
            created_after: self.time("created_after")?,
            created_before: self.time("created_before")?,
            ended_before: self.time("ended_before")?,
            ended_after: self.time("ended_after")?,
            changed_before: self.time("changed_before")?,
            fingerprint: self.text("fingerprint")?.map(|text| text.parse()).transpose()?,
            worker: self.text("worker")?,
            key: self.text("key")?,
            text: self.text("text")?,
        };
        filter.try_into()
    }

    /// Who acts: the caller's own name, or else the one that the request gives.
    pub(super) fn by(&mut self, caller: &Caller) -> Result<Option<String>, Error> {
        let said = self.text("by")?;
        Ok(caller.name.clone().or(said))
    }

    /// Refuses parameters that nothing has taken.
    pub(super) fn done(self) -> Result<(), Error> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Error::invalid("query", format!("{:?} is not a parameter here", shown(name)))),
        }
    }
}

fn parse_simple_state(name: &str) -> Result<SimpleState, Error> {
    let text = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name);
    SimpleState::deserialize(text).map_err(|_| {
        let problem = format!("must be ready, in_flight, succeeded or failed, is {:?}", shown(name));
        Error::invalid("simple_state", problem)
    })
}

/// Refuses a duration over a longest one.
pub(super) fn check_duration(name: &'static str, duration: Duration, longest: Duration) -> Result<(), Error> {
    if duration <= longest {
        return Ok(());
    }
    Err(Error::invalid(name, format!("must be at most {}, is {}", Span(longest), Span(duration))))
}

/// Refuses a list that is empty or too long.
pub(super) fn check_count(name: &'static str, count: usize, most: usize) -> Result<(), Error> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(Error::invalid(name, format!("must be 1 to {most}, are {count}")))
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
