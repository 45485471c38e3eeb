//! Pseudo-random words, the same in each run.

/// The number of distinct words. The n-th is about 1/n as frequent as the first.
const VOCABULARY: u64 = 20_000;

/// Returns a pseudo-random number, the same in each run.
pub fn mixed(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns this many words with spaces between them, some of which are frequent.
pub fn words(seed: u64, count: u64) -> String {
    let word_at = |place| {
        // Roughly the distribution of a natural language: the rank is exponential in a uniform number.
        let uniform = (mixed(seed.wrapping_mul(count).wrapping_add(place)) % 10_000) as f64 / 10_000.0;
        word((VOCABULARY as f64).powf(uniform) as u64)
    };
    (0..count).map(word_at).collect::<Vec<_>>().join(" ")
}

/// Returns the word of a rank: syllables of a consonant and a vowel.
fn word(rank: u64) -> String {
    const CONSONANTS: &[u8] = b"bcdfghklmnprstvw";
    const VOWELS: &[u8] = b"aeiou";
    let (mut n, mut word) = (mixed(rank), String::new());
    for _ in 0..3 {
        for letters in [CONSONANTS, VOWELS] {
            let count = letters.len() as u64;
            word.push(letters[usize::try_from(n % count).unwrap_or(0)] as char);
            n /= count;
        }
    }
    word
}
