//! Resident memory of this process, where the system reports it (Linux).

/// Returns the current size in bytes.
pub fn now() -> Option<u64> {
    status("VmRSS:")
}

/// Returns the maximum since the start or the last [`reset_peak`].
pub fn peak() -> Option<u64> {
    status("VmHWM:")
}

/// Resets the peak where permitted; elsewhere it remains that of the whole process.
pub fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}
