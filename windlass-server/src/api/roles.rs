//! What a caller needs to be for a request. The guard asks here; the handlers do not know.

use std::fmt;
use std::str::FromStr;

use axum::http::Method;

/// What a caller may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look at everything.
    Read,
    /// Submit jobs and workflows.
    Produce,
    /// Claim jobs and settle them.
    Work,
    /// Act on jobs, queues, workflows and schedules.
    Operate,
    /// Run upkeep and checks of the store.
    Admin,
}

impl Role {
    /// All five.
    pub const ALL: [Role; 5] = [Role::Read, Role::Produce, Role::Work, Role::Operate, Role::Admin];

    /// Whether a caller with this role may do what needs `needed`: everybody may look, an operator may submit, an
    /// admin may do all.
    pub fn covers(self, needed: Role) -> bool {
        match self {
            Role::Admin => true,
            Role::Operate => matches!(needed, Role::Read | Role::Produce | Role::Operate),
            Role::Work => matches!(needed, Role::Read | Role::Produce | Role::Work),
            Role::Produce => matches!(needed, Role::Read | Role::Produce),
            Role::Read => needed == Role::Read,
        }
    }

    /// Its name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Produce => "produce",
            Role::Work => "work",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Role::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is none of read, produce, work, operate, admin"))
    }
}

/// The role that a request needs. What no route answers needs the highest one.
pub fn role_for(method: &Method, path: &str) -> Role {
    let mut segments = path.strip_prefix("/v1/").unwrap_or("").split('/');
    let (first, second, third) = (segments.next().unwrap_or(""), segments.next(), segments.next());
    let reads = *method == Method::GET || *method == Method::HEAD;
    match (first, second, third) {
        ("wakes", ..) => Role::Work,
        ("check" | "upkeep", ..) => Role::Admin,
        ("claims" | "leases", ..) => Role::Work,
        ("workers", ..) if !reads => Role::Work,
        ("jobs" | "workflows", Some("find"), None) if *method == Method::POST => Role::Read,
        ("jobs" | "workflows", None, _) | ("jobs", Some("batch"), None) if *method == Method::POST => Role::Produce,
        (
            "jobs" | "queues" | "workflows" | "schedules" | "workers" | "operations" | "acts" | "events" | "stats"
            | "time" | "openapi.json",
            ..,
        ) if reads => Role::Read,
        ("jobs" | "queues" | "workflows" | "schedules" | "operations", ..) => Role::Operate,
        _ => Role::Admin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_needs_the_role_that_its_work_is_for() {
        let table = [
            ("GET", "/v1/jobs", Role::Read),
            ("GET", "/v1/jobs/x/wait", Role::Read),
            ("POST", "/v1/jobs/find", Role::Read),
            ("POST", "/v1/jobs", Role::Produce),
            ("POST", "/v1/jobs/batch", Role::Produce),
            ("POST", "/v1/workflows", Role::Produce),
            ("POST", "/v1/jobs/x/cancel", Role::Operate),
            ("POST", "/v1/jobs/batch/cancel", Role::Operate),
            ("PATCH", "/v1/jobs/x", Role::Operate),
            ("DELETE", "/v1/jobs/find", Role::Operate),
            ("POST", "/v1/operations", Role::Operate),
            ("POST", "/v1/queues/mail/purge", Role::Operate),
            ("PUT", "/v1/schedules/nightly", Role::Operate),
            ("POST", "/v1/claims", Role::Work),
            ("POST", "/v1/leases/settle", Role::Work),
            ("POST", "/v1/workers", Role::Work),
            ("GET", "/v1/workers", Role::Read),
            ("GET", "/v1/wakes", Role::Work),
            ("GET", "/v1/events", Role::Read),
            ("POST", "/v1/upkeep", Role::Admin),
            ("GET", "/v1/check", Role::Admin),
            ("GET", "/v1/openapi.json", Role::Read),
            ("GET", "/elsewhere", Role::Admin),
            ("POST", "/v1/stats", Role::Admin),
        ];
        for (method, path, role) in table {
            let method: Method = method.parse().expect("a method");
            assert_eq!(role_for(&method, path), role, "{method} {path}");
        }
    }
}
