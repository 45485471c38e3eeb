//! Private networks that the address guard allows.

use ipnet::IpNet;

use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::values;

const ALLOWED: Key = Key::new(
    "ALLOWED_PRIVATE_NETWORKS",
    "Private networks that webhooks, imports and feeds can reach, also over plain http.",
    DefaultValue::Value(""),
    "10.1.0.0/16,192.168.1.7",
);
pub(super) const KEYS: &[Key] = &[ALLOWED];

#[derive(Clone, Debug)]
pub struct GuardConfig {
    pub allowed_private_networks: Vec<IpNet>,
}

pub(super) fn read(reader: &mut Reader) -> GuardConfig {
    GuardConfig { allowed_private_networks: reader.parse(&ALLOWED, values::networks) }
}
