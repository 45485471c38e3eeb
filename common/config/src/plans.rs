//! The plans file: `[plans.NAME]` tables that replace the built-in plans.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crier_domain::plan::{Feature, MAX_ANALYTICS_DAYS, MAX_REQUESTS_PER_MINUTE, Plan, Plans};

use super::base::PLANS_FILE;
use super::reader::Reader;
use super::values;

/// TOML's largest integer.
const MAX_INTEGER: u64 = i64::MAX as u64;

/// Reads the plans from the file, or returns the built-in ones if no file is configured.
pub(super) fn read(reader: &mut Reader, path: Option<&Path>, read_file: &dyn Fn(&Path) -> io::Result<String>) -> Plans {
    let Some(path) = path else { return Plans::default() };
    let found = match read_file(path) {
        Ok(text) => parse(&text),
        Err(error) => Err(vec![format!("cannot be read ({error}); name a TOML file that this user can read")]),
    };
    found.unwrap_or_else(|problems| {
        for message in problems {
            reader.add_problem(PLANS_FILE.variable(), format!("{}: {message}", path.display()));
        }
        Plans::default()
    })
}

/// Parses the file. Reports all errors, each with its location and a valid value.
fn parse(text: &str) -> Result<Plans, Vec<String>> {
    let table: toml::Table = toml::from_str(text).map_err(|error| vec![values::toml_error(text, &error)])?;
    let mut problems = Vec::new();
    for name in table.keys().filter(|name| *name != "plans") {
        problems.push(format!("`{name}` is unknown; only tables [plans.NAME] are allowed"));
    }
    let plans = match table.get("plans").and_then(toml::Value::as_table) {
        Some(plans) => plans.iter().map(|(name, value)| plan(name, value, &mut problems)).collect::<Vec<_>>(),
        None => Vec::new(),
    };
    if plans.is_empty() {
        problems.push("has no plan; add at least one table such as [plans.unlimited]".to_owned());
    }
    if problems.is_empty() { Ok(Plans::new(plans)) } else { Err(problems) }
}

fn plan(name: &str, value: &toml::Value, problems: &mut Vec<String>) -> Plan {
    let mut plan = Plan { name: name.to_owned(), ..Plan::default() };
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 40 || !name.chars().all(fits) {
        problems.push(format!("[plans.{name}]: a plan name must have 1 to 40 of the characters a-z, 0-9, _ and -"));
    }
    let Some(table) = value.as_table() else {
        problems.push(format!("plans.{name} is not a table; write [plans.{name}]"));
        return plan;
    };
    for (key, value) in table {
        let place = format!("[plans.{name}] {key}");
        let (field, min, max) = match key.as_str() {
            "features" => {
                plan.features = features(&place, value, problems);
                continue;
            }
            "brands" => (&mut plan.brands, 0, MAX_INTEGER),
            "social_accounts" => (&mut plan.social_accounts, 0, MAX_INTEGER),
            "posts_per_month" => (&mut plan.posts_per_month, 0, MAX_INTEGER),
            "storage_mib" => (&mut plan.storage_mib, 0, MAX_INTEGER),
            "ai_credits" => (&mut plan.ai_credits, 0, MAX_INTEGER),
            "requests_per_minute" => (&mut plan.requests_per_minute, 1, u64::from(MAX_REQUESTS_PER_MINUTE)),
            "analytics_days" => (&mut plan.analytics_days, 1, MAX_ANALYTICS_DAYS),
            "report_mails_per_day" => (&mut plan.report_mails_per_day, 0, MAX_INTEGER),
            _ => {
                let known = Plan::LIMITS.iter().copied().chain(["features"]).collect::<Vec<_>>();
                let nearest = super::key::nearest(key, known.into_iter()).unwrap_or_default();
                problems.push(format!("{place} is unknown; the nearest known key is {nearest}"));
                continue;
            }
        };
        match value.as_integer().and_then(|number| u64::try_from(number).ok()) {
            Some(number) if (min..=max).contains(&number) => *field = Some(number),
            _ => {
                let range = match max {
                    MAX_INTEGER => format!("of at least {min}"),
                    _ => format!("from {min} to {max}"),
                };
                problems.push(format!("{place} must be an integer {range}; omit the line for no limit"));
            }
        }
    }
    plan
}

fn features(place: &str, value: &toml::Value, problems: &mut Vec<String>) -> BTreeSet<Feature> {
    let Some(words) = value.as_array() else {
        problems.push(format!("{place} must be a list such as [\"webhooks\", \"reports\"]"));
        return BTreeSet::new();
    };
    let mut features = BTreeSet::new();
    for word in words {
        match word.as_str().map(str::parse::<Feature>) {
            Some(Ok(feature)) => drop(features.insert(feature)),
            Some(Err(unknown)) => problems.push(format!("{place}: {unknown}")),
            None => problems.push(format!("{place} must contain only strings")),
        }
    }
    features
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn the_documented_file_equals_the_built_in_plans() {
        let page = include_str!("../../../docs/plans.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (file, _) = rest.split_once("```").unwrap();
        assert_eq!(parse(file).unwrap(), Plans::default());
    }

    #[test]
    fn a_file_replaces_all_plans_and_absent_limits_mean_unlimited() {
        let plans = parse("[plans.solo]\nbrands = 2\nfeatures = [\"webhooks\"]\n[plans.big]\n").unwrap();
        assert_eq!(plans.names().collect::<Vec<_>>(), ["big", "solo"]);
        let solo = plans.get("solo").unwrap();
        assert_eq!((solo.brands, solo.posts_per_month), (Some(2), None));
        assert!(solo.has(Feature::Webhooks) && !solo.has(Feature::Reports));
        assert!(plans.get("unlimited").is_none());
        assert_eq!(plans.missing(["solo", "pro"]), ["pro"]);
    }

    #[test]
    fn every_error_is_reported_with_its_location() {
        let text = "colour = 1\n[plans.Gold]\nbrands = -1\nbrand = 1\nrequests_per_minute = 0\n\
                    features = [\"webhook\", 3]\n[plans.tin]\nfeatures = \"all\"\nstorage_mib = 1.5\n";
        assert_eq!(
            parse(text).unwrap_err().join("\n"),
            "\
`colour` is unknown; only tables [plans.NAME] are allowed
[plans.Gold]: a plan name must have 1 to 40 of the characters a-z, 0-9, _ and -
[plans.Gold] brand is unknown; the nearest known key is brands
[plans.Gold] brands must be an integer of at least 0; omit the line for no limit
[plans.Gold] features: `webhook` is unknown; it must be one of: basic_analytics, analytics, link_in_bio, webhooks, \
feed_reader, content_strategy, reports, inbox, approvals
[plans.Gold] features must contain only strings
[plans.Gold] requests_per_minute must be an integer from 1 to 1000000; omit the line for no limit
[plans.tin] features must be a list such as [\"webhooks\", \"reports\"]
[plans.tin] storage_mib must be an integer of at least 0; omit the line for no limit"
        );
        assert_eq!(parse("").unwrap_err(), ["has no plan; add at least one table such as [plans.unlimited]"]);
        for (text, expected) in [
            ("[plans", "line 1 is not TOML: "),
            ("[plans.a]\n[plans.a]\n", "line 2 is not TOML: "),
            ("[plans.a]\nbrands = 1\nbrands = 2\n", "line 3 is not TOML: "),
            ("[plans.a]\nbrands = 99999999999999999999\n", "line 2 is not TOML: "),
            ("plans = 5", "has no plan; "),
            ("[plans]\nfree = 5", "plans.free is not a table; write [plans.free]"),
            ("[plans.\"\"]", "[plans.]: a plan name must have 1 to 40 of the characters a-z"),
            ("[plans.a]\nanalytics_days = 3651", "[plans.a] analytics_days must be an integer from 1 to 3650; "),
            (
                "[plans.a]\nrequests_per_minute = 1000001",
                "[plans.a] requests_per_minute must be an integer from 1 to 1000000; ",
            ),
            ("[plans.a]\nbrands = \"5\"", "[plans.a] brands must be an integer of at least 0; "),
            ("[plans.a]\nbrands = true", "[plans.a] brands must be an integer of at least 0; "),
        ] {
            let problems = parse(text).unwrap_err();
            assert!(problems.len() == 1 && problems[0].starts_with(expected), "{text}: {problems:?}");
        }
        let largest =
            parse(&format!("[plans.a]\nbrands = {0}\nai_credits = {0}\nstorage_mib = {0}", i64::MAX)).unwrap();
        assert_eq!(largest.get("a").unwrap().storage_bytes(), Some(u64::MAX));
    }
}
