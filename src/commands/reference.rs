//! `crier config | completions | man`: the reference of the program. These commands need no installation.

use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap_complete::Shell;
use clap_mangen::Man;
use crier_config::keys;
use crier_runtime::StartError;

use crate::cli;
use crate::output::print_line;

pub fn config() -> ExitCode {
    print_line(keys::help());
    ExitCode::SUCCESS
}

pub fn completions(shell: Shell) -> ExitCode {
    // `generate` panics if it cannot write.
    let mut script: Vec<u8> = Vec::new();
    clap_complete::generate(shell, &mut cli::commands(), "crier", &mut script);
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(&script).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            StartError::Io { what: "stdout cannot be written".to_owned(), error }.exit()
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes a page for each command: `crier.1`, `crier-jobs-list.1`.
pub fn man(dir: &Path) -> ExitCode {
    // Without this, each group of commands would have pages for its `help`.
    let mut commands = cli::commands().disable_help_subcommand(true);
    // Gives subcommands their full names.
    commands.build();
    match write_pages(&commands, dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => StartError::Io {
            what: format!("cannot write to the directory {}; create it, or choose another", dir.display()),
            error,
        }
        .exit(),
    }
}

/// Writes the pages of a command and of its subcommands.
fn write_pages(command: &clap::Command, dir: &Path) -> std::io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand, dir)?;
    }
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    std::fs::write(dir.join(page.get_filename()), with_examples(&String::from_utf8_lossy(&text)))
}

/// Returns a page with its examples in the section EXAMPLES, and other text after the options in NOTES. `clap_mangen`
/// writes both into a section EXTRA.
fn with_examples(page: &str) -> String {
    page.replace("\nExample:\n", "\n.SH EXAMPLES\n")
        .replace("\nExamples:\n", "\n.SH EXAMPLES\n")
        .replace("\n.SH EXTRA\n.SH EXAMPLES\n", "\n.SH EXAMPLES\n")
        .replace("\n.SH EXTRA\n", "\n.SH NOTES\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(after_help: &'static str) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let commands = clap::Command::new("crier").subcommand(clap::Command::new("list").after_help(after_help));
        let mut commands = commands.disable_help_subcommand(true);
        commands.build();
        write_pages(&commands, dir.path()).expect("pages");
        std::fs::read_to_string(dir.path().join("crier-list.1")).expect("a page")
    }

    #[test]
    fn manual_pages_have_sections_for_notes_and_examples() {
        assert!(page("Example:\n  crier list").ends_with(".SH EXAMPLES\n  crier list\n"));
        let both = page("It lists.\n\nExamples:\n  crier list");
        assert!(both.ends_with(".SH NOTES\nIt lists.\n\n.SH EXAMPLES\n  crier list\n"), "{both}");
    }
}
