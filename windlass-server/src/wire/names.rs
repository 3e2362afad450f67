//! What the library's own small types look like in the OpenAPI document. Only descriptions: nothing is made of these.
//!
//! The names of an enum's values come from its `ALL`, so that a new value describes itself.

use serde::Serialize;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use windlass::job::{DependencyKind, Lost, OnExisting, Outcome, ReasonKind, Scope, SimpleState, Stale, Until};
use windlass::schedule::Overlap;
use windlass::workflow::WorkflowState;
use windlass::{Category, Priority, State};

/// An identity.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, format = "uuid")]
pub struct Id(pub String);

macro_rules! names {
    ($($(#[doc = $doc:literal])* $name:ident of $enum:ident;)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    described(&$enum::ALL, concat!($($doc),*).trim_start())
                }
            }

            impl ToSchema for $name {
                fn name() -> std::borrow::Cow<'static, str> {
                    stringify!($enum).into()
                }
            }
        )*
    };
}

names! {
    /// Where a job stands.
    StateName of State;
    /// Where a job stands, for simple tools: waiting for whatever it waits for, running, ended well, ended otherwise.
    SimpleStateName of SimpleState;
    /// How urgent a job is; the first is claimed first.
    PriorityName of Priority;
    /// What kind of failure it was.
    CategoryName of Category;
    /// How an attempt ended. The first seven are said by the lease holder, the last two happen to it.
    OutcomeName of Outcome;
    /// Why a lease does not hold.
    StaleName of Stale;
    /// Why a job is terminal.
    ReasonKindName of ReasonKind;
    /// What counts as done of a job that is waited for, and what its bad end does.
    DependencyKindName of DependencyKind;
    /// Among which jobs an idempotency key is unique.
    ScopeName of Scope;
    /// Up to when an idempotency key stands for its job: for its window, until the job is first claimed, until it ends.
    UntilName of Until;
    /// What becomes of the job that an idempotency key stands for: it stays, or makes room if it was never claimed.
    OnExistingName of OnExisting;
    /// How a workflow as a whole stands.
    WorkflowStateName of WorkflowState;
    /// What a lost attempt costs.
    LostName of Lost;
    /// What becomes of a slot while the last firing's job is not terminal.
    OverlapName of Overlap;
}

/// A text that is the name of one of these values in JSON.
fn described<T: Serialize>(all: &[T], description: &str) -> RefOr<Schema> {
    let names = all.iter().map(|value| serde_json::to_value(value).expect("a name is plain JSON"));
    let text = ObjectBuilder::new().schema_type(SchemaType::new(Type::String)).enum_values(Some(names));
    Schema::Object(text.description(Some(description)).build()).into()
}
