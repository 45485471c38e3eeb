//! The description of the API, made from its endpoints.

pub mod schema;
