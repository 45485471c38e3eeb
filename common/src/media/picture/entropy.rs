//! The scans of a JPEG, read without drawing anything: whether the codes of all blocks are there, and where they end.
//!
//! Decoders paint grey where data is missing or wrong, and say nothing. (ITU T.81, sections F.2 and G.2.)

use super::rewrite::Input;
use super::{Refusal, broken, cut};

/// A component, with its sampling factors.
#[derive(Clone, Debug)]
pub struct Component {
    id: u8,
    h: usize,
    v: usize,
    /// Whether a scan had it (in a progressive picture: its first coefficient).
    seen: bool,
    /// Which coefficients of each block are not zero so far; only of a progressive picture.
    history: Vec<u64>,
}

impl Component {
    pub fn new(id: u8, h: usize, v: usize) -> Self {
        Self { id, h, v, seen: false, history: Vec::new() }
    }
}

/// Tables of codes by their class and number, and the restart interval in MCUs (0: none).
#[derive(Debug, Default)]
pub struct Tables {
    dc: [Option<Box<Codes>>; 4],
    ac: [Option<Box<Codes>>; 4],
    pub restart: usize,
}

/// A table of Huffman codes.
#[derive(Debug)]
struct Codes {
    /// By the next 8 bits: the length of a code and its value; length 0 where it is longer.
    short: [(u8, u8); 256],
    /// By length: the first code that is too large for it, at the left of 16 bits.
    ends: [u32; 17],
    /// By length: what to add to a code to get the place of its value.
    offsets: [i32; 17],
    values: Vec<u8>,
}

impl Tables {
    /// The body of DHT.
    pub fn define(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let (input, mut at) = (Input(bytes), 0);
        while at < bytes.len() {
            let (place, counts) = (input.u8(at)?, input.range(at + 1..at + 17)?);
            let total: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let values = input.range(at + 17..at + 17 + total)?;
            let tables = if place >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            *tables.get_mut(usize::from(place & 15)).ok_or_else(broken)? = Some(Box::new(Codes::new(counts, values)?));
            at += 17 + total;
        }
        Ok(())
    }
}

impl Codes {
    fn new(counts: &[u8], values: &[u8]) -> Result<Self, Refusal> {
        let mut codes = Self { short: [(0, 0); 256], ends: [0; 17], offsets: [0; 17], values: values.to_vec() };
        let (mut code, mut place) = (0_u32, 0_usize);
        for length in 1..=16_usize {
            let count = usize::from(counts.get(length - 1).copied().unwrap_or_default());
            codes.offsets[length] = i32::try_from(place).unwrap_or_default() - i32::try_from(code).unwrap_or_default();
            for _ in 0..count {
                if code >= 1 << length {
                    return Err(broken());
                }
                if length <= 8 {
                    let (first, width) = ((code as usize) << (8 - length), 1 << (8 - length));
                    codes.short[first..first + width].fill((length as u8, values[place]));
                }
                code += 1;
                place += 1;
            }
            codes.ends[length] = code << (16 - length);
            code <<= 1;
        }
        Ok(codes)
    }
}

/// The scans of one picture.
#[derive(Debug)]
pub struct Scans {
    progressive: bool,
    width: usize,
    height: usize,
    components: Vec<Component>,
}

/// The head of a scan.
struct Scan {
    /// Places of the components, with their tables for the first and for the other coefficients.
    parts: Vec<(usize, usize, usize)>,
    first: u32,
    last: u32,
    refines: bool,
}

impl Scans {
    pub fn new(progressive: bool, width: u32, height: u32, components: Vec<Component>) -> Self {
        Self { progressive, width: width as usize, height: height as usize, components }
    }

    /// # Errors
    /// A refusal where a component had no scan.
    pub fn are_whole(&self) -> Result<(), Refusal> {
        if self.components.iter().all(|component| component.seen) { Ok(()) } else { Err(cut()) }
    }

    /// Reads a scan by the body of its SOS, and gives how long its data is.
    ///
    /// # Errors
    /// A refusal where a block is missing or no code fits.
    pub fn read(&mut self, header: &[u8], data: &[u8], tables: &Tables) -> Result<usize, Refusal> {
        let scan = self.scan(header)?;
        let mut bits = Bits::new(data);
        let most = |of: fn(&Component) -> usize| self.components.iter().map(of).max().unwrap_or(1);
        let (h, v) = (most(|c| c.h), most(|c| c.v));
        let alone = scan.parts.len() == 1;
        let (columns, rows) = match scan.parts.first().and_then(|part| self.components.get(part.0)) {
            Some(c) if alone => {
                ((self.width * c.h).div_ceil(h).div_ceil(8), (self.height * c.v).div_ceil(v).div_ceil(8))
            }
            _ => (self.width.div_ceil(8 * h), self.height.div_ceil(8 * v)),
        };
        if self.progressive && scan.first > 0 {
            self.history(&scan, columns * rows);
        }
        let mut run = 0;
        for mcu in 0..columns * rows {
            if tables.restart > 0 && mcu > 0 && mcu % tables.restart == 0 {
                bits.restart()?;
                run = 0;
            }
            for (place, dc, ac) in &scan.parts {
                let component = &mut self.components[*place];
                for _ in 0..if alone { 1 } else { component.h * component.v } {
                    let (dc, ac) = (tables.dc[*dc].as_deref(), tables.ac[*ac].as_deref());
                    if !self.progressive {
                        block(&mut bits, dc.ok_or_else(broken)?, ac.ok_or_else(broken)?)?;
                    } else if scan.first == 0 {
                        if scan.refines { bits.skip(1)? } else { bits.number(dc.ok_or_else(broken)?)? }
                    } else {
                        let history = component.history.get_mut(mcu).ok_or_else(broken)?;
                        coefficients(&mut bits, ac.ok_or_else(broken)?, &scan, history, &mut run)?;
                    }
                }
            }
        }
        for (place, ..) in &scan.parts {
            self.components[*place].seen |= scan.first == 0;
        }
        Ok(bits.end())
    }

    fn history(&mut self, scan: &Scan, blocks: usize) {
        for (place, ..) in &scan.parts {
            self.components[*place].history.resize(blocks, 0);
        }
    }

    fn scan(&self, header: &[u8]) -> Result<Scan, Refusal> {
        let input = Input(header);
        let count = usize::from(input.u8(0)?);
        let mut parts: Vec<(usize, usize, usize)> = Vec::with_capacity(count);
        for n in 0..count {
            let (id, tables) = (input.u8(1 + 2 * n)?, input.u8(2 + 2 * n)?);
            let place = self.components.iter().position(|c| c.id == id).ok_or_else(broken)?;
            let again = parts.iter().any(|part| part.0 == place);
            if again || tables >> 4 > 3 || tables & 15 > 3 || (!self.progressive && self.components[place].seen) {
                return Err(broken());
            }
            parts.push((place, usize::from(tables >> 4), usize::from(tables & 15)));
        }
        let (first, last, steps) = (input.u8(1 + 2 * count)?, input.u8(2 + 2 * count)?, input.u8(3 + 2 * count)?);
        let sound = if first == 0 { last == 0 } else { first <= last && last <= 63 && count == 1 };
        if count == 0 || (self.progressive && !sound) {
            return Err(broken());
        }
        Ok(Scan { parts, first: first.into(), last: last.into(), refines: steps >> 4 > 0 })
    }
}

/// All coefficients of a block.
fn block(bits: &mut Bits<'_>, dc: &Codes, ac: &Codes) -> Result<(), Refusal> {
    bits.number(dc)?;
    let mut at = 1;
    while at < 64 {
        let (run, size) = bits.pair(ac)?;
        if size == 0 && run < 15 {
            break;
        }
        at += run + 1;
        if size > 0 && at > 64 {
            return Err(broken());
        }
        bits.skip(size)?;
    }
    Ok(())
}

/// Some coefficients of a block of a progressive picture. `run`: how many blocks have nothing new.
fn coefficients(
    bits: &mut Bits<'_>,
    codes: &Codes,
    scan: &Scan,
    history: &mut u64,
    run: &mut u32,
) -> Result<(), Refusal> {
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
                return Err(broken());
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

/// The bits of a scan up to the next marker.
struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    /// The next bits, at the left.
    buffer: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, buffer: 0, count: 0 }
    }

    fn fill(&mut self) {
        while self.count <= 56 {
            match (self.data.get(self.at), self.data.get(self.at + 1)) {
                // Zero after FF is no data.
                (Some(0xff), Some(0)) => self.push(0xff, 2),
                (Some(0xff), _) | (None, _) => return,
                (Some(byte), _) => self.push(*byte, 1),
            }
        }
    }

    fn push(&mut self, byte: u8, length: usize) {
        self.buffer |= u64::from(byte) << (56 - self.count);
        self.count += 8;
        self.at += length;
    }

    fn skip(&mut self, length: u32) -> Result<(), Refusal> {
        if length > self.count {
            self.fill();
            if length > self.count {
                return Err(cut());
            }
        }
        self.buffer <<= length;
        self.count -= length;
        Ok(())
    }

    fn take(&mut self, length: u32) -> Result<u32, Refusal> {
        if length > self.count {
            self.fill();
        }
        let value = if length == 0 { 0 } else { (self.buffer >> (64 - length)) as u32 };
        self.skip(length)?;
        Ok(value)
    }

    /// A value by its code.
    fn value(&mut self, codes: &Codes) -> Result<u8, Refusal> {
        if self.count < 16 {
            self.fill();
        }
        let (length, value) = codes.short[(self.buffer >> 56) as usize];
        if length > 0 {
            self.skip(length.into())?;
            return Ok(value);
        }
        let next = (self.buffer >> 48) as u32;
        let length = (9..=16).find(|length| next < codes.ends[*length]);
        let Some(length) = length else { return Err(if self.count < 16 { cut() } else { broken() }) };
        let place = (next >> (16 - length)) as i32 + codes.offsets[length];
        let value = usize::try_from(place).ok().and_then(|place| codes.values.get(place)).ok_or_else(broken)?;
        self.skip(length as u32)?;
        Ok(*value)
    }

    /// Passes a first coefficient: its size, and so many bits.
    fn number(&mut self, codes: &Codes) -> Result<(), Refusal> {
        let size = self.value(codes)?;
        if size > 15 { Err(broken()) } else { self.skip(size.into()) }
    }

    /// How many zeros, and the size of what follows them.
    fn pair(&mut self, codes: &Codes) -> Result<(u32, u32), Refusal> {
        let value = u32::from(self.value(codes)?);
        Ok((value >> 4, value & 15))
    }

    /// How many bytes were used; a byte of which bits were used is.
    fn end(&self) -> usize {
        let mut at = self.at;
        for _ in 0..self.count / 8 {
            let stuffed = at >= 2 && self.data.get(at - 2..at) == Some(&[0xff, 0]);
            at -= if stuffed { 2 } else { 1 };
        }
        at
    }

    /// Passes a restart marker, which has to be the next one.
    fn restart(&mut self) -> Result<(), Refusal> {
        let mut at = self.end();
        loop {
            match (self.data.get(at), self.data.get(at + 1)) {
                (Some(0xff), Some(0xd0..=0xd7)) => break,
                (Some(0xff), Some(0xff | 0)) | (Some(0..0xff), _) => at += 1,
                (Some(0xff), Some(_)) => return Err(broken()),
                _ => return Err(cut()),
            }
        }
        *self = Self { at: at + 2, ..Self::new(self.data) };
        Ok(())
    }
}
