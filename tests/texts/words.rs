//! Words that visible texts do not use, with those that they use instead.

use std::sync::LazyLock;

use regex::Regex;

/// The verbs that begin the summary of an endpoint.
pub const IMPERATIVES: [&str; 30] = [
    "Add",
    "Approve",
    "Assign",
    "Cancel",
    "Connect",
    "Create",
    "Delete",
    "Disconnect",
    "Download",
    "Duplicate",
    "Export",
    "Generate",
    "Get",
    "Import",
    "List",
    "Mark",
    "Reject",
    "Rename",
    "Renew",
    "Reply",
    "Retry",
    "Rotate",
    "Send",
    "Set",
    "Split",
    "Submit",
    "Sync",
    "Update",
    "Upload",
    "Validate",
];

/// A pattern of words, and what to write instead.
const NOT_USED: [(&str, &str); 24] = [
    (r"answer(s|ed|ing)?", "response, return"),
    (r"refus(e|es|ed|ing|al)", "reject"),
    (r"absent", "omitted"),
    (r"left out", "omitted"),
    (r"gives?( it)? back|given back", "refund, return"),
    (r"tak(e|es|en|ing) back", "revoke"),
    (r"try (it )?again|tries again|tried again", "retry"),
    (r"(run|runs|ran) out", "expire, or: is used up"),
    (r"(is|are) away|away for", "unavailable"),
    (r"pictures?", "image"),
    (r"figures?", "metrics"),
    (r"mails?", "email"),
    (r"at once", "immediately, or: at the same time"),
    (r"by itself|by themselves", "automatically"),
    (r"what is used", "usage"),
    (r"(a|each|every) (second|minute|hour|day|month) at most|times a (second|minute|hour|day)", "per …"),
    (r"the most that", "the maximum"),
    (r"mend(s|ed|ing)?", "fix"),
    (r"(is|are) to (be|have|go|come|do|take|get|send|stay|run)", "must, will, or the infinitive without it"),
    (r"(is|are|was|were) no more", "was deleted"),
    (r"whole number", "integer, except in the console"),
    (r"ripe|unheard|wishes|wish", "a plain word"),
    (r"so many", "that many, the number of"),
    (r"as it was given|as given", "as submitted"),
];

/// Texts, or parts of them, in which such a word is right.
const ALLOWED: [&str; 6] =
    ["mail server", "mail program", "profile picture", "refuses connections", "while you are away", "mail_"];

/// Returns a line for each text with such a word.
pub fn misused(source: &str, texts: &[String]) -> Vec<String> {
    static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let pattern =
            |(words, instead): &(&str, &'static str)| (Regex::new(&format!(r"(?i)\b({words})\b")).unwrap(), *instead);
        NOT_USED.iter().map(pattern).collect()
    });
    static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{[^{}]*\}").unwrap());
    let mut found = Vec::new();
    for text in texts {
        let rest = ALLOWED.iter().fold(text.clone(), |rest, allowed| rest.replace(allowed, ""));
        let rest = PLACEHOLDER.replace_all(&rest, "{}");
        for (pattern, instead) in PATTERNS.iter() {
            if let Some(word) = pattern.find(&rest) {
                found.push(format!("{source}: \"{}\" (use: {instead}) in: {text}", word.as_str()));
            }
        }
    }
    found
}
