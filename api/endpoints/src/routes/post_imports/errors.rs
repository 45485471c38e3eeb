//! `GET /brands/{brand}/posts/imports/{import}/errors`

use std::sync::Arc;

use bytes::Bytes;
use crier_domain::access::Scope;
use crier_domain::spreadsheet::{BYTE_ORDER_MARK, csv_line};
use crier_store::{Conn, post_imports};
use futures::StreamExt;
use futures::stream;

use super::{TAG, find};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::file::FileStream;
use crate::request::Parsed;
use crate::response::File;

pub fn endpoint() -> Endpoint<(), File> {
    Endpoint::get("/brands/{brand}/posts/imports/{import}/errors", "downloadPostImportErrors", Scope::PostsRead)
        .tag(TAG)
        .summary("Download the errors of an import of posts")
        .description("A CSV file in UTF-8 with a byte order mark, and the columns `row`, `column` and `message`.")
        .extension()
        .file_type("text/csv", None)
        .streams(download)
}

async fn download(cx: &Context, conn: &mut Conn, _: Arc<Parsed<()>>) -> Result<FileStream> {
    let import = find(cx, conn).await?;
    let mut text = format!("{BYTE_ORDER_MARK}{}", csv_line(["row", "column", "message"]));
    for error in post_imports::errors(conn, import.id).await? {
        text += &csv_line([error.row_number.to_string().as_str(), error.column_name.as_str(), error.message.as_str()]);
    }
    let name = format!("import-{}-errors.csv", import.id);
    let body = stream::once(async move { Ok(Bytes::from(text)) }).boxed();
    Ok(FileStream { media_type: "text/csv", name, body })
}
