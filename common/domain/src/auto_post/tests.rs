use proptest::prelude::*;

use super::*;

fn article() -> ArticleText {
    ArticleText {
        title: "Rye {url} bread".to_owned(),
        url: "https://bakery.example/rye".to_owned(),
        summary: "It keeps for a week.".to_owned(),
        author: String::new(),
    }
}

fn render(template: &str) -> Result<String, TemplateError> {
    Template::parse(template).map(|template| template.render(&article()))
}

#[test]
fn variables_are_replaced_once() {
    for (template, text) in [
        ("New: {title}\n\n{url}", "New: Rye {url} bread\n\nhttps://bakery.example/rye"),
        ("{title}\n\n{author}\n\n{url}", "Rye {url} bread\n\nhttps://bakery.example/rye"),
        ("{title}\n{author}\n{url}\n", "Rye {url} bread\n\nhttps://bakery.example/rye"),
        ("{ {} {{summary}} {a b} }", "{ {} {It keeps for a week.} {a b} }"),
        ("{summary", "{summary"),
    ] {
        let expected = if template == "{summary" { Err(TemplateError::NoVariable) } else { Ok(text.to_owned()) };
        assert_eq!(render(template), expected, "{template}");
    }
}

#[test]
fn unknown_variables_are_rejected() {
    let unknown = |name: &str| Err(TemplateError::UnknownVariable(name.to_owned()));
    assert_eq!(render("{title} {link}"), unknown("link"));
    assert_eq!(render("{Title}"), unknown("Title"));
    assert_eq!(render("no variable"), Err(TemplateError::NoVariable));
    let message = TemplateError::UnknownVariable("link".to_owned()).to_string();
    assert_eq!(message, "The variable {link} does not exist. Use {title}, {url}, {summary} and {author}.");
}

fn settings(include: &[&str], exclude: &[&str]) -> AutoPost {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    AutoPost {
        is_active: true,
        template: "{title}".to_owned(),
        accounts: vec![1],
        destination: FeedDestination::Draft,
        include: words(include),
        exclude: words(exclude),
        max_per_day: 5,
    }
}

#[test]
fn filters_compare_whole_words_in_any_case() {
    let article = ArticleText {
        title: "Start of the ART year".to_owned(),
        summary: "日本語のパン, Straße".to_owned(),
        ..ArticleText::default()
    };
    for (include, exclude, is_excluded) in [
        (&[][..], &[][..], false),
        (&["art"], &[], false),
        (&["tart", "year"], &[], false),
        (&["tar"], &[], true),
        (&["art year"], &[], false),
        (&["パン"], &[], false),
        (&["STRASSE"], &[], true),
        (&["straße"], &[], false),
        (&[], &["art"], true),
        (&["year"], &["art"], true),
        (&[], &["ye"], false),
    ] {
        assert_eq!(settings(include, exclude).excluded(&article).is_some(), is_excluded, "{include:?} {exclude:?}");
    }
}

#[test]
fn settings_round_trip() {
    let stored = serde_json::to_string(&settings(&["a"], &[])).unwrap();
    assert_eq!(serde_json::from_str::<AutoPost>(&stored).unwrap(), settings(&["a"], &[]));
}

#[test]
fn a_link_is_recognized_after_changes_that_do_not_change_the_page() {
    let link = |url: &str| ArticleKeys::of(Some(url), None).link;
    let same = link("https://bakery.example/blog/rye?a=1&b=2");
    for url in [
        "http://bakery.example/blog/rye?a=1&b=2",
        "https://WWW.Bakery.example:443/blog/rye/?b=2&a=1",
        "https://bakery.example/blog/rye?utm_source=rss&a=1&b=2&fbclid=x#xtor=RSS-3",
    ] {
        assert_eq!(link(url), same, "{url}");
    }
    for url in [
        "https://bakery.example/blog/rye?a=1",
        "https://bakery.example/blog/Rye?a=1&b=2",
        "https://bakery.example/blog/rye?a=1&b=2#wheat",
        "https://bakery.example:8443/blog/rye?a=1&b=2",
        "https://other.example/blog/rye?a=1&b=2",
    ] {
        assert_ne!(link(url), same, "{url}");
    }
    assert_eq!(
        (link("mailto:a@b.example").is_some(), ArticleKeys::of(None, Some("Rye"))),
        (true, ArticleKeys::default())
    );
}

#[test]
fn an_article_is_recognized_after_its_site_moved() {
    let page = |url: &str, title: &str| ArticleKeys::of(Some(url), Some(title)).page;
    let same = page("http://old.example/blog/rye/", "Rye bread");
    assert!(same.is_some());
    assert_eq!(page("https://new.example/blog/rye#xtor=RSS-3", " RYE bread "), same);
    assert_ne!(page("https://new.example/blog/rye#entry-2", "Rye bread"), same, "another entry of the page");
    assert_ne!(page("https://new.example/blog/rye", "Wheat bread"), same);
    assert_ne!(page("https://new.example/rye", "Rye bread"), same);
    assert_eq!(page("https://new.example/", "Rye bread"), None, "the first page is that of every site");
    assert_eq!(page("https://new.example/blog/rye", " "), None);
}

proptest! {
    #[test]
    fn any_template_and_any_link_are_handled(template in "[{}a-z \n]{0,40}", url in "\\PC{0,60}", title in "\\PC{0,20}") {
        if let Ok(parsed) = Template::parse(&template) {
            let text = parsed.render(&article());
            prop_assert!(!text.contains("\n\n\n") && text.trim_end() == text);
        }
        let keys = ArticleKeys::of(Some(&url), Some(&title));
        prop_assert_eq!(keys.link.is_some(), !url.is_empty());
        prop_assert!(keys.link.iter().chain(&keys.page).all(|key| key.len() == 2 * KEY_LENGTH));
    }

    /// A value is never taken for a variable, and no other text is lost.
    #[test]
    fn the_url_is_always_in_the_text(url in "https://[a-z]{1,9}\\.example/[a-z]{0,9}", title in "[a-z{}]{0,12}") {
        let template = Template::parse("{title}\n\n{summary}\n\n{url}").unwrap();
        let text = template.render(&ArticleText { title, url: url.clone(), ..ArticleText::default() });
        prop_assert!(text.ends_with(&url));
    }
}
