//! Whole files: those of other tools, workbooks, and files that were damaged or made to harm.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{Cursor, Write as _};

use chrono_tz::Tz;
use crier_domain::platform::Platform;
use crier_domain::post_import::{DateFormat, PostSchedule};
use crier_imports::{AccountName, FileError, MAX_INFLATED_BYTES, PostFile, ReadOptions, RowPost, read};
use proptest::prelude::*;
use rust_xlsxwriter::{ExcelDateTime, Format, Workbook};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

fn options(date_format: DateFormat) -> ReadOptions {
    ReadOptions { zone: Tz::Europe__Berlin, date_format }
}

fn read_as(text: &str, date_format: DateFormat) -> PostFile {
    read(text.as_bytes(), &options(date_format)).unwrap()
}

/// Returns the posts of a file without problems of rows.
fn posts(file: &PostFile) -> Vec<RowPost> {
    file.rows.iter().map(|row| row.post.clone().unwrap()).collect()
}

fn named(names: &[&str]) -> Vec<AccountName> {
    names.iter().map(|name| AccountName::Named((*name).to_owned())).collect()
}

fn time(post: &RowPost) -> String {
    post.scheduled_at.unwrap().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

fn urls(post: &RowPost) -> Vec<&str> {
    post.media.iter().map(|media| media.url.as_str()).collect()
}

#[test]
fn a_row_says_when_its_post_is_published() {
    let file = read_as(
        "content,scheduled_at,schedule\n\
         a,2026-05-31 09:00,\n\
         b,,\n\
         c,2026-05-31 09:00,draft\n\
         d,2026-05-31 09:00, Queue \n\
         e,QUEUE,\n\
         f,2026-05-31 09:00,scheduled\n\
         g,queue,draft\n\
         h,next Friday,queue\n",
        DateFormat::Iso,
    );
    let found: Vec<(PostSchedule, bool)> =
        posts(&file).iter().map(|post| (post.schedule, post.scheduled_at.is_some())).collect();
    let expected = [
        (PostSchedule::Scheduled, true),
        (PostSchedule::Draft, false),
        (PostSchedule::Draft, true),
        (PostSchedule::Queue, false),
        (PostSchedule::Queue, false),
        (PostSchedule::Scheduled, true),
        (PostSchedule::Draft, false),
        (PostSchedule::Queue, false),
    ];
    assert_eq!(found, expected);
    let file = read_as("content,scheduled_at,When,schedule\na,,,scheduled\nb,,,soon\n", DateFormat::Iso);
    let problem = |row: usize| file.rows[row].post.clone().unwrap_err().remove(0);
    assert_eq!((problem(0).column.as_str(), problem(0).row), ("schedule", 2));
    assert!(problem(0).message.contains("needs a time"), "{:?}", problem(0));
    assert_eq!(problem(1).message, "Must be `draft`, `scheduled` or `queue`.");
    let time_only = read_as("content,Posting Time\na,queue\n", DateFormat::Iso);
    assert_eq!(time_only.column_name(crier_domain::post_import::PostColumn::Schedule), "Posting Time");
}

#[test]
fn a_file_has_at_most_5000_posts() {
    let file = |posts: usize| format!("content\n{}", "Bread\n".repeat(posts));
    assert_eq!(read_as(&file(5_000), DateFormat::Iso).rows.len(), 5_000);
    let error = read(file(5_001).as_bytes(), &options(DateFormat::Iso)).unwrap_err();
    assert_eq!(error, FileError::TooManyRows);
}

/// Each link is searched for in the text, so many of them would take hours.
#[test]
fn many_links_are_rejected() {
    let links = (0..12_000).map(|n| format!("{n}")).collect::<Vec<_>>().join(" ");
    let headings = vec!["link"; 99].join(",");
    let cells = vec![links; 99].join(",");
    let file = read_as(&format!("content,{headings}\nBread,{cells}\nBread,https://a.example/1\n"), DateFormat::Iso);
    let problems = file.rows[0].post.clone().unwrap_err();
    assert_eq!((problems.len(), problems[0].message.as_str()), (1, "List at most 20 links."));
    assert_eq!(file.rows[1].post.as_ref().unwrap().content, "Bread\nhttps://a.example/1");
}

#[test]
fn all_columns_are_read() {
    let text = "content,scheduled_at,accounts,media_urls,labels,first_comment,external_ref\r\n\
                \"Fresh\nbread\",2026-05-01T09:00,\"1, Ann\",https://a.example/1.png https://a.example/2.mp4,\"spring;bread\",More,p-1\r\n\
                Draft,,,,,,\r\n";
    let file = read_as(text, DateFormat::Iso);
    let all = posts(&file);
    assert!(file.problems.is_empty());
    assert_eq!((all[0].content.as_str(), time(&all[0]).as_str()), ("Fresh\nbread", "2026-05-01T07:00:00Z"));
    assert_eq!(all[0].accounts, named(&["1", "Ann"]));
    assert_eq!(urls(&all[0]), ["https://a.example/1.png", "https://a.example/2.mp4"]);
    assert_eq!(all[0].media.iter().map(|media| media.is_video).collect::<Vec<_>>(), [false, true]);
    assert_eq!(
        (all[0].labels.clone(), all[0].first_comment.as_deref()),
        (vec!["spring".to_owned(), "bread".to_owned()], Some("More"))
    );
    assert_eq!(all[0].external_ref.as_deref(), Some("p-1"));
    assert_eq!(all[1], RowPost { content: "Draft".to_owned(), ..RowPost::default() });
}

#[test]
fn files_of_other_tools_are_read() {
    let buffer = "\u{feff}Text,Image URL,Tags,Posting Time\nBread,https://a.example/1.png,spring,2026-05-01 09:00\n";
    let hootsuite = "05/01/2026 09:00,Bread,https://a.example\n05/02/2026 09:00,More,\n";
    let metricool = "Text,Date,Time,Draft,Facebook,Twitter/X,Picture Url 1,Picture Url 2,Alt text picture 1,First Comment Text,Shortener\n\
                     Bread,2026-05-01,09:00:00,FALSE,TRUE,FALSE,https://a.example/1.png,https://a.example/2.png,A loaf,More,FALSE\n\
                     Later,2026-05-01,09:00:00,TRUE,TRUE,TRUE,,,,,\n";
    let publer = "Date,Text,Link(s),Media URL(s),Title,Label(s),Alt text(s),Comment(s)\n\
                  2026/05/01 09:00,Bread,https://a.example,\"https://a.example/1.png, https://a.example/2.png\",,\"a, b\",,First\n";
    for (text, format) in [
        (buffer, DateFormat::Iso),
        (hootsuite, DateFormat::MonthFirst),
        (metricool, DateFormat::Iso),
        (publer, DateFormat::Iso),
    ] {
        let file = read_as(text, format);
        let first = &posts(&file)[0];
        assert!(first.content.starts_with("Bread"), "{text}");
        assert_eq!(time(first), "2026-05-01T07:00:00Z", "{text}");
    }
    let file = read_as(hootsuite, DateFormat::MonthFirst);
    assert_eq!(posts(&file)[0].content, "Bread\nhttps://a.example");
    assert_eq!(file.rows.iter().map(|row| row.number).collect::<Vec<_>>(), [1, 2]);
    let file = read_as(metricool, DateFormat::Iso);
    let all = posts(&file);
    assert_eq!(all[0].accounts, [AccountName::On(Platform::Facebook)]);
    assert_eq!(all[1].accounts, [AccountName::On(Platform::Facebook), AccountName::On(Platform::Twitter)]);
    assert!(all[1].scheduled_at.is_none(), "a draft");
    assert_eq!(urls(&all[0]).len(), 2);
    assert_eq!((all[0].media[0].alt_text.as_deref(), all[0].media[1].alt_text.as_deref()), (Some("A loaf"), None));
    assert_eq!(file.problems.iter().map(|p| (p.row, p.column.as_str())).collect::<Vec<_>>(), [(1, "Shortener")]);
    let all = posts(&read_as(publer, DateFormat::Iso));
    assert_eq!((urls(&all[0]).len(), all[0].labels.len(), all[0].first_comment.as_deref()), (2, 2, Some("First")));
    let file = read_as(buffer, DateFormat::Iso);
    assert_eq!(file.column_name(crier_domain::post_import::PostColumn::ScheduledAt), "Posting Time");
}

#[test]
fn problems_name_the_row_and_the_column() {
    let text = "Content,Date,Time,External ref,Other\na,tomorrow,,x,\nb,,09:00,x,\nc,,,x,y\nd,,,x,\n";
    let file = read_as(text, DateFormat::Iso);
    let problems: Vec<_> = file.rows.iter().filter_map(|row| row.post.as_ref().err()).flatten().collect();
    let places: Vec<_> = problems.iter().map(|p| (p.row, p.column.as_str())).collect();
    assert_eq!(places, [(2, "Date"), (3, "Time"), (5, "External ref")]);
    assert!(problems[2].message.starts_with("Row 4"), "{}", problems[2].message);
    assert_eq!(file.problems[0].column, "Other");
}

#[test]
fn files_without_posts_are_rejected() {
    for (bytes, error) in [
        (&b""[..], FileError::Empty),
        (b"\r\n \r\n", FileError::Empty),
        (b"name,age\nAnn,4\n", FileError::NoHeadings),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1....", FileError::OldWorkbook),
    ] {
        assert_eq!(read(bytes, &options(DateFormat::Iso)).unwrap_err(), error);
    }
    let rows = format!("content\n{}", "a\n".repeat(5_001));
    assert_eq!(read(rows.as_bytes(), &options(DateFormat::Iso)).unwrap_err(), FileError::TooManyRows);
    let cell = format!("content\n{}\n", "ä".repeat(65_536));
    assert_eq!(read(cell.as_bytes(), &options(DateFormat::Iso)).unwrap_err(), FileError::LongCell(2));
    let large = vec![b'a'; (10 << 20) + 1];
    assert_eq!(read(&large, &options(DateFormat::Iso)).unwrap_err(), FileError::TooLarge);
}

/// Returns a workbook whose text in row 3 is `text`.
fn workbook(text: &str) -> Vec<u8> {
    let mut workbook = Workbook::new();
    let sheet = workbook.add_worksheet();
    for (column, heading) in (0..).zip(["content", "scheduled_at", "accounts", "date", "time"]) {
        sheet.write(0, column, heading).unwrap();
    }
    let date = Format::new().set_num_format("dd/mm/yyyy hh:mm");
    let at = ExcelDateTime::from_ymd(2026, 5, 1).unwrap().and_hms(9, 0, 0).unwrap();
    sheet.write(2, 0, text).unwrap();
    sheet.write_with_format(2, 1, &at, &date).unwrap();
    sheet.write(2, 2, 7).unwrap();
    workbook.save_to_buffer().unwrap()
}

#[test]
fn a_workbook_is_read() {
    let file = read(&workbook("=no formula"), &options(DateFormat::Iso)).unwrap();
    let all = posts(&file);
    assert_eq!((all.len(), file.rows[0].number), (1, 3));
    assert_eq!((all[0].content.as_str(), time(&all[0]).as_str()), ("=no formula", "2026-05-01T07:00:00Z"));
    assert_eq!(all[0].accounts, named(&["7"]));
}

#[test]
fn a_text_that_a_workbook_repeats_is_counted_each_time() {
    let mut workbook = Workbook::new();
    let sheet = workbook.add_worksheet();
    sheet.write(0, 0, "content").unwrap();
    let long = "x".repeat(32_000);
    for row in 1..=1_100 {
        sheet.write(row, 0, &long).unwrap();
    }
    let bytes = workbook.save_to_buffer().unwrap();
    assert_eq!(read(&bytes, &options(DateFormat::Iso)).unwrap_err(), FileError::TooMuchText);
}

#[test]
fn an_archive_that_inflates_too_much_is_rejected() {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let deflate = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    archive.start_file("xl/sharedStrings.xml", deflate).unwrap();
    let zeros = vec![b' '; 1 << 20];
    for _ in 0..=(MAX_INFLATED_BYTES >> 20) {
        archive.write_all(&zeros).unwrap();
    }
    let bytes = archive.finish().unwrap().into_inner();
    assert!(bytes.len() < 1 << 20);
    assert_eq!(read(&bytes, &options(DateFormat::Iso)).unwrap_err(), FileError::TooLargeInside);
}

/// A row is checked when it is complete, but its cells must not be copied before: they may share a text of many MiB.
#[test]
fn a_long_cell_ends_the_reading_of_its_row() {
    const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
    const DOCUMENT: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
    const PACKAGE: &str = "http://schemas.openxmlformats.org/package/2006/relationships";
    let cell = |place: &str, text: &str| format!("<c r=\"{place}\" t=\"inlineStr\"><is><t>{text}</t></is></c>");
    let sheet = format!(
        "<worksheet xmlns=\"{MAIN}\"><sheetData><row r=\"1\">{}</row><row r=\"2\">{}{}</row></sheetData></worksheet>",
        cell("A1", "content"),
        cell("A2", &"x".repeat(4 * 65_535 + 1)),
        cell("EZ2", "beyond the last column"),
    );
    let book = format!(
        "<workbook xmlns=\"{MAIN}\" xmlns:r=\"{DOCUMENT}\"><sheets><sheet name=\"Posts\" sheetId=\"1\" r:id=\"rId1\"/>\
         </sheets></workbook>"
    );
    let relation = |kind: &str, target: &str| {
        let link = format!("<Relationship Id=\"rId1\" Type=\"{DOCUMENT}/{kind}\" Target=\"{target}\"/>");
        format!("<Relationships xmlns=\"{PACKAGE}\">{link}</Relationships>")
    };
    let files = [
        ("_rels/.rels", relation("officeDocument", "xl/workbook.xml")),
        ("xl/workbook.xml", book),
        ("xl/_rels/workbook.xml.rels", relation("worksheet", "worksheets/sheet1.xml")),
        ("xl/worksheets/sheet1.xml", sheet),
    ];
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in files {
        archive.start_file(name, SimpleFileOptions::default()).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    let bytes = archive.finish().unwrap().into_inner();
    assert_eq!(read(&bytes, &options(DateFormat::Iso)).unwrap_err(), FileError::LongCell(2));
}

proptest! {
    #[test]
    fn damaged_files_never_panic(
        kind in 0..3_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = match kind {
            0 => b"content;scheduled_at\r\n\"a;\"\"b\";2026-05-01 09:00\r\n'=1;\r\n".to_vec(),
            1 => br#"{"data": [{"content": "a", "accounts": [1, 2]}, {"labels": ["x"]}]}"#.to_vec(),
            _ => workbook("Bread"),
        };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() * 3) + 1);
        let _ = read(&bytes, &options(DateFormat::DayFirst));
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes, &options(DateFormat::MonthFirst));
    }

    #[test]
    fn quoted_texts_are_read_back(text in "[^\0]{1,40}") {
        // As an export writes them.
        let safe = crier_domain::spreadsheet::guarded(&text).replace('"', "\"\"");
        let file = read(format!("content,labels\r\n\"{safe}\",end\r\n").as_bytes(), &options(DateFormat::Iso)).unwrap();
        let read = posts(&file)[0].content.clone();
        let expected: String = unicode_normalization::UnicodeNormalization::nfc(text.as_str()).collect();
        prop_assert_eq!(read, if text.trim().is_empty() { String::new() } else { expected });
    }
}
