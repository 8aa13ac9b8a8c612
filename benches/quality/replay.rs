//! The replay of a trace.

/// Where the part of the page about the replay begins.
const MARK: &str = "\n## Replay of a trace\n";

/// A new board with the replay that the page had.
pub(crate) fn keep(board: &str, page: &str) -> String {
    let kept = page.find(MARK).map_or("", |at| &page[at..]);
    format!("{board}{kept}")
}
