//! Handles elements of Atom and Dublin Core in RSS items, which feed readers show and the parser ignores: they are
//! renamed to the RSS elements with the same meaning. An item's own RSS element has priority.

use super::tag::Tag;

const ATOM: &str = "http://www.w3.org/2005/Atom";
/// The maximum number of Atom prefixes in a document.
const MAX_PREFIXES: usize = 8;

/// The name under which an element is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenName {
    Same,
    Other(&'static str),
    /// Only its content is written.
    None,
}

/// The state of the document and of the current item.
#[derive(Default)]
pub struct RssItems<'a> {
    /// The Atom prefixes other than `atom`.
    prefixes: Vec<&'a str>,
    /// The RSS elements that the item has so far.
    elements: Vec<&'static str>,
    /// The URL of the item's page, as written in the document.
    page: Option<&'a str>,
}

impl<'a> RssItems<'a> {
    /// Begins an item.
    pub fn begin_item(&mut self) {
        self.elements.clear();
        self.page = None;
    }

    /// Returns the URL of the page from the item's Atom links.
    pub fn page(&self) -> Option<&'a str> {
        self.page
    }

    /// Records the Atom prefixes that a tag declares.
    pub fn declare(&mut self, attributes: impl Iterator<Item = (&'a str, &'a str)>) {
        let prefixes =
            attributes.filter(|(_, value)| *value == ATOM).filter_map(|(name, _)| name.strip_prefix("xmlns:"));
        let free = MAX_PREFIXES.saturating_sub(self.prefixes.len());
        self.prefixes.extend(prefixes.take(free));
    }

    /// Returns the name for an element of an item. `parent` is the name of its parent, with the prefix.
    pub fn name(&mut self, tag: Tag<'a>, parent: &str) -> WrittenName {
        let (prefix, local) = tag.name.split_once(':').unwrap_or(("", tag.name));
        if parent == "item" {
            return self.name_in_item(tag, prefix, local);
        }
        let is_author = parent.split_once(':').is_some_and(|(prefix, local)| local == "author" && self.is_atom(prefix));
        if is_author && local == "name" && self.is_atom(prefix) {
            WrittenName::Other("author")
        } else {
            WrittenName::Same
        }
    }

    fn name_in_item(&mut self, tag: Tag<'a>, prefix: &str, local: &str) -> WrittenName {
        let is_atom = self.is_atom(prefix);
        let rss_name = match local {
            "title" => "title",
            "description" => "description",
            "summary" | "content" if is_atom => "description",
            "pubDate" if prefix.is_empty() => "pubDate",
            "published" | "issued" if is_atom => "pubDate",
            "date" if prefix == "dc" => "pubDate",
            "author" if is_atom && !tag.is_empty => return WrittenName::None,
            "link" if is_atom => {
                self.link(tag);
                return WrittenName::Same;
            }
            _ => return WrittenName::Same,
        };
        let is_own = prefix.is_empty() || local == "date";
        let is_known = is_own || is_atom || prefix == "dc";
        if !is_known || tag.is_empty || self.elements.contains(&rss_name) {
            return WrittenName::Same;
        }
        self.elements.push(rss_name);
        if is_own { WrittenName::Same } else { WrittenName::Other(rss_name) }
    }

    fn link(&mut self, tag: Tag<'a>) {
        let get = |wanted: &str| tag.attributes().find(|(name, _)| *name == wanted).map(|(_, value)| value.trim());
        let is_page = get("rel").is_none_or(|rel| rel.is_empty() || rel.eq_ignore_ascii_case("alternate"));
        if is_page && get("type").is_none_or(|kind| kind.contains("html")) {
            self.page = self.page.or(get("href").filter(|href| !href.is_empty()));
        }
    }

    fn is_atom(&self, prefix: &str) -> bool {
        prefix == "atom" || self.prefixes.contains(&prefix)
    }
}
