//! Captions, hashtags, pictures and their costs, against a server that responds as OpenAI documents it.

mod captions;
mod credits;
mod failures;
mod hashtags;
mod images;
mod providers;
