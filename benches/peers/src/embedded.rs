//! Embedded key-value stores and a raft log, each holding packed rows under (session, first seq).

use std::io::Read;
use std::path::Path;

use fjall::{Config, Keyspace, PartitionCreateOptions, PartitionHandle, PersistMode};
use raft_engine::{Config as RaftConfig, Engine, LogBatch, RecoveryMode};
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use sessionlog::event::Batch;

use crate::{Peer, text};

/// Values fetched at once.
const PAGE: usize = 1024;

fn key(session: u64, seq: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&session.to_be_bytes());
    key[8..].copy_from_slice(&seq.to_be_bytes());
    key
}

/// Reads page after page from what `page` gives for the seq to start at: values, and the seq behind the last.
fn pages<'a>(session: u64, mut page: impl FnMut(u64) -> Option<(Vec<u8>, u64)> + 'a) -> Box<dyn Read + 'a> {
    let mut from = 0;
    Box::new(text::Pieces::new(session, move || {
        let (piece, next) = page(from)?;
        from = next;
        Some(piece)
    }))
}

fn seq_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key[8..16].try_into().expect("eight bytes"))
}

/// `redb`, a durable transaction a flush.
pub struct Redb {
    database: Database,
    durable: bool,
}

const ROWS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("rows");

impl Redb {
    pub fn open(root: &Path, durable: bool) -> Self {
        let database = Database::create(root.join("sessions.redb")).expect("a database");
        Self { database, durable }
    }

    fn write(&self, durable: bool, rows: &mut dyn Iterator<Item = (u64, u64, Vec<u8>)>) {
        let mut transaction = self.database.begin_write().expect("a transaction");
        let durability = if durable { Durability::Immediate } else { Durability::None };
        transaction.set_durability(durability).expect("a setting");
        {
            let mut table = transaction.open_table(ROWS).expect("a table");
            for (session, seq, row) in rows {
                table.insert((session, seq), row.as_slice()).expect("an insert");
            }
        }
        transaction.commit().expect("a commit");
    }
}

impl Peer for Redb {
    fn append(&self, session: u64, batch: &Batch) {
        let row = (session, batch.first_seq(), text::rows(batch));
        self.write(self.durable, &mut std::iter::once(row));
    }

    fn read(&self, session: u64) -> Box<dyn Read + '_> {
        pages(session, move |from| {
            let transaction = self.database.begin_read().expect("a transaction");
            let table = transaction.open_table(ROWS).expect("a table");
            let (mut piece, mut next) = (Vec::new(), from);
            for row in table.range((session, from)..(session + 1, 0)).expect("a range").take(PAGE) {
                let (key, value) = row.expect("a row");
                piece.extend_from_slice(value.value());
                next = key.value().1 + 1;
            }
            (!piece.is_empty()).then_some((piece, next))
        })
    }

    fn tail(&self, session: u64, events: usize) -> Vec<u8> {
        let transaction = self.database.begin_read().expect("a transaction");
        let table = transaction.open_table(ROWS).expect("a table");
        let rows = table.range((session, 0)..(session + 1, 0)).expect("a range").rev().take(events);
        let mut rows: Vec<Vec<u8>> = rows.map(|row| row.expect("a row").1.value().to_vec()).collect();
        rows.reverse();
        rows.concat()
    }

    fn close(&self) {
        self.write(true, &mut std::iter::empty());
    }
}

/// `fjall`, its journal synced at each flush.
pub struct Fjall {
    keyspace: Keyspace,
    rows: PartitionHandle,
    durable: bool,
}

impl Fjall {
    pub fn open(root: &Path, durable: bool) -> Self {
        let keyspace = Config::new(root).open().expect("a keyspace");
        let rows = keyspace.open_partition("rows", PartitionCreateOptions::default()).expect("a partition");
        Self { keyspace, rows, durable }
    }
}

impl Peer for Fjall {
    fn append(&self, session: u64, batch: &Batch) {
        self.rows.insert(key(session, batch.first_seq()), text::rows(batch)).expect("an insert");
        if self.durable {
            self.keyspace.persist(PersistMode::SyncData).expect("a sync");
        }
    }

    fn read(&self, session: u64) -> Box<dyn Read + '_> {
        pages(session, move |from| {
            let (mut piece, mut next) = (Vec::new(), from);
            for row in self.rows.range(key(session, from)..key(session + 1, 0)).take(PAGE) {
                let (key, value) = row.expect("a row");
                piece.extend_from_slice(&value);
                next = seq_of(&key) + 1;
            }
            (!piece.is_empty()).then_some((piece, next))
        })
    }

    fn tail(&self, session: u64, events: usize) -> Vec<u8> {
        let rows = self.rows.range(key(session, 0)..key(session + 1, 0)).rev().take(events);
        let mut rows: Vec<Vec<u8>> = rows.map(|row| row.expect("a row").1.to_vec()).collect();
        rows.reverse();
        rows.concat()
    }

    fn close(&self) {
        self.keyspace.persist(PersistMode::SyncAll).expect("a sync");
    }
}

/// `raft-engine`, a synced log batch a flush.
pub struct Raft {
    engine: Engine,
    durable: bool,
}

impl Raft {
    pub fn open(root: &Path, durable: bool) -> Self {
        let config = RaftConfig {
            dir: root.to_str().expect("a plain path").to_owned(),
            recovery_mode: RecoveryMode::TolerateTailCorruption,
            ..RaftConfig::default()
        };
        Self { engine: Engine::open(config).expect("a log"), durable }
    }

    fn rows(&self, session: u64, start: Option<&[u8]>, reverse: bool, limit: usize) -> Vec<(u64, Vec<u8>)> {
        let mut rows = Vec::new();
        let take = |key: &[u8], value: &[u8]| {
            rows.push((u64::from_be_bytes(key.try_into().expect("eight bytes")), value.to_vec()));
            rows.len() < limit
        };
        self.engine.scan_raw_messages(session + 1, start, None, reverse, take).expect("rows");
        rows
    }
}

impl Peer for Raft {
    fn append(&self, session: u64, batch: &Batch) {
        let mut log = LogBatch::default();
        log.put(session + 1, batch.first_seq().to_be_bytes().to_vec(), text::rows(batch)).expect("a row");
        self.engine.write(&mut log, self.durable).expect("a write");
    }

    fn read(&self, session: u64) -> Box<dyn Read + '_> {
        pages(session, move |from| {
            let rows = self.rows(session, Some(&from.to_be_bytes()), false, PAGE);
            let next = rows.last()?.0 + 1;
            Some((rows.into_iter().flat_map(|(_, row)| row).collect(), next))
        })
    }

    fn tail(&self, session: u64, events: usize) -> Vec<u8> {
        let mut rows = self.rows(session, None, true, events);
        rows.reverse();
        rows.into_iter().flat_map(|(_, row)| row).collect()
    }

    fn close(&self) {
        self.engine.sync().expect("a sync");
    }
}
