//! One line on a terminal for what takes more than a second: what is done, and for how long. Nothing where nobody looks.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the line is written; the first time after as long.
const EVERY: Duration = Duration::from_secs(1);

/// Work under way; the line goes when this is dropped.
pub(super) struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

impl Progress {
    /// Begins to watch, when standard error is a terminal.
    pub(super) fn start(what: String) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let (sender, ended) = channel();
        Self(Some((sender, std::thread::spawn(move || watch(&what, &ended, EVERY, &mut io::stderr())))))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            // It only writes a line; that it could not is no failure of the work.
            let _ended = thread.join().is_ok();
        }
    }
}

/// Writes the line until the other end is dropped, then takes it away.
fn watch(what: &str, ended: &Receiver<()>, every: Duration, out: &mut dyn Write) {
    let mut turns = 0_u32;
    while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        turns += 1;
        let shown = write!(out, "\r{what}, {} s", every.saturating_mul(turns).as_secs()).and_then(|()| out.flush());
        if shown.is_err() {
            return;
        }
    }
    if turns > 0 {
        let _cleared = write!(out, "\r\u{1b}[2K").and_then(|()| out.flush()).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends the work when the line has been written so many times.
    struct Ending {
        text: Vec<u8>,
        left: usize,
        sender: Option<Sender<()>>,
    }

    impl Write for Ending {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.text.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                self.sender = None;
            }
            Ok(())
        }
    }

    fn shown(times: usize) -> String {
        let (sender, ended) = channel();
        let sender = Some(sender).filter(|_| times > 0);
        let mut out = Ending { text: Vec::new(), left: times, sender };
        watch("placing 3 objects", &ended, Duration::from_nanos(1), &mut out);
        String::from_utf8(out.text).expect("text")
    }

    #[test]
    fn a_line_comes_while_it_lasts_and_goes_at_the_end() {
        assert_eq!(shown(0), "", "what is over soon says nothing");
        assert_eq!(shown(2), "\rplacing 3 objects, 0 s\rplacing 3 objects, 0 s\r\u{1b}[2K");
    }
}
