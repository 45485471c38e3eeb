//! Files that are changed in single places.

use super::*;
use crate::images::png::crc;

/// Corrects the checksums of all complete chunks of a PNG.
pub fn sum_up(png: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = png.get(at..at + 4) {
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let Some(body) = png.get(at + 4..at + 8 + length) else { return };
        let sum = crc(body).to_be_bytes();
        let end = at + 8 + length;
        let Some(place) = png.get_mut(end..end + 4) else { return };
        place.copy_from_slice(&sum);
        at = end + 4;
    }
}

/// The last frame of an animation is damaged, or claims to be larger than its data.
#[test]
fn every_frame_of_an_animation_is_decoded() {
    for (name, sign, at) in
        [("animated.png", &b"fdAT"[..], 0), ("animated.gif", b"\0\x2c", 8), ("animated.webp", b"ANMF", 17)]
    {
        let mut bytes = file(name).to_vec();
        let last = bytes.windows(sign.len()).rposition(|window| window == sign).unwrap();
        if name.ends_with("png") {
            // Damages the data of the frame.
            bytes[last + 14..last + 20].fill(0xff);
            sum_up(&mut bytes);
        } else {
            bytes[last + at] = bytes[last + at].wrapping_add(8);
        }
        let result = examine(bytes.into(), &LIMITS);
        assert!(matches!(result, Err(Rejection::Unsupported(_))), "{name} is accepted");
    }
}

#[test]
fn frames_are_measured_by_their_own_size() {
    let limits = Limits { max_pixels: 24 * 16, ..LIMITS };
    // Three frames of the whole canvas are within five times the limit.
    assert!(examine(file("animated.gif"), &limits).is_ok());
    let (whole, mut many) = (file("animated.gif"), Vec::new());
    let first = whole.windows(2).position(|pair| pair == b"\0\x2c").unwrap() + 1;
    many.extend_from_slice(&whole[..whole.len() - 1]);
    many.extend_from_slice(&whole[first..]);
    let result = examine(many.into(), &limits);
    assert!(matches!(result, Err(Rejection::TooLarge(_))), "they are accepted");
}

/// A PNG with 200,000 chunks and 2,000 frames. The frames have the palette of the image, but not the other chunks.
#[test]
fn frames_do_not_repeat_the_other_chunks() {
    let png = file("animated.png");
    let last = png.windows(4).rposition(|window| window == b"fcTL").unwrap() - 4;
    let (frame, end) = (&png[last..png.len() - 12], &png[png.len() - 12..]);
    let with = |chunks: &[u8]| {
        let mut bytes = [&png[..33], chunks, &png[33..last], &frame.repeat(2_000), end].concat();
        sum_up(&mut bytes);
        examine(bytes.into(), &LIMITS).unwrap().bytes
    };
    assert_eq!(with(&b"\0\0\0\0teXt\0\0\0\0".repeat(200_000)), with(&[]));
}

/// A PNG with 200,000 chunk names, and a JPEG followed by 200,000 ends of ZIP archives. Quadratic time would be hours.
#[test]
fn many_small_parts_are_checked_in_linear_time() {
    let chunk = |n: u32| {
        let [_, name @ ..] = n.to_be_bytes();
        [&[0, 0, 0, 0, b'a'], &name[..], &[0; 4]].concat()
    };
    let (png, jpeg) = (file("rgb.png"), file("baseline-420.jpg"));
    let mut chunks = [&png[..33], &(0..200_000).flat_map(chunk).collect::<Vec<_>>(), &png[33..]].concat();
    sum_up(&mut chunks);
    assert_eq!(examine(chunks.into(), &LIMITS).unwrap().bytes, examine(png, &LIMITS).unwrap().bytes);
    let ends = [&jpeg[..], b"\xff\xd8\xff", &b"PK\x05\x06".repeat(200_000)].concat();
    assert!(examine(ends.into(), &LIMITS).is_ok());
}
