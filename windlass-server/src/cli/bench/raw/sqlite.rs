//! What the file system and SQLite can do: synced writes, and bulk inserts of rows like ours.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use rusqlite::{Connection, params};

use super::super::measure::{Measurement, Setting};
use super::with;

const BATCH: usize = 1000;
const BLOCK: [u8; 4096] = [7; 4096];
/// Blocks of the file that is written round and round: its size is settled before measuring, so only data is synced.
const BLOCKS: u64 = 64;

pub(super) fn measure(setting: &Setting, path: &Path) -> anyhow::Result<Vec<Measurement>> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = parent.join(format!(".windlass-raw-{}", std::process::id()));
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let found = (|| {
        let mut all = vec![synced_writes(setting, &folder)?];
        for indexed in [true, false] {
            all.push(bulk_insert(setting, &folder, indexed)?);
        }
        Ok(all)
    })();
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    found
}

fn synced_writes(setting: &Setting, folder: &Path) -> anyhow::Result<Measurement> {
    let file = File::create(folder.join("synced"))?;
    for block in 0..BLOCKS {
        file.write_all_at(&BLOCK, block * BLOCK.len() as u64)?;
    }
    file.sync_all()?;
    let (start, mut calls) = (Instant::now(), Vec::new());
    while start.elapsed() < setting.time {
        let before = Instant::now();
        let block = calls.len() as u64 % BLOCKS;
        file.write_all_at(&BLOCK, block * BLOCK.len() as u64)?;
        file.sync_data()?;
        calls.push(before.elapsed());
    }
    let time = start.elapsed();
    Ok(Measurement::new("raw_synced_write", &with(setting, 1, 1), calls.len(), time, calls))
}

fn bulk_insert(setting: &Setting, folder: &Path, indexed: bool) -> anyhow::Result<Measurement> {
    let op = if indexed { "raw_insert_id_index" } else { "raw_insert" };
    let mut connection = Connection::open(folder.join(op))?;
    connection.execute_batch(
        "pragma journal_mode = wal; pragma synchronous = full;
         create table job (seq integer primary key, id blob not null, queue text not null, type text not null,
             priority integer not null, created_at integer not null, options text not null, payload blob not null);",
    )?;
    if indexed {
        connection.execute_batch("create unique index job_id on job (id);")?;
    }
    let payload = vec![b'x'; setting.payload];
    let mut ids = Ids(0x9e37_79b9_7f4a_7c15);
    let (start, mut calls) = (Instant::now(), Vec::new());
    while start.elapsed() < setting.time {
        let before = Instant::now();
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "insert into job (id, queue, type, priority, created_at, options, payload)
                 values (?1, 'default', 'bench', 2, 0, '{}', ?2)",
            )?;
            for _ in 0..BATCH {
                insert.execute(params![ids.next(), payload])?;
            }
        }
        transaction.commit()?;
        calls.push(before.elapsed());
    }
    let time = start.elapsed();
    Ok(Measurement::new(op, &with(setting, 1, BATCH), calls.len() * BATCH, time, calls))
}

/// Numbers that are spread as random ids are; what they are made of must not cost anything.
struct Ids(u64);

impl Ids {
    fn next(&mut self) -> [u8; 16] {
        let mut id = [0; 16];
        for half in id.chunks_exact_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            half.copy_from_slice(&self.0.to_be_bytes());
        }
        id
    }
}
