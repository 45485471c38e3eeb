//! Captions, hashtags, images and their costs, with a server that responds as OpenAI's documentation describes it.

mod captions;
mod credits;
mod failures;
mod hashtags;
mod images;
mod providers;
