//! Numbers in texts.

use std::fmt::Display;

/// Formats a number with commas: "12,480".
pub fn number(value: impl Display) -> String {
    let plain = value.to_string();
    let (sign, digits) = plain.strip_prefix('-').map_or(("", plain.as_str()), |digits| ("-", digits));
    let mut text = sign.to_owned();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun, and the verb if it is part of the texts: "1 click", "1,284 clicks", "0 jobs are".
pub fn counted(count: impl Display, one: &str, many: &str) -> String {
    let count = number(count);
    let noun = if count == "1" { one } else { many };
    format!("{count} {noun}")
}

/// Formats a file size with its largest suitable unit.
pub fn size(bytes: i64) -> String {
    match bytes {
        ..=1_023 => counted(bytes, "byte", "bytes"),
        1_024..=1_048_575 => format!("{} KiB", bytes / 1_024),
        // With one decimal, unless it is 0.
        _ => {
            let tenths = bytes.saturating_mul(10) >> 20;
            match tenths % 10 {
                0 => format!("{} MiB", tenths / 10),
                rest => format!("{}.{rest} MiB", tenths / 10),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        let texts = [0, 12, 999, 1_000, 1_284_310, -1_000, i64::MIN].map(number);
        assert_eq!(texts, ["0", "12", "999", "1,000", "1,284,310", "-1,000", "-9,223,372,036,854,775,808"]);
    }

    #[test]
    fn a_count_of_one_is_singular() {
        let texts = [0, 1, 2, 1_000].map(|count| counted(count, "click", "clicks"));
        assert_eq!(texts, ["0 clicks", "1 click", "2 clicks", "1,000 clicks"]);
    }

    #[test]
    fn sizes_have_their_largest_suitable_unit() {
        assert_eq!([size(1), size(180 << 10), size(25 << 20)], ["1 byte", "180 KiB", "25 MiB"]);
        assert_eq!(size((25 << 20) / 10), "2.5 MiB");
    }
}
