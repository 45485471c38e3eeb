//! Statements that contain other constants, put together at compile time.
//!
//! A statement is a constant, so no value can become part of it, and sqlx requires no assertion that it is safe. Values
//! are binds.
//!
//! Some lists put their statement together at run time (`AssertSqlSafe`), from constants, numbers and words of domain
//! enums: each combination of filters has its own text. One text with `($1 IS NULL OR column = $1)` would do, but SQLite
//! would not use an index of the column, and neither would a plan that Postgres makes for all values.

/// Returns a statement in which each constant's name in braces is replaced with its text:
/// `sql!("SELECT {COLUMNS} FROM feeds WHERE id = $1", COLUMNS)`.
macro_rules! sql {
    ($template:expr $(, $name:ident)* $(,)?) => {{
        const TEMPLATE: &str = $template;
        const PARTS: &[(&str, &str)] = &[$((stringify!($name), $name)),*];
        const LENGTH: usize = $crate::sql::length(TEMPLATE, PARTS);
        const BYTES: &[u8] = &$crate::sql::fill::<LENGTH>(TEMPLATE, PARTS);
        const TEXT: &str = match std::str::from_utf8(BYTES) {
            Ok(text) => text,
            Err(_) => panic!("a statement must be UTF-8"),
        };
        TEXT
    }};
}

/// Returns a statement for the connection's engine, with a clause that locks rows, such as `FOR UPDATE`, in place of
/// `{LOCK}` on Postgres. SQLite needs none, because it has one writer.
macro_rules! locking_sql {
    ($conn:expr, $template:literal, $lock:literal $(, $name:ident)* $(,)?) => {
        $conn.for_engine(
            {
                const LOCK: &str = $lock;
                $crate::sql::sql!($template, LOCK $(, $name)*)
            },
            {
                const LOCK: &str = "";
                $crate::sql::sql!($template, LOCK $(, $name)*)
            },
        )
    };
}
pub(crate) use {locking_sql, sql};

/// Returns the length of the text that [`fill`] returns, in bytes.
pub(crate) const fn length(template: &'static str, parts: &[(&str, &'static str)]) -> usize {
    let mut rest = template.as_bytes();
    let mut length = 0;
    while !rest.is_empty() {
        let (piece, after) = split_piece(rest, parts);
        length += piece.len();
        rest = after;
    }
    length
}

/// Replaces the names of parts in braces with their texts.
pub(crate) const fn fill<const LENGTH: usize>(template: &'static str, parts: &[(&str, &'static str)]) -> [u8; LENGTH] {
    let mut text = [0; LENGTH];
    let mut rest = template.as_bytes();
    let mut end = 0;
    while !rest.is_empty() {
        let (piece, after) = split_piece(rest, parts);
        let mut i = 0;
        while i < piece.len() {
            text[end] = piece[i];
            end += 1;
            i += 1;
        }
        rest = after;
    }
    text
}

/// Returns the next piece of the text, and the rest of the template after it. The piece is the text of a part, or what
/// precedes the next brace.
const fn split_piece(rest: &'static [u8], parts: &[(&str, &'static str)]) -> (&'static [u8], &'static [u8]) {
    if rest[0] != b'{' {
        return rest.split_at(find(rest, b'{'));
    }
    let (name, after) = rest.split_at(find(rest, b'}'));
    let mut i = 0;
    while i < parts.len() {
        if is_name(name, parts[i].0.as_bytes()) {
            return (parts[i].1.as_bytes(), after.split_at(1).1);
        }
        i += 1;
    }
    panic!("the template has a name in braces that is not in the list of constants")
}

/// Returns the position of a byte, or the length of the text if it has no such byte.
const fn find(text: &[u8], byte: u8) -> usize {
    let mut i = 0;
    while i < text.len() && text[i] != byte {
        i += 1;
    }
    i
}

/// Returns whether a text is the brace that begins a name, and this name.
const fn is_name(text: &[u8], name: &[u8]) -> bool {
    if text.len() != name.len() + 1 {
        return false;
    }
    let mut i = 0;
    while i < name.len() {
        if text[i + 1] != name[i] {
            return false;
        }
        i += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_replaced_with_texts() {
        const COLUMNS: &str = "id, name";
        const ALL: &str = sql!("SELECT {COLUMNS} FROM brands", COLUMNS);
        const ORDER: &str = "ORDER BY id";
        assert_eq!(sql!("{ALL} {ORDER}", ALL, ORDER), "SELECT id, name FROM brands ORDER BY id");
        assert_eq!(sql!("SELECT 1"), "SELECT 1");
    }
}
