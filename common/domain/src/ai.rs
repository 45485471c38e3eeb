//! The AI operations and their prices.

crier_base::text_enum! {
    pub enum Operation { Captions = "captions", Hashtags = "hashtags", Images = "images" }
}

crier_base::text_enum! {
    /// The quality of an image.
    pub enum Quality { Low = "low", Medium = "medium", High = "high", Auto = "auto" }
}

crier_base::text_enum! {
    /// The width and height of an image, in pixels.
    pub enum Size {
        Square = "1024x1024",
        Upright = "1024x1536",
        Wide = "1536x1024",
        Auto = "auto",
    }
}

crier_base::text_enum! {
    /// The length of a caption.
    pub enum Length { Short = "short", Medium = "medium", Long = "long" }
}

/// The credits for one captions request.
pub const CAPTIONS_CREDITS: u64 = 15;
/// The credits for one hashtags request.
pub const HASHTAGS_CREDITS: u64 = 12;

impl Quality {
    /// Returns the credits for one image.
    pub const fn credits(self) -> u64 {
        match self {
            Self::High => 1_000,
            Self::Low | Self::Medium | Self::Auto => 240,
        }
    }
}
