//! What the AI does, and what each of it costs.

crate::text_enum! {
    pub enum Operation { Captions = "captions", Hashtags = "hashtags", Images = "images" }
}

crate::text_enum! {
    /// How well a picture is made.
    pub enum Quality { Low = "low", Medium = "medium", High = "high", Auto = "auto" }
}

crate::text_enum! {
    /// Width and height of a picture, in pixels.
    pub enum Size {
        Square = "1024x1024",
        Upright = "1024x1536",
        Wide = "1536x1024",
        Auto = "auto",
    }
}

crate::text_enum! {
    /// How much a caption says.
    pub enum Length { Short = "short", Medium = "medium", Long = "long" }
}

/// Credits of one request that makes captions.
pub const CAPTIONS: u64 = 15;
/// Of one that makes hashtags.
pub const HASHTAGS: u64 = 12;

impl Quality {
    /// Credits of one picture.
    pub const fn credits(self) -> u64 {
        match self {
            Self::High => 1_000,
            Self::Low | Self::Medium | Self::Auto => 240,
        }
    }
}
