//! Every statement's plan with many rows: by index, and by the index that the statement says it leans on.

use std::collections::BTreeSet;
use std::path::Path;

use windlass::Client;

use crate::Visit;
use crate::{admin, new_schema, open, options, url};

/// Rows of each kind: jobs that wait, and jobs that have ended.
const ROWS: usize = 200_000;

/// Rows that stand for jobs that run, and for dependencies.
const LEASED: usize = 20_000;

/// Tables that grow with the number of jobs.
const BIG: [&str; 9] = ["job", "ready", "leased", "done", "pending", "edge", "attempt", "key", "mark"];

/// Statements that look at everything on purpose, or at as many rows of each table as they are told, and make the schema.
const WHOLE: [&str; 7] =
    ["check_jobs", "check_counts", "check_flow", "create_version", "add_version", "get_version", "count_states"];

/// Fills a schema as if `waiting` jobs had been enqueued, and others had completed.
async fn fill(database: &tokio_postgres::Client, schema: &str) {
    let fill = format!(
        "insert into {schema}.job (seq, id, lane, priority, created_at, deadline, visibility, payload, options)
         select nextval('{schema}.seq'), gen_random_uuid(), 1, 2, 1, 9000000000000000, 1, '1', '{{}}'
         from generate_series(1, {ROWS} * 2);
         insert into {schema}.ready (seq, lane, priority, state, slow, due, deadline, visibility, version, attempt,
             failures, lost, generation)
         select seq, lane, priority, 2, false, seq, deadline, visibility, 0, 0, 0, 0, 0
         from {schema}.job where seq % 2 = 0;
         insert into {schema}.done (seq, lane, state, completed_at, version, attempt, failures, lost, generation, fingerprint,
             prune_at)
         select seq, lane, case seq % 20 when 1 then 6 else 5 end, seq, 1, 1, 0, 0, 0, case seq % 20 when 1 then seq % 7 end,
             case when seq % 8 = 3 then 8000000000000000 + seq end
         from {schema}.job where seq % 2 = 1;
         insert into {schema}.leased (seq, lane, priority, slow, token, version, expires_at, visibility, attempt,
             failures, lost, generation, scheduled_at, started_at, worker)
         select seq, lane, 2, false, gen_random_uuid(), 1, 9000000000000000 + seq, 1, 1, 0, 0, 0, 1, 1, 'w'
         from {schema}.job where seq <= {LEASED};
         insert into {schema}.edge select seq, seq - 1, 0, true from {schema}.job where seq > 1 and seq <= {LEASED};
         insert into {schema}.attempt
         select seq, 1, gen_random_uuid(), 1, 0, 1, 1, 2, 'w', null from {schema}.job where seq % 2 = 1;
         insert into {schema}.mark select 't:customer', seq % 100, seq from {schema}.job where seq % 10 = 1"
    );
    database.batch_execute(&fill).await.expect("rows");
}

/// Lets the planner know the tables as they are.
async fn analyze(database: &tokio_postgres::Client, schema: &str) {
    for table in BIG {
        database.batch_execute(&format!("analyze {schema}.{table}")).await.expect("analyze");
    }
}

/// Leaves nothing alive in the tables, and everything dead: autovacuum must keep away from them.
async fn kill(database: &tokio_postgres::Client, schema: &str) {
    for table in BIG {
        let kill =
            format!("alter table {schema}.{table} set (autovacuum_enabled = false); delete from {schema}.{table}");
        database.batch_execute(&kill).await.expect("delete");
    }
}

/// Ways of a plan that read all there is, dead or alive: a whole index, or all of a part before the first row is given.
fn walks(plan: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = plan.lines().map(str::trim_start).collect();
    let of_big = |line: &str| BIG.iter().any(|table| line.contains(&format!(" on {table} ")));
    let walk = |(number, line): (usize, &&str)| {
        let next = lines.get(number + 1).copied().unwrap_or_default();
        let whole = line.contains("Index") && line.contains(" using ") && !next.starts_with("Index Cond");
        let eager = line.contains("Bitmap Heap Scan");
        (of_big(line) && (whole || eager)).then(|| format!("walks: {line}"))
    };
    lines.iter().enumerate().filter_map(walk).collect::<Vec<_>>().into_iter()
}

/// The indexes that a statement's heading names after "By".
fn promised(text: &str, indexes: &BTreeSet<String>) -> Vec<String> {
    let heading: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
    let heading = heading.join(" ");
    let Some((_, named)) = heading.split_once("By ") else { return Vec::new() };
    let words = named.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.filter(|word| indexes.contains(*word)).map(str::to_owned).collect()
}

async fn lines(database: &tokio_postgres::Client, statement: &str) -> Vec<String> {
    let answer = database.simple_query(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    let row = |message: &tokio_postgres::SimpleQueryMessage| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    answer.iter().filter_map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_goes_by_the_index_that_it_names() {
    let schema = new_schema();
    let client = Client::with_store(open(options(&url(), &schema)).await);
    client.enqueue(Visit { children: 0 }).await.expect("a lane");
    let database = admin(&url()).await;
    // As the store's own connections have it.
    let settings = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_mergejoin = off;
         set enable_hashjoin = off; set enable_bitmapscan = off; set enable_indexonlyscan = off;
         set enable_material = off; set jit = off";
    database.batch_execute(settings).await.expect("settings");
    let named = lines(&database, &format!("select indexname from pg_indexes where schemaname = '{schema}'")).await;
    let indexes: BTreeSet<String> = named.into_iter().collect();
    let mut faults = Vec::new();
    let mut looked = 0;
    // Planned for new tables, for tables known to be empty, for full ones that were, for full ones that are known, and for
    // those in which nothing is alive any more, as vacuum may leave them for long.
    for stage in ["new", "empty", "full", "analysed", "dead"] {
        match stage {
            "full" => fill(&database, &schema).await,
            "dead" => {
                kill(&database, &schema).await;
                analyze(&database, &schema).await;
            }
            "empty" | "analysed" => analyze(&database, &schema).await,
            _ => {}
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres/sql");
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("a file").path();
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
            if WHOLE.contains(&name.as_str()) {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a text");
            let plan = plan(&database, &text.replace("windlass.", &format!("{schema}."))).await;
            looked += 1;
            for table in BIG {
                let scan = format!("Seq Scan on {table} ");
                // Some say in their heading that they do, of a table that is small beside the others.
                if plan.contains(&scan) && !text.contains(&format!("the whole of {table}")) {
                    faults.push(format!("{name}, {stage}: reads all of {table}"));
                }
            }
            faults.extend(walks(&plan).map(|walk| format!("{name}, {stage}: {walk}")));
            // Of a table with a handful of rows any way is good.
            let big = |index: &String| BIG.iter().any(|table| index.starts_with(&format!("{table}_")));
            for index in promised(&text, &indexes).into_iter().filter(big) {
                if !plan.contains(&index) {
                    faults.push(format!("{name}, {stage}: does not use {index}\n{plan}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(looked > 200, "only {looked} plans were looked at");
}

/// The plan of a statement for any parameters.
async fn plan(database: &tokio_postgres::Client, text: &str) -> String {
    database
        .batch_execute(&format!("prepare looked_at as {text}"))
        .await
        .unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let counted =
        "select coalesce(cardinality(parameter_types), 0) from pg_prepared_statements where name = 'looked_at'";
    let count: usize = lines(database, counted).await[0].parse().expect("a number");
    let nulls = vec!["null"; count].join(", ");
    let arguments = if count == 0 { String::new() } else { format!("({nulls})") };
    let plan = lines(database, &format!("explain execute looked_at{arguments}")).await.join("\n");
    database.batch_execute("deallocate looked_at").await.expect("deallocate");
    plan
}
