//! One attempt as a process: payload in, exit code out.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;
use windlass::worker::HandlerResult;
use windlass::{Context, Failure, Payload};

use super::environment::Environment;
use super::group::{Count, Group};
use super::leftover;
use super::pipes::{self, Keep, Kept, Output};

/// `EX_DATAERR`: the job can never succeed.
const EXIT_FOR_GOOD: i32 = 65;
/// How much of the end of standard error becomes the message; failures keep 8 KiB in all.
const STDERR_BYTES_MAX: usize = 7 * 1024;

/// A program that runs jobs.
#[derive(Debug)]
pub struct Program {
    program: OsString,
    arguments: Vec<OsString>,
    kill_after: Duration,
    environment: Environment,
    count: Count,
}

impl Program {
    /// A program and its arguments, as they are: no shell looks at them.
    pub fn new(program: impl Into<OsString>, arguments: Vec<OsString>, kill_after: Duration) -> Self {
        let environment = Environment::default();
        Program { program: program.into(), arguments, kill_after, environment, count: Count::new() }
    }

    /// Sets what of this process's environment it sees.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// A command for the shell.
    pub fn shell(command: impl Into<OsString>, arguments: Vec<OsString>, kill_after: Duration) -> Self {
        // What follows the command is $0 and on for it.
        let all = [OsString::from("-c"), command.into(), OsString::from("sh")].into_iter().chain(arguments).collect();
        Program::new("/bin/sh", all, kill_after)
    }

    /// The processes that have not ended.
    pub(super) fn count(&self) -> Count {
        self.count.clone()
    }

    /// Runs an attempt, and nothing of an earlier one beside it.
    pub(super) async fn run(&self, payload: Payload, cx: Context<super::Runner>) -> HandlerResult {
        if cx.job().lease_version > 1 {
            // The worker that ran it before may have been killed, and its program still be at work.
            let killed = leftover::kill("WINDLASS_JOB_ID", &cx.id().to_string());
            if killed > 0 {
                tracing::warn!(job = %cx.id(), killed, "killed what an earlier attempt had left running");
            }
        }
        self.run_alone(payload, cx).await
    }

    async fn run_alone(&self, payload: Payload, cx: Context<super::Runner>) -> HandlerResult {
        let spawned = self.command(&payload, &cx).spawn();
        let mut child = spawned.map_err(|error| {
            let program = self.program.to_string_lossy();
            Failure::temporary(format!("cannot start {program:?}: {error}")).with_code("not_started")
        })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut group = Group::new(child, self.kill_after, &self.count, cx.attempt_id().to_string());
        let limit = cx.client().limits_in_force().payload_bytes();
        if let Some(stdin) = stdin {
            pipes::write(stdin, payload.as_bytes().clone());
        }
        let stdout = Output::read(stdout.expect("it was piped"), Keep::First(limit));
        let stderr = Output::read(stderr.expect("it was piped"), Keep::Last(STDERR_BYTES_MAX));
        let ended = tokio::select! {
            biased;
            ended = group.ended() => ended,
            () = cx.cancelled() => {
                group.end().await;
                let said = stderr.kept().await;
                return Err(Failure::temporary(told("it was told to stop", &said)).with_code("stopped"));
            }
        };
        let status = ended.map_err(|error| Failure::temporary(format!("cannot wait for the process: {error}")))?;
        if !status.success() {
            // What a success left running on purpose is its own business.
            group.kill();
        }
        let (out, said) = tokio::join!(stdout.kept(), stderr.kept());
        if out.cut {
            let _ = cx.log(format!("standard output had more than {limit} bytes and was not kept")).await;
        }
        judge(status, &out, &said)
    }

    fn command(&self, payload: &Payload, cx: &Context<super::Runner>) -> Command {
        let mut command = Command::new(&self.program);
        self.environment.apply(&mut command);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Its own group, so that it and all it started can be ended, and so that Ctrl-C reaches only us.
            .process_group(0);
        for (name, value) in super::described(payload, cx) {
            command.env(format!("WINDLASS_JOB_{}", name.to_uppercase()), value);
        }
        if let Some(trace) = super::trace(cx) {
            command.env("TRACEPARENT", trace.parent);
            if let Some(state) = trace.state {
                command.env("TRACESTATE", state);
            }
        }
        command
    }
}

/// What the end of a process means.
fn judge(status: ExitStatus, out: &Kept, said: &Kept) -> HandlerResult {
    match status.code() {
        Some(0) => Ok(result(out)),
        Some(EXIT_FOR_GOOD) => Err(Failure::permanent("exit_65", told("exit code 65", said))),
        Some(code) => {
            Err(Failure::temporary(told(&format!("exit code {code}"), said)).with_code(format!("exit_{code}")))
        }
        None => {
            let signal = status.signal().unwrap_or(0);
            Err(Failure::temporary(told(&format!("ended by signal {signal}"), said))
                .with_code(format!("signal_{signal}")))
        }
    }
}

/// Standard output, if it is JSON.
fn result(out: &Kept) -> Option<Payload> {
    let text = out.bytes.trim_ascii();
    if out.cut || text.is_empty() {
        return None;
    }
    Payload::json_text(text.to_vec()).ok()
}

/// A message: what happened, and the end of what the process said about it.
fn told(what: &str, said: &Kept) -> String {
    let text = String::from_utf8_lossy(&said.bytes);
    let text = text.trim();
    match (text.is_empty(), said.cut) {
        (true, _) => what.to_owned(),
        (false, false) => format!("{what}: {text}"),
        (false, true) => format!("{what}: … {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes: &[u8]) -> Kept {
        Kept { bytes: bytes.to_vec(), cut: false }
    }

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn exit_codes_decide() {
        assert_eq!(
            judge(exit(0), &kept(b"{\"a\":1}\n"), &kept(b"")),
            Ok(Some(Payload::json(&serde_json::json!({"a": 1})).expect("json")))
        );
        assert_eq!(judge(exit(0), &kept(b"plain words"), &kept(b"")), Ok(None));
        assert_eq!(judge(exit(0), &kept(b" \n"), &kept(b"")), Ok(None));
        let failure = |code| judge(exit(code), &kept(b""), &kept(b"no such user\n")).expect_err("it failed");
        assert_eq!(failure(65).category(), windlass::Category::Permanent);
        assert_eq!(failure(75).category(), windlass::Category::Temporary);
        assert_eq!(failure(3).code(), Some("exit_3"));
        assert_eq!(failure(3).message(), "exit code 3: no such user");
        let killed = judge(ExitStatus::from_raw(9), &kept(b""), &kept(b"")).expect_err("killed");
        assert_eq!((killed.code(), killed.message()), (Some("signal_9"), "ended by signal 9"));
    }

    #[test]
    fn only_the_end_of_long_words_is_kept() {
        let said = Kept { bytes: b"the end".to_vec(), cut: true };
        assert_eq!(told("exit code 1", &said), "exit code 1: … the end");
    }
}
