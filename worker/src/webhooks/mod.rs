//! Sends webhooks.
//!
//! An event becomes one delivery per endpoint that subscribed to it. Each attempt of a delivery is one signed `POST`
//! ([`sender`]); [`schedule`] computes when the next one is due. This module is stateless: the store keeps endpoints
//! and deliveries, and `jobs::deliver_webhook` decides what an attempt's outcome means for them.

pub mod schedule;
pub mod sender;

pub use sender::{AttemptResult, DeliveryRequest, Sender};
