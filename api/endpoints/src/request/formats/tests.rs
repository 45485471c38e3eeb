use chrono::DateTime;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fields::{MAX_PROBLEMS, Problems, ReadContext, steps};
use crate::request::Request;

fn context() -> ReadContext<'static> {
    ReadContext::new("Europe/Berlin", DateTime::UNIX_EPOCH)
}

fn fields<'a>(body: &'a Value, problems: &'a Problems) -> Fields<'a> {
    Fields::new(body.as_object().unwrap(), problems, context())
}

/// Returns the problems that `read` finds in `body`: paths and messages.
fn problems_of<T>(body: Value, read: impl Fn(&Fields<'_>) -> T) -> Vec<(String, String)> {
    let problems = Problems::default();
    read(&fields(&body, &problems));
    let Err(error) = problems.into_result() else { return Vec::new() };
    error.into_fields().into_iter().flat_map(|(path, all)| all.into_iter().map(move |m| (path.clone(), m))).collect()
}

/// A request that the tests read.
#[derive(Clone, Debug, Request)]
struct Named {
    #[field(id())]
    n: i64,
}

#[derive(Clone, Debug, Request)]
struct Short {
    #[field(text(1..=1))]
    n: String,
}

fn paths<T>(body: Value, read: impl Fn(&Fields<'_>) -> T) -> Vec<String> {
    problems_of(body, read).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn a_required_field_is_reported_once() {
    for body in [json!({}), json!({"name": null}), json!({"name": 5}), json!({"name": ""}), json!({"name": "a\0b"})] {
        assert_eq!(paths(body, |f| f.required("name", text(1..=120).read(f, "name"))), ["name"]);
    }
    assert!(paths(json!({"name": "x"}), |f| f.required("name", text(1..=120).read(f, "name"))).is_empty());
}

#[test]
fn null_and_omitted_are_distinguished() {
    let (body, problems) = (json!({"a": null, "b": "x"}), Problems::default());
    let read = |name| text(0..=5).read(&fields(&body, &problems), name);
    assert_eq!(read("a"), PatchField::Null);
    assert_eq!(read("c"), PatchField::Omitted);
    assert_eq!(read("b").apply_to("old".into(), String::new()), "x");
    assert_eq!(read("a").apply_to("old".into(), String::new()), "");
    assert_eq!(read("c").apply_to("old".into(), String::new()), "old");
}

#[test]
fn length_counts_characters_after_normalization() {
    let body = json!({"a": "e\u{301}".repeat(3), "b": "日".repeat(4)});
    assert!(paths(body.clone(), |f| text(1..=3).read(f, "a")).is_empty());
    assert_eq!(problems_of(body, |f| text(1..=3).read(f, "b"))[0].1, "Must have at most 3 characters; this has 4.");
}

#[test]
fn list_problems_name_the_element() {
    let accounts = |body| paths(body, |f| ids(10).read(f, "accounts"));
    assert_eq!(accounts(json!({"accounts": ["x", 1.5, null, 0, -1, 9_223_372_036_854_775_808_u64]})).len(), 6);
    assert_eq!(accounts(json!({"accounts": [1, 2, 1]})), ["accounts.2"]);
    assert_eq!(accounts(json!({"accounts": "x"})), ["accounts"]);
    assert_eq!(accounts(json!({"accounts": [3, 2, 1]})), Vec::<String>::new());
    let events = |body| paths(body, |f| enum_values::<crier_domain::event::EventName>().read(f, "events"));
    assert_eq!(events(json!({"events": ["post.published", "nope", 5]})), ["events.1", "events.2"]);
    assert_eq!(events(json!({"events": []})), ["events"]);
}

#[test]
fn object_problems_have_nested_paths() {
    let body = json!({"list": [{"n": "x"}, 5, {}], "one": {"n": 1}});
    let read = |f: &Fields<'_>| {
        let list = objects::<Short>(10).read(f, "list").value().unwrap_or_default();
        assert_eq!(list.iter().map(|one| one.n.as_str()).collect::<Vec<_>>(), ["x"]);
        object::<Short>().read(f, "one").value().map(|one| one.n)
    };
    assert_eq!(paths(body, read), ["list.1", "list.2.n", "one.n"]);
}

#[test]
fn only_calendar_dates_are_accepted() {
    for good in ["2026-05-01", "2024-02-29", "0001-01-01", "9999-12-31"] {
        let (body, problems) = (json!({ "d": good }), Problems::default());
        let read = date().read(&fields(&body, &problems), "d");
        assert_eq!(read.value().map(|d| d.to_string()).as_deref(), Some(good));
    }
    for bad in [
        "",
        "2026-02-29",
        "2026-5-1",
        "31/01/2025",
        "2026-05-01T00:00:00Z",
        "+2026-05-01",
        "0000-01-01",
        "２０２６-05-01",
    ] {
        assert_eq!(paths(json!({ "d": bad }), |f| date().read(f, "d")), ["d"], "{bad}");
    }
    assert_eq!(paths(json!({ "d": 5 }), |f| date().read(f, "d")), ["d"]);
}

#[test]
fn email_addresses_are_listed_once_each() {
    let (body, problems) =
        (json!({ "e": [" Ann@example.com", "ann@EXAMPLE.com", "bob@bücher.example"] }), Problems::default());
    let read = email_addresses(3).read(&fields(&body, &problems), "e");
    assert_eq!(read.value().unwrap(), ["Ann@example.com", "bob@bücher.example"]);
    let long = format!("{}@example.com", "a".repeat(250));
    let bad = ["", "ann", "ann@", "@example.com", "a b@example.com", "Ann <ann@example.com>", "a@b\r\nBcc: c@d", &long];
    let paths_of_bad: Vec<String> = (0..bad.len()).map(|n| format!("e.{n}")).collect();
    assert_eq!(paths(json!({ "e": bad }), |f| email_addresses(9).read(f, "e")), paths_of_bad);
    assert_eq!(paths(json!({ "e": ["a@b.c", "d@e.f"] }), |f| email_addresses(1).read(f, "e")), ["e"]);
}

#[test]
fn urls_enums_flags_and_time_zones_are_validated() {
    for bad in ["nope", "ftp://example.org/", "javascript:alert(1)", "//example.org", "http://"] {
        assert_eq!(paths(json!({"u": bad}), |f| url().read(f, "u")), ["u"], "{bad}");
    }
    assert_eq!(paths(json!({"u": format!("http://example.org/{}", "x".repeat(2048))}), |f| url().read(f, "u")), ["u"]);
    assert!(paths(json!({"u": "https://example.org/ü?q=1"}), |f| url().read(f, "u")).is_empty());
    assert_eq!(paths(json!({"f": "yes"}), |f| flag().read(f, "f")), ["f"]);
    for bad in [json!(0), json!(11), json!(2.5), json!("3"), json!(u64::MAX)] {
        assert_eq!(paths(json!({"n": bad}), |f| number(1..=10).read(f, "n")), ["n"], "{bad}");
    }
    assert!(paths(json!({"n": 10}), |f| number(1..=10).read(f, "n")).is_empty());
    for bad in ["", "Mars/Olympus", "+02:00"] {
        assert_eq!(paths(json!({"z": bad}), |f| timezone().read(f, "z")), ["z"], "{bad}");
    }
    for bad in [json!("9:30"), json!("24:00"), json!(930)] {
        assert_eq!(paths(json!({"t": bad}), |f| local_time().read(f, "t")), ["t"], "{bad}");
    }
    assert!(paths(json!({"t": "09:30"}), |f| local_time().read(f, "t")).is_empty());
    assert_eq!(
        problems_of(json!({"s": "later"}), |f| enum_value::<crier_domain::post::ScheduleType>().read(f, "s"))[0].1,
        "Must be one of: now, scheduled, draft, queue."
    );
    assert_eq!(
        problems_of(json!({"s": "Schedule"}), |f| enum_value::<crier_domain::post::ScheduleType>().read(f, "s"))[0].1,
        "Must be one of: now, scheduled, draft, queue. Did you mean `scheduled`?"
    );
}

proptest! {
    /// Reading any input returns values or problems and never panics.
    #[test]
    fn arbitrary_values_do_not_panic(word in "\\PC*", whole: i64, float: f64) {
        for value in [json!(word), json!(whole), json!(float), json!([word]), json!({"x": word}), json!(null), json!(true)] {
            let body = json!({"v": value});
            problems_of(body, |f| {
                text(1..=3).read(f, "v");
                url().read(f, "v");
                time().read(f, "v");
                timezone().read(f, "v");
                date().read(f, "v");
                ids(3).read(f, "v");
                flag().read(f, "v");
                number(-5..=5).read(f, "v");
                f.object("v");
                objects::<Named>(3).read(f, "v");
                id().read(f, "v");
                enum_values::<crier_domain::post::PostStatus>().read(f, "v")
            });
        }
    }
}

#[test]
fn validation_stops_after_a_hundred_problems() {
    let body = json!({ "list": vec![json!({}); 5_000] });
    let problems = Problems::default();
    let (_, steps) = steps::count_steps(|| objects::<Named>(5_000).read(&fields(&body, &problems), "list"));
    assert!(problems.is_full() && problems.has("whatever"));
    assert!(steps < 10 * MAX_PROBLEMS as u64, "{steps}");
    let one = json!({ "list": [{ "n": 7 }] });
    let read = objects::<Named>(1).read(&fields(&one, &Problems::default()), "list").value().unwrap();
    assert_eq!(read[0].n, 7);
    problems.add("late", "Is told no more.");
    let error = problems.into_result().unwrap_err();
    assert_eq!(error.fields().len(), MAX_PROBLEMS);
    assert!(error.to_string().starts_with("At least 100 fields are not valid"), "{error}");
}

#[test]
fn oversized_lists_are_not_read() {
    let body = json!({ "list": vec![0; 50_000] });
    let read = |f: &Fields<'_>| (ids(100).read(f, "list"), objects::<Named>(10).read(f, "list").value());
    let (found, steps) = steps::count_steps(|| problems_of(body, read));
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].1, "Must have at most 100 elements; this has 50000.");
    assert!(steps < 10, "{steps}");
    assert_eq!(
        paths(json!({ "e": vec!["x"; 101] }), |f| enum_values::<crier_domain::post::PostStatus>().read(f, "e")),
        ["e"]
    );
}

#[test]
fn oversized_texts_are_not_normalized() {
    // Twelve characters are the most that can normalize to three; the second text has one more.
    let decomposed = "\u{3b1}\u{313}\u{300}\u{345}";
    assert!(paths(json!({ "t": decomposed.repeat(3) }), |f| text(1..=3).read(f, "t")).is_empty());
    let found = problems_of(json!({ "t": format!("{}x", decomposed.repeat(3)) }), |f| text(1..=3).read(f, "t"));
    assert_eq!(found[0].1, "Must have at most 3 characters; this has 13.");
}
