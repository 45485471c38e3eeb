//! What pages show of a video: its file, its duration, and what its headers say.

use crier_domain::media::{Asset, MediaType, VideoProperties};

use crate::numbers::size;

/// The file of a video of the library.
#[derive(Clone, Debug, Default)]
pub struct VideoFile {
    /// The path of the file.
    pub src: String,
    /// Such as `0:32`.
    pub duration: String,
    /// Such as `1080 × 1920, 0:32, 12.4 MiB, H.264`.
    pub facts: String,
    /// Whether its height exceeds its width.
    pub is_upright: bool,
}

impl VideoFile {
    /// Returns the file of a video at this path. `None` for an image.
    pub fn of(asset: &Asset, src: String) -> Option<Self> {
        let properties = asset.video.as_ref()?;
        let (duration, codec) = (duration(properties.duration_ms), codec_label(&properties.video_codec));
        Some(Self {
            src,
            facts: format!("{} × {}, {duration}, {}, {codec}", asset.width, asset.height, size(asset.size_bytes)),
            duration,
            is_upright: asset.height > asset.width,
        })
    }
}

/// Returns the name of a file type.
pub const fn type_label(mime_type: MediaType) -> &'static str {
    match mime_type {
        MediaType::Jpeg => "JPEG",
        MediaType::Png => "PNG",
        MediaType::Gif => "GIF",
        MediaType::Webp => "WebP",
        MediaType::Mp4 => "MP4",
        MediaType::Mov => "MOV",
        MediaType::Webm => "WebM",
    }
}

/// Returns the details of a video, each with its label.
pub fn details(video: &VideoProperties) -> Vec<(&'static str, String)> {
    let frame_rate = video.frame_rate.map_or_else(
        || "Not specified in the file".to_owned(),
        |rate| format!("{} frames per second", shortest(&format!("{rate:.2}"))),
    );
    let streaming = if video.index_first {
        "Yes"
    } else {
        "No. The index is at the end of the file, so players start only after they have loaded all of it."
    };
    vec![
        ("Duration", duration(video.duration_ms)),
        ("Video codec", codec_label(&video.video_codec)),
        ("Audio codec", video.audio_codec.as_deref().map_or_else(|| "No sound".to_owned(), codec_label)),
        ("Frame rate", frame_rate),
        ("Ready for streaming", streaming.to_owned()),
    ]
}

/// Formats a duration: `0:32`, `1:02:03`.
fn duration(ms: i64) -> String {
    let total = ms.max(0).saturating_add(500) / 1_000;
    let (hours, minutes, seconds) = (total / 3_600, total / 60 % 60, total % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

fn codec_label(codec: &str) -> String {
    let label = match codec {
        "h264" => "H.264",
        "hevc" => "H.265",
        "vp8" => "VP8",
        "vp9" => "VP9",
        "av1" => "AV1",
        "aac" => "AAC",
        "mp3" => "MP3",
        "opus" => "Opus",
        "vorbis" => "Vorbis",
        "ac3" => "AC-3",
        other => other,
    };
    label.to_owned()
}

/// Returns a number of milliseconds in seconds, such as `3.2`.
pub fn seconds(ms: u64) -> String {
    shortest(&format!("{}.{:03}", ms / 1_000, ms % 1_000)).to_owned()
}

/// Returns a number of seconds in milliseconds. `None` if the text is not a number. Further decimals are ignored.
pub fn milliseconds(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(decimals) {
        return None;
    }
    let decimals = decimals.get(..3).unwrap_or(decimals);
    let rest: u64 = format!("{decimals:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(rest)
}

/// Returns a decimal number without zeros at its end.
fn shortest(number: &str) -> &str {
    number.trim_end_matches('0').trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_form_of_a_player() {
        assert_eq!([0, 499, 32_400, 65_000, 3_723_000].map(duration), ["0:00", "0:00", "0:32", "1:05", "1:02:03"]);
        assert_eq!([-5, i64::MAX].map(|ms| duration(ms).is_empty()), [false, false]);
    }

    #[test]
    fn times_are_entered_in_seconds() {
        for (ms, text) in [(0, "0"), (3_200, "3.2"), (3_250, "3.25"), (10_000, "10"), (7, "0.007")] {
            assert_eq!((seconds(ms).as_str(), milliseconds(text)), (text, Some(ms)));
        }
        assert_eq!([milliseconds("3."), milliseconds("3.20004")], [Some(3_000), Some(3_200)]);
        for wrong in ["", ".5", "-1", "1e3", "1,5", "three", "99999999999999999999"] {
            assert_eq!(milliseconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn details_say_what_the_file_does_not() {
        let video = VideoProperties {
            duration_ms: 32_000,
            rotation: 0,
            frame_rate: Some(29.97),
            video_codec: "h264".to_owned(),
            audio_codec: None,
            index_first: true,
        };
        let text = |video: &VideoProperties| {
            details(video).into_iter().map(|(label, value)| format!("{label}: {value}")).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(
            text(&video),
            "Duration: 0:32; Video codec: H.264; Audio codec: No sound; Frame rate: 29.97 frames per second; \
             Ready for streaming: Yes"
        );
        let unknown = VideoProperties { frame_rate: None, index_first: false, ..video };
        assert!(text(&unknown).contains("Frame rate: Not specified"), "{}", text(&unknown));
        assert!(text(&unknown).contains("Ready for streaming: No."), "{}", text(&unknown));
        assert_eq!(text(&VideoProperties { frame_rate: Some(30.0), ..unknown }).matches("30 frames").count(), 1);
    }
}
