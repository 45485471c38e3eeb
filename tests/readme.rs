//! The README tells the truth: its table of configuration is the program's own.
//!
//! `CRIER_TEST_UPDATE=1 cargo test readme` writes the table anew.

use std::path::Path;

use crier_common::config::keys;

const BEGIN: &str = "<!-- configuration: made by tests/readme.rs -->\n";
const END: &str = "<!-- end of configuration -->\n";

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own switch")]
fn the_table_of_configuration_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(&path).expect("README.md");
    let (before, rest) = readme.split_once(BEGIN).expect("the README has the table's beginning");
    let (table, after) = rest.split_once(END).expect("the README has the table's end");
    if std::env::var("CRIER_TEST_UPDATE").is_ok() {
        let whole = format!("{before}{BEGIN}{}{END}{after}", keys::markdown_table());
        std::fs::write(&path, whole).expect("README.md can be written");
        return;
    }
    assert_eq!(table, keys::markdown_table(), "run: CRIER_TEST_UPDATE=1 cargo test readme");
}
