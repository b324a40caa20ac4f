//! That every row of the DNS protocol's conditions has a test, and that the tests which the
//! documentation names for it are there.
//!
//! A test names its rows at the start of its documentation (`/// K3, D19`) or of its name
//! (`k3_…`); the questions to real tools name them at the start of their titles (`"E2 DO"`).

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{root, rust_sources};

/// The rows: parsing, EDNS, size, TCP, matching, case, cache, types and names.
const ROWS: [(char, usize); 8] = [
    ('P', 16),
    ('E', 12),
    ('T', 5),
    ('C', 7),
    ('S', 6),
    ('Q', 1),
    ('K', 13),
    ('N', 8),
];
const TABLE: &str = "docs/dns-conformance.md";
const TOOLS: &str = "tests/e2e/dns_tools";

/// The tests of a row, each as `file: name`, by the row's place in the order of [`ROWS`].
type Found = BTreeMap<(usize, usize), BTreeSet<String>>;

/// Reads `K3` as its place in the order of [`ROWS`].
fn row(word: &str) -> Option<(usize, usize)> {
    let mut letters = word.chars();
    let letter = letters.next()?.to_ascii_uppercase();
    let number: usize = letters.as_str().parse().ok()?;
    let place = ROWS.iter().position(|(known, _)| *known == letter)?;
    (1..=ROWS[place].1)
        .contains(&number)
        .then_some((place, number))
}

/// The rows that a text begins with; conditions of other tables may stand among them.
fn rows_at_start(text: &str) -> Vec<(usize, usize)> {
    let is_condition = |word: &&str| {
        let digits = word.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
        word.len() == digits.len() + 1 && digits.parse::<usize>().is_ok()
    };
    let words = text.split([',', ':', '.', ' ']);
    let words = words.filter(|word| !word.is_empty());
    words.take_while(is_condition).filter_map(row).collect()
}

fn tests_in(path: &str, text: &str, found: &mut Found) {
    let file = path.trim_start_matches("dns/").trim_end_matches(".rs");
    let (mut documentation, mut is_test) = (None, false);
    for line in text.lines().map(str::trim_start) {
        if let Some(words) = line.strip_prefix("/// ") {
            documentation.get_or_insert(words);
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if !line.starts_with("#[") {
            let line = line.trim_start_matches("async ");
            let name = line
                .strip_prefix("fn ")
                .and_then(|rest| rest.split('(').next());
            if let (Some(name), true) = (name, is_test) {
                let by_name = name.split('_').next().and_then(row);
                let rows = rows_at_start(documentation.unwrap_or_default());
                for row in rows.into_iter().chain(by_name) {
                    found
                        .entry(row)
                        .or_default()
                        .insert(format!("`{file}`: {name}"));
                }
            }
            (documentation, is_test) = (None, false);
        }
    }
}

/// The rows that a question with a real tool is about.
fn asked_with_tools(sources: &[(String, String)]) -> BTreeSet<(usize, usize)> {
    let sources = sources.iter().filter(|(path, _)| path.starts_with(TOOLS));
    let texts = sources.flat_map(|(_, text)| text.split('"').skip(1).step_by(2));
    texts
        .filter_map(|text| row(text.split(' ').next()?))
        .collect()
}

/// The lines of the documentation's table: the row, whether tools ask it, its tests.
fn told() -> Vec<((usize, usize), bool, Vec<String>)> {
    let text = std::fs::read_to_string(root().join(TABLE)).unwrap();
    let cells = |line: &str| {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let [_, name, asked, tests, _] = cells.as_slice() else {
            return None;
        };
        let tests = tests.split("<br>").map(str::to_owned).collect();
        Some((row(name)?, asked == "yes", tests))
    };
    text.lines().filter_map(cells).collect()
}

#[test]
fn every_row_of_the_protocol_has_a_test_and_the_documentation_names_no_other() {
    let sources = rust_sources();
    let mut found = Found::new();
    let ours = |path: &str| path.starts_with("dns/") || path.starts_with(TOOLS);
    for (path, text) in sources.iter().filter(|(path, _)| ours(path)) {
        tests_in(path, text, &mut found);
    }
    let tools = asked_with_tools(&sources);
    let told = told();
    let mut wrong = Vec::new();
    for (place, (letter, last)) in ROWS.iter().enumerate() {
        for number in 1..=*last {
            let row = (place, number);
            let Some(tests) = found.get(&row) else {
                wrong.push(format!("{letter}{number} has no test"));
                continue;
            };
            let line = told.iter().find(|(told, ..)| *told == row);
            let Some((_, asked, named)) = line else {
                wrong.push(format!("{letter}{number} is not in {TABLE}"));
                continue;
            };
            let gone = named.iter().filter(|named| !tests.contains(*named));
            wrong.extend(gone.map(|gone| format!("{letter}{number} has no test {gone}")));
            if *asked && !tools.contains(&row) {
                wrong.push(format!("{letter}{number} is not asked with tools"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn rows_are_read_from_documentation_and_names() {
    let mut found = Found::new();
    let text = "/// K3, D19: words.\n#[tokio::test]\nasync fn ttl_zero() {\n}\n\
        #[test]\nfn n8_long() {}\n/// K2\nfn no_test() {}\n/// Q1. More.\n/// K1\n#[test]\nfn case() {}\n\
        /// T9\n#[test]\nfn none() {}\n";
    tests_in("dns/tests/protocol/x.rs", text, &mut found);
    let found: Vec<_> = found
        .into_iter()
        .map(|(row, tests)| (row, tests.len()))
        .collect();
    assert_eq!(found, [((5, 1), 1), ((6, 3), 1), ((7, 8), 1)]);
}
