use crier_domain::bio_page::Theme;

use super::*;

/// Returns a color of a theme, as three numbers from 0 to 255.
fn color(theme: Theme, name: &str) -> [f64; 3] {
    let block = STYLES.split_once(&format!("[data-theme={theme}]")).expect("the theme").1.split_once('}').unwrap().0;
    let value = block.split_once(&format!("--{name}:")).unwrap_or_else(|| panic!("{theme}: {name}")).1;
    let hex = value.split_once(';').unwrap().0.trim().strip_prefix('#').expect("a color as #rrggbb");
    assert_eq!(hex.len(), 6, "{theme}: {name}");
    [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()))
}

/// Returns the relative luminance as defined by WCAG 2.2.
fn luminance(color: [f64; 3]) -> f64 {
    let [r, g, b] = color.map(|part| {
        let part = part / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn contrast_meets_wcag_definition() {
    assert!((contrast([0.0; 3], [255.0; 3]) - 21.0).abs() < 1e-9);
    assert!((contrast([119.0; 3], [255.0; 3]) - 4.478).abs() < 0.001);
}

/// WCAG AA requires 4.5 for text and 3 for the focus indicator. Against a gradient, every step is checked.
#[test]
fn every_theme_is_readable() {
    for theme in Theme::ALL.iter().copied() {
        let color = |name: &str| color(theme, name);
        let stops = [color("top"), color("middle"), color("bottom")];
        let steps = (0..=100).flat_map(|n| {
            let at = f64::from(n) / 100.0;
            let mix = move |a: [f64; 3], b: [f64; 3]| [0, 1, 2].map(|i| a[i] + (b[i] - a[i]) * at);
            [mix(stops[0], stops[1]), mix(stops[1], stops[2])]
        });
        for step in steps {
            for (name, least) in [("ink", 4.5), ("muted", 4.5), ("ring", 3.0)] {
                let found = contrast(color(name), step);
                assert!(found >= least, "{theme}: {name} on {step:?}: {found:.2}");
            }
        }
        for (ink, paper) in [("card-ink", "card"), ("card-ink", "card-hover"), ("badge-ink", "badge")] {
            let found = contrast(color(ink), color(paper));
            assert!(found >= 4.5, "{theme}: {ink} on {paper}: {found:.2}");
        }
        assert!(theme_color(theme.as_str()).is_some_and(|theme_color| theme_color.starts_with('#')));
    }
}

/// The visitor's system preferences are respected.
#[test]
fn motion_print_and_forced_colours_are_handled() {
    for block in [
        "(prefers-reduced-motion: reduce) { a { transition: none; }",
        "(forced-colors: active)",
        "@media print",
        "a:focus-visible { outline: 3px solid var(--ring)",
    ] {
        assert!(STYLES.contains(block), "{block}");
    }
    // All colors are those of a theme, except for print.
    let rules = STYLES.split_once("* { box-sizing").unwrap().1.split_once("@media print").unwrap().0;
    assert!(!rules.contains('#'), "{rules}");
}

fn page(title: &str, bio: Option<&str>) -> BioPage {
    let now = chrono::DateTime::from_timestamp(1_781_000_000, 0).unwrap();
    BioPage {
        id: 1,
        brand_id: 1,
        slug: "a".repeat(63),
        title: title.to_owned(),
        bio: bio.map(str::to_owned),
        theme: Theme::Ocean,
        avatar_id: None,
        views: 0,
        version: 7,
        created_at: now,
        updated_at: now,
    }
}

fn links(count: i64, title: &str) -> Vec<BioLink> {
    (1..=count)
        .map(|n| BioLink {
            id: 100_000_000 + n,
            page_id: 1,
            position: i32::try_from(n).unwrap(),
            title: title.to_owned(),
            url: "https://example.com/a".to_owned(),
            icon: None,
            is_primary: false,
            clicks: 0,
        })
        .collect()
}

fn html(page: &BioPage, links: &[BioLink]) -> String {
    let shown = render("https://crier.example", page, links, None).unwrap();
    String::from_utf8(shown.html.plain().to_vec()).unwrap()
}

/// The size includes the styles.
#[test]
fn the_largest_page_stays_below_the_size_limit() {
    let page = page(&"T".repeat(120), Some(&"b".repeat(500)));
    let all = html(&page, &links(100, &"x".repeat(60))).len() + STYLES.len();
    assert!(all <= 30_000, "{all} bytes");
    let few = html(&page, &links(5, "Menu")).len() + STYLES.len();
    assert!(few <= 10_000, "{few} bytes");
}

/// Browsers request compressed pages. The pages have 100 links of 120 random characters, so that nothing repeats.
#[test]
fn compressed_pages_are_bounded() {
    let mut seed = 1_u32;
    let mut draw = |from: &[char]| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        from[usize::try_from(seed >> 8).unwrap() % from.len()]
    };
    let styles = PageBody::new(STYLES).compressed().len();
    // 12,000 random letters with two bytes of entropy each cannot be compressed.
    for (what, from, most) in [
        ("letters", ('a'..='z').chain('A'..='Z').chain('0'..='9').collect::<Vec<_>>(), 13_500),
        ("markup", "<>&\"'".chars().collect(), 11_000),
        ("emoji", ('\u{1f300}'..='\u{1faff}').collect(), 30_000),
        ("all of the common Chinese letters", ('\u{4e00}'..='\u{9fff}').collect(), 32_500),
        ("all of the rare ones", ('\u{20000}'..='\u{2a6d6}').collect(), 38_000),
    ] {
        let mut text = |length| (0..length).map(|_| draw(&from)).collect::<String>();
        let page = page(&text(120), Some(&text(500)));
        let links: Vec<BioLink> = links(100, "").into_iter().map(|l| BioLink { title: text(120), ..l }).collect();
        let shown = render("https://crier.example", &page, &links, None).unwrap();
        let sent = shown.html.compressed().len() + styles;
        assert!(sent <= most, "{what}: {sent} bytes, of {}", shown.html.plain().len());
    }
}

proptest::proptest! {
    /// User text never becomes markup: the page has as many markup characters as with plain words.
    #[test]
    fn user_text_never_becomes_markup(title in "[<>&\"'\\\\a-z=/ ]{1,40}", bio in "\\PC{1,40}", link in "[<>\"'&;#\\PC]{1,40}") {
        let marks = |html: &str| ['<', '>', '"', '\''].map(|mark| html.matches(mark).count());
        let rendered = html(&page(&title, Some(&bio)), &links(2, &link));
        let plain = html(&page("x", Some("x")), &links(2, "x"));
        proptest::prop_assert_eq!(marks(&rendered), marks(&plain), "{}", rendered);
    }
}

#[test]
fn user_text_is_escaped() {
    let bad = "<script>alert(1)</script>\"'&";
    let html = html(&page(bad, Some(bad)), &links(1, bad));
    assert!(!html.contains("<script") && !html.contains("\"'&"), "{html}");
    assert_eq!(html.matches("&#60;script&#62;alert(1)").count(), 9, "{html}");
}

#[test]
fn links_use_the_redirect_with_noopener_and_nofollow() {
    let html = html(&page("T", None), &links(1, "Menu"));
    let slug = "a".repeat(63);
    let link = format!("<a href=\"/@{slug}/l/100000001\" rel=\"noopener nofollow ugc\" dir=\"auto\">Menu</a>");
    assert!(html.contains(&link), "{html}");
    for tag in
        ["og:title", "og:description", "og:url", "og:type", "twitter:card", "twitter:title", "twitter:description"]
    {
        assert!(html.contains(&format!("=\"{tag}\" content=\"")), "{tag} in {html}");
    }
    assert!(html.contains("<link rel=\"canonical\" href=\"https://crier.example/@aaa"), "{html}");
}

#[test]
fn a_page_without_avatar_shows_an_initial() {
    for (title, letter) in
        [("acme", "A"), ("🥐 bakery", "B"), ("«été»", "É"), ("🥐", "🥐"), ("مرحبا", "م"), ("ß", "SS")]
    {
        assert_eq!(initial(title), letter);
    }
}

#[test]
fn a_preview_is_one_line_of_bounded_length() {
    assert_eq!(description(&page("T", Some(" a\n\n b "))), "a b");
    assert_eq!(description(&page("T", None)), "Links of T");
    let long = description(&page("T", Some(&"é".repeat(500))));
    assert_eq!((long.chars().count(), long.ends_with('…')), (MAX_PREVIEW + 1, true));
}

#[test]
fn locations_are_kept_verbatim_if_ascii() {
    for (url, to) in [
        ("https://example.com", "https://example.com"),
        ("https://example.com/a?x=1&y=2", "https://example.com/a?x=1&y=2"),
        ("https://münchen.example/straße", "https://xn--mnchen-3ya.example/stra%C3%9Fe"),
        ("tel:+4930123", "tel:+4930123"),
    ] {
        assert_eq!(location(url).unwrap(), to);
    }
}
