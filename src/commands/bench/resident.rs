//! How much memory this process holds, where the system says so (Linux).

/// Now, in bytes.
pub fn now() -> Option<u64> {
    status("VmRSS:")
}

/// The most since the start or the last [`forget_peak`].
pub fn peak() -> Option<u64> {
    status("VmHWM:")
}

/// Begins the peak anew, where that is allowed; elsewhere it stays that of the whole process.
pub fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}
