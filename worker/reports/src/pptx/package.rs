//! The package of a presentation: its parts, their relationships and types, in one ZIP file. The parts that are the
//! same in every presentation are files in `parts/`.

use std::fmt::Write as _;
use std::io::{Cursor, Write};

use zip::result::ZipResult;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::xml::{HEADER, escape};

const OFFICE: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const PRESENTATION: &str = "application/vnd.openxmlformats-officedocument.presentationml";
pub const SLIDE: &str = "slide";
pub const CHART: &str = "chart";

/// The parts that are the same in every presentation: path, type, content.
const FIXED: [(&str, &str, &str); 6] = [
    ("ppt/presProps.xml", "presProps+xml", include_str!("parts/presProps.xml")),
    ("ppt/viewProps.xml", "viewProps+xml", include_str!("parts/viewProps.xml")),
    ("ppt/tableStyles.xml", "tableStyles+xml", include_str!("parts/tableStyles.xml")),
    ("ppt/slideMasters/slideMaster1.xml", "slideMaster+xml", include_str!("parts/slideMaster1.xml")),
    ("ppt/slideLayouts/slideLayout1.xml", "slideLayout+xml", include_str!("parts/slideLayout1.xml")),
    ("ppt/slideLayouts/slideLayout2.xml", "slideLayout+xml", include_str!("parts/slideLayout2.xml")),
];

/// A relationship of a part. The ids of a part's relationships are `rId1`, `rId2`, and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The last word of the type, and the path of the target relative to the part.
    Part(&'static str, String),
    /// A URL.
    Link(String),
}

/// The parts in the order in which they are written.
#[derive(Default)]
pub struct Package {
    parts: Vec<(String, Vec<u8>)>,
    types: String,
}

impl Package {
    pub fn new() -> Self {
        let mut package = Self::default();
        for (path, part_type, content) in FIXED {
            package.add(path, &format!("{PRESENTATION}.{part_type}"), content.as_bytes().to_vec());
        }
        let theme = "application/vnd.openxmlformats-officedocument.theme+xml";
        package.add("ppt/theme/theme1.xml", theme, include_bytes!("parts/theme1.xml").to_vec());
        let master = |target: &str| Relation::Part("slideMaster", target.to_owned());
        let layout = |number| Relation::Part("slideLayout", format!("../slideLayouts/slideLayout{number}.xml"));
        let theme = Relation::Part("theme", "../theme/theme1.xml".to_owned());
        package.relate("ppt/slideMasters", "slideMaster1.xml", &[layout(1), layout(2), theme]);
        for number in [1, 2] {
            let name = format!("slideLayout{number}.xml");
            package.relate("ppt/slideLayouts", &name, &[master("../slideMasters/slideMaster1.xml")]);
        }
        package
    }

    /// Adds a part with its own content type.
    pub fn add(&mut self, path: &str, content_type: &str, content: Vec<u8>) {
        let _ = write!(self.types, "<Override PartName=\"/{path}\" ContentType=\"{content_type}\"/>");
        self.parts.push((path.to_owned(), content));
    }

    /// Adds the workbook of a chart, whose content type is determined by its extension.
    pub fn add_workbook(&mut self, path: String, content: Vec<u8>) {
        self.parts.push((path, content));
    }

    /// Adds a slide with its relationships. Numbers begin with 1.
    pub fn add_slide(&mut self, number: usize, xml: String, relations: &[Relation]) {
        let name = format!("slide{number}.xml");
        self.add(&format!("ppt/slides/{name}"), &format!("{PRESENTATION}.slide+xml"), xml.into_bytes());
        self.relate("ppt/slides", &name, relations);
    }

    /// Adds the relationships of a part.
    pub fn relate(&mut self, folder: &str, name: &str, relations: &[Relation]) {
        let types: Vec<String> = relations.iter().map(relation_type).collect();
        let related = relations.iter().zip(&types).map(|(relation, relation_type)| match relation {
            Relation::Part(_, target) => (relation_type.as_str(), target.as_str(), ""),
            Relation::Link(url) => (relation_type.as_str(), url.as_str(), " TargetMode=\"External\""),
        });
        self.parts.push((format!("{folder}/_rels/{name}.rels"), relationships(related).into_bytes()));
    }

    /// Adds the main part and the properties. Call it after all slides were added.
    pub fn add_presentation(&mut self, slides: usize, core: String) {
        let mut ids = String::new();
        let mut relations = vec![Relation::Part("slideMaster", "slideMasters/slideMaster1.xml".to_owned())];
        for number in 1..=slides {
            relations.push(Relation::Part(SLIDE, format!("slides/slide{number}.xml")));
            let _ = write!(ids, "<p:sldId id=\"{}\" r:id=\"rId{}\"/>", 255 + number, relations.len());
        }
        for (kind, name) in [("presProps", "presProps"), ("viewProps", "viewProps"), ("tableStyles", "tableStyles")] {
            relations.push(Relation::Part(kind, format!("{name}.xml")));
        }
        relations.push(Relation::Part("theme", "theme/theme1.xml".to_owned()));
        let presentation = include_str!("parts/presentation.xml").replace("<!-- slides -->", &ids);
        let main = format!("{PRESENTATION}.presentation.main+xml");
        self.add("ppt/presentation.xml", &main, presentation.into_bytes());
        self.relate("ppt", "presentation.xml", &relations);
        let core_type = "application/vnd.openxmlformats-package.core-properties+xml";
        self.add("docProps/core.xml", core_type, core.into_bytes());
        let app = include_str!("parts/app.xml").replace("<!-- slides -->", &slides.to_string());
        let app_type = "application/vnd.openxmlformats-officedocument.extended-properties+xml";
        self.add("docProps/app.xml", app_type, app.into_bytes());
        let core = "http://schemas.openxmlformats.org/package/2006/relationships/metadata/core-properties";
        let root = relationships([
            (format!("{OFFICE}/officeDocument").as_str(), "ppt/presentation.xml", ""),
            (core, "docProps/core.xml", ""),
            (format!("{OFFICE}/extended-properties").as_str(), "docProps/app.xml", ""),
        ]);
        self.parts.push(("_rels/.rels".to_owned(), root.into_bytes()));
    }

    pub fn write(self, out: &mut dyn Write) -> ZipResult<()> {
        let types = format!(
            "{HEADER}<Types xmlns=\"http://schemas.openxmlformats.org/package/2006/content-types\">\
             <Default Extension=\"rels\" ContentType=\"application/vnd.openxmlformats-package.relationships+xml\"/>\
             <Default Extension=\"xml\" ContentType=\"application/xml\"/>\
             <Default Extension=\"xlsx\" \
             ContentType=\"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet\"/>{}</Types>",
            self.types
        );
        // The entries have a fixed time, so that the same document results in the same bytes.
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(DateTime::default());
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        // Programs that guess a file's type look at its first entry.
        let first = [("[Content_Types].xml".to_owned(), types.into_bytes())];
        for (path, content) in first.into_iter().chain(self.parts) {
            zip.start_file(path, options)?;
            zip.write_all(&content)?;
        }
        out.write_all(zip.finish()?.get_ref())?;
        Ok(())
    }
}

fn relation_type(relation: &Relation) -> String {
    let word = match relation {
        Relation::Part(word, _) => word,
        Relation::Link(_) => "hyperlink",
    };
    format!("{OFFICE}/{word}")
}

fn relationships<'a>(relations: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>) -> String {
    let mut xml =
        format!("{HEADER}<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\">");
    for (number, (relation_type, target, mode)) in (1..).zip(relations) {
        let target = escape(target);
        let _ = write!(xml, "<Relationship Id=\"rId{number}\" Type=\"{relation_type}\" Target=\"{target}\"{mode}/>");
    }
    xml.push_str("</Relationships>");
    xml
}
