//! The texts of platform options, in the composer and on the page of a post.

use crier_domain::platform::Platform;
use crier_platforms::options::{self, OptionKind};
use serde_json::Value;

use super::video::seconds;

/// Returns the label and the hint of an option. The hint may be empty.
pub fn label_and_hint(name: &str) -> (String, &'static str) {
    let (label, hint) = match name {
        "spoiler_text" => ("Content warning", "Shown instead of the text until the reader opens it."),
        "language" => ("Language", "A code such as en or de."),
        "sensitive" => ("Sensitive media", ""),
        "cover_at_ms" => ("Time of the cover", "In seconds. The cover is shown before the video plays."),
        "cover_media_id" => ("Cover", "An image of the library that is shown before the video plays."),
        "reply_control" => ("Who can reply", ""),
        "topic_tag" => ("Topic", ""),
        "tags" => ("Tags", "Separate tags with commas."),
        "board" => ("Board", "The ID of the board, a number."),
        "subreddit" => ("Subreddit", "Such as r/Breadit. For your own profile, u_ and your username."),
        "flair_id" => ("Flair ID", "Some subreddits require a flair."),
        "auto_add_music" => ("Add music automatically", ""),
        "disable_comment" => ("Disable comments", ""),
        "brand_content" => ("Paid partnership", ""),
        "brand_organic" => ("Promotes your own brand", ""),
        "action" => ("Button", ""),
        "nsfw" => ("Not safe for work", ""),
        "privacy" => ("Who can watch", ""),
        "made_for_kids" => ("Made for kids", "YouTube requires this for every video."),
        "category_id" => ("Category", ""),
        "notify_subscribers" => ("Notify subscribers", ""),
        "link_card" => ("Link card", "Shown below a post without images, with the title and the image of the page."),
        other => return (choice_label(other), ""),
    };
    (label.to_owned(), hint)
}

/// Returns "Followers only" for `followers_only`, "Learn more" for `LEARN_MORE`, and "Music" for the category `10`.
pub fn choice_label(name: &str) -> String {
    if let Some(category) = youtube_category(name) {
        return category.to_owned();
    }
    let words = name.split('_').map(|word| match word {
        "id" => "ID".to_owned(),
        "url" => "URL".to_owned(),
        word => word.to_lowercase(),
    });
    let text = words.collect::<Vec<_>>().join(" ");
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns the name of a category of YouTube. `None` if the word is not the ID of one.
fn youtube_category(id: &str) -> Option<&'static str> {
    let name = match id {
        "1" => "Film & Animation",
        "2" => "Autos & Vehicles",
        "10" => "Music",
        "15" => "Pets & Animals",
        "17" => "Sports",
        "19" => "Travel & Events",
        "20" => "Gaming",
        "22" => "People & Blogs",
        "23" => "Comedy",
        "24" => "Entertainment",
        "25" => "News & Politics",
        "26" => "Howto & Style",
        "27" => "Education",
        "28" => "Science & Technology",
        "29" => "Nonprofits & Activism",
        _ => return None,
    };
    Some(name)
}

/// Returns whether an option is the ID of an image.
pub fn is_image(name: &str) -> bool {
    let mut all = Platform::ALL.iter().flat_map(|platform| options::of(*platform));
    all.any(|option| option.name == name && option.kind == OptionKind::Image)
}

/// Returns the text for the value of an option.
pub fn value_text(platform: Platform, name: &str, value: &Value) -> String {
    let kind = options::of(platform).iter().find(|option| option.name == name).map(|option| option.kind);
    match (kind, value) {
        (Some(OptionKind::OneOf(_)), Value::String(word)) => choice_label(word),
        (Some(OptionKind::LinkCard), Value::Object(card)) => {
            let texts = ["title", "description", "url"].iter().filter_map(|field| card.get(*field)?.as_str());
            let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
            if texts.is_empty() { "Yes".to_owned() } else { texts.join(" · ") }
        }
        (Some(OptionKind::Milliseconds), value) => {
            value.as_u64().map_or_else(|| value.to_string(), |ms| format!("{} s", seconds(ms)))
        }
        (Some(OptionKind::Image), Value::Number(_)) => "An image of the library".to_owned(),
        (_, Value::String(text)) => text.clone(),
        (_, Value::Bool(true)) => "Yes".to_owned(),
        (_, Value::Bool(false)) => "No".to_owned(),
        (_, value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_and_their_values_have_labels() {
        let text =
            |platform, name: &str, value| format!("{}: {}", label_and_hint(name).0, value_text(platform, name, &value));
        assert_eq!(text(Platform::Threads, "reply_control", json!("followers_only")), "Who can reply: Followers only");
        let card = json!({ "title": "Bread", "description": "", "media_id": 7 });
        assert_eq!(text(Platform::Bluesky, "link_card", card), "Link card: Bread");
        assert_eq!(text(Platform::Bluesky, "link_card", json!({ "media_id": 7 })), "Link card: Yes");
        assert_eq!(text(Platform::Mastodon, "sensitive", json!(true)), "Sensitive media: Yes");
        assert_eq!(text(Platform::Youtube, "category_id", json!("22")), "Category: People & Blogs");
        assert_eq!(text(Platform::Tiktok, "auto_add_music", json!(true)), "Add music automatically: Yes");
        assert_eq!(text(Platform::Wordpress, "title", json!("our_bread")), "Title: our_bread");
        assert_eq!(text(Platform::Sandbox, "link_url", json!("https://a.example")), "Link URL: https://a.example");
    }
}
