//! How figures are taken and printed.

use std::time::{Duration, Instant};

/// Prints one line of the table.
pub fn row(work: &str, figure: &str) {
    println!("{work:<58} {figure:>14}");
}

/// So many a second.
pub fn rate(per_second: f64) -> String {
    format!("{per_second:.0}/s")
}

/// A time in milliseconds.
pub fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

/// The middle time.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The middle number.
pub fn median_number(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// The time, for measuring alone.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// The memory a process holds, in MB.
pub fn resident_megabytes(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("");
    let kilobytes: f64 = line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0.0);
    kilobytes / 1024.0
}

/// How many of `count` were done each second.
#[allow(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
pub fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// Time that the machine's processors have spent since it started, in ticks.
pub struct Processors {
    all: f64,
    idle: f64,
}

impl Processors {
    /// The part of all processors' time that was spent working since `before`, from 0 to 1.
    pub fn busy_since(&self, before: &Self) -> f64 {
        let all = (self.all - before.all).max(1.0);
        1.0 - (self.idle - before.idle) / all
    }
}

/// Reads the machine's processor times.
pub fn processors() -> Processors {
    let times = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = times.lines().next().unwrap_or("");
    let ticks: Vec<f64> =
        line.split_whitespace().skip(1).take(8).filter_map(|tick| tick.parse().ok()).collect();
    let idle = ticks.iter().skip(3).take(2).sum();
    Processors { all: ticks.iter().sum(), idle }
}
