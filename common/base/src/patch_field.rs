//! A field of a change, which may be omitted.

/// A field that a client may omit or set to null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PatchField<T> {
    #[default]
    Omitted,
    Null,
    Value(T),
}

impl<T> PatchField<T> {
    /// Returns the value. Null is treated as omitted.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Omitted | Self::Null => None,
        }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> PatchField<U> {
        match self {
            Self::Omitted => PatchField::Omitted,
            Self::Null => PatchField::Null,
            Self::Value(value) => PatchField::Value(f(value)),
        }
    }

    /// Returns the value after a PUT: omitted keeps `current`, null sets `cleared`.
    pub fn apply_to(self, current: T, cleared: T) -> T {
        match self {
            Self::Omitted => current,
            Self::Null => cleared,
            Self::Value(value) => value,
        }
    }
}
