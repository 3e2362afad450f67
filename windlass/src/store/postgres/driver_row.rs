//! One row of an answer, whatever driver brought it.

use std::sync::Arc;

use tokio_postgres::types::{FromSql, Type};

/// A row: of the store's own driver, or as another one received it.
#[derive(Debug)]
pub(super) enum Row {
    Own(tokio_postgres::Row),
    #[cfg_attr(
        not(any(feature = "sqlx-0_8", feature = "sqlx-0_9")),
        allow(dead_code, reason = "only adapters of other drivers make it")
    )]
    Received(Received),
}

/// The values as the server sent them, in its binary format.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) columns: Arc<[(String, Type)]>,
    pub(super) values: Vec<Option<Vec<u8>>>,
}

/// Names a column, by number or by name.
pub(super) trait ColumnRef: tokio_postgres::row::RowIndex + std::fmt::Display {
    fn find(&self, columns: &[(String, Type)]) -> Option<usize>;
}

impl ColumnRef for usize {
    fn find(&self, columns: &[(String, Type)]) -> Option<usize> {
        Some(*self).filter(|number| *number < columns.len())
    }
}

impl ColumnRef for &str {
    fn find(&self, columns: &[(String, Type)]) -> Option<usize> {
        columns.iter().position(|(name, _)| name == self)
    }
}

impl Row {
    /// The number of a column, for reading it from many rows.
    pub(super) fn column(&self, name: &str) -> usize {
        let column = match self {
            Row::Own(row) => row.columns().iter().position(|column| column.name() == name),
            Row::Received(row) => ColumnRef::find(&name, &row.columns),
        };
        column.unwrap_or_else(|| panic!("no column {name}"))
    }

    /// A column's value. The statements are the store's own, so a column that is absent or of another type is a defect.
    pub(super) fn get<'r, C: ColumnRef, T: FromSql<'r>>(&'r self, column: C) -> T {
        match self {
            Row::Own(row) => row.get(column),
            Row::Received(row) => {
                let number = column.find(&row.columns).unwrap_or_else(|| panic!("no column {column}"));
                let (name, of) = &row.columns[number];
                assert!(T::accepts(of), "column {name} is {of}");
                let value = T::from_sql_nullable(of, row.values[number].as_deref());
                value.unwrap_or_else(|error| panic!("cannot read column {name}: {error}"))
            }
        }
    }
}
