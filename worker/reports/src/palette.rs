//! The colors of office files: one accent, and grays. All are RGB, as `0xRRGGBB`.

pub const ACCENT: u32 = 0x1F5FBF;
/// The color of text.
pub const INK: u32 = 0x1F2933;
/// The color of secondary text: units, remarks, footers.
pub const MUTED: u32 = 0x6B7785;
/// The color of lines between rows.
pub const LINE: u32 = 0xD5DAE1;
/// The background of cards and of the row of sums.
pub const SURFACE: u32 = 0xF3F5F8;
pub const WHITE: u32 = 0xFFFFFF;

/// The colors of a chart's series, in order. Adjacent ones differ in lightness, so that they can also be distinguished
/// without color.
const SERIES: [u32; 6] = [ACCENT, 0x8FB4E8, 0x4A5563, 0xB4BCC8, 0x12386F, 0x7F8B99];

/// Returns the color of a series. Colors repeat after the sixth.
pub fn series(index: usize) -> u32 {
    SERIES[index % SERIES.len()]
}
