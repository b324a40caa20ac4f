//! Bytes that both ends can tell without having them from each other: a lost, repeated or changed
//! octet is seen where it is.

/// A stream of bytes that a seed decides (splitmix64, by blocks of 8).
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    seed: u64,
    at: u64,
}

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, at: 0 }
    }

    /// Where it is, in bytes.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// Writes the next bytes.
    pub(crate) fn fill(&mut self, mut buffer: &mut [u8]) {
        while !buffer.is_empty() {
            let block = block(self.seed, self.at / 8).to_le_bytes();
            let from = (self.at % 8) as usize;
            let count = (8 - from).min(buffer.len());
            buffer[..count].copy_from_slice(&block[from..from + count]);
            buffer = &mut buffer[count..];
            self.at += count as u64;
        }
    }

    /// Whether these are the next bytes.
    pub(crate) fn goes_on(&mut self, bytes: &[u8], scratch: &mut Vec<u8>) -> bool {
        scratch.resize(bytes.len(), 0);
        self.fill(scratch);
        scratch == bytes
    }
}

fn block(seed: u64, number: u64) -> u64 {
    let mut word = seed
        .wrapping_add(number)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_are_the_same_bytes_and_a_changed_one_is_seen() {
        let mut whole = vec![0; 1000];
        Pattern::new(7).fill(&mut whole);
        for size in [1, 3, 8, 13, 999] {
            let mut pattern = Pattern::new(7);
            let mut scratch = Vec::new();
            assert!(
                whole
                    .chunks(size)
                    .all(|part| pattern.goes_on(part, &mut scratch))
            );
            assert_eq!(pattern.position(), 1000);
        }
        whole[500] ^= 1;
        assert!(!Pattern::new(7).goes_on(&whole, &mut Vec::new()));
        assert!(!Pattern::new(8).goes_on(&whole, &mut Vec::new()));
    }
}
