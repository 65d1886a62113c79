//! Tests of opening a database that others use, or whose file system lacks something.

use std::io::Write;
use std::sync::Mutex;

use super::*;
use crate::db::Db as _;
use crate::engine::Connection as _;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the lines that `work` logs.
fn logged(work: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, work);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn write(writer: &mut Sqlite, name: usize, text: &str) {
    writer.begin(Box::new(|| ())).unwrap();
    let sql = "INSERT INTO output_tails (launch_id, tail) VALUES (?1, ?2)";
    writer.execute(sql, &[name.to_string().into(), text.into()]).unwrap();
    writer.commit().unwrap();
}

#[test]
fn a_log_that_a_foreign_reader_holds_is_reported_and_shrinks_when_the_reader_ends() {
    const MIB: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    prepare(&path).unwrap();
    let settings = Settings { largest_log: 10 << 20, ..Settings::default() };
    let (options, connection) = check_and_migrate(&path, settings).unwrap();
    let mut writer = Sqlite::new(connection, Some(options));
    let size = || usize::try_from(std::fs::metadata(beside(&path, "-wal")).unwrap().len()).unwrap();
    let text = "x".repeat(MIB);

    let foreign = Connection::open(&path).unwrap();
    foreign.execute_batch("BEGIN; SELECT COUNT(*) FROM output_tails").unwrap();
    let said = logged(|| {
        for n in 0..16 {
            write(&mut writer, n, &text);
            writer.look_after();
        }
    });
    assert!((16 * MIB..18 * MIB).contains(&size()), "it grows by what is written: {}", size());
    let [line] = &said[..] else { panic!("one line: {said:?}") };
    assert!(line.contains("WARN") && line.contains("takes space on the disk"), "{line}");
    assert!(line.contains("another process reads an old state"), "{line}");
    assert!(line.contains("store.db-wal"), "{line}");
    // One write has a little more than 1 MiB.
    assert!(["size_mib=10", "size_mib=11"].iter().any(|size| line.contains(size)), "{line}");

    drop(foreign);
    let said = logged(|| {
        writer.look_after();
        writer.look_after();
    });
    assert_eq!(size(), 0);
    assert!(said.len() == 1 && said[0].contains("is small again"), "{said:?}");
    write(&mut writer, 16, "still written");
}

#[test]
fn a_file_system_without_locks_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    // SQLite without locks has no log.
    let flags = rusqlite::OpenFlags::default();
    let connection = Connection::open_with_flags_and_vfs(&path, flags, c"unix-none").unwrap();
    let error = turn_to_wal(&connection).unwrap_err();
    assert_eq!(error.to_string(), "the journal mode stays `delete`");
    turn_to_wal(&Connection::open(&path).unwrap()).unwrap();

    for (code, is_of_locks) in [(15, true), (3850, true), (5130, true), (10, false), (266, false)] {
        let cause = rusqlite::ffi::Error::new(code);
        let error = failed(&path, rusqlite::Error::SqliteFailure(cause, None));
        assert_eq!(error.kind == OpenErrorKind::NoLocks, is_of_locks, "{code}");
        assert_eq!(error.to_string().contains("does not lock files"), is_of_locks, "{error}");
    }
}
