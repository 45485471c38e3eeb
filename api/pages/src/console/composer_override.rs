//! The input of the composer's form for single accounts.

use std::collections::BTreeMap;

use crier_domain::account::SocialAccount;
use crier_domain::catalogue::descriptor;
use crier_domain::platform::Platform;
use crier_endpoints::routes::posts::request::{MAX_ACCOUNTS, MAX_MEDIA};
use crier_platforms::link_card;
use crier_platforms::options::{self, OptionKind};
use serde_json::{Map, Value, json};

use super::form::Form;
use super::post_options::is_image;
use super::video::{milliseconds, seconds};

/// The input for one account.
#[derive(Clone, Debug, Default)]
pub struct AccountOverride {
    pub account_id: i64,
    pub content: String,
    /// The images of this account. `None` for those of the post.
    pub media: Option<Vec<i64>>,
    /// Whether only the first part of the thread is published on this account.
    pub is_first_only: bool,
    pub options: Vec<(String, String)>,
}

impl AccountOverride {
    /// Returns the value of an option. Of several fields, the first that is not empty counts.
    pub fn option(&self, name: &str) -> &str {
        self.options.iter().find(|(key, value)| key == name && !value.is_empty()).map_or("", |(_, value)| value)
    }

    /// Returns a field of the link card. Empty if it is read from the page.
    pub fn link_card_field(&self, field: &str) -> &str {
        self.option(&format!("{}.{field}", link_card::OPTION))
    }

    /// Returns the IDs of the images that are options.
    pub fn images_of_options(&self) -> impl Iterator<Item = i64> {
        self.options.iter().filter(|(name, _)| is_image(name)).filter_map(|(_, value)| value.parse().ok())
    }

    /// Returns the value of the option `link_card`: off, or the fields that replace those of the page.
    pub fn link_card(&self) -> Option<Value> {
        if self.option(link_card::OPTION) == "false" {
            return Some(Value::Bool(false));
        }
        let mut card = Map::new();
        for field in ["url", "title", "description", "media_id"] {
            let value = self.link_card_field(field);
            let id = value.parse::<i64>().ok().filter(|_| field == "media_id");
            if !value.is_empty() {
                card.insert(field.to_owned(), id.map_or_else(|| json!(value), Value::from));
            }
        }
        (!card.is_empty()).then_some(Value::Object(card))
    }

    pub fn is_empty(&self) -> bool {
        let has_option = self.options.iter().any(|(_, value)| !value.is_empty());
        self.content.is_empty() && self.media.is_none() && !self.is_first_only && !has_option
    }
}

/// Returns the form's fields for a stored option, with their values: `NAME`, or `NAME.FIELD` for each field of an object.
/// A time is in seconds.
pub fn fields_of(platform: Platform, name: &str, value: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let kind = options::of(platform).iter().find(|option| option.name == name).map(|option| option.kind);
    match value {
        Value::Number(ms) if kind == Some(OptionKind::Milliseconds) => {
            vec![(name.to_owned(), ms.as_u64().map_or_else(|| ms.to_string(), seconds))]
        }
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(field, value)| (format!("{name}.{field}"), text(value))).collect()
        }
        value => vec![(name.to_owned(), text(value))],
    }
}

/// Sets the options for which the form has a field.
pub fn apply_options(account_override: &AccountOverride, account: &SocialAccount, options: &mut Map<String, Value>) {
    let required = descriptor(account.platform).capabilities.required_options;
    for option in options::of(account.platform) {
        let value = account_override.option(option.name);
        match option.kind {
            OptionKind::Boolean if value == "true" => {
                options.insert(option.name.to_owned(), Value::Bool(true));
            }
            // Only a required one has a field with this value.
            OptionKind::Boolean if value == "false" => {
                options.insert(option.name.to_owned(), Value::Bool(false));
            }
            OptionKind::Boolean if required.contains(&option.name) => {
                options.remove(option.name);
            }
            OptionKind::LinkCard => match account_override.link_card() {
                Some(card) => _ = options.insert(option.name.to_owned(), card),
                None => _ = options.remove(option.name),
            },
            OptionKind::Boolean => {
                if let Some(value) = options.get_mut(option.name) {
                    *value = Value::Bool(false);
                }
            }
            _ if value.is_empty() => {
                options.remove(option.name);
            }
            kind => {
                options.insert(option.name.to_owned(), value_of(kind, value));
            }
        }
    }
}

/// Returns the value of an option for a field that is not empty. The API rejects a text that is not of the kind.
fn value_of(kind: OptionKind, text: &str) -> Value {
    match kind {
        OptionKind::Milliseconds => milliseconds(text).map_or_else(|| json!(text), Value::from),
        OptionKind::Image => text.parse::<i64>().map_or_else(|_| json!(text), Value::from),
        _ => json!(text),
    }
}

/// Reads the fields `overrides.INDEX.account_id`, `….content`, `….thread` (`none`: only the first part),
/// `….options.NAME`, and for other images `….own_media` and a `….media` for each image.
pub fn overrides_of(form: &Form) -> Vec<AccountOverride> {
    let mut overrides: BTreeMap<usize, AccountOverride> = BTreeMap::new();
    for (rest, value) in form.under("overrides.") {
        let Some((index, field)) = rest.split_once('.') else { continue };
        let Ok(index) = index.parse() else { continue };
        let account_override = overrides.entry(index).or_default();
        match field {
            "account_id" => account_override.account_id = value.parse().unwrap_or_default(),
            "content" => account_override.content = value.to_owned(),
            "thread" => account_override.is_first_only = value == "none",
            "own_media" => _ = account_override.media.get_or_insert_default(),
            "media" => {
                let media = account_override.media.get_or_insert_default();
                // Keep one more than the maximum, so that the API rejects the request.
                media.extend(value.parse::<i64>().ok().filter(|id| media.len() <= MAX_MEDIA && !media.contains(id)));
            }
            field => {
                if let Some(name) = field.strip_prefix("options.") {
                    account_override.options.push((name.to_owned(), value.trim().to_owned()));
                }
            }
        }
    }
    overrides.into_values().filter(|account_override| account_override.account_id > 0).take(MAX_ACCOUNTS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_board_takes_precedence_over_a_typed_one() {
        let board = |form: &str| {
            let form = format!("overrides.0.account_id=1&{}", form.replace("BOARD", "overrides.0.options.board"));
            overrides_of(&Form::parse(form.as_bytes()))[0].option("board").to_owned()
        };
        assert_eq!(board("BOARD=7&BOARD=8"), "7");
        assert_eq!(board("BOARD=&BOARD=8"), "8");
        assert_eq!(board("BOARD=7&BOARD="), "7");
        assert_eq!(board("BOARD=&BOARD="), "");
    }

    #[test]
    fn a_link_card_is_off_or_replaces_parts_of_the_page() {
        let card = |form: &str| {
            let form = format!("overrides.0.account_id=1&{}", form.replace("CARD", "overrides.0.options.link_card"));
            overrides_of(&Form::parse(form.as_bytes()))[0].link_card()
        };
        assert_eq!(card("CARD=&CARD.title=&CARD.media_id="), None);
        assert_eq!(card("CARD=false&CARD.title=x"), Some(json!(false)));
        let fields = json!({ "title": "Mine", "media_id": 7, "url": "https://a.example" });
        assert_eq!(card("CARD.title=Mine&CARD.media_id=7&CARD.url=https://a.example"), Some(fields.clone()));
        let card_fields = |value: &Value| fields_of(Platform::Bluesky, "link_card", value);
        let read = AccountOverride { options: card_fields(&fields), ..AccountOverride::default() };
        assert_eq!(read.link_card(), Some(fields));
        let off = AccountOverride { options: card_fields(&json!(false)), ..AccountOverride::default() };
        assert_eq!(off.link_card(), Some(json!(false)));
    }

    #[test]
    fn times_and_images_are_numbers() {
        assert_eq!(value_of(OptionKind::Milliseconds, "3.2"), json!(3_200));
        assert_eq!(value_of(OptionKind::Milliseconds, "soon"), json!("soon"));
        assert_eq!(value_of(OptionKind::Image, "7"), json!(7));
        assert_eq!(value_of(OptionKind::Image, "x"), json!("x"));
        assert_eq!(value_of(OptionKind::Text(9), "7"), json!("7"));
    }
}
