//! Every numbered rule of the contract, and who holds it: cases of this suite, or the tests of another part.
//!
//! `docs/conformance.md` is printed from here. A rule that a store can be held to and that has no case is a gap, which
//! [`gaps`] finds.

use std::fmt::Write;

use super::{Case, cases};

const RUNTIME: &str = "the worker runtime's tests";
const CLIENT: &str = "the client's tests";
const CORE: &str = "the unit tests of `job`, `flow`, `workflow` and `schedule`";
const SQL: &str = "the tests of the SQLite and PostgreSQL stores";
const SERVER: &str = "the server's tests";
const SUITE: &str = "this suite, run on every store of the crate";
const DOCUMENTS: &str = "`docs/semantics.md`";

/// A numbered rule of the contract.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its number: `L3`.
    pub name: &'static str,
    /// What it promises, in one line.
    pub says: &'static str,
    /// Whether a store by itself can break it, so that it must have a case.
    pub of_stores: bool,
    /// Which tests hold it where a store by itself cannot.
    pub elsewhere: &'static [&'static str],
}

impl Rule {
    /// The cases that hold it, in the order of the suite.
    pub fn cases(&self) -> Vec<Case> {
        cases().into_iter().filter(|case| case.rule() == self.name).collect()
    }
}

/// A chapter of the contract.
#[derive(Clone, Copy, Debug)]
pub struct Chapter {
    /// Its title.
    pub title: &'static str,
    /// Its rules.
    pub rules: &'static [Rule],
}

const fn store(name: &'static str, says: &'static str) -> Rule {
    Rule { name, says, of_stores: true, elsewhere: &[] }
}

const fn both(name: &'static str, says: &'static str, elsewhere: &'static [&'static str]) -> Rule {
    Rule { name, says, of_stores: true, elsewhere }
}

const fn other(name: &'static str, says: &'static str, elsewhere: &'static [&'static str]) -> Rule {
    Rule { name, says, of_stores: false, elsewhere }
}

/// The contract, chapter by chapter.
pub const CHAPTERS: &[Chapter] = &[
    Chapter { title: "Delivery", rules: DELIVERY },
    Chapter { title: "The job", rules: JOB },
    Chapter { title: "States", rules: STATES },
    Chapter { title: "Claim and lease", rules: LEASES },
    Chapter { title: "Outcomes and failures", rules: FAILURES },
    Chapter { title: "Retry and backoff", rules: RETRY },
    Chapter { title: "Timeouts", rules: TIMEOUTS },
    Chapter { title: "Idempotency", rules: IDEMPOTENCY },
    Chapter { title: "Unique jobs", rules: UNIQUE },
    Chapter { title: "Dependencies and workflows", rules: WORKFLOWS },
    Chapter { title: "Recurring work", rules: RECURRING },
    Chapter { title: "Operators", rules: OPERATORS },
    Chapter { title: "Flow control", rules: FLOW },
    Chapter { title: "Transactions", rules: TRANSACTIONS },
    Chapter { title: "Runtime and interfaces", rules: INTERFACES },
    Chapter { title: "Errors", rules: ERRORS },
];

const DELIVERY: &[Rule] = &[
    both("D1", "an accepted job runs at least once or visibly ends with a reason, through any crash", &[SQL, RUNTIME]),
    both("D2", "of several executions only one outcome is recorded", &[RUNTIME]),
    other("D3", "success is reported after the commit is on disk", &[SQL]),
    store("D4", "a COMPLETED job never runs again"),
    store("D5", "claims go by effective priority, then by the moment a job became SCHEDULED, then by submission"),
    other(
        "D6",
        "a store out of reach loses nothing and pretends nothing; workers hold on and settle later",
        &[SQL, CLIENT, RUNTIME],
    ),
    both(
        "D6b",
        "an outage or a leap of the clock costs no living worker its attempt; a claim nobody heard of costs none",
        &[RUNTIME, SQL],
    ),
    store("D7", "accepted = jobs in all states + pruned, and every end has a reason"),
    both("D8", "undisturbed, a job runs as often as its attempts say and never twice at once", &[RUNTIME]),
    other("D9", "what is not promised is said", &[DOCUMENTS]),
];

const JOB: &[Rule] = &[
    store("J", "the fields of a job, their defaults, and those that only the system writes"),
    store("J1", "a field out of bounds is refused by name, limit and size, and nothing of its batch is written"),
    store("J2", "a batch of up to 10,000 jobs is stored whole or not at all"),
    store("J3", "priority, tags, correlation id and callback URL may be edited; nothing else, and no time moves"),
    store("J4", "retry policy and timeouts are copied onto the job at submission"),
];

const STATES: &[Rule] = &[
    store("S1", "a new job is PENDING, DELAYED or SCHEDULED"),
    store("S2", "the last dependency met makes a PENDING job SCHEDULED or DELAYED"),
    store("S3", "a dependency that ended badly ends a PENDING job in the same way"),
    store("S4", "a DELAYED or RETRYING job is SCHEDULED from its run_at on"),
    store("S5", "a claim makes a SCHEDULED job RUNNING"),
    store("S6", "success makes it COMPLETED"),
    store("S7", "a retryable failure with attempts left makes it RETRYING"),
    store("S8", "the last counted failure, or its handler's word, makes it DEAD_LETTER"),
    store("S9", "a permanent failure, or a category not retried, makes it FAILED"),
    store("S10", "a lost, interrupted or released attempt makes it SCHEDULED again"),
    store("S11", "a lost attempt without another left makes it DEAD_LETTER"),
    store("S12", "a snooze makes it DELAYED"),
    store("S13", "a cancel ends a job that is not running"),
    store("S14", "a running job is CANCELLED when its attempt ends without success after the request, or by force"),
    store("S15", "the end of its lifetime makes any unfinished job DEAD_LETTER"),
    store("S16", "a requeue sends a dead job back with its history"),
    store("S16b", "an operator may dead-letter an unfinished or FAILED job"),
    both("S17", "there is no other transition", &[CORE]),
    both("S18", "the four-state view follows from the nine", &[CORE]),
];

const LEASES: &[Rule] = &[
    store("L1", "a claim is atomic: a new token, version + 1, attempt + 1, and nobody else gets the job"),
    store("L2", "every write of a holder is checked against its token; a stale one changes nothing"),
    store("L3", "an expired lease is refused even if nobody has reclaimed the job"),
    store("L4", "the same settlement again is «already applied»"),
    store("L5", "a heartbeat only ever lengthens a lease, and tells of loss and of requests to stop"),
    both(
        "L6",
        "lease times: 5 s by default, 30 s in preset `steady`, the visibility timeout where none is named",
        &[RUNTIME],
    ),
    store("L7", "an expired job can be claimed again after upkeep, with version + 1"),
    both("L8", "all times are the store's", &[RUNTIME]),
    other("L9", "a worker cancels a handler whose lease it could not confirm", &[RUNTIME]),
    other("L10", "a long handler under a short lease runs undisturbed while heartbeats succeed", &[RUNTIME]),
];

const FAILURES: &[Rule] = &[
    store("F", "what becomes of a failure of each category"),
    store("F1", "a failure keeps category, code, message, causes and time, on the job and on the attempt"),
    other("F2", "a panic ends its attempt only", &[RUNTIME]),
    both("F3", "a job that kills its process ends in DEAD_LETTER", &[RUNTIME]),
];

const RETRY: &[Rule] = &[
    both("R1", "the delay follows policy, number of failures and jitter, and never passes its maximum", &[CORE]),
    store("R2", "exhausted exactly at max_attempts; what counts, and the settings that change it"),
    both("R3", "the nearest policy wins; categories may be left out; retry_after replaces the delay", &[CORE]),
    both("R3b", "where a custom function is absent, the stored policy is used", &[RUNTIME]),
    store("R4", "the newest accepted checkpoint reaches the next attempt; progress and log lines are bounded"),
];

const TIMEOUTS: &[Rule] = &[
    other("T1", "an attempt ends at its execution timeout whatever its handler does", &[RUNTIME]),
    store("T1b", "the store holds every lease holder to the execution timeout, and ten seconds more"),
    store("T2", "a claim that names no lease time gets the visibility timeout"),
    other("T3", "an enqueue answers within 30 s", &[CLIENT]),
    store("T4", "a job ends with its lifetime, whatever its state"),
];

const IDEMPOTENCY: &[Rule] = &[
    store("I1", "a key is unique by type, by queue or among all, within its window"),
    store("I2", "a second submission changes nothing and finds the first, under any concurrency"),
    store("I3", "it does so whatever became of the first job, until the window is over"),
    store("I4", "a requeue keeps id and key; a clone is a new job linked to its original"),
];

const UNIQUE: &[Rule] = &[
    both("U1", "a key may hold until its job is first claimed or ends; no later transition meets a conflict", &[CORE]),
    both("U2", "it may be computed from the payload, whatever the order of members and the white space", &[CORE]),
    both("U3", "a submission may replace a job that was never claimed; one that was stays", &[CORE]),
    both("U4", "of many submissions the last runs, after quiet or at most so long after the first", &[CORE]),
    store("U5", "in each period the first submission runs, and the others find it"),
];

const WORKFLOWS: &[Rule] = &[
    store("W1", "unknown ids, cycles, depth over 100 and more than 1,000 dependencies are refused whole"),
    store("W2", "a bad end goes through the graph and names the job it began with"),
    store("W3", "ended dependencies count at once; the most urgent priority is inherited"),
    store("W4", "dependents are released, and children stored, in the transaction that settles"),
    both("W5", "the results of dependencies can be read", &[RUNTIME]),
    store("W6", "chains, groups, chords and other graphs nest and have a durable record"),
    store("W7", "a workflow is cancelled as a whole; a requeue may take dependents along"),
];

const RECURRING: &[Rule] = &[
    both("C1", "schedules are created, replaced, paused, resumed, triggered, deleted", &[CORE]),
    store("C2", "at most one job for each slot, however many tick"),
    both("C3", "missed slots fire as one, not at all, or each up to a limit", &[CORE]),
    both("C4", "overlap is skipped, queued once or allowed; the job carries its nominal time", &[CORE]),
    both("C5", "clock changes neither lose nor double a firing", &[CORE]),
];

const OPERATORS: &[Rule] = &[
    both("O1", "jobs are read, listed by every filter with a cursor, and counted", &[SERVER]),
    both("O2", "acts by id and by filter, with a dry run, each recorded", &[SERVER]),
    both("O3", "queues are paused, resumed and purged", &[SERVER]),
    both("O4", "ended jobs are kept as long as configured, and while they are needed", &[SERVER]),
    both("O5", "every reason why a job is not running now is told", &[CORE]),
];

const FLOW: &[Rule] = &[
    store("K1", "control is set, changed and cleared at run time, each as an act; a plain queue knows nothing of it"),
    both("K2", "never more of a queue, a type or a key run than the limit in force", &[CORE]),
    store("K3", "a slot is free in the transaction that ends its lease, whatever ends it, and only then"),
    store("K4", "a limit holds for every claim that begins after it was set; lowering stops nothing"),
    store("K5", "what runs when a queue comes under control is counted, and waiting jobs keep their order"),
    store("K6", "a key has 1 to 128 characters and never changes; its own limit wins over that of each key"),
    both("K7", "in any interval of length t at most burst + t × count ÷ per jobs start", &[CORE]),
    store("K8", "a hold starts nothing of its gate before its moment; handlers and operators may set one"),
    both("K9", "a job that may not run never delays one that may", &[CORE]),
    both("K10", "fair keys go by priority, by what runs for their weight, and by turn", &[CORE]),
    both("K11", "no key starts more than its weight and one before each has started once", &[CORE]),
    both("K12", "with ageing no job is passed by one that came more than four steps later", &[CORE]),
    store("K13", "jobs of an ordered key start one at a time in order; a retry goes on with the same job"),
    store("K14", "a failed job halts its ordered key until it ends well, is deleted, or the key is resumed"),
    store("K15", "a claim says when to ask again, if time alone will open a gate"),
    store("K16", "operators reach a waiting job wherever it stands, and an idle key leaves no trace"),
];

const TRANSACTIONS: &[Rule] = &[
    other("X1", "an enqueue inside the caller's transaction commits or vanishes with it", &[SQL]),
    other("X2", "a completion inside the handler's transaction commits with its rows, fenced", &[SQL]),
    both("X3", "children, releases, completion and webhook job are one transaction", &[SQL]),
];

const INTERFACES: &[Rule] = &[
    other("N1", "fetcher, workers and committer are bounded, and one bad entry fails no other", &[RUNTIME]),
    both("N1b", "a type without a handler here is left alone and in nobody's way", &[RUNTIME]),
    both("N2", "a wake is sent when there may be something to claim; polling alone suffices", &[SQL, RUNTIME]),
    other("N3", "shutdown releases, waits, interrupts, flushes", &[RUNTIME]),
    other("N4", "middleware and hooks see every run", &[RUNTIME]),
    other("N5", "a third party can hold its own store to the suite", &[SUITE]),
    other("N6", "spans and metrics tell of everything but payloads", &[RUNTIME, SERVER]),
    both("N7", "a callback URL is told of every end by a job of its own", &[SERVER]),
];

const ERRORS: &[Rule] =
    &[both("E", "errors have names, say what was attempted on what, and hold no payload", &[CORE, SERVER])];

/// The rules that stores can be held to and that have no case.
pub fn gaps() -> Vec<&'static str> {
    let rules = CHAPTERS.iter().flat_map(|chapter| chapter.rules);
    rules.filter(|rule| rule.of_stores && rule.cases().is_empty()).map(|rule| rule.name).collect()
}

/// The cases that name a rule which the contract does not have.
pub fn strays() -> Vec<&'static str> {
    let known = |case: &Case| CHAPTERS.iter().flat_map(|chapter| chapter.rules).any(|rule| rule.name == case.rule());
    cases().into_iter().filter(|case| !known(case)).map(|case| case.name).collect()
}

/// The page that `docs/conformance.md` holds.
pub fn page() -> String {
    let mut page = String::from(PREFACE);
    for chapter in CHAPTERS {
        write!(page, "\n## {}\n\n| rule | what it promises | held by |\n|---|---|---|\n", chapter.title)
            .expect("text can be written");
        for rule in chapter.rules {
            let cases = rule.cases().into_iter().map(|case| format!("`{}`", case.name));
            let held: Vec<_> = cases.chain(rule.elsewhere.iter().map(|part| (*part).to_owned())).collect();
            writeln!(page, "| {} | {} | {} |", rule.name, rule.says, held.join("<br>")).expect("text can be written");
        }
    }
    page
}

const PREFACE: &str = "\
# Conformance

Every numbered rule of the contract, what it promises in a line, and which tests hold it. Names like
`l3_expired_lease_cannot_settle` are cases of the conformance suite (feature `conformance`, module
`windlass::store::conformance`), which runs on every store; a store of your own can be held to them too.

This page is printed from the suite: change `windlass/src/store/conformance/rules.rs` or a case, then run
`WINDLASS_WRITE_DOCS=1 cargo test -p windlass --features conformance --test documents`.
";
