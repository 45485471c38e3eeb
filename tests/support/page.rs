//! Documentation pages with sections that are generated from the program, so that they cannot become stale.
//!
//! A section is enclosed by `<!-- NAME: made by FILE -->` and `<!-- end of NAME -->`. With `CRIER_TEST_UPDATE=1`, the
//! tests rewrite it.

use std::path::{Path, PathBuf};

pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

pub fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Asserts that these sections of the page contain these texts. `made_by` is the name of the file in `tests` that
/// generates them.
#[expect(clippy::disallowed_methods, reason = "a switch of the tests")]
pub fn assert_sections(page: &str, made_by: &str, parts: &[(&str, String)]) {
    let was = read(page);
    let mut is = was.clone();
    for (name, text) in parts {
        let (begin, end) =
            (format!("<!-- {name}: made by tests/{made_by}.rs -->\n"), format!("<!-- end of {name} -->\n"));
        let (before, rest) = is.split_once(&begin).unwrap_or_else(|| panic!("{page} lacks: {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{page} lacks: {end}"));
        is = format!("{before}{begin}{text}{end}{after}");
    }
    if std::env::var("CRIER_TEST_UPDATE").is_ok() {
        std::fs::write(path(page), is).unwrap_or_else(|error| panic!("{page}: {error}"));
        return;
    }
    let tests = made_by.replace('/', "::");
    for (was, is) in was.lines().zip(is.lines()) {
        assert_eq!(was, is, "{page} is stale; run: CRIER_TEST_UPDATE=1 cargo test --test it {tests}");
    }
    assert_eq!(was.len(), is.len(), "{page} is stale; run: CRIER_TEST_UPDATE=1 cargo test --test it {tests}");
}
