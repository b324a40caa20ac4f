//! What a session's process says to the command that began it, for as long as that listens.

use std::io::{self, PipeWriter, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use super::Word;
use super::log::LogFile;

/// The way to the command; nothing is said once it is closed.
#[derive(Clone, Debug)]
pub(super) struct Voice(Arc<Mutex<Option<PipeWriter>>>);

impl Voice {
    pub(super) fn new(pipe: PipeWriter) -> Self {
        Self(Arc::new(Mutex::new(Some(pipe))))
    }

    /// Says a word; a command that is gone hears nothing, which is told elsewhere.
    pub(super) fn say(&self, word: &Word) {
        let mut pipe = self.0.lock();
        if let (Some(open), Ok(mut line)) = (pipe.as_mut(), serde_json::to_vec(word)) {
            line.push(b'\n');
            if open.write_all(&line).is_err() {
                *pipe = None;
            }
        }
    }

    /// Says nothing from now on.
    pub(super) fn close(&self) {
        *self.0.lock() = None;
    }

    /// A writer whose text goes to the command's stderr, and into the log.
    pub(super) fn talk(&self, log: &Arc<LogFile>) -> Speech {
        self.speech(Word::Talk, Some(log))
    }

    /// A writer whose text goes to the command's stdout.
    pub(super) fn data(&self) -> Speech {
        self.speech(Word::Data, None)
    }

    fn speech(&self, word: fn(String) -> Word, log: Option<&Arc<LogFile>>) -> Speech {
        Speech {
            voice: self.clone(),
            word,
            log: log.cloned(),
            text: Vec::new(),
        }
    }
}

/// Log lines for the command's stderr.
impl<'writer> MakeWriter<'writer> for Voice {
    type Writer = Speech;

    fn make_writer(&'writer self) -> Speech {
        self.speech(Word::Talk, None)
    }
}

/// Text on its way to the command; it is said when it is flushed, or dropped.
pub(super) struct Speech {
    voice: Voice,
    word: fn(String) -> Word,
    log: Option<Arc<LogFile>>,
    text: Vec<u8>,
}

impl Write for Speech {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.text.is_empty() {
            let text = String::from_utf8_lossy(&std::mem::take(&mut self.text)).into_owned();
            if let Some(log) = &self.log {
                log.write(text.as_bytes());
            }
            self.voice.say(&(self.word)(text));
        }
        Ok(())
    }
}

impl Drop for Speech {
    fn drop(&mut self) {
        // Writing into memory and a pipe that may be gone.
        let _ = self.flush();
    }
}
