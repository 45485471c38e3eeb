//! Random values from the system's source.

const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Returns `length` characters of `[A-Za-z0-9]`, uniformly distributed; suitable for keys and secrets.
pub fn text(length: usize) -> Result<String, getrandom::Error> {
    let mut out = String::with_capacity(length);
    let mut bytes = [0u8; 64];
    while out.len() < length {
        getrandom::fill(&mut bytes)?;
        let missing = length - out.len();
        // 248 = 4 × 62; higher bytes are rejected because they would favor the first characters.
        out.extend(bytes.iter().filter(|b| **b < 248).map(|b| ALPHABET[usize::from(*b) % 62] as char).take(missing));
    }
    Ok(out)
}

/// Returns a random number, or 0 if the system's source fails. Use it only for jitter and names.
pub fn u64() -> u64 {
    getrandom::u64().unwrap_or_default()
}

/// Returns a number in `[0, 1)`, for jitter.
pub fn unit() -> f64 {
    // A double holds 53 bits exactly.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let fraction = (u64() >> 11) as f64 / (1u64 << 53) as f64;
    fraction
}
