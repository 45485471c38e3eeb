//! The fonts of the PDF.
//!
//! Some fonts are bundled, so that a report can be written on any machine: Noto Sans (Latin, Greek, Cyrillic), DejaVu
//! Sans (Hebrew, Arabic, Armenian, Georgian, symbols) and Noto Emoji (one color). A font for Chinese, Japanese and
//! Korean has at least 15 MB, so fonts for these and the other scripts and for color emoji are the Noto fonts in the
//! system's folders, if they are installed (Debian: `fonts-noto-core`, `fonts-noto-cjk`, `fonts-noto-color-emoji`).
//! Characters that no font has are replaced (see [`super::text`]).
//!
//! **To bundle a font:** its data in [`bundled`], and its rank in [`rank`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

use typst::foundations::Bytes;
use typst::layout::Abs;
use typst::text::{Font, FontBook, FontInfo, FontInstance, FontVariant, FontVariations};
use typst::utils::LazyHash;

/// Returns the bundled fonts: 2.3 MB, of which DejaVu Sans has 1.5 MB.
fn bundled() -> [&'static [u8]; 5] {
    [REGULAR, BOLD, dejavu::sans::regular(), dejavu::sans::bold(), epaint_default_fonts::NOTO_EMOJI_REGULAR]
}

/// The fonts that are used to measure texts.
static REGULAR: &[u8] = notosans::REGULAR_TTF;
static BOLD: &[u8] = notosans::BOLD_TTF;

/// The folders in which Linux distributions install fonts.
const SYSTEM_DIRS: [&str; 2] = ["/usr/share/fonts", "/usr/local/share/fonts"];
/// The limits of the search in them.
const MAX_ENTRIES: usize = 5_000;
const MAX_DEPTH: usize = 4;
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The available fonts, without their data. Read once per process.
pub struct Catalogue {
    pub book: LazyHash<FontBook>,
    faces: Vec<Face>,
    /// A bit per code point: whether any font has it.
    covered: Vec<u64>,
}

struct Face {
    source: Source,
    index: u32,
    info: FontInfo,
}

#[derive(Clone)]
enum Source {
    Bundled(&'static [u8]),
    File(Arc<FontFile>),
}

/// A font file of the system. All its faces in all documents that are written at the same time share its data.
struct FontFile {
    path: PathBuf,
    data: Mutex<Weak<Vec<u8>>>,
}

/// The data of a file, for the typesetter.
struct SharedData(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedData {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl FontFile {
    fn data(&self) -> Option<Arc<Vec<u8>>> {
        let mut cached = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(data) = cached.upgrade() {
            return Some(data);
        }
        let read = Arc::new(std::fs::read(&self.path).ok()?);
        *cached = Arc::downgrade(&read);
        Some(read)
    }
}

/// Returns the bundled fonts and the fonts of the system.
pub fn system() -> &'static Catalogue {
    static SYSTEM: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::new(&SYSTEM_DIRS.map(Path::new)));
    &SYSTEM
}

impl Catalogue {
    /// Reads the bundled fonts and the Noto fonts in these folders.
    pub fn new(dirs: &[&Path]) -> Self {
        let mut faces: Vec<Face> =
            bundled().into_iter().flat_map(|data| faces_of(&Source::Bundled(data), data)).collect();
        let mut files = Vec::new();
        dirs.iter().for_each(|dir| find_files(dir, MAX_DEPTH, &mut files));
        files.sort();
        for path in files {
            let file = Arc::new(FontFile { path, data: Mutex::default() });
            if let Some(data) = file.data() {
                faces.extend(faces_of(&Source::File(file), &data));
            }
        }
        faces.sort_by(|a, b| rank(&a.info.family).cmp(&rank(&b.info.family)));
        let mut covered = vec![0_u64; 0x11_0000 / 64];
        for c in faces.iter().flat_map(|face| face.info.coverage.iter()) {
            if let Some(word) = covered.get_mut(c as usize / 64) {
                *word |= 1 << (c % 64);
            }
        }
        let book = FontBook::from_infos(faces.iter().map(|face| face.info.clone()));
        Self { book: LazyHash::new(book), faces, covered }
    }

    /// Returns whether any font has the character.
    pub fn covers(&self, c: char) -> bool {
        self.covered.get(c as usize / 64).is_some_and(|word| word & (1 << (c as usize % 64)) != 0)
    }

    /// Returns the characters of a grapheme cluster that one font can draw together: all of them if a font has all,
    /// otherwise those that the first font with the cluster's first character has.
    pub fn drawable(&self, cluster: &str) -> String {
        let has = |face: &Face, c: char| face.info.coverage.contains(u32::from(c));
        let Some(first) = cluster.chars().next() else { return String::new() };
        if self.faces.iter().any(|face| cluster.chars().all(|c| has(face, c))) {
            return cluster.to_owned();
        }
        let face = self.faces.iter().find(|face| has(face, first));
        cluster.chars().filter(|c| face.is_some_and(|face| has(face, *c))).collect()
    }

    /// Returns the names of the families, in the order in which they are searched for a character.
    pub fn families(&self) -> Vec<&str> {
        let mut families: Vec<&str> = self.faces.iter().map(|face| face.info.family.as_str()).collect();
        families.dedup();
        families
    }
}

/// The fonts of one document. Their data is read on first use and dropped with the last document that uses it, because
/// the Chinese, Japanese and Korean fonts have 20 MB each.
pub struct Fonts {
    pub catalogue: &'static Catalogue,
    loaded: Vec<OnceLock<Option<Font>>>,
    regular: Option<FontInstance>,
    bold: Option<FontInstance>,
}

impl Fonts {
    pub fn new(catalogue: &'static Catalogue) -> Self {
        let instance = |data: &'static [u8]| {
            let font = Font::new(Bytes::new(data), 0)?;
            Some(font.instantiate(FontVariant::default(), Abs::pt(10.0), &FontVariations::default()))
        };
        let loaded = catalogue.faces.iter().map(|_| OnceLock::new()).collect();
        Self { catalogue, loaded, regular: instance(REGULAR), bold: instance(BOLD) }
    }

    /// Returns the font with this index in the book.
    pub fn get(&self, index: usize) -> Option<Font> {
        let face = self.catalogue.faces.get(index)?;
        let load = || match &face.source {
            Source::Bundled(data) => Font::new(Bytes::new(*data), face.index),
            Source::File(file) => Font::new(Bytes::new(SharedData(file.data()?)), face.index),
        };
        self.loaded.get(index)?.get_or_init(load).clone()
    }

    /// Returns the width of a character, in em: exact for Latin, Greek and Cyrillic, an upper estimate for all others.
    pub fn width(&self, c: char, bold: bool) -> f64 {
        let instance = if bold { &self.bold } else { &self.regular };
        let known = instance.as_ref().and_then(|font| font.x_advance(font.ttf().glyph_index(c)?.0));
        match known {
            Some(width) => width.get(),
            None if ('\u{590}'..='\u{8ff}').contains(&c) => 0.7,
            None => 1.15,
        }
    }
}

fn faces_of(source: &Source, data: &[u8]) -> Vec<Face> {
    let faces = FontInfo::iter(data).enumerate();
    faces.map(|(index, info)| Face { source: source.clone(), index: index as u32, info }).collect()
}

/// Returns the sort key of a family. Noto Sans is first, because it has the characters of most reports. The emoji fonts
/// come before fonts that have some emoji among other symbols, and after Noto Sans because they have digits too.
fn rank(family: &str) -> (u8, &str) {
    let rank = match family {
        "Noto Sans" => 0,
        "Noto Color Emoji" => 1,
        "Noto Emoji" => 2,
        "Noto Sans Arabic" | "Noto Sans Hebrew" => 3,
        "Noto Sans CJK SC" => 4,
        "DejaVu Sans" => 5,
        _ => 6,
    };
    (rank, family)
}

/// Finds the files of the Noto fonts below a folder. Skips entries that cannot be read.
fn find_files(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten().take(MAX_ENTRIES) {
        let path = entry.path();
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() && depth > 0 {
            find_files(&path, depth - 1, found);
        } else if metadata.is_file() && metadata.len() <= MAX_FILE_BYTES && found.len() < MAX_ENTRIES {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if is_used(name) {
                found.push(path);
            }
        }
    }
}

/// Returns whether a file is a Noto font for a script, in a weight that the report uses. Noto Sans itself is bundled.
fn is_used(name: &str) -> bool {
    if name == "NotoColorEmoji.ttf" {
        return true;
    }
    let Some((family, rest)) = name.strip_prefix("NotoSans").and_then(|name| name.split_once('-')) else {
        return false;
    };
    let weights = ["Regular.ttf", "Bold.ttf", "Regular.otf", "Bold.otf", "Regular.ttc", "Bold.ttc"];
    let variants = ["Display", "Mono", "UI", "Unjoined", "Looped"];
    !family.is_empty() && weights.contains(&rest) && !variants.iter().any(|variant| family.ends_with(variant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_in_memory_once_and_only_while_it_is_used() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("NotoSansTest-Regular.ttf");
        std::fs::write(&path, b"font").expect("a file");
        let file = FontFile { path: path.clone(), data: Mutex::default() };
        let (one, other) = (file.data().expect("its data"), file.data().expect("its data"));
        assert!(Arc::ptr_eq(&one, &other));
        drop((one, other));
        std::fs::remove_file(path).expect("the file");
        assert!(file.data().is_none(), "nothing is kept");
    }
}
