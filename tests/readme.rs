//! The README's table of configuration matches the program's own.

use crier_config::keys;

use crate::support::page;

#[test]
fn the_configuration_table_is_up_to_date() {
    page::assert_sections("README.md", "readme", &[("configuration", keys::markdown_table())]);
}
