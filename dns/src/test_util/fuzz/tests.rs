//! Replays the committed corpus of the fuzz targets, and spoils it at random.

use std::fs;
use std::path::PathBuf;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Spoilt inputs per target; more with `KUBEBRIDGE_FUZZ_CASES`.
const CASES: u32 = 5000;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let files = fs::read_dir(folder.join(target)).unwrap();
    let inputs: Vec<_> = files
        .map(|file| fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(inputs.len() >= 8, "the corpus of `{target}` is gone");
    inputs
}

fn replay(target: &str, property: fn(&[u8])) {
    let corpus = corpus(target);
    corpus.iter().for_each(|input| property(input));
    let given = std::env::var("KUBEBRIDGE_FUZZ_CASES").ok();
    let cases = given.map_or(CASES, |text| text.parse().unwrap());
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    for case in 0..cases {
        let input = spoilt(&mut random, &corpus);
        let held = std::panic::catch_unwind(|| property(&input));
        assert!(held.is_ok(), "seed {seed}, case {case}: {input:?}");
    }
}

/// Takes one input and changes, cuts, doubles or exchanges parts of it.
fn spoilt(random: &mut StdRng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = corpus.choose(random).unwrap().clone();
    for _ in 0..random.random_range(1..6) {
        let other = corpus.choose(random).unwrap();
        let (at, from) = (place(random, &input), place(random, other));
        let length = random.random_range(0..24);
        let part = &other[from..other.len().min(from + length)];
        match random.random_range(0..6) {
            0 if at < input.len() => input[at] = random.random(),
            1 if at < input.len() => input[at] = input[at].wrapping_add(1),
            2 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            3 => drop(input.drain(at..input.len().min(at + length))),
            4 => drop(input.splice(at..at, part.iter().copied())),
            _ => {
                let end = input.len().min(at + part.len());
                input.splice(at..end, part.iter().copied());
            }
        }
    }
    input.truncate(4096);
    input
}

fn place(random: &mut StdRng, input: &[u8]) -> usize {
    random.random_range(0..=input.len())
}

#[test]
fn queries_of_the_corpus_and_spoilt_ones_are_checked_well() {
    replay("query", super::query);
}

#[test]
fn replies_of_the_corpus_and_spoilt_ones_are_patched_well() {
    replay("reply", super::reply);
}

#[test]
fn resolver_files_of_the_corpus_and_spoilt_ones_are_read_well() {
    replay("resolv_conf", super::resolv_conf);
}
