//! Finds the known name that an unknown name stands for: it may be another spelling, a synonym, or a typo.
//!
//! **To add a synonym:** add a word to [`SYNONYMS`]. It applies only if the endpoint knows the name and not the
//! synonym. It must not be a field of a record that a client may send back with a PUT; a test checks this.

use crate::fields::steps;

/// Words that clients use for our names.
const SYNONYMS: &[(&str, &[&str])] = &[
    ("account_id", &["account", "social_account", "social_account_id"]),
    ("account_ids", ACCOUNT_SYNONYMS),
    ("accounts", ACCOUNT_SYNONYMS),
    ("alt_text", &["alt", "caption", "description", "alternative_text"]),
    ("auto_post", &["auto_publish", "autopost"]),
    ("before", &["before_id", "before_post_id", "next"]),
    ("bio", &["about", "description"]),
    ("body", &["content", "message", "text", "reply"]),
    ("bom", &["byte_order_mark", "has_bom", "utf8_bom"]),
    ("content", &["body", "caption", "message", "text"]),
    ("count", &["limit", "number"]),
    ("cron", &["cron_expression", "expression"]),
    ("description", &["about", "desc", "summary"]),
    ("end", &["end_date", "ends_on", "to", "until"]),
    ("ends_on", &["end", "end_date", "to", "until"]),
    ("event", &["event_type", "type"]),
    ("events", &["event_types", "subscriptions", "topics"]),
    ("file", &["asset", "attachment", "data", "image", "media", "photo", "picture", "upload"]),
    ("filename", &["file_name", "name"]),
    ("first_comment", &["comment", "comments", "first_reply"]),
    ("format", &["file_format", "file_type", "type"]),
    ("frequency", &["every", "interval", "period"]),
    ("from", &["after", "since", "start"]),
    ("ids", &["post_ids", "posts"]),
    ("is_active", &["active", "enabled", "is_enabled"]),
    ("kind", &["type"]),
    ("label", &["labels", "tag"]),
    ("labels", &["label"]),
    (
        "media",
        &[
            "asset_ids",
            "assets",
            "attachments",
            "files",
            "image",
            "image_ids",
            "images",
            "media_id",
            "media_ids",
            "photos",
            "picture",
            "pictures",
        ],
    ),
    ("metric", &["order_by", "sort", "sort_by"]),
    ("name", &["title"]),
    ("options", &["params", "settings"]),
    ("page", &["page_number"]),
    ("per_page", &["limit", "page_size"]),
    ("planned_at", TIME_SYNONYMS),
    ("prompt", &["content", "input", "message", "text"]),
    ("reason", &["comment", "message", "note", "text"]),
    ("recipients", &["email", "emails", "to"]),
    ("schedule_type", &["publish", "publish_now", "publish_type", "schedule"]),
    ("scheduled_at", TIME_SYNONYMS),
    ("search", &["q", "query"]),
    ("signature_id", &["signature", "snippet", "snippet_id"]),
    ("since", &["after", "from", "start"]),
    ("slots", &["queue", "schedule", "times"]),
    ("slug", &["handle", "username"]),
    ("snoozed_until", &["snooze", "until"]),
    ("sort", &["order", "order_by", "sort_by"]),
    ("start", &["from", "since", "start_date", "starts_on"]),
    ("starts_on", &["from", "start", "start_date"]),
    ("status", &["state"]),
    ("tag", &["label", "tags"]),
    ("tags", &["hashtags", "labels"]),
    ("thread", &["parts", "replies", "thread_parts"]),
    ("timezone", &["tz"]),
    ("title", &["name"]),
    ("to", &["before", "end", "until"]),
    ("url", &["address", "callback_url", "endpoint", "feed_url", "href", "link", "uri", "webhook_url"]),
    ("user_id", &["assignee", "member_id", "user"]),
    ("variations", &["contents", "texts", "variants"]),
    ("website", &["homepage", "site", "url"]),
    ("weekday", &["day", "day_of_week"]),
    ("weekdays", &["days", "days_of_week", "weekday"]),
];

const ACCOUNT_SYNONYMS: &[&str] =
    &["account", "account_id", "account_ids", "accounts", "social_account_id", "social_account_ids", "social_accounts"];

const TIME_SYNONYMS: &[&str] = &[
    "at",
    "date",
    "datetime",
    "plan_at",
    "planned_at",
    "post_at",
    "publish_at",
    "publish_on",
    "publish_time",
    "schedule_at",
    "schedule_date",
    "schedule_for",
    "schedule_time",
    "scheduled_at",
    "scheduled_date",
    "scheduled_for",
    "scheduled_time",
    "send_at",
    "time",
];

/// The maximum length of a name that is compared, in bytes. All known names are shorter.
const MAX_BYTES: usize = 64;

/// A name in the form in which it is compared: without case and punctuation, so that `scheduledAt` equals
/// `scheduled_at`.
#[derive(Clone, Debug)]
struct Folded {
    text: String,
    chars: usize,
    /// A bit set of the letters. An edit changes at most two bits.
    letters: u64,
}

impl Folded {
    fn new(name: &str) -> Self {
        let text: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        let letters = text.chars().fold(0, |bits, c| bits | 1 << (u32::from(c) % u64::BITS));
        Self { chars: text.chars().count(), text, letters }
    }

    /// Returns the number of edits (a letter added, removed or replaced, or two letters swapped) between the two.
    /// `None` if there are more than `max`.
    fn distance(&self, other: &Self, max: usize) -> Option<usize> {
        let differ = (self.letters ^ other.letters).count_ones() as usize;
        if self.chars.abs_diff(other.chars) > max || differ > 2 * max {
            return None;
        }
        steps::count_step();
        Some(strsim::osa_distance(&self.text, &other.text)).filter(|edits| *edits <= max)
    }
}

/// A known name.
#[derive(Clone, Debug)]
pub struct KnownName {
    pub name: String,
    folded: Folded,
    synonyms: Vec<String>,
    /// The maximum number of edits with which another name still stands for this one.
    max_edits: usize,
}

impl KnownName {
    pub fn new(name: &str) -> Self {
        let folded = Folded::new(name);
        let synonyms = SYNONYMS.iter().filter(|(known, _)| *known == name).flat_map(|(_, words)| *words);
        Self {
            name: name.to_owned(),
            synonyms: synonyms.map(|word| Folded::new(word).text).collect(),
            // In short names, one or two edits make a different word.
            max_edits: match folded.chars {
                0..=3 => 0,
                4..=5 => 1,
                _ => 2,
            },
            folded,
        }
    }
}

/// Returns the known name that `unknown` stands for; `None` if it is near none.
pub fn nearest<'k>(unknown: &str, known: impl Iterator<Item = &'k KnownName> + Clone) -> Option<&'k str> {
    if unknown.len() > MAX_BYTES {
        return None;
    }
    let unknown = Folded::new(unknown);
    if unknown.chars == 0 {
        return None;
    }
    let found = same_or_synonym(&unknown, known.clone()).or_else(|| {
        let near = known.filter_map(|k| Some((k.folded.distance(&unknown, k.max_edits)?, k)));
        near.min_by_key(|(edits, _)| *edits).map(|(_, k)| k)
    });
    found.map(|k| k.name.as_str())
}

/// Returns the known name of which `unknown` is another spelling or a synonym.
pub fn synonym<'k>(unknown: &str, known: impl Iterator<Item = &'k KnownName> + Clone) -> Option<&'k str> {
    let unknown = Some(unknown).filter(|unknown| unknown.len() <= MAX_BYTES).map(Folded::new)?;
    same_or_synonym(&unknown, known).map(|k| k.name.as_str())
}

fn same_or_synonym<'k>(unknown: &Folded, known: impl Iterator<Item = &'k KnownName> + Clone) -> Option<&'k KnownName> {
    let same = known.clone().find(|k| k.folded.text == unknown.text);
    same.or_else(|| known.clone().find(|k| k.synonyms.contains(&unknown.text)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POST: &[&str] =
        &["content", "schedule_type", "scheduled_at", "accounts", "media", "overrides", "thread", "first_comment"];

    fn near(unknown: &str, known: &[&str]) -> Option<String> {
        let known: Vec<KnownName> = known.iter().map(|name| KnownName::new(name)).collect();
        nearest(unknown, known.iter()).map(str::to_owned)
    }

    #[test]
    fn typos_spellings_and_synonyms_are_near() {
        for (unknown, known) in [
            ("contnet", "content"),
            ("conten", "content"),
            ("Content", "content"),
            ("text", "content"),
            ("scheduledAt", "scheduled_at"),
            ("schedule_at", "scheduled_at"),
            ("publish_at", "scheduled_at"),
            ("sheduled_type", "schedule_type"),
            ("media_ids", "media"),
            ("mediaIds", "media"),
            ("medai", "media"),
            ("medias", "media"),
            ("account_ids", "accounts"),
            ("acounts", "accounts"),
            ("accounts[]", "accounts"),
            ("override", "overrides"),
            ("comment", "first_comment"),
            ("firstComment", "first_comment"),
            ("parts", "thread"),
            ("replies", "thread"),
        ] {
            assert_eq!(near(unknown, POST).as_deref(), Some(known), "{unknown}");
        }
        assert_eq!(near("statuss", &["status", "page"]).as_deref(), Some("status"));
        assert_eq!(near("is_activ", &["is_active"]).as_deref(), Some("is_active"));
        assert_eq!(near("nmae", &["name"]).as_deref(), Some("name"));
        assert_eq!(near("URL", &["url"]).as_deref(), Some("url"));
    }

    #[test]
    fn other_words_are_not_near() {
        for unknown in ["", "__", "id", "status", "published_at", "created_at", "targets", "author", "metadata", "nope"]
        {
            assert_eq!(near(unknown, POST), None, "{unknown}");
        }
        for unknown in ["note", "namespace", "n", "nmea"] {
            assert_eq!(near(unknown, &["name"]), None, "{unknown}");
        }
        // One edit of a short name makes a different word.
        assert_eq!(near("ur", &["url"]), None);
        assert_eq!(near("tab", &["tag"]), None);
        assert_eq!(near(&"content".repeat(1_000), POST), None);
    }

    #[test]
    fn the_nearest_of_several_is_named() {
        assert_eq!(near("start_on", &["ends_on", "starts_on"]).as_deref(), Some("starts_on"));
        assert_eq!(near("title", &["name", "titles"]).as_deref(), Some("name"), "a synonym goes before a typo");
    }

    proptest! {
        /// The distance is symmetric, 0 only for the same letters, and never more than allowed, in any script.
        #[test]
        fn distance_is_symmetric_and_bounded(a in "\\PC{0,12}", b in "\\PC{0,12}", max in 0_usize..4) {
            let (a, b) = (Folded::new(&a), Folded::new(&b));
            let found = a.distance(&b, max);
            prop_assert_eq!(found, b.distance(&a, max));
            prop_assert_eq!(found == Some(0), a.text == b.text);
            prop_assert!(found.is_none_or(|edits| edits <= max));
            // The quick checks exclude only names that are too far away.
            prop_assert_eq!(found, Some(strsim::osa_distance(&a.text, &b.text)).filter(|edits| *edits <= max));
        }

        /// A name with one edit at any position is recognized.
        #[test]
        fn an_edit_is_forgiven(name in "[a-z]{4,5}_[a-z]{1,10}", at: prop::sample::Index, letter in "[a-zäß日]", kind in 0..4) {
            let mut chars: Vec<char> = name.chars().collect();
            let i = at.index(chars.len());
            match kind {
                0 => chars.insert(i, letter.chars().next().unwrap_or('x')),
                1 => chars[i] = letter.chars().next().unwrap_or('x'),
                2 => drop(chars.remove(i)),
                _ => chars.swap(i, (i + 1).min(name.chars().count() - 1)),
            }
            let edited: String = chars.into_iter().collect();
            prop_assert_eq!(near(&edited, &[&name]), Some(name), "{}", edited);
        }

        #[test]
        fn any_name_is_compared_without_a_panic(unknown in "\\PC*") {
            near(&unknown, POST);
        }
    }
}
