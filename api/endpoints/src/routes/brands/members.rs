//! `GET /brands/{brand}/members`

use crier_domain::access::{Role, Scope};
use crier_store::{Conn, users};
use schemars::JsonSchema;
use serde::Serialize;

use super::TAG;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{Many, Reply, Timestamp};

/// A user who is a member of the brand.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Member {
    pub id: i64,
    pub name: String,
    #[schemars(email)]
    pub email: String,
    #[schemars(with = "TextEnum<Role>")]
    pub role: Role,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

pub fn endpoint() -> Endpoint<(), Many<Member>> {
    Endpoint::get("/brands/{brand}/members", "listMembers", Scope::BrandsRead)
        .tag(TAG)
        .summary("List a brand's members")
        .extension()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<Member>>> {
    let members = users::members(conn, cx.brand()?.id).await?;
    let records = members.into_iter().map(|m| Member {
        id: m.id,
        name: m.name,
        email: m.email,
        role: m.role,
        created_at: m.created_at.into(),
        updated_at: m.updated_at.into(),
    });
    Ok(Reply::from(records.collect::<Vec<_>>()))
}
