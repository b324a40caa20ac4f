//! What a session's process may take of the machine, and what it gives back. Not what it does with it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many open files as macOS gives at most, and far more than a session has without a proxy. Not
/// more where there is more: the credential plugins that are run inherit it, and some close all
/// numbers there could be.
const OPEN_FILES: u64 = 10_240;

/// From this size on a piece of memory is the system's again as soon as it is freed: a flow's
/// buffers are (128 KiB each), and little else.
const LARGE: i32 = 128 * 1024;

/// Takes more open files than a login gives (1,024, on macOS 256): by proxy each flow is a socket.
/// Returns how many there may be now; `None` is no limit.
///
/// # Errors
///
/// The system gives no more than there were.
pub fn take_open_files() -> std::io::Result<Option<u64>> {
    let limits = getrlimit(Resource::Nofile);
    let most = limits.maximum.unwrap_or(OPEN_FILES).min(OPEN_FILES);
    if limits.current.is_none_or(|current| current >= most) {
        return Ok(limits.current);
    }
    let current = Some(most);
    setrlimit(Resource::Nofile, Rlimit { current, ..limits })?;
    Ok(current)
}

/// Has large pieces of memory be pages of their own, that are given back when they are freed and
/// used only where something was written. Returns whether that is so.
///
/// glibc does so at first, and stops with the first such piece that is freed. From then on it takes
/// them from among the small ones, writes zeroes over what was used before, and keeps them: an idle
/// flow had 48 KiB instead of 20, and the memory of 10,000 flows stayed with us when they were over.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(
    unsafe_code,
    reason = "a function of the C library that std does not have"
)]
pub fn give_large_memory_back() -> bool {
    use std::ffi::c_int;

    unsafe extern "C" {
        fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }
    /// `M_MMAP_THRESHOLD` of `malloc.h`.
    const THRESHOLD: c_int = -3;
    // SAFETY: it takes two numbers, and may be called at any time by any thread.
    unsafe { mallopt(THRESHOLD, LARGE) == 1 }
}

/// Has large pieces of memory be given back when they are freed: musl and macOS always do.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_large_memory_back() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_memory_that_was_used_is_given_back() {
        assert!(give_large_memory_back());
        let resident = || -> usize {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse().unwrap()
        };
        let before = resident();
        let mut held: Vec<Vec<u8>> = Vec::new();
        let mut small: Vec<Box<[u8]>> = Vec::new();
        for _ in 0..800 {
            held.push(vec![1; LARGE as usize]);
            // What would keep it among others.
            small.push(vec![1; 100].into());
        }
        assert!(resident() > before + 20_000);
        drop(held);
        let after = resident();
        assert!(after < before + 10_000, "{before} pages, then {after}");
        drop(small);
    }

    #[test]
    fn a_process_may_have_many_open_files() {
        let most = getrlimit(Resource::Nofile).maximum;
        let now = take_open_files().unwrap();
        let wanted = most.unwrap_or(OPEN_FILES).min(OPEN_FILES);
        assert!(now.is_none_or(|now| now >= wanted), "{now:?}");
    }
}
