//! The colours of office files: one accent, and greys. All are RGB, as `0xRRGGBB`.

pub const ACCENT: u32 = 0x1F5FBF;
/// Text.
pub const INK: u32 = 0x1F2933;
/// Text of second rank: units, remarks, footers.
pub const MUTED: u32 = 0x6B7785;
/// Lines between rows.
pub const LINE: u32 = 0xD5DAE1;
/// The background of cards and of rows that are set apart.
pub const SURFACE: u32 = 0xF3F5F8;
pub const WHITE: u32 = 0xFFFFFF;

/// The colours of a chart's series, in their order: neighbours differ in lightness, so that they can be told apart
/// without colour too.
const SERIES: [u32; 6] = [ACCENT, 0x8FB4E8, 0x4A5563, 0xB4BCC8, 0x12386F, 0x7F8B99];

/// Returns the colour of a series. Colours repeat after the sixth.
pub fn series(index: usize) -> u32 {
    SERIES[index % SERIES.len()]
}
