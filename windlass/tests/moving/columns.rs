//! How each column of both stores is moved. A column that is added later fails this test until its move is decided here.

use std::collections::BTreeSet;

use super::places::{Kind, Places, open};

/// A table of the SQLite store, its columns that are moved, and those that are not with the reason.
const SQLITE: &[(&str, &str, &str)] = &[
    ("windlass_act", "at by act target changed why", "seq: numbered anew, in the same order"),
    ("windlass_attempt", "seq version number generation started_at ended_at outcome token worker failure", ""),
    ("windlass_change", "", "number kind seq scope key: notes of the move itself"),
    (
        "windlass_done",
        "seq lane state ended deadline attempt failures lost generation version position scheduled_at started_at updated_at \
         outcome token worker reason result_type result",
        "priority flags fingerprint prune_at: follow from the job",
    ),
    ("windlass_edge", "parent seq kind open", ""),
    ("windlass_gate", "queue name gate", "owner: follows from the gate"),
    (
        "windlass_job",
        "seq id lane priority inherited created_at depth workflow schedule slot spawned_by depends_on options content_type \
         payload",
        "first_at: follows from where it stands",
    ),
    ("windlass_key", "scope key job fingerprint until first_at expires_at look_at", ""),
    (
        "windlass_lane",
        "queue type removed left_completed left_failed left_dead_letter left_cancelled retried lost",
        "lane key pending delayed scheduled running retrying completed failed dead_letter cancelled counted touched look level \
         class turn place next: numbered, counted and looked at anew",
    ),
    (
        "windlass_leased",
        "seq lane deadline attempt failures lost generation version position scheduled_at started_at expires_at token worker \
         cancel",
        "priority flags lease_max: follow from the job",
    ),
    ("windlass_lifetime", "", "deadline seq: follow from the job"),
    ("windlass_log", "seq version at text", "line: numbered anew, in the same order"),
    ("windlass_mark", "", "seq name value: follow from the job"),
    ("windlass_move", "", "only_row record: the move itself"),
    ("windlass_note", "seq failure progress checkpoint", ""),
    ("windlass_past_end", "", "ended seq state at: events that were, of which readers begin anew"),
    (
        "windlass_pending",
        "seq lane deadline attempt failures lost generation version position scheduled_at started_at updated_at run_at \
         waits_all waits_any",
        "priority flags: follow from the job",
    ),
    ("windlass_pulse", "at", "only_row away_from grace_until: an absence ends with the move"),
    ("windlass_queue", "name paused control", ""),
    (
        "windlass_ready",
        "lane at seq kind deadline attempt failures lost generation version position scheduled_at started_at updated_at",
        "priority flags moved: follow from the job",
    ),
    ("windlass_sample", "step at data", ""),
    (
        "windlass_schedule",
        "name timing missed overlap from_code type queue priority options content_type payload version paused created_at \
         updated_at next_at last_slot last_job fired last_error",
        "",
    ),
    ("windlass_store", "accepted pruned tick id_key", "only_row latest outlived owner closed: each store's own"),
    ("windlass_version", "", "version: each store's own"),
    ("windlass_worker", "", "id report started_at seen_at draining: workers announce themselves again"),
    ("windlass_workflow", "seq id name created_at pruned", ""),
];

/// The same of the PostgreSQL store.
const POSTGRES: &[(&str, &str, &str)] = &[
    ("act", "record", "act: numbered anew, in the same order"),
    ("attempt", "seq version token number generation outcome started_at ended_at worker failure", ""),
    ("change", "", "number kind seq scope key: notes of the move itself"),
    (
        "done",
        "seq lane state completed_at version attempt failures lost generation scheduled_at started_at failed_at token worker \
         failure reason result_type result",
        "fingerprint prune_at: follow from the job",
    ),
    ("edge", "child parent kind open", ""),
    (
        "event",
        "lane kind count",
        "event xid at seqs: events that were, of which readers begin anew; their sums are moved",
    ),
    ("gate", "queue lane tat held_until turn", "running swept_at: counted anew from the leases that were moved"),
    (
        "job",
        "seq id lane priority inherited depth created_at deadline content_type payload options depends_on workflow schedule \
         slot spawned_by progress checkpoint",
        "visibility: follows from the options",
    ),
    ("key", "scope key job until first_at expires_at look_at fingerprint", ""),
    ("lane", "queue job_type", "lane: numbered anew"),
    (
        "leased",
        "seq lane token version expires_at deadline attempt failures lost generation scheduled_at started_at failed_at failure \
         worker cancel",
        "priority slow visibility lease_max kept strand: follow from the job and the control of its queue",
    ),
    ("log", "seq version at text", "line: numbered anew, in the same order"),
    ("mark", "", "name value seq: follow from the job"),
    ("migration", "", "number applied_at: each store's own"),
    ("move", "", "only_row record closed: the move itself"),
    ("note", "queue lane key hold", "note strands counts: what runs is counted anew"),
    (
        "pending",
        "seq lane waits_all waits_any run_at deadline version attempt failures lost generation scheduled_at updated_at \
         started_at failed_at failure",
        "slow: follows from the job",
    ),
    (
        "pulse",
        "at",
        "only_row away_from grace_until skew server: an absence ends with the move, and a correction is its server's own",
    ),
    ("queue", "name halted control", "queue paused: numbered anew; follows from the two others"),
    (
        "ready",
        "seq lane state due deadline version attempt failures lost generation scheduled_at updated_at started_at failed_at \
         failure",
        "priority slow visibility lease_max kept: follow from the job",
    ),
    ("sample", "step at data", ""),
    ("schedule", "name next_at paused record", ""),
    ("store", "id_key", "only_row owner: each store's own"),
    (
        "strand",
        "queue key turn tat held_until owner limits",
        "strand lane look level class running: what waits is sorted and what runs is counted anew",
    ),
    ("worker", "", "id started_at seen_at draining report: workers announce themselves again"),
    ("workflow", "workflow seq name created_at pruned", ""),
];

fn decided(tables: &[(&str, &str, &str)]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (table, moved, left) in tables {
        let left = left.split(':').next().unwrap_or_default();
        for column in moved.split_whitespace().chain(left.split_whitespace()) {
            assert!(all.insert(format!("{table}.{column}")), "{table}.{column} is decided twice");
        }
    }
    all
}

fn compare(found: BTreeSet<String>, tables: &[(&str, &str, &str)]) {
    let decided = decided(tables);
    let undecided: Vec<_> = found.difference(&decided).collect();
    assert!(undecided.is_empty(), "say in this file how these columns are moved, and move them: {undecided:?}");
    let gone: Vec<_> = decided.difference(&found).collect();
    assert!(gone.is_empty(), "these columns are no longer there: {gone:?}");
    assert!(found.len() > 100, "only {} columns were found", found.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_column_of_a_file_is_decided() {
    let places = Places::new();
    let url = places.fresh(Kind::Sqlite);
    drop(open(&url).await);
    let file = rusqlite::Connection::open(url.trim_start_matches("sqlite:")).expect("a file");
    let columns =
        "select m.name || '.' || c.name from sqlite_master m join pragma_table_info(m.name) c where m.type = 'table'";
    let mut statement = file.prepare(columns).expect("a statement");
    let found = statement.query_map([], |row| row.get(0)).expect("columns").collect::<Result<_, _>>();
    compare(found.expect("names"), SQLITE);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_column_of_a_schema_is_decided() {
    let places = Places::new();
    let url = places.fresh(Kind::Postgres);
    drop(open(&url).await);
    let (server, schema) = url.split_once("?schema=").expect("a schema");
    let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let columns = "select c.table_name || '.' || c.column_name as name
        from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
        where c.table_schema = $1 and t.table_type = 'BASE TABLE'";
    let rows = client.query(columns, &[&schema]).await.expect("columns");
    compare(rows.iter().map(|row| row.get("name")).collect(), POSTGRES);
}
