//! `SQLite` in WAL mode with `synchronous=FULL`: one row an event, or one packed row after the other.

use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use sessionlog::event::{Batch, Item};

use crate::{Peer, header, text};

pub struct Sqlite {
    /// A database has one writer at a time.
    connection: Mutex<Connection>,
    packed: bool,
}

/// Rows fetched at once.
const PAGE: i64 = 4096;

fn integer(number: u64) -> i64 {
    i64::try_from(number).expect("a small number")
}

impl Sqlite {
    pub fn open(root: &Path, durable: bool, packed: bool) -> Self {
        let connection = Connection::open(root.join("sessions.sqlite")).expect("a database");
        connection.pragma_update(None, "journal_mode", "WAL").expect("WAL mode");
        let synchronous = if durable { "FULL" } else { "OFF" };
        connection.pragma_update(None, "synchronous", synchronous).expect("a setting");
        let tables = "CREATE TABLE IF NOT EXISTS sessions (id INTEGER PRIMARY KEY, header TEXT NOT NULL);
            CREATE TABLE IF NOT EXISTS events (session INTEGER NOT NULL, seq INTEGER NOT NULL, line BLOB NOT NULL,
            PRIMARY KEY (session, seq)) WITHOUT ROWID;";
        connection.execute_batch(tables).expect("tables");
        Self { connection: Mutex::new(connection), packed }
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().expect("no thread has failed")
    }

    fn insert(&self, connection: &Connection, session: u64, batch: &Batch) {
        let mut insert =
            connection.prepare_cached("INSERT INTO events (session, seq, line) VALUES (?1, ?2, ?3)").expect("SQL");
        let mut put = |seq: u64, line: &[u8]| {
            insert.execute(params![integer(session), integer(seq), line]).expect("an insert");
        };
        if batch.first_seq() == 0 {
            let mut insert =
                connection.prepare_cached("INSERT INTO sessions (id, header) VALUES (?1, ?2)").expect("SQL");
            insert.execute(params![integer(session), header(session).to_line()]).expect("an insert");
        }
        for item in batch.items() {
            match item {
                Item::Run(run) if self.packed => {
                    let row = Batch::new(vec![Item::Run(run.clone())]).expect("a run");
                    put(run.first_seq(), &text::rows(&row));
                }
                item => item.events().for_each(|event| {
                    let mut line = event.to_line();
                    line.push('\n');
                    put(event.seq(), line.as_bytes());
                }),
            }
        }
    }

    /// Makes many sessions of one batch each, in one transaction.
    pub fn fill(&self, sessions: u64, batch: &Batch) {
        let connection = self.lock();
        connection.execute_batch("BEGIN").expect("a transaction");
        (0..sessions).for_each(|session| self.insert(&connection, session, batch));
        connection.execute_batch("COMMIT").expect("a commit");
    }

    /// Lists all sessions with the number of their last event and returns how many there are.
    pub fn list(&self) -> u64 {
        let connection = self.lock();
        let mut list = connection
            .prepare("SELECT id, header, (SELECT max(seq) FROM events WHERE session = id) FROM sessions ORDER BY id")
            .expect("SQL");
        let rows = list.query_map([], |row| Ok((row.get::<_, String>(1)?, row.get::<_, i64>(2)?))).expect("rows");
        let shown = rows.map(|row| row.expect("a row")).filter(|(header, last)| {
            serde_json::from_str::<serde_json::Value>(header).is_ok_and(|header| header.is_object()) && *last > 0
        });
        shown.count() as u64
    }
}

impl Peer for Sqlite {
    fn append(&self, session: u64, batch: &Batch) {
        let connection = self.lock();
        connection.execute_batch("BEGIN IMMEDIATE").expect("a transaction");
        self.insert(&connection, session, batch);
        connection.execute_batch("COMMIT").expect("a commit");
    }

    fn read(&self, session: u64) -> Box<dyn Read + '_> {
        let mut from = 0_i64;
        Box::new(text::Pieces::new(session, move || {
            let connection = self.lock();
            let mut select = connection
                .prepare_cached("SELECT seq, line FROM events WHERE session = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3")
                .expect("SQL");
            let mut rows = select.query(params![integer(session), from, PAGE]).expect("rows");
            let mut piece = Vec::new();
            while let Some(row) = rows.next().expect("a row") {
                from = row.get::<_, i64>(0).expect("a seq") + 1;
                piece.extend_from_slice(row.get_ref(1).and_then(|line| Ok(line.as_blob()?)).expect("a line"));
            }
            (!piece.is_empty()).then_some(piece)
        }))
    }

    fn tail(&self, session: u64, events: usize) -> Vec<u8> {
        let connection = self.lock();
        let mut select =
            connection.prepare("SELECT line FROM events WHERE session = ?1 ORDER BY seq DESC LIMIT ?2").expect("SQL");
        let limit = i64::try_from(events).expect("few");
        let rows = select.query_map(params![integer(session), limit], |row| row.get::<_, Vec<u8>>(0)).expect("rows");
        let mut lines: Vec<Vec<u8>> = rows.map(|row| row.expect("a row")).collect();
        lines.reverse();
        lines.concat()
    }

    fn fork(&self, session: u64, child: u64) -> Option<Duration> {
        let connection = self.lock();
        let start = Instant::now();
        connection.execute_batch("BEGIN IMMEDIATE").expect("a transaction");
        let (session, child) = (integer(session), integer(child));
        connection
            .execute("INSERT INTO sessions SELECT ?2, header FROM sessions WHERE id = ?1", params![session, child])
            .expect("a header");
        connection
            .execute("INSERT INTO events SELECT ?2, seq, line FROM events WHERE session = ?1", params![session, child])
            .expect("events");
        connection.execute_batch("COMMIT").expect("a commit");
        let elapsed = start.elapsed();
        connection.execute("DELETE FROM events WHERE session = ?1", [child]).expect("a deletion");
        connection.execute("DELETE FROM sessions WHERE id = ?1", [child]).expect("a deletion");
        Some(elapsed)
    }

    fn close(&self) {
        let connection = self.lock();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("a checkpoint");
    }
}
