//! The AI operations and their prices.

crier_base::text_enum! {
    pub enum Operation { Captions = "captions", Hashtags = "hashtags", Images = "images" }
}

crier_base::text_enum! {
    /// How well a picture is made.
    pub enum Quality { Low = "low", Medium = "medium", High = "high", Auto = "auto" }
}

crier_base::text_enum! {
    /// Width and height of a picture, in pixels.
    pub enum Size {
        Square = "1024x1024",
        Upright = "1024x1536",
        Wide = "1536x1024",
        Auto = "auto",
    }
}

crier_base::text_enum! {
    /// How much a caption says.
    pub enum Length { Short = "short", Medium = "medium", Long = "long" }
}

/// Credits for one captions request.
pub const CAPTIONS: u64 = 15;
/// Credits for one hashtags request.
pub const HASHTAGS: u64 = 12;

impl Quality {
    /// Returns the credits for one picture.
    pub const fn credits(self) -> u64 {
        match self {
            Self::High => 1_000,
            Self::Low | Self::Medium | Self::Auto => 240,
        }
    }
}
