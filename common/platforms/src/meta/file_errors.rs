//! The errors of containers whose file Instagram or Threads does not accept, so that a new container would fail too.
//! Instagram ends its text with a number (`Error: Media upload has failed with error code 2207026`), Threads returns a
//! name (`INVALID_DURATION`).
//!
//! Sources: "Error codes" of the Instagram platform, "Troubleshooting" of the Threads API, 2026.

use crier_domain::failure::{Category, Failure};

/// The names of Threads and the numbers of Instagram, and what they mean. Threads misspells "aspect".
const REASONS: [(&str, &str); 14] = [
    ("2207023", "it does not accept this type of file."),
    (
        "2207026",
        "it does not accept the format of the video. Use an MP4 or MOV file with H.264 or HEVC video and AAC audio.",
    ),
    ("2207057", "the time of the cover is not within the video."),
    ("2207081", "this account cannot publish trial reels."),
    ("FAILED_PROCESSING_AUDIO", "it cannot process the audio of the video. Use AAC audio."),
    ("FAILED_PROCESSING_VIDEO", "it cannot process the video. Use an MP4 or MOV file with H.264 or HEVC video."),
    ("INVALID_ASPEC_RATIO", "it does not accept the aspect ratio of the video."),
    ("INVALID_ASPECT_RATIO", "it does not accept the aspect ratio of the video."),
    ("INVALID_AUDIO_CHANNELS", "the audio of the video must be mono or stereo."),
    ("INVALID_AUDIO_CHANNEL_LAYOUT", "the audio of the video must be mono or stereo."),
    ("INVALID_BIT_RATE", "the bit rate of the video is too high."),
    ("INVALID_DURATION", "it does not accept the duration of the video."),
    ("INVALID_FRAME_RATE", "the video must have 23 to 60 frames per second."),
    ("INVALID_FILE_SIZE", "the file is too large."),
];

/// Returns the failure for the reason of a failed container. `None` if a new container may succeed.
pub(super) fn rejected(platform: &str, reason: &str) -> Option<Failure> {
    let words: Vec<&str> = reason.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    match REASONS.iter().find(|(code, _)| words.contains(code)) {
        Some((code, why)) => Some(failure(platform, code, why)),
        None => {
            let is_final = |word: &&&str| word.starts_with("INVALID_") || word.starts_with("FAILED_PROCESSING_");
            let unknown = words.iter().find(is_final)?;
            Some(failure(platform, unknown, "it does not accept the file."))
        }
    }
}

fn failure(platform: &str, code: &str, why: &str) -> Failure {
    Failure::of(Category::InvalidContent, format!("{platform} cannot process this post: {why}")).from_platform(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(reason: &str) -> Option<String> {
        rejected("Threads", reason).and_then(|failure| failure.platform_code)
    }

    #[test]
    fn only_reasons_about_the_file_are_final() {
        let instagram = "Error: Media upload has failed with error code 2207026";
        assert_eq!(code(instagram).as_deref(), Some("2207026"));
        assert_eq!(code("INVALID_AUDIO_CHANNEL_LAYOUT").as_deref(), Some("INVALID_AUDIO_CHANNEL_LAYOUT"));
        assert_eq!(code("INVALID_SOMETHING_NEW").as_deref(), Some("INVALID_SOMETHING_NEW"));
        assert_eq!(code("FAILED_PROCESSING_CAPTIONS").as_deref(), Some("FAILED_PROCESSING_CAPTIONS"));
        for passing in ["FAILED_DOWNLOADING_VIDEO", "UNKNOWN", "Error code 2207052", "Error code 12207026", ""] {
            assert_eq!(code(passing), None, "{passing}");
        }
    }
}
