//! The icons of links: outlines in a box of 24 by 24 units, with a line width of 2.

use crier_domain::bio_page::LinkIcon;

/// Returns the value of the `d` attribute of an icon's SVG path.
pub const fn path(icon: LinkIcon) -> &'static str {
    match icon {
        LinkIcon::Book => "M5 4h11a3 3 0 0 1 3 3v13H8a3 3 0 0 1-3-3zM5 17a3 3 0 0 1 3-3h11",
        LinkIcon::Calendar => "M4 6h16v14H4zM4 10h16M8 3v4M16 3v4",
        LinkIcon::Chat => "M4 5h16v11H9l-5 4z",
        LinkIcon::Download => "M12 4v11M7 11l5 5 5-5M4 20h16",
        LinkIcon::Gift => "M4 9h16v4H4zM6 13h12v7H6zM12 9v11M12 9C8 9 7 4 10 4c2 0 2 3 2 5 0-2 0-5 2-5 3 0 2 5-2 5",
        LinkIcon::Globe => "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M3 12h18M12 3c5 5 5 13 0 18M12 3c-5 5-5 13 0 18",
        LinkIcon::Heart => "M12 20C2 13 3 5 8 5c2 0 4 2 4 3 0-1 2-3 4-3 5 0 6 8-4 15",
        LinkIcon::Mail => "M3 6h18v12H3zM3 7l9 7 9-7",
        LinkIcon::Map => "M12 21c-5-6-7-8-7-11a7 7 0 0 1 14 0c0 3-2 5-7 11M12 7.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5",
        LinkIcon::Music => "M9 18V6l10-2v12M9 18a3 3 0 1 1-6 0 3 3 0 0 1 6 0M19 16a3 3 0 1 1-6 0 3 3 0 0 1 6 0",
        LinkIcon::Phone => "M6 3h4l1 5-2 2c1 2 3 4 5 5l2-2 5 1v4c0 2-2 3-4 3C9 20 4 13 3 7c0-2 1-4 3-4",
        LinkIcon::Photo => "M3 5h18v14H3zM3 16l5-5 5 5 3-3 5 5M15 9h.01",
        LinkIcon::Shop => "M5 8h14l1 12H4zM9 8V6a3 3 0 0 1 6 0v2",
        LinkIcon::Star => "M12 3l2.8 5.9 6.2.9-4.5 4.5 1.1 6.4L12 17.7l-5.6 3 1.1-6.4L3 9.8l6.2-.9z",
        LinkIcon::Video => "M3 6h12v12H3zM15 10l6-3v10l-6-3",
    }
}
