//! See `kubebridge_dns::test_util::fuzz::reply` for what must hold.

#![no_main]

use kubebridge_dns::test_util::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::reply(data));
