//! `crier storage adopt`

use crier_runtime::{library_of, storage_marker};

use super::{Context, Result, fail};
use crate::cli::StorageCommand;
use crate::output::print_line;

pub async fn run(cx: &Context, command: StorageCommand) -> Result {
    match command {
        StorageCommand::Adopt => adopt(cx).await,
    }
}

async fn adopt(cx: &Context) -> Result {
    // Creates the directory if it is missing, and checks that it is writable.
    library_of(&cx.config)?;
    match storage_marker::adopt(&cx.config, &cx.store).await? {
        Some(dir) => {
            print_line(format_args!("The storage of this installation is {}. Start Crier.", dir.display()));
            Ok(())
        }
        None => fail("the storage is a bucket, which needs no marker; start Crier"),
    }
}
