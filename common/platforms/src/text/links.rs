//! Finds the URLs in a text, for platforms that count every URL the same and for those that need links marked up.
//!
//! Detection errs on the short side: a URL that is cut too early makes a text count longer, never shorter, than the
//! platform counts it.

use std::ops::Range;

/// A URL in a text, as byte offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub range: Range<usize>,
    /// Whether it begins with `http://` or `https://`.
    pub has_scheme: bool,
}

/// Returns the URLs of `text`, in order and without overlap. `bare` also finds `example.com/path` (X links it).
pub fn find(text: &str, bare: bool) -> Vec<Link> {
    let mut links = Vec::new();
    let mut from = 0;
    let mut previous = None;
    for (at, c) in text.char_indices() {
        if at < from {
            previous = Some(c);
            continue;
        }
        let end = match previous {
            Some(p) if !may_precede(p) => None,
            _ => with_scheme(&text[at..]).map(|n| (n, true)),
        }
        .or_else(|| match previous {
            Some(p) if !may_precede_bare(p) => None,
            _ if bare => without_scheme(&text[at..]).map(|n| (n, false)),
            _ => None,
        });
        if let Some((len, has_scheme)) = end {
            links.push(Link { range: at..at + len, has_scheme });
            from = at + len;
        }
        previous = Some(c);
    }
    links
}

fn may_precede(c: char) -> bool {
    !c.is_ascii_alphanumeric()
}

/// Returns whether `c` may precede a name without a scheme: not within a word, an email address (`me@example.com`) or a
/// path.
fn may_precede_bare(c: char) -> bool {
    !(c.is_alphanumeric() || matches!(c, '@' | '.' | '-' | '_' | '/' | '#' | '$' | '+' | '%'))
}

/// Returns the length of the URL with a scheme at the start of `text`.
fn with_scheme(text: &str) -> Option<usize> {
    let scheme = ["https://", "http://"]
        .into_iter()
        .find(|s| text.get(..s.len()).is_some_and(|start| start.eq_ignore_ascii_case(s)))?
        .len();
    let (host, last_label, whole) = host(&text[scheme..])?;
    if last_label.len() < 2 && !last_label.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(scheme + if whole { host + tail(&text[scheme + host..]) } else { host })
}

/// Returns the length of the URL without a scheme at the start of `text`.
fn without_scheme(text: &str) -> Option<usize> {
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let (host, last_label, whole) = host(text)?;
    if !is_top_level(last_label) || text[host..].starts_with(['@', '_']) {
        return None;
    }
    let path = if whole && text[host..].starts_with(['/', '?', '#', ':']) { tail(&text[host..]) } else { 0 };
    Some(host + path)
}

/// Parses the host at the start of `text`: its length, its last label, and whether it ended by itself rather than at
/// letters of another script (`example.com` in `example.comのページ`).
fn host(text: &str) -> Option<(usize, &str, bool)> {
    let run = text.find(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-'))).unwrap_or(text.len());
    let name = text[..run].trim_end_matches(['.', '-']);
    let (front, last) = name.rsplit_once('.')?;
    if front.is_empty() || front.starts_with('.') || front.contains("..") {
        return None;
    }
    let ascii = last.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(last.len());
    let label = &last[..ascii];
    if label.is_empty() {
        return None;
    }
    let end = front.len() + 1 + ascii;
    Some((end, label, ascii == last.len() && end == run))
}

/// Returns the length of port, path, query and fragment, without the punctuation that ends a sentence.
fn tail(text: &str) -> usize {
    if !text.starts_with(['/', '?', '#', ':']) {
        return 0;
    }
    let run = text.find(|c: char| !is_url_char(c)).unwrap_or(text.len());
    let mut url = &text[..run];
    let count = |c: char| url.matches(c).count();
    let (mut round, mut square) = (count(')').saturating_sub(count('(')), count(']').saturating_sub(count('[')));
    while let Some(last) = url.chars().next_back() {
        match last {
            '.' | ',' | ':' | ';' | '!' | '?' | '\'' | '*' => {}
            ')' if round > 0 => round -= 1,
            ']' if square > 0 => square -= 1,
            _ => break,
        }
        url = &url[..url.len() - last.len_utf8()];
    }
    url.len()
}

/// Returns whether `c` may be part of a URL: ASCII, or a Latin or Cyrillic letter that people paste unescaped.
fn is_url_char(c: char) -> bool {
    (c.is_ascii_graphic() && !matches!(c, '<' | '>' | '"' | '`' | '{' | '}' | '|' | '\\' | '^'))
        || ('\u{C0}'..='\u{4FF}').contains(&c)
}

/// Returns whether a name without a scheme is a link by its top-level domain: every country's, and the common generic
/// ones. X knows the whole registry; with a domain that is missing here, the name is counted by its letters.
fn is_top_level(label: &str) -> bool {
    let label = label.to_ascii_lowercase();
    if label.len() == 2 { COUNTRIES.split(' ').any(|c| c == label) } else { GENERIC.contains(&label.as_str()) }
}

const GENERIC: &[&str] = &[
    "com", "net", "org", "edu", "gov", "mil", "int", "info", "biz", "name", "pro", "app", "dev", "blog", "shop",
    "store", "news", "online", "site", "tech", "xyz", "page", "link", "live", "media", "social", "world", "club",
    "art", "design", "space", "website", "agency", "academy", "bio", "cafe", "city", "cloud", "coffee", "company",
    "digital", "email", "events", "fun", "games", "global", "group", "life", "mobi", "museum", "music", "network",
    "one", "photo", "photos", "press", "run", "science", "studio", "team", "today", "tools", "top", "travel", "video",
    "wiki", "work", "zone", "asia", "berlin", "london", "paris", "wien", "tokyo", "eus", "cat", "gal", "scot",
];

const COUNTRIES: &str = "ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt \
bw by bz ca cc cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm fo \
fr ga gd ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke \
kg kh ki km kn kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq mr ms mt mu mv mw \
mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw sa sb sc sd \
se sg sh si sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn to tr tt tv tw tz ua ug uk us uy uz va \
vc ve vg vi vn vu wf ws ye yt za zm zw";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, bare: bool) -> Vec<&str> {
        find(text, bare).into_iter().map(|l| &text[l.range]).collect()
    }

    #[test]
    fn trailing_punctuation_is_not_part_of_a_url() {
        assert_eq!(found("See https://example.com/a?b=c#d.", false), ["https://example.com/a?b=c#d"]);
        assert_eq!(found("(http://example.com/a_(b))", false), ["http://example.com/a_(b)"]);
        assert_eq!(found("HTTPS://Example.COM:8080/x, next", false), ["HTTPS://Example.COM:8080/x"]);
        assert_eq!(found("https://example.comのページ", false), ["https://example.com"]);
        assert_eq!(found("読むhttps://example.jp/です", false), ["https://example.jp/"]);
    }

    #[test]
    fn text_without_urls_has_no_links() {
        for text in ["http://", "https://localhost", "xhttps://example.com", "http://-", "http://.com", "https://a..b"]
        {
            assert!(found(text, false).is_empty(), "{text}");
        }
    }

    #[test]
    fn bare_domains_are_links_only_with_a_known_tld() {
        assert_eq!(found("go to example.com/x or t.co, not to end.Then", true), ["example.com/x", "t.co"]);
        assert!(found("mail me@example.com or a.b@example.org", true).is_empty());
        assert!(found("example.com", false).is_empty());
    }
}
