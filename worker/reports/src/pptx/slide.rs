//! A slide and its shapes. Lengths are in EMU (914,400 per inch); font sizes are in points.

use std::fmt::Write as _;

use super::package::Relation;
use super::xml::{HEADER, NAMESPACES, color, escape};
use crate::palette::{INK, MUTED};
use crate::text::is_right_to_left;

/// The length of a point.
pub const POINT: i64 = 12_700;

#[derive(Clone, Copy, Debug)]
pub struct Rect {
    pub x: i64,
    pub y: i64,
    pub width: i64,
    pub height: i64,
}

/// The area of a slide's content, between the title and the footer.
pub const CONTENT: Rect = Rect { x: 548_640, y: 1_280_160, width: 11_094_720, height: 5_029_200 };

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A text in one style. Every line is a paragraph.
#[derive(Clone)]
pub struct Text<'a> {
    pub text: &'a str,
    pub size: i64,
    pub bold: bool,
    pub color: u32,
    pub align: Align,
    /// The id of the relationship of a link.
    pub link: Option<String>,
}

impl<'a> Text<'a> {
    pub fn new(text: &'a str, size: i64) -> Self {
        Self { text, size, bold: false, color: INK, align: Align::Left, link: None }
    }

    /// Creates a secondary text.
    pub fn muted(text: &'a str, size: i64) -> Self {
        Self { color: MUTED, ..Self::new(text, size) }
    }

    pub fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    /// Returns the paragraphs.
    pub fn xml(&self) -> String {
        escape(self.text).split('\n').map(|line| paragraph(line, self.align, &self.run(line), &self.style())).collect()
    }

    /// Returns a run with an escaped line.
    fn run(&self, line: &str) -> String {
        if line.is_empty() {
            return String::new();
        }
        let fill = format!("<a:solidFill><a:srgbClr val=\"{}\"/></a:solidFill>", color(self.color));
        let link = self.link.as_ref().map_or(String::new(), |link| format!("<a:hlinkClick r:id=\"{link}\"/>"));
        format!("<a:r><a:rPr {}>{fill}{link}</a:rPr><a:t>{line}</a:t></a:r>", self.style())
    }

    /// Returns the attributes of a run. Spell checking is off, because texts contain many names.
    fn style(&self) -> String {
        format!("noProof=\"1\" sz=\"{}\" b=\"{}\"", self.size * 100, u8::from(self.bold))
    }
}

/// Returns a paragraph with runs, in the direction of `line`.
fn paragraph(line: &str, align: Align, runs: &str, style: &str) -> String {
    let right_to_left = is_right_to_left(line);
    let align = if align == Align::Right || right_to_left { "r" } else { "l" };
    let direction = if right_to_left { " rtl=\"1\"" } else { "" };
    let end = if runs.is_empty() { format!("<a:endParaRPr {style}/>") } else { String::new() };
    format!("<a:p><a:pPr algn=\"{align}\"{direction}/>{runs}{end}</a:p>")
}

pub struct Slide {
    shapes: String,
    relations: Vec<Relation>,
    last_id: u32,
}

impl Slide {
    /// Creates a slide with a layout: 1 is the title slide, 2 has only a title.
    pub fn new(layout: u32) -> Self {
        let layout = Relation::Part("slideLayout", format!("../slideLayouts/slideLayout{layout}.xml"));
        Self { shapes: String::new(), relations: vec![layout], last_id: 1 }
    }

    /// Creates a slide with a title on one line, followed by the number of the part in gray, if there are several.
    pub fn with_title(title: &str, part: Option<(usize, usize)>) -> Self {
        let mut slide = Self::new(2);
        let size = match crate::text::width(title) {
            0..=56 => 28,
            57..=80 => 22,
            _ => 18,
        };
        let text = Text::new(title, size).bold();
        let line = escape(title);
        let mut runs = text.run(&line);
        if let Some((part, of)) = part {
            runs += &Text::muted("", 14).run(&format!("   {part} of {of}"));
        }
        let paragraph = paragraph(&line, Align::Left, &runs, &text.style());
        slide.placeholder("Title", "type=\"title\"", &paragraph);
        slide
    }

    /// Adds a relationship. Returns its id.
    pub fn relate(&mut self, relation: Relation) -> String {
        self.relations.push(relation);
        format!("rId{}", self.relations.len())
    }

    fn next_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// Adds a text to a placeholder of the layout.
    pub fn placeholder(&mut self, name: &str, placeholder: &str, paragraphs: &str) {
        let id = self.next_id();
        let _ = write!(
            self.shapes,
            "<p:sp><p:nvSpPr><p:cNvPr id=\"{id}\" name=\"{name} {id}\"/><p:cNvSpPr><a:spLocks noGrp=\"1\"/></p:cNvSpPr>\
             <p:nvPr><p:ph {placeholder}/></p:nvPr></p:nvSpPr><p:spPr/>\
             <p:txBody><a:bodyPr><a:normAutofit/></a:bodyPr><a:lstStyle/>{paragraphs}</p:txBody></p:sp>"
        );
    }

    /// Adds the footer and the slide number.
    pub fn footer(&mut self, text: &str, number: usize) {
        self.placeholder("Footer", "type=\"ftr\" sz=\"quarter\" idx=\"10\"", &Text::muted(text, 10).xml());
        let number = format!(
            "<a:p><a:fld id=\"{{7A5B1C0E-3D52-4C1B-9B55-1E0F5B6A0001}}\" type=\"slidenum\"><a:rPr lang=\"en-GB\"/>\
             <a:t>{number}</a:t></a:fld><a:endParaRPr lang=\"en-GB\"/></a:p>"
        );
        self.placeholder("Slide number", "type=\"sldNum\" sz=\"quarter\" idx=\"11\"", &number);
    }

    /// Adds a text box. With a fill color it has a margin.
    pub fn text_box(&mut self, name: &str, rect: Rect, fill: Option<u32>, anchor: &str, paragraphs: &str) {
        let id = self.next_id();
        let (fill, margin) = match fill {
            Some(fill) => (format!("<a:solidFill><a:srgbClr val=\"{}\"/></a:solidFill>", color(fill)), 182_880),
            None => ("<a:noFill/>".to_owned(), 0),
        };
        let Rect { x, y, width, height } = rect;
        let _ = write!(
            self.shapes,
            "<p:sp><p:nvSpPr><p:cNvPr id=\"{id}\" name=\"{name} {id}\"/><p:cNvSpPr txBox=\"1\"/><p:nvPr/></p:nvSpPr>\
             <p:spPr><a:xfrm><a:off x=\"{x}\" y=\"{y}\"/><a:ext cx=\"{width}\" cy=\"{height}\"/></a:xfrm>\
             <a:prstGeom prst=\"rect\"><a:avLst/></a:prstGeom>{fill}<a:ln><a:noFill/></a:ln></p:spPr>\
             <p:txBody><a:bodyPr wrap=\"square\" lIns=\"{margin}\" tIns=\"{margin}\" \
             rIns=\"{margin}\" bIns=\"{margin}\" anchor=\"{anchor}\">\
             <a:normAutofit/></a:bodyPr><a:lstStyle/>{paragraphs}</p:txBody></p:sp>"
        );
    }

    /// Adds a table or a chart. `uri` is the type of `content`.
    pub fn frame(&mut self, name: &str, rect: Rect, uri: &str, content: &str) {
        let id = self.next_id();
        let Rect { x, y, width, height } = rect;
        let _ = write!(
            self.shapes,
            "<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id=\"{id}\" name=\"{name} {id}\"/><p:cNvGraphicFramePr>\
             <a:graphicFrameLocks noGrp=\"1\"/></p:cNvGraphicFramePr><p:nvPr/></p:nvGraphicFramePr>\
             <p:xfrm><a:off x=\"{x}\" y=\"{y}\"/><a:ext cx=\"{width}\" cy=\"{height}\"/></p:xfrm>\
             <a:graphic><a:graphicData uri=\"http://schemas.openxmlformats.org/drawingml/2006/{uri}\">{content}\
             </a:graphicData></a:graphic></p:graphicFrame>"
        );
    }

    pub fn finish(self) -> (String, Vec<Relation>) {
        let presentation = "http://schemas.openxmlformats.org/presentationml/2006/main";
        let xml = format!(
            "{HEADER}<p:sld {NAMESPACES} xmlns:p=\"{presentation}\"><p:cSld><p:spTree><p:nvGrpSpPr>\
             <p:cNvPr id=\"1\" name=\"\"/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>{}</p:spTree></p:cSld>\
             <p:clrMapOvr><a:masterClrMapping/></p:clrMapOvr></p:sld>",
            self.shapes
        );
        (xml, self.relations)
    }
}
