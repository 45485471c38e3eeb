//! The system's random source, in the shapes that are needed.

const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// `length` characters of `[A-Za-z0-9]`, each equally likely: fit for keys and secrets.
pub fn text(length: usize) -> Result<String, getrandom::Error> {
    let mut out = String::with_capacity(length);
    let mut bytes = [0u8; 64];
    while out.len() < length {
        getrandom::fill(&mut bytes)?;
        let missing = length - out.len();
        // 248 = 4 × 62: what is above would make the first letters likelier.
        out.extend(bytes.iter().filter(|b| **b < 248).map(|b| ALPHABET[usize::from(*b) % 62] as char).take(missing));
    }
    Ok(out)
}

/// Any number; 0 where the system's source fails, which does for jitter and names alone.
pub fn u64() -> u64 {
    getrandom::u64().unwrap_or_default()
}

/// A number in `[0, 1)`, for jitter.
pub fn unit() -> f64 {
    // 53 bits: what a double holds exactly.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let fraction = (u64() >> 11) as f64 / (1u64 << 53) as f64;
    fraction
}
