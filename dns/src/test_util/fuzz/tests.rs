//! Replays the committed corpus of the fuzz targets.

use std::fs;
use std::path::PathBuf;

fn replay(target: &str, property: fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut inputs = 0;
    for entry in fs::read_dir(folder.join(target)).unwrap() {
        property(&fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs >= 8, "the corpus of `{target}` has {inputs} inputs");
}

#[test]
fn the_corpus_of_queries_is_checked_well() {
    replay("query", super::query);
}

#[test]
fn the_corpus_of_replies_is_patched_well() {
    replay("reply", super::reply);
}

#[test]
fn the_corpus_of_resolver_files_is_read_well() {
    replay("resolv_conf", super::resolv_conf);
}
