//! Captions, hashtags, pictures, and what they cost, against a server that answers as OpenAI's documents say.

mod captions;
mod credits;
mod failures;
mod hashtags;
mod images;
mod providers;
