//! What the user sees while something is going on: one line per step, on stderr.
//!
//! Not the log: that is `tracing`'s, and for people who look for a fault.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use tokio::time::Instant;

use parking_lot::Mutex;
use serde::Serialize;

use crate::cli::Progress;

/// Writes progress lines.
pub struct Reporter {
    form: Form,
    /// Whether lines say how long each step took; JSON always does.
    timed: bool,
    start: Instant,
    out: Mutex<Box<dyn Write + Send>>,
    data: Mutex<Box<dyn Write + Send>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Lines,
    Json,
    Nothing,
}

#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    millis: Option<u128>,
}

impl Reporter {
    /// Makes a reporter on stderr, with data on stdout.
    #[must_use]
    pub fn stderr(progress: Progress) -> Self {
        Self::new(progress, Box::new(io::stderr())).with_data(Box::new(io::stdout()))
    }

    /// Makes a reporter that writes elsewhere, and its data nowhere.
    #[must_use]
    pub fn new(progress: Progress, out: Box<dyn Write + Send>) -> Self {
        let form = match progress {
            Progress::Auto | Progress::Plain => Form::Lines,
            Progress::Json => Form::Json,
            Progress::Quiet => Form::Nothing,
        };
        Self {
            form,
            timed: false,
            start: Instant::now(),
            out: Mutex::new(out),
            data: Mutex::new(Box::new(io::sink())),
        }
    }

    /// Says where data goes, as the document of a session that is connected.
    #[must_use]
    pub fn with_data(self, data: Box<dyn Write + Send>) -> Self {
        Self {
            data: Mutex::new(data),
            ..self
        }
    }

    /// Writes a line of data.
    pub fn data(&self, line: &str) {
        put(&mut **self.data.lock(), line);
    }

    /// Has lines say how long each step took, and all of them, for those who asked for more (`-v`).
    #[must_use]
    pub fn timed(self, timed: bool) -> Self {
        Self { timed, ..self }
    }

    /// Reports a step that is done, with what it found.
    pub fn step(&self, step: &str, detail: &str, took: Duration) {
        let text = match self.timed {
            true => format!("{step}: {detail} ({} ms)", took.as_millis()),
            false => format!("{step}: {detail}"),
        };
        self.write(
            &text,
            &Line {
                event: "step",
                step: Some(step),
                detail: Some(detail),
                millis: Some(took.as_millis()),
            },
        );
    }

    /// Reports something the user should know; shown in every form but JSON as text.
    pub fn warn(&self, text: &str) {
        let line = Line {
            event: "warning",
            step: None,
            detail: Some(text),
            millis: None,
        };
        match self.form {
            Form::Lines | Form::Nothing => self.put(&format!("warning: {text}")),
            Form::Json => self.put_json(&line),
        }
    }

    /// Reports something that happened.
    pub fn say(&self, text: &str) {
        let line = Line {
            event: "note",
            step: None,
            detail: Some(text),
            millis: None,
        };
        self.write(text, &line);
    }

    /// Reports that the session is there.
    pub fn connected(&self) {
        let millis = self.start.elapsed().as_millis();
        let line = Line {
            event: "connected",
            step: None,
            detail: None,
            millis: Some(millis),
        };
        match self.timed {
            true => self.write(&format!("connected ({millis} ms)"), &line),
            false => self.write("connected", &line),
        }
    }

    fn write(&self, text: &str, line: &Line<'_>) {
        match self.form {
            Form::Lines => self.put(text),
            Form::Json => self.put_json(line),
            Form::Nothing => {}
        }
    }

    fn put_json(&self, line: &Line<'_>) {
        if let Ok(json) = serde_json::to_string(line) {
            self.put(&json);
        }
    }

    fn put(&self, text: &str) {
        put(&mut **self.out.lock(), text);
    }
}

fn put(out: &mut dyn Write, text: &str) {
    // A terminal that is gone must not end the session.
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter")
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(progress: Progress) -> String {
        let buffer = Buffer::default();
        let reporter = Reporter::new(progress, Box::new(buffer.clone()));
        reporter.step("link", "kb0", Duration::from_millis(12));
        reporter.warn("no split DNS");
        reporter.connected();
        String::from_utf8(buffer.0.lock().clone()).unwrap()
    }

    #[test]
    fn lines_name_step_and_finding_and_end_with_connected() {
        assert_eq!(
            written(Progress::Auto),
            "link: kb0\nwarning: no split DNS\nconnected\n"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn lines_say_how_long_each_step_took_when_that_is_asked_for() {
        let buffer = Buffer::default();
        let reporter = Reporter::new(Progress::Plain, Box::new(buffer.clone())).timed(true);
        tokio::time::advance(Duration::from_millis(640)).await;
        reporter.step("link", "kb0", Duration::from_millis(12));
        reporter.connected();
        let text = String::from_utf8(buffer.0.lock().clone()).unwrap();
        assert_eq!(text, "link: kb0 (12 ms)\nconnected (640 ms)\n");
    }

    #[test]
    fn json_is_one_object_per_line() {
        let text = written(Progress::Json);
        let first = text.lines().next().unwrap();

        assert_eq!(
            first,
            r#"{"event":"step","step":"link","detail":"kb0","millis":12}"#
        );
        assert!(
            text.lines()
                .all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok())
        );
    }

    #[test]
    fn quiet_leaves_warnings() {
        assert_eq!(written(Progress::Quiet), "warning: no split DNS\n");
    }
}
