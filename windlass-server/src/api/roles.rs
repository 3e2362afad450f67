//! What a caller may do. Each route is registered with the role that it needs; the guard asks here before it lets a
//! request through, and the handlers do not know.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use axum::http::Method;
use matchit::Router;
use utoipa::openapi::path::PathItem;
use utoipa::openapi::security::SecurityRequirement;
use utoipa_axum::router::UtoipaMethodRouter;

use super::ApiState;

/// The name of the security scheme, under which the description of a route holds its role.
pub(super) const SCHEME: &str = "token";

/// What a caller may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look at everything.
    Read,
    /// Submit jobs and workflows, and look at nothing.
    Submit,
    /// Submit jobs and workflows, and look.
    Produce,
    /// Claim jobs and settle them.
    Work,
    /// Act on jobs, queues, workflows and schedules.
    Operate,
    /// Run upkeep and checks of the store.
    Admin,
}

impl Role {
    /// All six.
    pub const ALL: [Role; 6] = [Role::Read, Role::Submit, Role::Produce, Role::Work, Role::Operate, Role::Admin];

    /// Whether a caller with this role may do what needs `needed`: everybody may look, an operator may submit, an
    /// admin may do all.
    pub fn covers(self, needed: Role) -> bool {
        match self {
            Role::Admin => true,
            Role::Operate => matches!(needed, Role::Read | Role::Produce | Role::Operate),
            Role::Work => matches!(needed, Role::Read | Role::Produce | Role::Work),
            Role::Produce => matches!(needed, Role::Read | Role::Produce),
            Role::Submit => needed == Role::Produce,
            Role::Read => needed == Role::Read,
        }
    }

    /// Whether it may see payloads, results and the like where the configuration hides them: who runs jobs must, and who
    /// looks after them may.
    pub fn sees_payloads(self) -> bool {
        matches!(self, Role::Work | Role::Operate | Role::Admin)
    }

    /// Its name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Submit => "submit",
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
        found.ok_or_else(|| format!("{text:?} is none of read, submit, produce, work, operate, admin"))
    }
}

/// Routes that need a role: written into their description, where [`role_for`] and the callers find it.
pub(super) fn needs(role: Role, mut routes: UtoipaMethodRouter<ApiState>) -> UtoipaMethodRouter<ApiState> {
    // The empty requirement: a server without tokens lets everybody do everything.
    let requirements = || vec![SecurityRequirement::default(), SecurityRequirement::new(SCHEME, [role.as_str()])];
    let (_, paths, _) = &mut routes;
    for item in paths.paths.values_mut() {
        let PathItem { get, put, post, delete, patch, .. } = item;
        for operation in [get, put, post, delete, patch].into_iter().flatten() {
            operation.security = Some(requirements());
        }
    }
    routes
}

/// The role that a request needs. What no route answers needs the highest one.
pub fn role_for(method: &Method, path: &str) -> Role {
    static ROLES: LazyLock<Router<HashMap<Method, Role>>> = LazyLock::new(roles);
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    ROLES.at(path).ok().and_then(|found| found.value.get(method).copied()).unwrap_or(Role::Admin)
}

/// The roles of all routes, found by a path as the API's own router finds its handler.
fn roles() -> Router<HashMap<Method, Role>> {
    let document = serde_json::to_value(super::routes().into_openapi()).expect("a description is plain JSON");
    let mut roles = Router::new();
    for (path, operations) in document["paths"].as_object().into_iter().flatten() {
        let operations = operations.as_object().into_iter().flatten();
        let of_methods = operations.filter_map(|(method, operation)| {
            let role = operation.pointer(&format!("/security/1/{SCHEME}/0"))?.as_str()?.parse().ok()?;
            Some((method.to_uppercase().parse().ok()?, role))
        });
        roles.insert(path, of_methods.collect()).expect("the API's own router takes these paths");
    }
    roles
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
            ("POST", "/v1/operations", Role::Operate),
            ("POST", "/v1/queues/mail/purge", Role::Operate),
            ("PUT", "/v1/schedules/nightly", Role::Operate),
            ("POST", "/v1/claims", Role::Work),
            ("POST", "/v1/leases/settle", Role::Work),
            ("POST", "/v1/workers", Role::Work),
            ("GET", "/v1/workers", Role::Read),
            ("GET", "/v1/policies", Role::Read),
            ("GET", "/v1/wakes", Role::Work),
            ("GET", "/v1/events", Role::Read),
            ("POST", "/v1/upkeep", Role::Admin),
            ("GET", "/v1/check", Role::Admin),
            ("GET", "/v1/openapi.json", Role::Read),
            ("GET", "/v1/me", Role::Read),
            ("GET", "/v1/server", Role::Read),
            ("GET", "/v1/firings", Role::Read),
            ("GET", "/v1/series", Role::Read),
            ("GET", "/v1/lanes", Role::Read),
            ("GET", "/v1/pulse", Role::Read),
            ("GET", "/v1/jobs/x/history", Role::Read),
            ("POST", "/v1/schedules/preview", Role::Read),
            ("GET", "/v1/errors", Role::Read),
            ("GET", "/v1/samples", Role::Read),
            ("POST", "/v1/samples", Role::Admin),
            ("GET", "/v1/attention", Role::Read),
            ("GET", "/v1/jobs/x/payload", Role::Read),
            ("HEAD", "/v1/jobs/x/wait", Role::Read),
            // What no route answers: the path of a route with another method is not one.
            ("GET", "/elsewhere", Role::Admin),
            ("POST", "/v1/stats", Role::Admin),
            ("DELETE", "/v1/jobs/find", Role::Admin),
            ("GET", "/v1/jobs/", Role::Admin),
        ];
        for (method, path, role) in table {
            let method: Method = method.parse().expect("a method");
            assert_eq!(role_for(&method, path), role, "{method} {path}");
        }
    }
}
