//! `windlass worker`: real programs and real URLs as handlers.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use windlass::{Category, Client, JobId, NewJob, Payload, RetryPolicy, State};

use crate::support::{Place, Process, SOON, http, reaches, script, until};

fn quick(job_type: &str, payload: &str) -> NewJob {
    let retry = RetryPolicy::standard().initial(Duration::from_millis(50)).max_attempts(2);
    NewJob::new(job_type, Payload::json_text(payload.to_owned()).expect("JSON")).retry(retry)
}

async fn enqueue(client: &Client, job: NewJob) -> JobId {
    client.enqueue(job).await.expect("enqueue").id
}

/// A worker with a program that does what the job's type says.
fn worker(place: &Place, text: &str, more: &[&str]) -> Process {
    let program = script(place.folder.path(), "handler", text);
    let program = program.to_str().expect("a plain path");
    place.start(&[&["worker", "--exec", program], more].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_and_output_decide() {
    let place = Place::new();
    let client = place.client().await;
    let _worker = worker(
        &place,
        r#"case "$WINDLASS_JOB_TYPE" in
            echo) cat ;;
            about) printf '{"id":"%s","attempt":"%s","version":"%s","queue":"%s","attempt_id":"%s"}' "$WINDLASS_JOB_ID" "$WINDLASS_JOB_ATTEMPT" "$WINDLASS_JOB_LEASE_VERSION" "$WINDLASS_JOB_QUEUE" "$WINDLASS_JOB_ATTEMPT_ID" ;;
            before) [ -n "$WINDLASS_JOB_PREVIOUS_ATTEMPT_ID" ] || exit 75; printf '"%s"' "$WINDLASS_JOB_PREVIOUS_ATTEMPT_ID" ;;
            words) echo not json ;;
            again) echo "the bank is away" >&2; exit 75 ;;
            other) echo "no idea" >&2; exit 3 ;;
            never) echo "no such user" >&2; exit 65 ;;
            noisy) i=0; while [ $i -lt 3000 ]; do echo "line $i of what went wrong" >&2; i=$((i+1)); done; exit 65 ;;
            deaf) exit 0 ;;
            suicide) kill -9 $$ ;;
        esac"#,
        &["--concurrency", "4"],
    );
    let large = format!("\"{}\"", "x".repeat(900_000));
    let ids: Vec<JobId> = {
        let mut ids = Vec::new();
        for (job_type, payload) in [("echo", large.as_str()), ("about", "1"), ("words", "1"), ("deaf", large.as_str())]
        {
            ids.push(enqueue(&client, quick(job_type, payload)).await);
        }
        ids
    };
    let done = reaches(&client, ids[0], State::Completed).await;
    assert_eq!(done.result.expect("a result").len(), large.len());
    let about = reaches(&client, ids[1], State::Completed).await;
    let told: Value = about.result.expect("a result").decode().expect("JSON");
    assert_eq!(told["id"], ids[1].to_string());
    assert_eq!(
        (told["attempt"].as_str(), told["version"].as_str(), told["queue"].as_str()),
        (Some("1"), Some("1"), Some("default"))
    );
    assert_eq!(told["attempt_id"].as_str().map(str::len), Some(36));
    assert_eq!(reaches(&client, ids[2], State::Completed).await.result, None);
    assert_eq!(reaches(&client, ids[3], State::Completed).await.result, None);
    for (job_type, state, code, attempts) in [
        ("again", State::DeadLetter, "exit_75", 2),
        ("other", State::DeadLetter, "exit_3", 2),
        ("never", State::Failed, "exit_65", 1),
        ("suicide", State::DeadLetter, "signal_9", 2),
    ] {
        let id = enqueue(&client, quick(job_type, "1")).await;
        let job = reaches(&client, id, state).await;
        let failure = job.failure.expect("a failure");
        assert_eq!((failure.code.as_deref(), job.attempt), (Some(code), attempts), "{job_type}");
    }
    let before = enqueue(&client, quick("before", "1")).await;
    let told = reaches(&client, before, State::Completed).await.result.expect("a result").decode::<String>();
    let attempts = client.store().attempts(before).await.expect("attempts");
    assert_eq!(told.expect("JSON"), attempts[0].id.to_string(), "the attempt before it (S1.88)");
    let noisy = enqueue(&client, quick("noisy", "1")).await;
    let message = reaches(&client, noisy, State::Failed).await.failure.expect("a failure").message;
    assert!(message.ends_with("line 2999 of what went wrong") && message.len() < 8192, "{}", message.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_types_and_queues_that_were_asked_for_are_run() {
    let place = Place::new();
    let client = place.client().await;
    let other = enqueue(&client, quick("b", "1")).await;
    let elsewhere = enqueue(&client, quick("a", "1").queue("elsewhere")).await;
    let own = enqueue(&client, quick("a", "1").queue("mail")).await;
    let _worker = worker(&place, "cat >/dev/null", &["--type", "a", "--queue", "mail=2", "--queue", "default"]);
    reaches(&client, own, State::Completed).await;
    assert_eq!(client.job(other).await.expect("a job").attempt, 0);
    assert_eq!(client.job(elsewhere).await.expect("a job").attempt, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_shell_reads_the_arguments_unless_asked_to() {
    let place = Place::new();
    let client = place.client().await;
    let plain =
        place.start(&["worker", "--exec", "printf", "--queue", "plain", "--", "[\"%s\"]", "$(id) `id` ; exit 3"]);
    let shell = place.start(&[
        "worker",
        "--shell",
        "--queue",
        "shell",
        "--exec",
        "printf '{\"sum\":%d}' $((2 + $1))",
        "--",
        "3",
    ]);
    let (a, b) = (
        enqueue(&client, quick("t", "1").queue("plain")).await,
        enqueue(&client, quick("t", "1").queue("shell")).await,
    );
    let result = reaches(&client, a, State::Completed).await.result.expect("a result");
    assert_eq!(result.decode::<Value>().expect("JSON")[0], "$(id) `id` ; exit 3");
    let result = reaches(&client, b, State::Completed).await.result.expect("a result");
    assert_eq!(result.decode::<Value>().expect("JSON")["sum"], 5);
    drop((plain, shell));
    let mut missing = place.start(&["worker", "--exec", "no such program"]);
    assert_eq!(missing.wait().code().map(|code| code == 0), Some(false));
    assert!(missing.err().contains("there is no program"), "{}", missing.err());
}

/// A handler that writes its process id and then takes its time; it notes a TERM in a file, and may ignore it.
fn sleeper(place: &Place, on_term: &str) -> String {
    let (pid, term) = (place.path("pid"), place.path("term"));
    format!(
        "trap 'echo told > {}; {on_term}' TERM\necho $$ > {}\nwhile :; do sleep 30 & wait $!; done",
        term.display(),
        pid.display()
    )
}

fn process_lives(pid: &str) -> bool {
    Command::new("kill")
        .args(["-0", pid.trim()])
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn pid_of(place: &Place) -> String {
    let path = place.path("pid");
    until("the handler runs", || std::fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
    std::fs::read_to_string(path).expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_the_process_and_a_deaf_one_is_killed() {
    for (on_term, killed) in [("exit 1", false), (":", true)] {
        let place = Place::new();
        let client = place.client().await;
        let id = enqueue(&client, quick("t", "1")).await;
        let _worker = worker(&place, &sleeper(&place, on_term), &["--kill-after", "1s"]);
        let pid = pid_of(&place);
        let begun = Instant::now();
        client.cancel(id).await.expect("asked");
        reaches(&client, id, State::Cancelled).await;
        assert!(place.path("term").exists(), "it was told");
        assert!(!process_lives(&pid), "it is gone");
        assert!(killed == (begun.elapsed() >= Duration::from_secs(1)) || begun.elapsed() < SOON);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_timeout_ends_the_process_and_counts() {
    let place = Place::new();
    let client = place.client().await;
    let job = quick("t", "1").execution_timeout(Duration::from_millis(500)).max_attempts(1);
    let id = enqueue(&client, job).await;
    let _worker = worker(&place, &sleeper(&place, "exit 1"), &[]);
    let pid = pid_of(&place);
    let failure = reaches(&client, id, State::DeadLetter).await.failure.expect("a failure");
    assert_eq!(failure.category, Category::Timeout);
    until("it is gone", || !process_lives(&pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_lets_jobs_finish_and_a_second_one_is_passed_on() {
    let place = Place::new();
    let client = place.client().await;
    let slow = enqueue(&client, quick("t", "1")).await;
    let mut first = worker(&place, "echo $$ > pid; sleep 1; echo 7", &[]);
    pid_of(&place);
    first.signal("TERM");
    assert_eq!(first.wait().code(), Some(0), "{}", first.err());
    assert_eq!(client.job(slow).await.expect("a job").state, State::Completed);
    std::fs::remove_file(place.path("pid")).expect("removed");

    // `timeout` signals the process and then its group: that is one wish, not two.
    let slow = enqueue(&client, quick("t", "1")).await;
    let mut twice = worker(&place, "echo $$ > pid; sleep 1; echo 7", &[]);
    pid_of(&place);
    twice.signal("TERM");
    std::thread::sleep(Duration::from_millis(10));
    twice.signal("TERM");
    assert_eq!(twice.wait().code(), Some(0), "{}", twice.err());
    assert_eq!(client.job(slow).await.expect("a job").state, State::Completed);
    std::fs::remove_file(place.path("pid")).expect("removed");

    let endless = enqueue(&client, quick("t", "1")).await;
    let mut second = worker(&place, &sleeper(&place, ":"), &["--kill-after", "1s"]);
    let pid = pid_of(&place);
    second.signal("INT");
    std::thread::sleep(Duration::from_millis(300));
    assert!(process_lives(&pid), "it may finish");
    second.signal("INT");
    assert_eq!(second.wait().code(), Some(130));
    assert!(place.path("term").exists(), "it was told");
    assert!(!process_lives(&pid), "it is gone before the worker is");
    assert_eq!(client.job(endless).await.expect("a job").state, State::Running, "its lease expires");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_a_killed_worker_are_taken_over() {
    let place = Place::new();
    let client = place.client().await;
    let id = enqueue(&client, quick("t", "1")).await;
    let first = worker(&place, &sleeper(&place, "exit 1"), &["--lease", "1s"]);
    let orphan = pid_of(&place);
    first.signal("KILL");
    drop(first);
    let _second = worker(&place, "echo \"$WINDLASS_JOB_LEASE_VERSION\"", &["--lease", "1s"]);
    let job = reaches(&client, id, State::Completed).await;
    assert_eq!(job.result.expect("a result").decode::<u64>().expect("JSON"), 2);
    assert_eq!((job.attempt, job.failures), (2, 1));
    // What a killed worker leaves behind runs on: that is what the lease version is for.
    let _ = Command::new("kill").args(["-9", "--", &format!("-{}", orphan.trim())]).status();
}

type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// A server that answers by what the job's type says; and what it was asked.
async fn endpoint() -> (String, Seen) {
    let seen = Seen::default();
    let into = Arc::clone(&seen);
    let answer = move |headers: HeaderMap, body: String| async move {
        let job_type = headers["windlass-job-type"].to_str().expect("text").to_owned();
        let attempt = headers["windlass-job-attempt"].to_str().expect("text").to_owned();
        into.lock().expect("lock").push((headers, body.clone()));
        let mut answered = HeaderMap::new();
        let status = match (job_type.as_str(), attempt.as_str()) {
            ("busy", "1") => {
                answered.insert("retry-after", "1".parse().expect("a value"));
                StatusCode::TOO_MANY_REQUESTS
            }
            ("bad", _) => StatusCode::UNPROCESSABLE_ENTITY,
            ("broken", _) => StatusCode::BAD_GATEWAY,
            ("slow", _) => {
                tokio::time::sleep(Duration::from_secs(30)).await;
                StatusCode::OK
            }
            _ => StatusCode::OK,
        };
        (status, answered, body)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/work", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/work", post(answer))).await });
    (url, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_runs_jobs_and_its_status_decides() {
    let place = Place::new();
    let client = place.client().await;
    let (url, seen) = endpoint().await;
    let _worker =
        place.start(&["worker", "--url", &url, "--header", "authorization: Bearer abc", "--concurrency", "8"]);
    let fine = enqueue(&client, quick("fine", "{\"a\":1}")).await;
    let result = reaches(&client, fine, State::Completed).await.result.expect("a result");
    assert_eq!(result.decode::<Value>().expect("JSON")["a"], 1);
    {
        let seen = seen.lock().expect("lock");
        let (headers, body) = &seen[0];
        assert_eq!(body, "{\"a\":1}");
        for (name, value) in [
            ("content-type", "application/json"),
            ("authorization", "Bearer abc"),
            ("windlass-job-id", &fine.to_string()),
            ("windlass-job-lease-version", "1"),
            ("windlass-job-queue", "default"),
        ] {
            assert_eq!(headers[name].to_str().expect("text"), value);
        }
    }
    let busy = enqueue(&client, quick("busy", "1")).await;
    let retried = reaches(&client, busy, State::Completed).await;
    let attempts = client.store().attempts(busy).await.expect("attempts");
    let waited = attempts[1].started_at.since(attempts[0].ended_at.expect("it ended"));
    assert!(waited >= Duration::from_millis(900) && retried.attempt == 2, "Retry-After is honoured: {waited:?}");
    let before: Vec<Option<String>> = {
        let seen = seen.lock().expect("lock");
        let own = seen.iter().filter(|(headers, _)| headers["windlass-job-id"] == busy.to_string().as_str());
        let previous = |headers: &HeaderMap| headers.get("windlass-job-previous-attempt-id").cloned();
        own.map(|(headers, _)| previous(headers).map(|id| id.to_str().expect("text").to_owned())).collect()
    };
    assert_eq!(before, [None, Some(attempts[0].id.to_string())], "the attempt before it (S1.88)");
    let bad = enqueue(&client, quick("bad", "\"why\"")).await;
    let failure = reaches(&client, bad, State::Failed).await.failure.expect("a failure");
    assert_eq!((failure.code.as_deref(), failure.message.as_str()), (Some("http_422"), "status 422: \"why\""));
    let broken = enqueue(&client, quick("broken", "1")).await;
    assert_eq!(reaches(&client, broken, State::DeadLetter).await.attempt, 2);
    let slow = enqueue(&client, quick("slow", "1").execution_timeout(Duration::from_millis(300)).max_attempts(1)).await;
    let failure = reaches(&client, slow, State::DeadLetter).await.failure.expect("a failure");
    assert_eq!(failure.category, Category::Timeout);
}

/// M3: a program sees none of Windlass's secrets, unless they are named; with `--clean-env`, nobody else's either.
#[tokio::test(flavor = "multi_thread")]
async fn m3_programs_see_no_secrets() {
    let place = Place::new();
    let client = place.client().await;
    let print = "cat >/dev/null; env | sed 's/=.*//' | sort | tr '\\n' ' ' | sed 's/.*/\"&\"/'";
    let program = script(place.folder.path(), "handler", print);
    let program = program.to_str().expect("a plain path");
    for (more, hidden, shown) in [
        (&[][..], &["WINDLASS_TOKEN", "WINDLASS_STORE", "WINDLASS_WEBHOOK_SECRETS"][..], &["AWS_KEY", "PATH"][..]),
        (&["--clean-env"], &["WINDLASS_TOKEN", "WINDLASS_STORE", "AWS_KEY"], &["PATH", "WINDLASS_JOB_ID"]),
        (&["--clean-env", "--env", "AWS_KEY"], &["WINDLASS_TOKEN"], &["AWS_KEY"]),
        (&["--env", "WINDLASS_TOKEN"], &["WINDLASS_STORE"], &["WINDLASS_TOKEN"]),
    ] {
        let mut command = crate::support::windlass();
        command.args(["worker", "--exec", program]).args(more).current_dir(place.folder.path());
        command.env("WINDLASS_STORE", place.store()).env("WINDLASS_TOKEN", "t").env("AWS_KEY", "k");
        command.env("WINDLASS_WEBHOOK_SECRETS", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let _worker = Process::start(command);
        let id = enqueue(&client, quick("t", "1")).await;
        let names: String = reaches(&client, id, State::Completed).await.result.expect("names").decode().expect("text");
        let names: Vec<_> = names.split_whitespace().collect();
        assert!(hidden.iter().all(|name| !names.contains(name)), "{more:?}: {names:?}");
        assert!(shown.iter().all(|name| names.contains(name)), "{more:?}: {names:?}");
    }
}

/// M15: a closed terminal is a stop in order, not a sudden death with programs left behind.
#[tokio::test(flavor = "multi_thread")]
async fn m15_a_hangup_stops_a_worker_in_order() {
    let place = Place::new();
    let client = place.client().await;
    let mut worker = worker(&place, "cat >/dev/null; touch begun; sleep 2; echo 7", &[]);
    let id = enqueue(&client, quick("t", "1")).await;
    until("it runs", || place.path("begun").exists());
    worker.signal("HUP");
    assert_eq!(worker.wait().code(), Some(0), "{}", worker.err());
    let job = client.job(id).await.expect("a job");
    assert_eq!((job.state, job.attempt), (State::Completed, 1));
}

/// L14: what a program moved into a session of its own ends with its attempt, unless that succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn l14_nothing_of_a_failed_attempt_is_left_running() {
    let place = Place::new();
    let client = place.client().await;
    let text = r#"cat >/dev/null
        setsid sh -c 'echo $$ > escaped; exec sleep 600' &
        sh -c 'echo $$ > stayed; exec sleep 600' &
        while [ ! -s escaped ] || [ ! -s stayed ]; do sleep 0.05; done
        [ "$WINDLASS_JOB_TYPE" = hangs ] && sleep 600
        exit 65"#;
    let _worker = worker(&place, text, &["--kill-after", "1s"]);
    for (job_type, state) in [("fails", State::Failed), ("hangs", State::DeadLetter)] {
        let job = quick(job_type, "1").execution_timeout(Duration::from_secs(2));
        let job = job.retry(RetryPolicy::standard().max_attempts(1));
        let id = enqueue(&client, job).await;
        reaches(&client, id, state).await;
        for name in ["escaped", "stayed"] {
            let pid = std::fs::read_to_string(place.path(name)).expect("a process").trim().to_owned();
            until(&format!("{job_type}: {name} has ended"), || {
                let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                state.is_empty() || state.contains(") Z ")
            });
            std::fs::remove_file(place.path(name)).expect("removed");
        }
    }
}

/// M15: the program of a worker that was killed does not run beside the one that takes its job over.
#[tokio::test(flavor = "multi_thread")]
async fn m15_what_a_killed_worker_left_running_ends_before_the_job_runs_again() {
    let place = Place::new();
    let client = place.client().await;
    let text = r#"cat >/dev/null
        if [ "$WINDLASS_JOB_ATTEMPT" = 1 ]; then echo $$ > first; exec sleep 600; fi
        if kill -0 "$(cat first)" 2>/dev/null && ! grep -q ') Z ' /proc/"$(cat first)"/stat; then echo '"both"'; else echo '"alone"'; fi"#;
    let first = worker(&place, text, &["--lease", "1s"]);
    let id = enqueue(&client, quick("t", "1")).await;
    until("it runs", || std::fs::read_to_string(place.path("first")).is_ok_and(|text| text.ends_with('\n')));
    first.signal("KILL");
    drop(first);
    let program = place.path("handler");
    let _second = place.start(&["worker", "--exec", program.to_str().expect("a plain path")]);
    let told: String = reaches(&client, id, State::Completed).await.result.expect("a word").decode().expect("text");
    assert_eq!(told, "alone");
}

/// L16: headers can be kept in a file, and calls be signed.
#[tokio::test(flavor = "multi_thread")]
async fn l16_headers_come_from_a_file_and_calls_are_signed() {
    let place = Place::new();
    let client = place.client().await;
    let seen: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let into = Arc::clone(&seen);
    let app = Router::new().route(
        "/",
        post(move |headers: HeaderMap| {
            into.lock().expect("lock").push(headers);
            async { StatusCode::OK }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    std::fs::write(place.path("headers"), "authorization: Bearer hunter2\n\nx-team: mail\n").expect("written");
    let mut command = crate::support::windlass();
    command.args(["worker", "--url", &url, "--header", "@headers", "--sign"]).current_dir(place.folder.path());
    command.env("WINDLASS_STORE", place.store());
    command.env("WINDLASS_WEBHOOK_SECRETS", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let _worker = Process::start(command);
    let id = enqueue(&client, quick("t", "1")).await;
    reaches(&client, id, State::Completed).await;
    let seen = seen.lock().expect("lock");
    let text = |name: &str| seen[0].get(name).map(|value| value.to_str().expect("text").to_owned());
    assert_eq!(text("authorization").as_deref(), Some("Bearer hunter2"));
    assert_eq!(text("x-team").as_deref(), Some("mail"));
    assert!(text("webhook-signature").is_some_and(|signature| signature.starts_with("v1,")));
    assert!(text("webhook-id").is_some() && text("webhook-timestamp").is_some());
}

/// L6: `--steady` takes leases of 30 s, and `--heartbeat` says how often a lease is renewed.
#[tokio::test(flavor = "multi_thread")]
async fn l6_leases_are_as_long_and_renewed_as_often_as_was_asked() {
    let place = Place::new();
    let client = place.client().await;
    let _steady = place.start(&["worker", "--exec", "sleep", "--queue", "steady", "--steady", "--", "60"]);
    let _often = place.start(&[
        "worker",
        "--exec",
        "sleep",
        "--queue",
        "often",
        "--lease",
        "60s",
        "--heartbeat",
        "100ms",
        "--",
        "60",
    ]);
    let steady = enqueue(&client, quick("sleep", "1").queue("steady")).await;
    let often = enqueue(&client, quick("sleep", "1").queue("often")).await;
    let steady = reaches(&client, steady, State::Running).await;
    let held = steady.lease.expect("held").expires_at.since(steady.started_at.expect("started"));
    assert!((Duration::from_secs(30)..Duration::from_secs(45)).contains(&held), "{held:?}");
    let first = reaches(&client, often, State::Running).await.lease.expect("held").expires_at;
    // A third of 60 s would be long after the test.
    let begun = Instant::now();
    while client.job(often).await.expect("a job").lease.expect("held").expires_at == first {
        assert!(begun.elapsed() < Duration::from_secs(15), "the lease is not renewed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a worker's process recorded can be scraped; on a store, its attempts are among it.
#[tokio::test(flavor = "multi_thread")]
async fn n6_a_worker_answers_prometheus_where_it_was_told_to() {
    let place = Place::new();
    let client = place.client().await;
    let worker = place.start(&["worker", "--exec", "cat", "--metrics", "127.0.0.1:0", "--log-level", "info"]);
    let mut address = None;
    until("it says where", || {
        let said = worker.err() + &worker.out();
        let lines = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        address = lines.into_iter().find_map(|line| Some(line.get("address")?.as_str()?.to_owned()));
        address.is_some()
    });
    let base = format!("http://{}", address.expect("found"));
    let id = enqueue(&client, quick("echo", "1")).await;
    reaches(&client, id, State::Completed).await;
    until("its attempt is counted", || {
        let (status, text) = http(&base, "GET /metrics", "", "");
        assert_eq!(status, 200);
        text.contains("windlass_slots{queue=\"default\"} 4") && text.contains("windlass_attempts_ended_total{")
    });
}
