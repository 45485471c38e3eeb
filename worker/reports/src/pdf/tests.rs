//! Reads the files back: their text with poppler's `pdftotext`, their metadata and tags with `pdfinfo`, and the glyphs
//! of the pages before they are written.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use chrono::NaiveDate;
use crier_domain::report::{ReportFormat, WidgetType};
use proptest::prelude::*;
use typst::layout::{Frame, FrameItem};

use super::fonts::{self, Catalogue};
use super::text::{Style, Texts};
use super::{Fonts, table};
use crate::document::{Cell, Column, ColumnType, Document, Table, View, Widget};
use crate::sample;

/// Only the bundled fonts, as on a machine without fonts.
static BUNDLED: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::new(&[]));

fn written(document: &Document) -> Vec<u8> {
    let mut file = Vec::new();
    crate::write(document, ReportFormat::Pdf, &mut file).expect("the document can be written");
    file
}

/// Returns the output of a poppler program for a file.
fn poppler(program: &str, args: &[&str], file: &[u8]) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("report.pdf");
    std::fs::write(&path, file).expect("a file");
    let mut command = Command::new(program);
    let (options, output) = args.split_at(args.iter().position(|arg| *arg == "-").unwrap_or(args.len()));
    let out = command.args(options).arg(&path).args(output).output();
    let out = out.unwrap_or_else(|error| panic!("{program} is missing ({error}): apt-get install poppler-utils"));
    assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn text_of(file: &[u8]) -> String {
    poppler("pdftotext", &["-enc", "UTF-8", "-"], file)
}

/// Returns a text without spaces and line breaks, which depend on the positions of letters.
fn squeezed(text: &str) -> String {
    let marks = ['\u{200b}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{200e}', '\u{200f}', '\u{c}'];
    text.chars().filter(|c| !c.is_whitespace() && !marks.contains(c)).collect()
}

fn document_of(widgets: Vec<Widget>) -> Document {
    Document { widgets, ..sample::document(0) }
}

fn note(text: &str) -> Widget {
    let column = Column { key: "text".to_owned(), label: "Text".to_owned(), column_type: ColumnType::Text };
    Widget {
        widget_type: WidgetType::Note,
        title: "Note".to_owned(),
        view: View::Text,
        table: Table { columns: vec![column], rows: vec![vec![Cell::Text(text.to_owned())]], totals: None },
        remark: None,
    }
}

fn table_of(columns: &[(&str, &str, ColumnType)], rows: Vec<Vec<Cell>>) -> Widget {
    let column = |(key, label, column_type): &(&str, &str, ColumnType)| Column {
        key: (*key).to_owned(),
        label: (*label).to_owned(),
        column_type: *column_type,
    };
    Widget {
        widget_type: WidgetType::PostsTable,
        title: "Posts".to_owned(),
        view: View::Table,
        table: Table { columns: columns.iter().map(column).collect(), rows, totals: None },
        remark: None,
    }
}

/// Returns the numbers of glyphs and of empty boxes among them on a page.
fn glyphs(frame: &Frame) -> (usize, usize) {
    let of_item = |(_, item): &(_, FrameItem)| match item {
        FrameItem::Group(group) => glyphs(&group.frame),
        FrameItem::Text(text) => (text.glyphs.len(), text.glyphs.iter().filter(|glyph| glyph.id == 0).count()),
        _ => (0, 0),
    };
    frame.items().map(of_item).fold((0, 0), |(all, boxes), more| (all + more.0, boxes + more.1))
}

fn assert_no_boxes(document: &Document, catalogue: &'static Catalogue) {
    let (pages, _) = super::pages(document, catalogue).expect("the pages can be set");
    for page in &pages {
        let (_, boxes) = glyphs(&page.frame);
        assert_eq!(boxes, 0, "a page has empty boxes");
    }
}

#[test]
fn a_report_has_its_cover_its_values_and_page_numbers() {
    let file = written(&sample::document(200));
    let text = text_of(&file);
    let pages: Vec<&str> = text.trim_end_matches('\u{c}').split('\u{c}').collect();
    for word in ["Monthly report", "Bäckerei Sonnenaufgang", "Agentur Müller & Söhne", "1–31 October 2026"] {
        assert!(pages[0].contains(word), "the cover lacks {word}: {}", pages[0]);
    }
    assert!(pages[0].contains("1 Nov 2026 09:00") && pages[0].contains("Europe/Berlin"), "{}", pages[0]);
    let total = pages.len();
    assert!(!pages[0].contains(&format!("1 / {total}")), "the cover has no number");
    for (n, page) in pages.iter().enumerate().skip(1) {
        assert!(page.contains(&format!("{} / {total}", n + 1)), "page {} lacks its number: {page}", n + 1);
        assert!(squeezed(page).contains("BäckereiSonnenaufgang·1–31October2026"), "{page}");
    }
    // Metrics, with their change: 200 posts after 160, and 12,200 engagements after 9,600.
    for word in ["240,800", "−8.1%", "+25%", "+27.1%", "19,023", "Posts before seven in the morning did best."] {
        assert!(text.contains(word), "{word} is missing");
    }
    // The machine may have no font for Japanese. A Japanese line may break after any letter.
    for word in ["焼き", "Σήμερα", "Сегодня", "Impressions", "31 Oct"] {
        let is_drawn = word.is_ascii() || word.chars().all(|c| fonts::system().covers(c));
        assert!(!is_drawn || squeezed(&text).contains(&squeezed(word)), "{word} is missing");
    }
    // One page for the cover, for two and a half charts, and for 18 rows of posts each.
    assert!((12..=22).contains(&total), "{total} pages");
}

#[test]
fn letters_of_all_scripts_are_found_again() {
    let words = ["Größe", "Ελλάδα", "Привет", "日本語", "한국어", "中文报告", "مرحبا", "שלום"];
    let file = written(&document_of(vec![note(&words.join("\n"))]));
    let text = squeezed(&text_of(&file));
    for word in words {
        // If the machine has no font for a script, the report says so, which another test checks.
        if word.chars().all(|c| fonts::system().covers(c)) {
            let reversed: String = word.chars().rev().collect();
            assert!(
                text.contains(word) || (crate::text::is_right_to_left(word) && text.contains(&reversed)),
                "{word} in {text}"
            );
        }
    }
}

#[test]
fn text_is_never_markup() {
    let hostile = [
        r#"#panic("x")"#,
        "$x^2$",
        "*bold*",
        "_it_",
        "<label>",
        "@ref",
        r"\\ \u{41}",
        "\"quoted\"",
        "`raw` ```rust",
        "<b>html</b> &amp;",
        "= heading",
        "- list",
        "// comment /* x */",
        "#{sys.inputs}",
        "[content] #[x]",
        "~ -- --- x",
        "https://brot.example/#x",
        "#import \"@preview/x:1.0.0\"",
        "%PDF-1.7 endobj",
        ")Tj (x",
    ];
    let mut document = document_of(vec![]);
    for text in hostile {
        document.title = hostile[0].to_owned();
        document.brand = text.to_owned();
        let cells = vec![Cell::Text(text.to_owned()), Cell::Link(format!("https://brot.example/{text}"))];
        let columns = [("a", text, ColumnType::Text), ("b", "Link", ColumnType::Link)];
        document.widgets.push(Widget { title: text.to_owned(), ..note(text) });
        document.widgets.push(Widget { remark: Some(text.to_owned()), ..table_of(&columns, vec![cells]) });
    }
    let text = squeezed(&text_of(&written(&document)));
    for hostile in hostile {
        // Once each as the note's title and text, and as the table's header, cell and remark.
        let count = text.matches(&squeezed(hostile)).count();
        assert!(count >= 5, "{hostile} is found {count} times");
    }
}

#[test]
fn an_empty_report_says_why_it_is_empty() {
    let text = text_of(&written(&sample::empty_document()));
    assert_eq!(text.matches("No posts were published in this period.").count(), 7, "{text}");
    let text = text_of(&written(&document_of(vec![])));
    assert!(text.contains("Monthly report") && !text.contains("1 / 1"), "{text}");
}

#[test]
fn a_file_has_metadata_tags_and_its_fonts() {
    let file = written(&sample::document(20));
    let info = poppler("pdfinfo", &[], &file);
    for line in [
        "Title:           Monthly report – Bäckerei Sonnenaufgang, 1–31 October 2026",
        "Author:          Agentur Müller & Söhne",
        "Creator:         Crier",
        "Tagged:          yes",
        "Page size:       841.89 x 595.28 pts (A4)",
        "JavaScript:      no",
    ] {
        assert!(info.contains(line), "{line} is not in {info}");
    }
    assert!(info.contains("Sun Nov  1 09:00:04 2026"), "{info}");
    let tags = poppler("pdfinfo", &["-struct"], &file);
    for tag in ["Document", "H1", "Table", "THead", "TH", "TD", "Figure", "Link"] {
        assert!(tags.lines().any(|line| line.trim_start().starts_with(tag)), "{tag} is not in {tags}");
    }
    let fonts = poppler("pdffonts", &[], &file);
    for line in fonts.lines().skip(2) {
        // The last columns: embedded, subset, with a map to Unicode, and the object's two numbers.
        let columns: Vec<&str> = line.split_whitespace().rev().collect();
        assert_eq!(columns[4], "yes", "the font is not embedded: {line}");
    }
    let links = String::from_utf8_lossy(&file).matches("/URI").count();
    let urls = poppler("pdfinfo", &["-url"], &file);
    assert!(urls.contains("https://brot.example/posts/19") || links > 20, "{urls}");
}

#[test]
fn the_same_document_makes_the_same_file() {
    assert!(written(&sample::document(30)) == written(&sample::document(30)), "the files differ");
}

#[test]
fn a_table_that_is_set_in_pieces_has_all_its_rows_and_full_pages() {
    let rows = 1_300_usize;
    let columns = [
        ("n", "Number", ColumnType::Count),
        ("a", "Text", ColumnType::Text),
        ("b", "More", ColumnType::Text),
        ("c", "Day", ColumnType::Date),
    ];
    let row = |n: usize| {
        let day = NaiveDate::from_ymd_opt(2026, 1, 1).expect("a day");
        vec![Cell::Count(n as i64), Cell::Text(format!("row {n}.")), Cell::Empty, Cell::Date(day)]
    };
    let mut widget = table_of(&columns, (0..rows).map(row).collect());
    widget.table.totals = Some(vec![Cell::Count(4_242), Cell::Text("all".to_owned()), Cell::Empty, Cell::Empty]);
    widget.remark = Some("That was all.".to_owned());
    let text = text_of(&written(&document_of(vec![widget])));
    let pages: Vec<&str> = text.trim_end_matches('\u{c}').split('\u{c}').collect();
    let on = |page: &str| page.matches("row ").count();
    let counts: Vec<usize> = pages.iter().skip(1).map(|page| on(page)).collect();
    assert_eq!(counts.iter().sum::<usize>(), rows);
    let (last, full) = counts.split_last().expect("pages");
    assert!(full[1..].iter().all(|count| *count == full[1]) && *last <= full[1], "{counts:?}");
    assert!(full[0] + 3 > full[1], "the first page is full: {counts:?}");
    assert!(pages.iter().skip(1).all(|page| page.contains("Number")), "each page has the head");
    let end = pages.last().expect("a page");
    assert!(end.contains("4,242") && end.contains("That was all."), "{end}");
}

/// The longest possible documents must not exhaust the machine's memory.
#[test]
fn long_documents_are_cut_and_say_so() {
    let lines = note(&"a\n".repeat(32_000));
    let columns = [("n", "Number", ColumnType::Count), ("a", "Text", ColumnType::Text)];
    let row = |n: i64| vec![Cell::Count(n), Cell::Text("text".to_owned())];
    let long = table_of(&columns, (0..10_000).map(row).collect());
    let document = document_of(vec![lines.clone(), lines, long.clone(), table_of(&columns, vec![row(1)]), long]);
    assert_eq!(super::shown_rows(&document)[2..], [7_499, 1, 7_500]);
    let mut document = document_of(vec![note(&"a\n".repeat(32_000)), note("b")]);
    document.widgets.insert(0, table_of(&columns[..1], (0..40).map(|n| vec![Cell::Count(n)]).collect()));
    let text = text_of(&written(&document));
    assert_eq!(text.matches("The rest of this text is not shown here.").count(), 1);
    assert!(text.trim_end_matches('\u{c}').matches('\u{c}').count() < 400, "too many pages");
}

#[test]
fn long_texts_stay_on_the_page() {
    let word = "a".repeat(500);
    let long = "日本 word 🥕 ".repeat(65_535 / 10);
    let columns = [
        ("account", "Account", ColumnType::Text),
        ("platform", &word, ColumnType::Text),
        ("c", &word, ColumnType::Text),
    ];
    let cell = || Cell::Text(word.clone());
    let mut document = document_of(vec![
        Widget { title: word.clone(), remark: Some(word.clone()), ..note(&word) },
        note(&long),
        table_of(&columns, vec![vec![cell(), cell(), cell()]; 3]),
    ]);
    (document.title, document.brand, document.workspace) = (word.clone(), word.clone(), word.clone());
    let (pages, _) = super::pages(&document, fonts::system()).expect("the pages can be set");
    let mut glyphs = 0;
    for page in &pages {
        let width = page.frame.width().to_pt();
        glyphs += inside(&page.frame, 0.0, width);
    }
    assert!(glyphs > 60_000, "{glyphs} glyphs");
}

/// Asserts that no glyph extends beyond the sides of the page. Returns the number of glyphs.
fn inside(frame: &Frame, left: f64, width: f64) -> usize {
    let mut count = 0;
    for (point, item) in frame.items() {
        let x = left + point.x.to_pt();
        match item {
            FrameItem::Group(group) => count += inside(&group.frame, x + group.transform.tx.to_pt(), width),
            FrameItem::Text(text) => {
                count += text.glyphs.len();
                assert!(x > 5.0 && x + text.width().to_pt() < width - 5.0, "{:?} is at {x}", text.text);
            }
            _ => {}
        }
    }
    count
}

#[test]
fn a_chart_with_one_row_with_no_value_and_with_extreme_values_can_be_drawn() {
    let mut document = sample::document(3);
    document.widgets.retain(|widget| matches!(widget.view, View::Chart(_)));
    let mut extreme = document.widgets.clone();
    for widget in &mut extreme {
        let columns = widget.table.columns.len();
        for (n, row) in widget.table.rows.iter_mut().enumerate() {
            let value = [Cell::Count(i64::MAX), Cell::Count(i64::MIN), Cell::Empty, Cell::Count(0)][n % 4].clone();
            row.splice(1.., vec![value; columns - 1]);
        }
    }
    let mut single = document.widgets.clone();
    single.iter_mut().for_each(|widget| widget.table.rows.truncate(1));
    let mut unknown = document.widgets.clone();
    for widget in &mut unknown {
        let columns = widget.table.columns.len();
        widget.table.rows.iter_mut().for_each(|row| {
            row.splice(1.., vec![Cell::Empty; columns - 1]);
        });
    }
    let mut year = document.widgets.clone();
    for widget in &mut year {
        let first = widget.table.rows[3].clone();
        let days = NaiveDate::from_ymd_opt(2026, 3, 5).expect("a day").iter_days().take(366);
        let row = |day| [Cell::Date(day)].into_iter().chain(first[1..].iter().cloned()).collect();
        widget.table.rows = days.map(row).collect();
    }
    let text = text_of(&written(&document_of([extreme, single, unknown, year].concat())));
    // The axis of a year has months, with the year where it changes.
    assert!(text.contains("Jan 2027"), "months are named on the axis of a year");
}

#[test]
fn characters_without_a_font_are_replaced_and_reported() {
    let text = "Brot 🥕 ist 日本語 gut. \u{e123}\u{e124}!";
    let fonts = Fonts::new(&BUNDLED);
    let texts = Texts::new(&fonts);
    assert_eq!(texts.remark(), None);
    let line = texts.line(text, 500);
    assert!(line.contains("ist […] gut. […]!"), "{line}");
    assert!(texts.remark().is_some_and(|remark| remark.contains("no font")));
    assert_no_boxes(&document_of(vec![note(text)]), &BUNDLED);
    assert_no_boxes(&sample::document(20), &BUNDLED);
    assert_no_boxes(&sample::document(20), fonts::system());
}

#[test]
fn controls_and_marks_of_direction_are_removed() {
    let fonts = Fonts::new(&BUNDLED);
    let texts = Texts::new(&fonts);
    assert_eq!(texts.line("a\u{202e}b\u{2066}c\u{0}d\u{7f}e\tf\n\ng\u{feff}h", 500), "abcde f gh");
    assert_eq!(texts.paragraphs("a\r\n\r\nb\u{2028}c"), ["a", "b", "c"]);
    assert!(
        crate::text::is_right_to_left("«שלום» x")
            && crate::text::is_right_to_left("123 مرحبا")
            && !crate::text::is_right_to_left("x שלום")
            && !crate::text::is_right_to_left("1")
    );
}

#[test]
fn a_text_is_cut_to_its_lines() {
    let fonts = Fonts::new(&BUNDLED);
    let texts = Texts::new(&fonts);
    let style = Style { size: 10.0, bold: false };
    assert_eq!(texts.fit("short", 120, style, 100.0, 1), "short");
    assert_eq!(texts.fit("one two three four", 120, style, 60.0, 2), "one two\nthree four");
    let cut = texts.fit("one two three four five six seven", 120, style, 60.0, 2);
    assert!(cut.ends_with('…') && cut.lines().count() == 2, "{cut}");
    assert!(cut.lines().all(|line| texts.width(line, style) <= 60.0), "{cut}");
    assert_eq!(texts.fit("abcdefgh", 3, style, 100.0, 1), "abc…");
    let word = texts.fit(&"m".repeat(500), 120, style, 60.0, 2);
    assert!(word.lines().count() == 2 && word.ends_with('…'), "{word}");
}

#[test]
fn columns_fill_the_width_and_no_more() {
    for posts in [1, 200] {
        for widget in sample::document(posts).widgets.iter().filter(|widget| widget.view == View::Table) {
            let fonts = Fonts::new(&BUNDLED);
            let texts = Texts::new(&fonts);
            let drawn = table::Layout::new(&widget.table, super::WIDTH, &texts).drawn(0..1);
            let widths =
                drawn.get("widths").expect("widths").clone().cast::<typst::foundations::Array>().expect("an array");
            let sum: f64 = widths.iter().map(|width| width.clone().cast::<f64>().expect("a number")).sum();
            assert!((sum - super::WIDTH).abs() < 0.5, "{sum} of {}", widget.title);
        }
    }
}

#[test]
fn changes_have_a_direction() {
    let [one, zero] = [Cell::Count(5), Cell::Count(0)];
    let of = |value: &Cell, previous: &Cell, change: Cell| {
        super::change(&[Cell::Empty, value.clone(), previous.clone(), change])
    };
    assert_eq!(of(&one, &one, Cell::Percent(250)), ("+25%".to_owned(), "up"));
    assert_eq!(of(&one, &one, Cell::Percent(-5)), ("−0.5%".to_owned(), "down"));
    assert_eq!(of(&one, &one, Cell::Percent(0)), ("0%".to_owned(), ""));
    assert_eq!(of(&one, &zero, Cell::Empty), ("previously 0".to_owned(), ""));
    assert_eq!(of(&zero, &zero, Cell::Empty), (String::new(), ""));
    assert_eq!(of(&Cell::Empty, &one, Cell::Empty), (String::new(), ""));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text in any position causes no error and no empty box, and the letters of common scripts are drawn.
    #[test]
    fn any_text_can_be_written(
        any in "\\PC{0,60}|.{0,60}|[ -~\u{80}-\u{ffff}]{0,60}",
        words in "[a-zA-Zα-ωа-я0-9]{1,12}",
    ) {
        let text = format!("{any} {words}");
        let columns = [("account", any.as_str(), ColumnType::Text), ("platform", "P", ColumnType::Text)];
        let cell = || Cell::Text(text.clone());
        let mut document = document_of(vec![
            Widget { title: text.clone(), remark: Some(any.clone()), ..note(&text) },
            table_of(&columns, vec![vec![cell(), cell()]]),
        ]);
        (document.title, document.brand, document.workspace) = (text.clone(), any.clone(), text);
        let (pages, _) = super::pages(&document, fonts::system()).expect("the pages can be set");
        let mut drawn = String::new();
        for page in &pages {
            prop_assert_eq!(glyphs(&page.frame).1, 0);
            collect(&page.frame, &mut drawn);
        }
        prop_assert!(squeezed(&drawn).contains(&words), "{words} is not in {drawn}");
    }
}

fn collect(frame: &Frame, drawn: &mut String) {
    for (_, item) in frame.items() {
        match item {
            FrameItem::Group(group) => collect(&group.frame, drawn),
            FrameItem::Text(text) => drawn.push_str(&text.text),
            _ => {}
        }
    }
}

#[test]
fn the_catalogue_reads_only_wanted_fonts() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("NotoSansHebrew-Regular.ttf"), b"no font").expect("a file");
    std::fs::write(dir.path().join("Evil-Regular.ttf"), notosans::REGULAR_TTF).expect("a file");
    let found = Catalogue::new(&[dir.path(), Path::new("/no/such/folder")]);
    assert_eq!(found.families(), BUNDLED.families());
    assert_eq!(found.families(), ["Noto Sans", "Noto Emoji", "DejaVu Sans"]);
}
