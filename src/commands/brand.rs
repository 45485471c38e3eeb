//! `crier brand list | delete`

use chrono::{DateTime, Utc};
use crier_domain::brand::Brand;
use crier_store::brands;
use serde::Serialize;

use super::{Context, Result, delete};
use crate::cli::BrandCommand;
use crate::output::{output_time, print_rows};

#[derive(Serialize)]
struct BrandLine {
    id: i64,
    workspace_id: i64,
    name: String,
    timezone: String,
    created_at: DateTime<Utc>,
}

pub async fn run(cx: &Context, command: BrandCommand) -> Result {
    let format = match command {
        BrandCommand::List(format) => format,
        BrandCommand::Delete { id, options } => return delete::brand(cx, id, options).await,
    };
    let all = brands::all(&mut cx.store.read().await?).await?;
    let line = |brand: Brand| BrandLine {
        id: brand.id,
        workspace_id: brand.workspace_id,
        name: brand.name,
        timezone: brand.timezone,
        created_at: output_time(brand.created_at, format.json),
    };
    print_rows(&all.into_iter().map(line).collect::<Vec<_>>(), format.json);
    Ok(())
}
