//! `GET /brands/{brand}/reports/deliveries/{delivery}/download`

use crier_domain::access::Scope;
use crier_domain::report::{ReportDeliveryStatus, ReportFormat};
use crier_store::{Conn, report_deliveries};

use super::document::ReportDocument;
use super::{FEATURES, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::file::{self, FileResponse};
use crate::openapi::schema::{SchemaFn, Schemas};
use crate::response::File;

pub fn endpoint() -> Endpoint<(), File> {
    let endpoint = Endpoint::get(
        "/brands/{brand}/reports/deliveries/{delivery}/download",
        "downloadReportDelivery",
        Scope::ReportsRead,
    )
    .tag(TAG)
    .summary("Download the file of an export")
    .description(
        "The response has the content type of the file and a readable file name. `Range`, `If-Range` and \
         `If-None-Match` are supported. After its retention period, the file is deleted and the response is 404.",
    )
    .features(FEATURES)
    .error_codes(&[ErrorCode::ReportNotReady])
    .downloads(download);
    ReportFormat::ALL.iter().fold(endpoint, |endpoint, format| {
        let schema = (*format == ReportFormat::Json).then_some(Schemas::response::<ReportDocument> as SchemaFn);
        endpoint.file_type(format.media_type(), schema)
    })
}

async fn download(cx: &Context, conn: &mut Conn) -> Result<FileResponse> {
    let found = report_deliveries::find(conn, cx.brand()?.id, cx.id("delivery")?).await?;
    let found = found.ok_or_else(|| ApiError::not_found("export"))?;
    if found.status != ReportDeliveryStatus::Sent {
        let message = format!(
            "The file is not available: the export is {}. Poll GET /brands/{}/reports/deliveries/{} until it is \
             `sent`.",
            found.status, found.brand_id, found.id
        );
        return Err(ApiError::new(ErrorCode::ReportNotReady, message));
    }
    file::of_delivery(conn, &found).await?.ok_or_else(|| ApiError::not_found("file of this export"))
}
