//! Section 2 of the contract, the sharp edges: any byte in data, hostile text, names at their longest.

use std::collections::BTreeMap;

use super::Bench;
use super::bench::{LEASE, job, worker};
use super::stage::{secs, take, take_as};
use crate::flow::ControlEdit;
use crate::job::{
    CHECKPOINT_BYTES_MAX, Category, Failure, LOG_LINE_BYTES_MAX, LOG_LINES_MAX, Limits, NewJob, PAYLOAD_BYTES_DEFAULT,
    PAYLOAD_BYTES_MAX, Payload, Policies, Progress, QueueName, State,
};
use crate::store::{Act, ClaimRequest, Filter, Operation, Save, Target};
use crate::workflow::Submission;

chapter! {
    j1_any_byte_in_payload_result_and_checkpoint_comes_back,
    j1_json_is_kept_as_it_was_written,
    j1_payloads_at_the_limit_come_back_whole,
    j1_hostile_text_comes_back_in_every_text_field,
    j1_nul_in_a_text_field_is_refused_and_nothing_stored,
    j1_nul_in_failure_and_log_text_cannot_stop_a_settlement,
    j1_tags_at_their_limits_come_back_and_match_exactly,
    j1_queues_that_differ_in_their_last_byte_stay_apart,
    j1_types_that_differ_in_their_last_byte_stay_apart,
    j1_names_are_data_and_never_patterns,
}

/// Text that has broken some store, page or statement before.
const HOSTILE: [&str; 14] = [
    "'; drop table jobs; --",
    "\"quoted\" and `ticked`",
    "back\\slash \\0 \\u0000 \\x00",
    "%_*?[a-z]",
    "\u{1}\u{8}\u{1b}\u{7f}\u{80}\u{9f}",
    "\u{feff}bom and \u{202e}reversed",
    "line\nbreak\r\nand\ttab",
    "<script>alert(1)</script>",
    "${jndi:x} $1 :name @p ? {0}",
    "e\u{301} is not \u{e9}",
    "\u{1f9d1}\u{200d}\u{1f680} \u{10ffff}",
    "null",
    " leading and trailing ",
    "{\"json\": [1, 2]}",
];

fn every_byte() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=255).collect();
    bytes.extend([0, 0, 0xff, 0xfe, 0xc3, 0x28, 0xed, 0xa0, 0x80, 0]);
    bytes
}

async fn j1_any_byte_in_payload_result_and_checkpoint_comes_back(bench: Bench) {
    let raw = Payload::bytes("application/x-\"odd\"; a=';--'", every_byte()).expect("bytes");
    let empty = Payload::bytes("text/plain", Vec::new()).expect("bytes");
    for payload in [raw, empty] {
        let id = bench.enqueue(NewJob::new("test", payload.clone())).await;
        let claimed = bench.claim_one().await;
        assert_eq!(claimed.job.spec.payload, payload);
        let save = Save::under(claimed.lease.key()).checkpoint(payload.as_bytes().clone()).expect("small");
        bench.store.save(&[save]).await.expect("save").remove(0).expect("held");
        bench.apply(claimed.lease.complete(Some(payload.clone()))).await;
        let job = bench.job(id).await;
        assert_eq!(job.spec.payload, payload);
        assert_eq!(job.result.as_ref(), Some(&payload));
        assert_eq!(job.checkpoint.as_ref(), Some(payload.as_bytes()));
    }
    bench.assert_sound().await;
}

async fn j1_json_is_kept_as_it_was_written(bench: Bench) {
    let texts = [
        r#" { "b" : 1, "a":2,"a": 3 } "#,
        r#"{"nul":"\u0000","pair":"\ud83d\ude00","slash":"\/"}"#,
        "123456789012345678901234567890.000000000000000001e-5",
        "[1.0,1e400,-0]",
        "\"\u{2028}\"",
        "null",
    ];
    for text in texts {
        let payload = Payload::json_text(text).expect("json");
        let id = bench.enqueue(NewJob::new("test", payload.clone())).await;
        let claimed = bench.claim_one().await;
        bench.apply(claimed.lease.complete(Some(payload.clone()))).await;
        let job = bench.job(id).await;
        assert_eq!(job.spec.payload.as_bytes(), text.as_bytes());
        assert_eq!(job.result, Some(payload));
    }
}

async fn j1_payloads_at_the_limit_come_back_whole(bench: Bench) {
    for size in [PAYLOAD_BYTES_DEFAULT, PAYLOAD_BYTES_MAX] {
        let bytes: Vec<u8> = every_byte().into_iter().cycle().take(size).collect();
        let payload = Payload::bytes("a/b", bytes).expect("bytes");
        let limits = Limits::with_payload_bytes(size).expect("in bounds");
        let checked = NewJob::new("test", payload.clone()).check(&limits, &Policies::default()).expect("at the limit");
        let submission = Submission::new(vec![checked]).expect("valid");
        bench.store.insert(submission).await.expect("insert");
        let claimed = bench.claim_one().await;
        assert!(claimed.job.spec.payload == payload, "{size} bytes");
        let id = claimed.job.id;
        let checkpoint = payload.as_bytes().slice(..CHECKPOINT_BYTES_MAX);
        let save = Save::under(claimed.lease.key()).checkpoint(checkpoint.clone()).expect("at the limit");
        bench.store.save(&[save]).await.expect("save").remove(0).expect("held");
        bench.apply(claimed.lease.complete(Some(payload.clone()))).await;
        let job = bench.job(id).await;
        assert!(job.result == Some(payload) && job.checkpoint == Some(checkpoint), "{size} bytes");
    }
}

async fn j1_hostile_text_comes_back_in_every_text_field(bench: Bench) {
    for text in HOSTILE {
        let new = job().correlation_id(text).tag(text, text).idempotency_key(text);
        let id = bench.enqueue(new.clone()).await;
        assert!(bench.insert(vec![new]).await[0].existing, "the key is found again: {text:?}");
        let claimed = bench.claim_one().await;
        let progress = Progress::new(0.25, text).expect("progress");
        let save = Save::under(claimed.lease.key()).progress(progress).log([text.to_owned()]);
        bench.store.save(&[save]).await.expect("save").remove(0).expect("held");
        let failure = Failure::permanent(text, text).with_causes([text, text]);
        bench.apply(claimed.lease.fail(failure, &mut || 0.5)).await;
        let operation = Operation {
            target: Target::Jobs(vec![id]),
            act: Act::DeadLetter,
            by: Some(text.to_owned()),
            why: text.to_owned(),
            dry_run: false,
        };
        assert_eq!(bench.store.operate(&operation).await.expect("operate").changed, 1);
        let job = bench.job(id).await;
        let options = &job.spec.options;
        assert_eq!(options.correlation_id.as_deref(), Some(text));
        assert_eq!(options.tags, BTreeMap::from([(text.to_owned(), text.to_owned())]));
        assert_eq!(job.progress.as_ref().map(|progress| progress.message.as_str()), Some(text));
        let failure = job.failure.as_ref().expect("a failure");
        assert_eq!((failure.code.as_deref(), failure.message.as_str()), (Some(text), text));
        assert_eq!(failure.causes, [text, text]);
        let reason = job.reason.as_ref().expect("a reason");
        assert_eq!((reason.by.as_deref(), reason.message.as_deref()), (Some(text), Some(text)));
        let logs = bench.store.logs(id).await.expect("logs");
        assert_eq!(logs.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), [text]);
        let by_tag = Filter { tags: options.tags.clone(), ..Filter::default() };
        let by_code = Filter { code: Some(text.to_owned()), ..Filter::default() };
        let by_correlation = Filter { correlation_id: Some(text.to_owned()), ..Filter::default() };
        for filter in [by_tag, by_code, by_correlation] {
            assert_eq!(bench.count(&filter, 99).await, 1, "{filter:?}");
        }
    }
    bench.assert_sound().await;
}

async fn j1_nul_in_a_text_field_is_refused_and_nothing_stored(bench: Bench) {
    let nul = "a\0b";
    let bad = [
        job().correlation_id(nul),
        job().tag("k", nul),
        job().tag(nul, "v"),
        job().idempotency_key(nul),
        job().queue(nul),
        NewJob::new(nul, Payload::default()),
        job().callback_url("https://host/\0"),
        job().trace_context(nul, None),
    ];
    for new in bad {
        let refused = bench.try_insert(vec![job(), new]).await.expect_err("NUL");
        assert_eq!(refused.name(), "InvalidArgument");
    }
    assert_eq!(bench.store.totals().await.expect("totals").accepted, 0);
}

/// A failure that cannot be written down would leave its job running for ever.
async fn j1_nul_in_failure_and_log_text_cannot_stop_a_settlement(bench: Bench) {
    let id = bench.enqueue(job()).await;
    let claimed = bench.claim_one().await;
    let save = Save::under(claimed.lease.key()).log(["nul\0here".to_owned(), "\0".to_owned()]);
    bench.store.save(&[save]).await.expect("save").remove(0).expect("held");
    let failure = Failure::new(Category::Permanent, Some("co\0de".to_owned()), "me\0ssage").with_causes(["ca\0use"]);
    assert_eq!(bench.apply(claimed.lease.fail(failure, &mut || 0.5)).await, State::Failed);
    let kept = bench.job(id).await.failure.expect("a failure");
    assert_eq!((kept.code.as_deref(), kept.message.as_str()), (Some("co\u{fffd}de"), "me\u{fffd}ssage"));
    assert_eq!(kept.causes, ["ca\u{fffd}use"]);
    let logs = bench.store.logs(id).await.expect("logs");
    assert_eq!(logs.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["nul\u{fffd}here", "\u{fffd}"]);

    let claimed = bench.running(job()).await;
    let lines = (0..LOG_LINES_MAX + 5).map(|n| format!("{n} {}", "x".repeat(2 * LOG_LINE_BYTES_MAX)));
    let save = Save::under(claimed.lease.key()).log(lines);
    bench.store.save(&[save]).await.expect("save").remove(0).expect("held");
    let logs = bench.store.logs(claimed.job.id).await.expect("logs");
    assert_eq!(logs.len(), LOG_LINES_MAX);
    assert!(logs[0].text.starts_with("5 ") && logs.iter().all(|line| line.text.len() == LOG_LINE_BYTES_MAX));
}

async fn j1_tags_at_their_limits_come_back_and_match_exactly(bench: Bench) {
    let full = (0..32).fold(job(), |job, n| job.tag(format!("{n:0>64}"), "é".repeat(256)));
    let checked = full.clone().check(&Limits::default(), &Policies::default()).expect("at the limits");
    let id = bench.enqueue(full).await;
    assert_eq!(bench.job(id).await.spec.options.tags, checked.options.tags);
    bench.enqueue(job().tag("a%", "b_c")).await;
    bench.enqueue(job().tag("ax", "bxc")).await;
    bench.enqueue(job().tag("A%", "B_C")).await;
    bench.enqueue(job().tag("empty", "")).await;
    for (key, value, count) in [("a%", "b_c", 1), ("a%", "bxc", 0), ("a_", "b_c", 0), ("empty", "", 1), ("none", "", 0)]
    {
        let tags = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let filter = Filter { tags, ..Filter::default() };
        assert_eq!(bench.count(&filter, 99).await, count, "{key:?} = {value:?}");
    }
    let all = Filter { tags: checked.options.tags, ..Filter::default() };
    assert_eq!(bench.count(&all, 99).await, 1);
}

async fn j1_queues_that_differ_in_their_last_byte_stay_apart(bench: Bench) {
    let names = ["a", "b"].map(|last| "q".repeat(127) + last);
    let mut ids = Vec::new();
    for name in &names {
        ids.push(bench.enqueue(job().queue(name)).await);
    }
    let queue = QueueName::new(&names[0]).expect("128 bytes");
    bench.store.control(&ControlEdit::pause(queue.clone(), true), None).await.expect("pause");
    assert!(bench.claim_from(&names[0], 9).await.is_empty());
    assert_eq!(take(&bench, &names[1]).await.job.id, ids[1]);
    bench.store.control(&ControlEdit::pause(queue, false), None).await.expect("resume");
    assert_eq!(take(&bench, &names[0]).await.job.id, ids[0]);
    let queues = bench.store.queues().await.expect("queues");
    let listed: Vec<_> = queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(listed, names.each_ref().map(String::as_str));
    bench.assert_sound().await;
}

async fn j1_types_that_differ_in_their_last_byte_stay_apart(bench: Bench) {
    let names = ["a", "b"].map(|last| "t".repeat(254) + last);
    let mut ids = Vec::new();
    for name in &names {
        let keyed = NewJob::new(name, Payload::default()).idempotency_key("same");
        ids.push(bench.enqueue(keyed).await);
    }
    assert_ne!(ids[0], ids[1], "a key holds within its type");
    let second = crate::job::JobType::new(&names[1]).expect("255 bytes");
    let holder = "w".repeat(255);
    let request = ClaimRequest {
        types: Some(vec![second]),
        lease_time: Some(LEASE),
        ..ClaimRequest::new(worker(&holder), QueueName::default(), 9)
    };
    let claimed = bench.store.claim(&request).await.expect("claim");
    assert_eq!(claimed.iter().map(|one| one.job.id).collect::<Vec<_>>(), [ids[1]]);
    let lease = bench.job(ids[1]).await.lease.expect("held");
    assert_eq!(lease.worker.as_str(), holder);
    assert_eq!(take_as(&bench, "w", None).await.job.id, ids[0]);
}

async fn j1_names_are_data_and_never_patterns(bench: Bench) {
    let names = ["a_b", "aXb", "A_B", "a.b", "--", "/../etc", ":", "_", "..", "null", "0", "select", "default/"];
    let mut ids = Vec::new();
    for name in names {
        ids.push(bench.enqueue(NewJob::new(name, Payload::default()).queue(name)).await);
        bench.advance(secs(1));
    }
    assert!(bench.claim(9).await.is_empty(), "nothing is in the default queue");
    for (name, id) in names.into_iter().zip(ids) {
        let filter = Filter { queue: Some(QueueName::new(name).expect("a name")), ..Filter::default() };
        assert_eq!(bench.count(&filter, 99).await, 1, "{name}");
        let filter = Filter { job_type: Some(crate::job::JobType::new(name).expect("a name")), ..Filter::default() };
        assert_eq!(bench.count(&filter, 99).await, 1, "{name}");
        let claimed = take(&bench, name).await;
        assert_eq!((claimed.job.id, claimed.job.spec.queue.as_str()), (id, name));
        bench.complete(claimed.lease).await;
    }
    bench.assert_sound().await;
}
