//! Reads the scans of a JPEG without decoding the pixels: checks that the codes of all blocks are present, and finds
//! their end (ITU T.81, sections F.2 and G.2). Decoders paint gray where data is missing or invalid, without an error.

use crate::Error;
use crate::bits::Bits;
use crate::eighth::{self, ColorInfo, Eighth, Means};
use crate::frame::{Component, FrameHead};
use crate::input::Input;
use crate::tables::{Codes, Tables};

/// Maximum bit shift of coefficients (ITU T.81, table B.3).
const MAX_SHIFT: u8 = 13;

/// The scans of an image.
#[derive(Debug)]
pub struct Scans {
    frame: FrameHead,
    /// The largest sampling factors.
    h: usize,
    v: usize,
    /// Whether the image at an eighth of its size is also extracted.
    draws: bool,
}

/// The header of a scan.
struct Scan {
    parts: Vec<ScanComponent>,
    first: u32,
    last: u32,
    refines: bool,
    /// Bit shift of the first coefficients (successive approximation).
    shift: u32,
}

/// A component of a scan: its index, its DC and AC tables, and its last DC coefficient.
struct ScanComponent {
    place: usize,
    dc: usize,
    ac: usize,
    previous: i32,
}

impl Scans {
    pub fn new(frame: FrameHead) -> Self {
        let max = |of: fn(&Component) -> usize| frame.components.iter().map(of).max().unwrap_or(1);
        let (h, v) = (max(|c| c.h), max(|c| c.v));
        Self { frame, h, v, draws: false }
    }

    /// Also extracts the image at an eighth of its size, if [`FrameHead::has_eighth`]. Call it before the first scan.
    pub fn draw_eighth(&mut self, colors: &ColorInfo, min_side: u32) {
        self.draws = self.frame.has_eighth(colors, min_side);
        if self.draws {
            let (columns, rows) = (blocks(self.frame.width, self.h), blocks(self.frame.height, self.v));
            for component in &mut self.frame.components {
                component.means = Means::new(columns * component.h, rows * component.v);
            }
        }
    }

    /// Checks that every component had a scan.
    ///
    /// # Errors
    /// [`Error::Truncated`] if one had none.
    pub fn check_complete(&self) -> Result<(), Error> {
        if self.frame.components.iter().all(|component| component.seen) { Ok(()) } else { Err(Error::Truncated) }
    }

    /// Returns the image at an eighth of its size, if it was extracted.
    pub fn eighth(&self) -> Option<Eighth> {
        self.draws.then(|| eighth::draw(&self.frame)).flatten()
    }

    /// Reads a scan, given the body of its SOS; returns the length of its data.
    ///
    /// # Errors
    /// An error if a block is missing or a code is invalid.
    pub fn read(&mut self, header: &[u8], data: &[u8], tables: &Tables) -> Result<usize, Error> {
        let mut scan = self.scan(header)?;
        let mut bits = Bits::new(data);
        let (columns, rows) = self.begin(&scan, tables)?;
        let (mut run, mut until_restart) = (0, tables.restart);
        for row in 0..rows {
            for column in 0..columns {
                if tables.restart > 0 && until_restart == 0 {
                    bits.restart()?;
                    (run, until_restart) = (0, tables.restart);
                    scan.parts.iter_mut().for_each(|part| part.previous = 0);
                }
                until_restart = until_restart.saturating_sub(1);
                if self.frame.progressive && scan.first > 0 {
                    let part = scan.parts.first().ok_or(Error::Invalid)?;
                    let codes = tables.ac[part.ac].as_deref().ok_or(Error::Invalid)?;
                    let history = &mut self.frame.components[part.place].history;
                    let history = history.get_mut(row * columns + column).ok_or(Error::Invalid)?;
                    coefficients(&mut bits, codes, &scan, history, &mut run)?;
                } else {
                    self.unit(&mut bits, &mut scan, tables, column, row)?;
                }
            }
        }
        for part in &scan.parts {
            self.frame.components[part.place].seen |= scan.first == 0;
        }
        Ok(bits.end())
    }

    /// Prepares for a scan; returns the numbers of columns and rows of its units.
    fn begin(&mut self, scan: &Scan, tables: &Tables) -> Result<(usize, usize), Error> {
        let frame = &mut self.frame;
        let (columns, rows) = match &scan.parts[..] {
            [alone] => {
                let c = &frame.components[alone.place];
                let side = |side: u32, of: usize, max: usize| (side as usize * of).div_ceil(max).div_ceil(8);
                (side(frame.width, c.h, self.h), side(frame.height, c.v, self.v))
            }
            _ => (blocks(frame.width, self.h), blocks(frame.height, self.v)),
        };
        for part in &scan.parts {
            let component = &mut frame.components[part.place];
            if scan.first > 0 && frame.progressive {
                component.history.resize(columns * rows, 0);
            } else {
                component.means.set_step(tables.steps[component.table].ok_or(Error::Invalid)?);
            }
        }
        Ok((columns, rows))
    }

    /// Reads the blocks of a unit and records their first coefficients.
    fn unit(
        &mut self,
        bits: &mut Bits<'_>,
        scan: &mut Scan,
        tables: &Tables,
        column: usize,
        row: usize,
    ) -> Result<(), Error> {
        let alone = scan.parts.len() == 1;
        for part in &mut scan.parts {
            let component = &mut self.frame.components[part.place];
            let (across, down) = if alone { (1, 1) } else { (component.h, component.v) };
            for n in 0..across * down {
                let first = if scan.refines {
                    bits.take(1)? << scan.shift
                } else {
                    let codes = tables.dc[part.dc].as_deref().ok_or(Error::Invalid)?;
                    part.previous = part.previous.wrapping_add(bits.difference(codes)?);
                    (part.previous as u32) << scan.shift
                };
                if !self.frame.progressive {
                    skip_ac_coefficients(bits, tables.ac[part.ac].as_deref().ok_or(Error::Invalid)?)?;
                }
                if let Some(mean) = component.means.first(column * across + n % across, row * down + n / across) {
                    *mean |= first as i16;
                }
            }
        }
        Ok(())
    }

    fn scan(&self, header: &[u8]) -> Result<Scan, Error> {
        let (input, components) = (Input(header), &self.frame.components);
        let count = usize::from(input.u8(0)?);
        let mut parts: Vec<ScanComponent> = Vec::with_capacity(count);
        for n in 0..count {
            let (id, tables) = (input.u8(1 + 2 * n)?, input.u8(2 + 2 * n)?);
            let place = components.iter().position(|c| c.id == id).ok_or(Error::Invalid)?;
            let again = parts.iter().any(|part| part.place == place);
            if again || tables >> 4 > 3 || tables & 15 > 3 || (!self.frame.progressive && components[place].seen) {
                return Err(Error::Invalid);
            }
            parts.push(ScanComponent {
                place,
                dc: usize::from(tables >> 4),
                ac: usize::from(tables & 15),
                previous: 0,
            });
        }
        let (first, last, steps) = (input.u8(1 + 2 * count)?, input.u8(2 + 2 * count)?, input.u8(3 + 2 * count)?);
        let (high, low) = (steps >> 4, steps & 15);
        let is_valid_progressive = if first == 0 { last == 0 } else { first <= last && count == 1 };
        let in_range = first <= 63 && last <= 63 && high <= MAX_SHIFT && low <= MAX_SHIFT;
        // Decoders ignore these values for a sequential image, but reject it if they are out of range.
        if count == 0 || header.len() != 4 + 2 * count || !in_range || (self.frame.progressive && !is_valid_progressive)
        {
            return Err(Error::Invalid);
        }
        let (refines, shift) = if self.frame.progressive { (high > 0, u32::from(low)) } else { (false, 0) };
        Ok(Scan { parts, first: first.into(), last: last.into(), refines, shift })
    }
}

/// Returns the number of units of `factor` blocks along a side.
fn blocks(side: u32, factor: usize) -> usize {
    (side as usize).div_ceil(8 * factor)
}

/// Skips all coefficients of a block except the first.
fn skip_ac_coefficients(bits: &mut Bits<'_>, codes: &Codes) -> Result<(), Error> {
    let mut at = 1;
    while at < 64 {
        let (run, size) = bits.skip_coefficient(codes)?;
        if size == 0 && run < 15 {
            break;
        }
        at += run + 1;
        if size > 0 && at > 64 {
            return Err(Error::Invalid);
        }
    }
    Ok(())
}

/// Reads the coefficients of one block in a scan of a progressive image. `run` is the number of further blocks without
/// new coefficients.
fn coefficients(
    bits: &mut Bits<'_>,
    codes: &Codes,
    scan: &Scan,
    history: &mut u64,
    run: &mut u32,
) -> Result<(), Error> {
    let mut at = scan.first;
    while *run == 0 && at <= scan.last {
        let (mut zeros, size) = bits.pair(codes)?;
        if size == 0 && zeros < 15 {
            *run = (1 << zeros) + bits.take(zeros)?;
            break;
        }
        bits.skip(size)?;
        while at <= scan.last {
            if scan.refines && *history >> at & 1 == 1 {
                bits.skip(1)?;
            } else if zeros == 0 {
                break;
            } else {
                zeros -= 1;
            }
            at += 1;
        }
        if size > 0 {
            if at > scan.last {
                return Err(Error::Invalid);
            }
            *history |= 1 << at;
        }
        at += 1;
    }
    if *run > 0 {
        *run -= 1;
        if scan.refines && at <= scan.last {
            let here = (u64::MAX << at) & (u64::MAX >> (63 - scan.last));
            (0..(*history & here).count_ones()).try_for_each(|_| bits.skip(1))?;
        }
    }
    Ok(())
}
