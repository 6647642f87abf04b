//! Results as tables for other programs: one row for each run, kernel entry, op and event.

use crate::status;
use report::{EventCounts, Failure, RunReport, StudyRecord};
use std::collections::BTreeMap;

/// One row of a table of results.
#[derive(Debug, serde::Serialize)]
struct Row<'r> {
    study: &'r str,
    key: &'r str,
    arch: &'r str,
    machine: &'r str,
    kernel: &'r str,
    set: String,
    cpus: u16,
    folio_kb: u64,
    seed: u64,
    program: &'r str,
    args: String,
    /// `counts`, `tlb`, `time` or `failed`.
    kind: &'static str,
    /// Kernel entry: `madvise(MADV_PAGEOUT)`, `fault`; empty for the whole run, and for events outside every entry.
    entry: &'r str,
    /// Ops inside it, outermost first.
    op: &'r str,
    /// Event, statistic, or which time.
    name: &'r str,
    value: u64,
}

/// What a row says beside which run it is of.
type Fact<'r> = (&'static str, &'r str, &'r str, &'r str, u64);

fn rows(records: &[StudyRecord]) -> Vec<Row<'_>> {
    records.iter().flat_map(|record| facts(record).into_iter().map(|f| row(record, f))).collect()
}

fn row<'r>(record: &'r StudyRecord, (kind, entry, op, name, value): Fact<'r>) -> Row<'r> {
    let point = &record.point;
    Row {
        study: &record.study,
        key: &record.key,
        arch: &point.arch,
        machine: &point.machine,
        kernel: &point.kernel,
        set: point.set.join(" "),
        cpus: point.cpus,
        folio_kb: point.folio_kb,
        seed: point.seed,
        program: &point.program,
        args: point.args.join(" "),
        kind,
        entry,
        op,
        name,
        value,
    }
}

fn facts(record: &StudyRecord) -> Vec<Fact<'_>> {
    if let Some(error) = &record.error {
        return vec![("failed", "", "", error.message.as_str(), u64::from(error.status))];
    }
    let Some(run) = &record.run else { return Vec::new() };
    let RunReport { time, .. } = run;
    let mut facts: Vec<Fact<'_>> = vec![
        ("time", "", "", "high_ns", time.high_ns),
        ("time", "", "", "instructions", run.instructions),
        ("time", "", "", "low_ns", time.low_ns),
        ("time", "", "", "ns", time.ns),
    ];
    facts.extend(run.tlb.iter().map(|(name, &n)| ("tlb", "", "", name.as_str(), n)));
    for call in &run.by_syscall {
        facts.push(("counts", call.syscall.as_str(), "", "calls", call.calls));
        facts.extend(counts(&call.syscall, &call.by_op));
    }
    facts.extend(counts("fault", &run.faults.by_op));
    // What happened outside every kernel entry: walks of the hardware, for one.
    for (name, total) in run.events.iter() {
        let known = facts.iter().filter(|fact| fact.0 == "counts" && fact.3 == name);
        let rest = total.saturating_sub(known.map(|fact| fact.4).sum());
        if rest > 0 {
            facts.push(("counts", "", "", name, rest));
        }
    }
    facts
}

fn counts<'r>(
    entry: &'r str,
    by_op: &'r BTreeMap<String, EventCounts>,
) -> impl Iterator<Item = Fact<'r>> {
    by_op.iter().flat_map(move |(op, events)| {
        events.iter().map(move |(name, n)| ("counts", entry, op.as_str(), name, n))
    })
}

/// Results as CSV, with a line of names first.
///
/// # Errors
/// None in practice: the rows have no value that CSV cannot hold.
pub fn csv(records: &[StudyRecord]) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    rows(records)
        .iter()
        .try_for_each(|row| writer.serialize(row))
        .map_err(|error| internal(&error))?;
    writer.into_inner().map_err(|error| internal(&error))
}

fn internal(error: &dyn std::fmt::Display) -> Failure {
    let message = format!("internal error: a table cannot be written: {error}; please report it");
    Failure { message, status: status::INTERNAL }
}

/// Results as Parquet, with the columns of [`csv()`].
///
/// # Errors
/// 2 if this build cannot.
#[cfg(not(feature = "parquet"))]
pub fn parquet(_: &[StudyRecord]) -> Result<Vec<u8>, Failure> {
    let message = "this ptescope was built without Parquet; build it with `--features parquet`, or take --csv";
    Err(Failure { message: message.to_owned(), status: status::USAGE })
}

/// Results as Parquet, with the columns of [`csv`].
///
/// # Errors
/// None in practice.
#[cfg(feature = "parquet")]
pub fn parquet(records: &[StudyRecord]) -> Result<Vec<u8>, Failure> {
    columns::write(&rows(records)).map_err(|error| internal(&error))
}

#[cfg(feature = "parquet")]
mod columns {
    //! The columns of a Parquet file.

    use super::Row;
    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
    use parquet::errors::Result;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    const SCHEMA: &str = "message ptescope {
        required binary study (UTF8); required binary key (UTF8); required binary arch (UTF8);
        required binary machine (UTF8); required binary kernel (UTF8); required binary set (UTF8);
        required int64 cpus; required int64 folio_kb; required int64 seed;
        required binary program (UTF8); required binary args (UTF8); required binary kind (UTF8);
        required binary entry (UTF8); required binary op (UTF8); required binary name (UTF8);
        required int64 value; }";

    /// A column: text or a number.
    enum Column {
        Text(fn(&Row<'_>) -> String),
        Number(fn(&Row<'_>) -> u64),
    }

    const COLUMNS: [Column; 16] = [
        Column::Text(|row| row.study.to_owned()),
        Column::Text(|row| row.key.to_owned()),
        Column::Text(|row| row.arch.to_owned()),
        Column::Text(|row| row.machine.to_owned()),
        Column::Text(|row| row.kernel.to_owned()),
        Column::Text(|row| row.set.clone()),
        Column::Number(|row| u64::from(row.cpus)),
        Column::Number(|row| row.folio_kb),
        Column::Number(|row| row.seed),
        Column::Text(|row| row.program.to_owned()),
        Column::Text(|row| row.args.clone()),
        Column::Text(|row| row.kind.to_owned()),
        Column::Text(|row| row.entry.to_owned()),
        Column::Text(|row| row.op.to_owned()),
        Column::Text(|row| row.name.to_owned()),
        Column::Number(|row| row.value),
    ];

    pub(super) fn write(rows: &[Row<'_>]) -> Result<Vec<u8>> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        for column in &COLUMNS {
            match column {
                Column::Text(of) => {
                    let values = rows.iter().map(|row| ByteArray::from(of(row).into_bytes()));
                    one::<ByteArrayType>(&mut group, &values.collect::<Vec<_>>())?;
                }
                Column::Number(of) => {
                    let values = rows.iter().map(|row| i64::try_from(of(row)).unwrap_or(i64::MAX));
                    one::<Int64Type>(&mut group, &values.collect::<Vec<_>>())?;
                }
            }
        }
        group.close()?;
        writer.into_inner()
    }

    fn one<T: DataType>(
        group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
        values: &[T::T],
    ) -> Result<()> {
        if let Some(mut column) = group.next_column()? {
            column.typed::<T>().write_batch(values, None, None)?;
            column.close()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{Resume, Sweep};
    use report::Point;
    use std::num::NonZeroUsize;

    fn records() -> Vec<StudyRecord> {
        let point = |program: &str| Point {
            args: vec!["a, \"b\"".to_owned()],
            cpus: 1,
            kernel: "v7.3".to_owned(),
            machine: "zen2".to_owned(),
            mem_bytes: Some(16 << 20),
            program: program.to_owned(),
            ..Point::default()
        };
        let points = [point("@hello"), point("@wild")];
        let sweep = Sweep { study: "t", jobs: NonZeroUsize::MIN, store: None, resume: Resume::No };
        sweep.run(&points, &mut |_| ()).records
    }

    #[test]
    fn the_rows_of_a_run_add_up_to_its_counts() {
        let records = records();
        let run = records[0].run.as_ref().expect("ran");
        let rows = rows(&records);
        for (name, n) in run.events.iter() {
            let same = rows.iter().filter(|r| r.kind == "counts" && r.name == name);
            assert_eq!(same.map(|r| r.value).sum::<u64>(), n, "{name}");
        }
        let failed = rows.last().expect("a failed run");
        assert_eq!((failed.kind, failed.value), ("failed", 2));
    }

    #[test]
    fn csv_reads_back() {
        let text = csv(&records()).expect("writes");
        let mut reader = csv::Reader::from_reader(text.as_slice());
        assert_eq!(reader.headers().expect("a head").len(), 16);
        let lines: Vec<csv::StringRecord> = reader.records().map(|r| r.expect("a row")).collect();
        assert!(lines.iter().all(|line| &line[10] == "a, \"b\""));
        assert_eq!(lines.len(), rows(&records()).len());
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_reads_back() {
        use parquet::file::reader::{FileReader, SerializedFileReader};
        use parquet::record::RowAccessor;
        let records = records();
        let bytes = parquet(&records).expect("writes");
        assert_eq!(bytes, parquet(&records).expect("writes"));
        let path = std::env::temp_dir().join(format!("ptescope-{}.parquet", std::process::id()));
        std::fs::write(&path, bytes).expect("writes");
        let file = std::fs::File::open(&path).expect("opens");
        let reader = SerializedFileReader::new(file).expect("a file");
        let found: Vec<(String, i64)> = reader
            .get_row_iter(None)
            .expect("rows")
            .map(|row| row.expect("a row"))
            .map(|row| {
                (row.get_string(14).expect("text").clone(), row.get_long(15).expect("a number"))
            })
            .collect();
        let expected: Vec<(String, i64)> = rows(&records)
            .iter()
            .map(|row| (row.name.to_owned(), i64::try_from(row.value).expect("small")))
            .collect();
        assert_eq!(found, expected);
        std::fs::remove_file(path).expect("removes");
    }
}
