//! Brands, the parent of nearly every other resource.

use crier_domain::brand;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::AnyEndpoint;
use crate::response::Timestamp;

pub mod create;
pub mod list;
pub mod members;
pub mod show;
pub mod usage;

pub const TAG: &str = "Brands";

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        create::endpoint().erase(),
        show::endpoint().erase(),
        members::endpoint().erase(),
        usage::endpoint().erase(),
    ]
}

/// A brand, to which accounts, posts and nearly all other resources belong.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Brand {
    pub id: i64,
    pub name: String,
    pub description: Option<String>,
    #[schemars(url)]
    pub website: Option<String>,
    /// The IANA name of the time zone. Times without an offset are in this time zone.
    pub timezone: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<brand::Brand> for Brand {
    fn from(b: brand::Brand) -> Self {
        Self {
            id: b.id,
            name: b.name,
            description: b.description,
            website: b.website,
            timezone: b.timezone,
            created_at: b.created_at.into(),
            updated_at: b.updated_at.into(),
        }
    }
}
