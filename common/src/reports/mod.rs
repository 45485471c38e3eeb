//! Reports: what is shared by the roles.

pub mod naming;
