//! What of this process's environment its programs see.

use std::ffi::OsString;

use tokio::process::Command;

/// Windlass's own secrets: a program that runs jobs needs none of them.
const SECRETS: [&str; 7] = [
    "WINDLASS_TOKEN",
    "WINDLASS_STORE",
    "WINDLASS_MOVED_TO",
    "WINDLASS_CONFIG",
    "WINDLASS_WEBHOOK_SECRETS",
    "WINDLASS_ENCRYPTION_KEYS",
    "WINDLASS_TLS_KEY",
];
/// What is left of a clean environment: where programs are, who runs them, and how they speak.
const PLAIN: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"];

/// What programs see.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Whether only the few plain variables are passed on.
    pub clean: bool,
    /// Variables that are passed on all the same.
    pub passed: Vec<String>,
}

impl Environment {
    /// Takes from a command what its program must not see.
    pub(super) fn apply(&self, command: &mut Command) {
        self.apply_from(command, std::env::vars_os());
    }

    fn apply_from(&self, command: &mut Command, all: impl Iterator<Item = (OsString, OsString)>) {
        if self.clean {
            command.env_clear();
        }
        for (name, value) in all {
            let Some(text) = name.to_str() else { continue };
            let plain = PLAIN.contains(&text) || text.starts_with("LC_");
            match self.passed.iter().any(|passed| passed == text) {
                true => command.env(&name, value),
                false if self.clean && plain => command.env(&name, value),
                false if SECRETS.contains(&text) => command.env_remove(&name),
                false => continue,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program is told about these variables: their value, that they are taken away, or nothing.
    fn told(environment: &Environment) -> Vec<(String, Option<String>)> {
        let all = ["WINDLASS_TOKEN", "WINDLASS_SERVER", "PATH", "LC_ALL", "AWS_SECRET_ACCESS_KEY"];
        let mut command = Command::new("true");
        environment.apply_from(&mut command, all.into_iter().map(|name| (name.into(), "x".into())));
        let text = |text: &std::ffi::OsStr| text.to_str().expect("text").to_owned();
        command.as_std().get_envs().map(|(name, value)| (text(name), value.map(text))).collect()
    }

    fn set(name: &str) -> (String, Option<String>) {
        (name.to_owned(), Some("x".to_owned()))
    }

    #[test]
    fn m3_secrets_are_taken_away_and_the_rest_stays() {
        assert_eq!(told(&Environment::default()), [("WINDLASS_TOKEN".to_owned(), None)]);
    }

    #[test]
    fn m3_a_clean_environment_holds_what_is_plain_and_what_was_named() {
        let passed = vec!["WINDLASS_TOKEN".to_owned()];
        assert_eq!(told(&Environment { clean: true, passed }), [set("LC_ALL"), set("PATH"), set("WINDLASS_TOKEN")]);
    }
}
