//! `text_enum!`: an enum that is a word in the database, in JSON and on the command line.

/// The maximum length of a word that is compared with the known ones, which are all shorter.
const MAX_BYTES: usize = 64;

/// A word that is not a value of the enum.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("`{word}` is unknown; it must be one of: {known}")]
pub struct UnknownWord {
    pub word: String,
    pub known: String,
}

impl UnknownWord {
    /// Returns the known word of which this one is probably a typo; `None` if it resembles none of them.
    pub fn nearest(&self) -> Option<&str> {
        if self.word.len() > MAX_BYTES {
            return None;
        }
        let word = self.word.trim().to_lowercase().replace(['-', ' '], "_");
        let near = self.known.split(", ").map(|known| (strsim::osa_distance(&word, known), known));
        // Longer words may differ more: one edit of a short word is often another word.
        near.filter(|(edits, known)| *edits <= known.len() / 3).min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
    }
}

/// Declares a field-less enum with its words: `as_str`, `ALL`, `Display`, `FromStr`, serde and, with the feature `sqlx`,
/// a `TEXT` column on both engines. Parsing or decoding an unknown word is an error.
#[macro_export]
macro_rules! text_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:expr),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the word used outside this program.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownWord;
            fn from_str(word: &str) -> ::std::result::Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|v| v.as_str() == word).ok_or_else(|| $crate::UnknownWord {
                    word: word.to_owned(),
                    known: Self::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>().join(", "),
                })
            }
        }

        impl $crate::serde::Serialize for $name {
            fn serialize<S: $crate::serde::Serializer>(&self, serializer: S) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> $crate::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(deserializer: D) -> ::std::result::Result<Self, D::Error> {
                let word = <std::borrow::Cow<'de, str> as $crate::serde::Deserialize>::deserialize(deserializer)?;
                word.parse().map_err($crate::serde::de::Error::custom)
            }
        }

        $crate::text_column!($name);
    };
}

/// Makes a text enum a `TEXT` column on both engines.
#[cfg(feature = "sqlx")]
#[doc(hidden)]
#[macro_export]
macro_rules! text_column {
    ($name:ident) => {
        impl<DB: $crate::sqlx::Database> $crate::sqlx::Type<DB> for $name
        where
            str: $crate::sqlx::Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                <str as $crate::sqlx::Type<DB>>::type_info()
            }
            fn compatible(ty: &DB::TypeInfo) -> bool {
                <str as $crate::sqlx::Type<DB>>::compatible(ty)
            }
        }

        impl<'q, DB: $crate::sqlx::Database> $crate::sqlx::Encode<'q, DB> for $name
        where
            &'q str: $crate::sqlx::Encode<'q, DB>,
        {
            fn encode_by_ref(
                &self,
                buf: &mut <DB as $crate::sqlx::Database>::ArgumentBuffer,
            ) -> ::std::result::Result<$crate::sqlx::encode::IsNull, $crate::sqlx::error::BoxDynError> {
                <&'q str as $crate::sqlx::Encode<'q, DB>>::encode_by_ref(&self.as_str(), buf)
            }
        }

        impl<'r, DB: $crate::sqlx::Database> $crate::sqlx::Decode<'r, DB> for $name
        where
            &'r str: $crate::sqlx::Decode<'r, DB>,
        {
            fn decode(
                value: <DB as $crate::sqlx::Database>::ValueRef<'r>,
            ) -> ::std::result::Result<Self, $crate::sqlx::error::BoxDynError> {
                let word = <&'r str as $crate::sqlx::Decode<'r, DB>>::decode(value)?;
                Ok(word.parse()?)
            }
        }
    };
}

/// Without the database, a text enum is no column.
#[cfg(not(feature = "sqlx"))]
#[doc(hidden)]
#[macro_export]
macro_rules! text_column {
    ($name:ident) => {};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found() {
        let near = |word: &str| {
            let known = "draft, scheduled, now, post.published".to_owned();
            UnknownWord { word: word.to_owned(), known }.nearest().map(str::to_owned)
        };
        for (word, known) in
            [("Draft", "draft"), ("drafts", "draft"), ("shceduled", "scheduled"), (" NOW ", "now"), ("nwo", "now")]
        {
            assert_eq!(near(word).as_deref(), Some(known), "{word}");
        }
        assert_eq!(near("post_published").as_deref(), Some("post.published"));
        for word in ["", "later", "new_post", "日本"] {
            assert_eq!(near(word), None, "{word}");
        }
        assert_eq!(near(&"draft".repeat(1_000)), None);
    }
}
