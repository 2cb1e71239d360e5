//! Progress bars on standard error, with rate and time left; nothing where no person looks.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Fewer bytes are through before anyone could read a bar.
const WORTH_SHOWING_BYTES: u64 = 16 << 20;
/// The same for events.
const WORTH_SHOWING_EVENTS: u64 = 100_000;

/// A bar that counts bytes.
pub fn bytes(total: u64) -> ProgressBar {
    bar(total, WORTH_SHOWING_BYTES, "{wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left")
}

/// A bar that counts events.
pub fn events(total: u64) -> ProgressBar {
    bar(total, WORTH_SHOWING_EVENTS, "{wide_bar} {human_pos}/{human_len} events  {per_sec}  {eta} left")
}

fn bar(total: u64, worth_showing: u64, template: &str) -> ProgressBar {
    if !io::stderr().is_terminal() || total < worth_showing {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    bar.enable_steady_tick(Duration::from_millis(100));
    match ProgressStyle::with_template(template) {
        // Plain letters: they are the same on every terminal.
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
