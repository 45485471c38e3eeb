//! The environment of the typesetter: the template, values, and fonts. It has no access to files, packages, the network
//! or a clock.

use typst::diag::{FileError, FileResult};
use typst::foundations::{Bytes, Datetime, Dict, Duration};
use typst::syntax::{FileId, RootedPath, Source, VirtualPath, VirtualRoot};
use typst::text::{Font, FontBook};
use typst::utils::LazyHash;
use typst::{Library, LibraryExt, World};
use typst_layout::PagedDocument;

use super::fonts::Fonts;

/// The template. Texts are never inserted into it; they are values in `sys.inputs`.
const TEMPLATE: &str = include_str!("template.typ");

struct Inputs<'a> {
    library: LazyHash<Library>,
    main: Source,
    fonts: &'a Fonts,
}

/// Typesets one piece of the document. Each number has its own locations, so that the pages of pieces with different
/// numbers can be combined in one document.
pub fn typeset(number: usize, inputs: Dict, fonts: &Fonts) -> Result<PagedDocument, String> {
    let path = VirtualPath::new(format!("{number}.typ")).map_err(|error| format!("{error:?}"))?;
    let id = RootedPath::new(VirtualRoot::Project, path).intern();
    let library = Library::builder().with_inputs(inputs).build();
    let main = Source::new(id, TEMPLATE.to_owned());
    let world = Inputs { library: LazyHash::new(library), main, fonts };
    let compiled = typst::compile::<PagedDocument>(&world);
    // Clears the cache, because there is no second run.
    typst::comemo::evict(0);
    compiled.output.map_err(|errors| errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>().join("; "))
}

impl World for Inputs<'_> {
    fn library(&self) -> &LazyHash<Library> {
        &self.library
    }

    fn book(&self) -> &LazyHash<FontBook> {
        &self.fonts.catalogue.book
    }

    fn main(&self) -> FileId {
        self.main.id()
    }

    fn source(&self, id: FileId) -> FileResult<Source> {
        if id == self.main.id() { Ok(self.main.clone()) } else { Err(FileError::AccessDenied) }
    }

    fn file(&self, _: FileId) -> FileResult<Bytes> {
        Err(FileError::AccessDenied)
    }

    fn font(&self, index: usize) -> Option<Font> {
        self.fonts.get(index)
    }

    fn today(&self, _: Option<Duration>) -> Option<Datetime> {
        None
    }
}
