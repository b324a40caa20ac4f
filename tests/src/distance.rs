//! Distance between two machines: a path with delay, loss and a rate, for both families.
//!
//! The kernel here has no netem, so a small C program carries the packets between two TUN devices.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;

use crate::{
    machine::{Machine, clean},
    parts::compile,
};

/// How a path treats packets, each way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// How much later a packet arrives.
    pub delay: Duration,
    /// Packets lost of a million.
    pub loss_ppm: u32,
    /// Kilobits a second; 0 is no limit.
    pub kbit: u32,
}

/// The path; it ends when dropped.
#[derive(Debug)]
pub struct Distance(Mutex<Child>);

impl Distance {
    /// Joins two machines by devices of these names, which have no addresses yet.
    pub fn start(
        folder: &Path,
        left: (&Machine, &str),
        right: (&Machine, &str),
        shape: Shape,
    ) -> Result<Self> {
        let program = folder.join("distance");
        if !program.exists() {
            compile("gcc", &[], "distance.c", &program)?;
        }
        let mut child = clean(Command::new(&program))
            .args([&left.0.process().to_string(), left.1])
            .args([&right.0.process().to_string(), right.1])
            .args(shape.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = String::new();
        let output = child.stdout.take().context("distance has no output")?;
        BufReader::new(output).read_line(&mut said)?;
        ensure!(said == "ready\n", "distance did not start: {said:?}");
        Ok(Self(Mutex::new(child)))
    }

    /// Makes the path another one, at once.
    pub fn become_like(&self, shape: Shape) -> Result<()> {
        let mut child = self.0.lock();
        let input = child.stdin.as_mut().context("distance has no input")?;
        writeln!(input, "{}", shape.words().join(" "))?;
        Ok(())
    }
}

impl Shape {
    fn words(self) -> [String; 3] {
        [
            self.delay.as_micros().to_string(),
            self.loss_ppm.to_string(),
            self.kbit.to_string(),
        ]
    }
}

impl Drop for Distance {
    fn drop(&mut self) {
        let child = self.0.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}
