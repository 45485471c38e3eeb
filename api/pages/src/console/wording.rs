//! The messages of the API, as the console shows them.

/// Returns a message with quotation marks in place of backticks, which mark code for developers. If a backtick has no
/// counterpart, because the message contains a text of a user, the message is unchanged.
pub fn in_quotes(message: &str) -> String {
    let parts: Vec<&str> = message.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return message.to_owned();
    }
    let part =
        |(index, part): (usize, &&str)| if index % 2 == 1 { format!("“{part}”") } else { (*part).to_owned() };
    parts.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_in_quotation_marks() {
        for (message, shown) in [
            ("Must be in the future.", "Must be in the future."),
            ("", ""),
            ("Must be `draft`, `scheduled` or `queue`.", "Must be “draft”, “scheduled” or “queue”."),
            ("`a` and `b`", "“a” and “b”"),
            ("No account is called `it`s`.", "No account is called `it`s`."),
        ] {
            assert_eq!(in_quotes(message), shown);
        }
    }
}
