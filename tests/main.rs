//! The one integration test binary.

mod platforms;
