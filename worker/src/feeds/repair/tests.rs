use super::*;

fn repaired(text: &str) -> String {
    repair(text, &Deadline::none()).unwrap()
}

#[test]
fn common_xml_errors_are_repaired() {
    for (text, right) in [
        (
            "<a>AT&T & R&D; &amp; &lt; &nbsp; &#233; &#xE9;</a>",
            "<a>AT&amp;T &amp; R&D; &amp; &lt; &nbsp; &#233; &#xE9;</a>",
        ),
        ("<a>&#0;&#x1F;&#xD800;&#9999999;&#;&#x;&#12a;</a>", "<a>&amp;#;&amp;#x;&amp;#12a;</a>"),
        ("<a>1 < 2 <3 <é/></a>", "<a>1 &lt; 2 &lt;3 <é/></a>"),
        ("<a><![CDATA[<&]]></a>", "<a><![CDATA[<&]]></a>"),
        ("<?xml version='1.0'?><!-- <a> --><!DOCTYPE a [<!ENTITY x \"]>\">]>\n<a>&x;</a>", "\n<a>&x;</a>"),
        ("<a b='>' c='\"'>x</a>", "<a b=\">\" c='\"'>x</a>"),
        ("<rss><x/></rss>", "<rss version=\"2.0\"><x/></rss>"),
        ("<rss version=\"0.93\">", "<rss version=\"2.0\">"),
        ("<rss version='0.91'>", "<rss version=\"0.91\">"),
        (
            "<rss xmlns:media='http://search.yahoo.com/mrss'>",
            "<rss version=\"2.0\" xmlns:media=\"http://search.yahoo.com/mrss/\">",
        ),
        ("<a>&#150;&#x92;</a>", "<a>–’</a>"),
        (
            "<a><title type='text/plain' x='y'/><content type=\"\"/></a>",
            "<a><title type=\"text\" x=\"y\"/><content type=\"html\"/></a>",
        ),
        ("<a><content type=\"text/html\"/></a>", "<a><content type=\"text/html\"/></a>"),
        ("<a><content type='application/xml' src='b'/></a>", "<a><content type=\"xhtml\" was-src=\"b\"/></a>"),
        ("<author>Jö–jo@x.de</author>", "<author>Jö–jo at x.de</author>"),
    ] {
        assert_eq!(repaired(text), right, "{text}");
    }
    for (inside, right) in [
        ("<title>a <b x='&'>c</b><br></title>", "<title>a &lt;b x='&amp;'>c&lt;/b>&lt;br></title>"),
        ("<title>if a<b</title>", "<title>if a&lt;b</title>"),
        ("<title>1 <b it's</title><x y='z'/>", "<title>1 &lt;b it's</title><x y=\"z\"/>"),
        ("<title>a <b c='<d>' e=\"'\">f</title>", "<title>a &lt;b c='&lt;d>' e=\"'\">f</title>"),
        ("<description><p>a</i></description >", "<description>&lt;p>a&lt;/i></description >"),
        ("<x xml:base='http://[y'/><x xml:base='y/'/>", "<x no-base=\"http://[y\"/><x xml:base=\"y/\"/>"),
    ] {
        assert_eq!(
            repaired(&format!("<rss version='2.0'>{inside}</rss>")),
            format!("<rss version=\"2.0\">{right}</rss>")
        );
    }
    let atom = "<feed><title><b>x</b></title></feed>";
    assert_eq!(repaired(atom), atom);
    assert!(repaired("<rss version='2.0' xmlns='http://backend.userland.com/rss2'>").contains(RSS_1));
}

#[test]
fn atom_in_items_of_rss_is_renamed() {
    let xmlns = "xmlns:atom=\"http://www.w3.org/2005/Atom\" xmlns:a=\"http://www.w3.org/2005/Atom\"";
    for (item, right) in [
        (
            "<atom:published>1</atom:published><a:title type='html'>T <b>x</b></a:title >",
            "<pubDate>1</pubDate><title>T &lt;b>x&lt;/b></title>",
        ),
        ("<pubDate>1</pubDate><a:published>2</a:published>", "<pubDate>1</pubDate><a:published>2</a:published>"),
        ("<dc:date>1</dc:date><a:issued>2</a:issued>", "<dc:date>1</dc:date><a:issued>2</a:issued>"),
        ("<a:link href='x?a&b'/>", "<a:link href=\"x?a&b\"/><link>x?a&amp;b</link>"),
        ("<a:link rel='self' href='x'/>", "<a:link rel=\"self\" href=\"x\"/>"),
        ("<a:author><a:name>Ann</a:name><a:uri>x</a:uri></a:author>", "<author>Ann</author><a:uri>x</a:uri>"),
        ("<a:summary>s</a:summary><a:content>c</a:content>", "<description>s</description><a:content>c</a:content>"),
        ("<dc:title>t</dc:title><title>u</title>", "<title>t</title><title>u</title>"),
        ("<media:title>t</media:title>", "<media:title>t</media:title>"),
        ("<x><a:title>t</a:title></x>", "<x><a:title>t</a:title></x>"),
        ("<a:published/>", "<a:published/>"),
        ("<b:published>1</b:published>", "<b:published>1</b:published>"),
    ] {
        let text = |item| format!("<rss version=\"2.0\" {xmlns}><channel><item>{item}</item></channel></rss>");
        assert_eq!(repaired(&text(item)), text(right));
    }
    let atom = format!("<feed {xmlns}><a:item><a:published>1</a:published></a:item></feed>");
    assert_eq!(repaired(&atom), atom);
}

#[test]
fn excessive_depth_elements_and_attributes_are_rejected() {
    let repair = |text: &str| repair(text, &Deadline::none());
    assert!(repair(&"<a>".repeat(MAX_DEPTH)).is_ok());
    assert!(repair(&"<a>".repeat(MAX_DEPTH + 1)).is_err());
    assert!(repair(&"<a></a><b/>".repeat(10_000)).is_ok());
    assert!(repair(&"<b/>".repeat(MAX_ELEMENTS)).is_ok());
    assert!(repair(&"<b/>".repeat(MAX_ELEMENTS + 1)).is_err());
    assert!(repair(&format!("<a {}>", "b='' ".repeat(MAX_ATTRIBUTES))).is_ok());
    assert!(repair(&format!("<a {}>", "b='' ".repeat(MAX_ATTRIBUTES + 1))).is_err());
    assert!(repair(&format!("<a {}>", "b='' ".repeat(4_000))).is_err());
    assert!(repair("<a b='").is_err());
    assert!(repair("<title></\u{fffd}").is_ok() && repair("</").is_ok(), "cut off within an end tag");
}

/// Regression test: runs on a stack of 64 KiB, which recursion per attribute would overflow.
#[test]
fn tag_repair_does_not_recurse_per_attribute() {
    let small = std::thread::Builder::new().stack_size(64 << 10).spawn(|| {
        let tag = |n| format!("<feed><content{}/></feed>", " src=\"\"".repeat(n));
        assert_eq!(repaired(&tag(MAX_ATTRIBUTES)), tag(MAX_ATTRIBUTES).replace("src", "was-src"));
        repair(&tag(2_300), &Deadline::none()).is_err()
    });
    assert!(small.unwrap().join().unwrap());
}

/// The parser copies the base URL to each element.
#[test]
fn nested_base_urls_are_bounded() {
    let base = |n| format!("<x xml:base='{}/'>", "y".repeat(n));
    let bases = |text: &str| repaired(text).matches("xml:base").count();
    assert_eq!(bases(&base(1_000).repeat(3)), 2);
    assert_eq!(bases(&format!("{}<y xml:base='a/' xml:base='b/'/>", base(MAX_URL))), 1);
    assert_eq!(bases(&format!("{}</x>", base(1_000)).repeat(5)), 5, "one beside the other");
    assert_eq!(repaired("<a><x\txml:base='http://[y' b/></a>"), "<a><x no-base=\"http://[y\"/></a>");
}

#[test]
fn repair_stops_at_the_deadline() {
    let checks = std::cell::Cell::new(0);
    let is_over = || checks.replace(checks.get() + 1) >= 10;
    assert_eq!(repair(&"<a></a>".repeat(100_000), &Deadline::new(&is_over)), Err(FeedError::TooSlow));
    assert_eq!(checks.get(), 11, "it is not checked again");
}

#[test]
fn an_endless_document_is_cut_at_the_item_limit() {
    let text = format!("<rss version=\"2.0\"><channel>{}", "<item><title>x</title></item>".repeat(MAX_ITEMS + 5));
    let repaired = repaired(&text);
    assert_eq!(repaired.matches("<item>").count(), MAX_ITEMS);
    assert!(repaired.ends_with("</item></channel></rss>"));
}

proptest::proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in "([<>&;!?/\\[\\]\"'#xa-c \
         é-]|<!\\[CDATA\\[|]]>|<!--|-->|<!DOCTYPE|&#x|&amp;|<item>|<rss ){0,60}") {
        let _ = repair(&text, &Deadline::none());
    }
}
