//! Medians of what was measured, as a table for the docs; kept in a file over several runs.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Samples by row and column; rows and columns keep the order they came in.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<String>,
    columns: Vec<String>,
    samples: BTreeMap<(usize, usize), Vec<f64>>,
}

impl Table {
    pub(crate) fn add(&mut self, row: &str, column: &str, value: f64) {
        let row = place(&mut self.rows, row.to_owned());
        let column = place(&mut self.columns, column.to_owned());
        self.samples.entry((row, column)).or_default().push(value);
    }

    /// Reads what earlier runs have left, if there was any.
    pub(crate) fn load(file: &Path) -> Result<Self> {
        let mut table = Self::default();
        if !file.exists() {
            return Ok(table);
        }
        for line in fs::read_to_string(file)?.lines() {
            let mut words = line.split('\t');
            let mut next = || {
                words
                    .next()
                    .with_context(|| format!("not a sample: {line}"))
            };
            let (row, column, value) = (next()?, next()?, next()?);
            table.add(row, column, value.parse()?);
        }
        Ok(table)
    }

    pub(crate) fn save(&self, file: &Path) -> Result<()> {
        let mut text = String::new();
        for (row, name) in self.rows.iter().enumerate() {
            for (column, title) in self.columns.iter().enumerate() {
                for value in self.samples.get(&(row, column)).into_iter().flatten() {
                    writeln!(text, "{name}\t{title}\t{value}")?;
                }
            }
        }
        Ok(fs::write(file, text)?)
    }
}

fn place<T: PartialEq>(all: &mut Vec<T>, wanted: T) -> usize {
    match all.iter().position(|one| *one == wanted) {
        Some(place) => place,
        None => {
            all.push(wanted);
            all.len() - 1
        }
    }
}

/// The median, and the range where there are several.
fn cell(samples: Option<&Vec<f64>>) -> String {
    let Some(samples) = samples else {
        return "-".to_owned();
    };
    let mut sorted = samples.clone();
    sorted.sort_by(f64::total_cmp);
    let shown = |value: f64| match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    let median = shown(sorted[sorted.len() / 2]);
    match sorted.as_slice() {
        [least, .., most] => format!("{median} ({}-{})", shown(*least), shown(*most)),
        _ => median,
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "| | {} |", self.columns.join(" | "))?;
        writeln!(formatter, "|---{}|", "|---".repeat(self.columns.len()))?;
        for (row, name) in self.rows.iter().enumerate() {
            let cells =
                (0..self.columns.len()).map(|column| cell(self.samples.get(&(row, column))));
            writeln!(
                formatter,
                "| {name} | {} |",
                cells.collect::<Vec<_>>().join(" | ")
            )?;
        }
        Ok(())
    }
}
