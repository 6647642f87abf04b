//! The shape of the TLBs and walk caches of one CPU, as data, and its text form.
//!
//! An array is written `REACHES:ENTRIES/WAYS[/POLICY]`, arrays are separated by commas:
//! `4K:64/4, 2M:32/4, 1G:4/full` is a first-level TLB of three arrays, `4K+2M:1536/12/plru` one
//! array that holds both sizes. Number of sets and ways need not be powers of two. Walk caches are
//! written alike, with the level of the entry they remember (`pgd`, `pud`, `pmd`) as reach.

use arch::TableLevel;
use std::fmt;
use units::Reach;

/// How a set chooses the entry that makes room. Ways that hold nothing valid go first, the lowest
/// before others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// The least recently used.
    #[default]
    Lru,
    /// A binary tree whose nodes point away from the half used last; for a number of ways that is
    /// no power of two the left half is the larger.
    TreePlru,
}

/// What an array's entries cover: a [`Reach`] or the span of a table entry.
pub trait Covers: Copy + fmt::Debug + PartialEq {
    /// log2 of the bytes covered.
    fn shift(self) -> u32;
    /// The name in the text form.
    fn name(self) -> String;
    /// Parses a name.
    fn parse(name: &str) -> Option<Self>;
}

impl Covers for Reach {
    fn shift(self) -> u32 {
        Reach::shift(self)
    }
    fn name(self) -> String {
        self.to_string()
    }
    fn parse(name: &str) -> Option<Reach> {
        let (digits, unit) = name.split_at_checked(name.len().checked_sub(1)?)?;
        let unit = match unit {
            "K" | "k" => 10,
            "M" | "m" => 20,
            "G" | "g" => 30,
            _ => return None,
        };
        let count: u32 = digits.parse().ok()?;
        let shift = count.is_power_of_two().then(|| count.ilog2() + unit)?;
        Reach::from_shift(u8::try_from(shift).ok()?)
    }
}

impl Covers for TableLevel {
    fn shift(self) -> u32 {
        TableLevel::shift(self)
    }
    fn name(self) -> String {
        match self {
            TableLevel::Pgd => "pgd",
            TableLevel::Pud => "pud",
            TableLevel::Pmd => "pmd",
            TableLevel::Pte => "pte",
        }
        .to_owned()
    }
    fn parse(name: &str) -> Option<TableLevel> {
        match name {
            "pgd" | "pml4e" | "l0" => Some(TableLevel::Pgd),
            "pud" | "pdpte" | "l1" => Some(TableLevel::Pud),
            "pmd" | "pde" | "l2" => Some(TableLevel::Pmd),
            _ => None,
        }
    }
}

/// One array: so many entries, in sets of so many ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayGeometry<T> {
    /// What its entries may cover.
    pub holds: Vec<T>,
    /// Entries in all.
    pub entries: u32,
    /// Entries of a set; as many as `entries` if fully associative.
    pub ways: u32,
    /// Replacement.
    pub policy: Policy,
}

impl<T: Covers> fmt::Display for ArrayGeometry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds: Vec<String> = self.holds.iter().map(|&h| h.name()).collect();
        write!(f, "{}:{}/", holds.join("+"), self.entries)?;
        if self.ways == self.entries {
            write!(f, "full")?;
        } else {
            write!(f, "{}", self.ways)?;
        }
        match self.policy {
            Policy::Lru => Ok(()),
            Policy::TreePlru => write!(f, "/plru"),
        }
    }
}

/// Why a text is no array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Not of the form.
    #[error("`{0}` is not REACHES:ENTRIES/WAYS[/lru|/plru], as in `4K+2M:1536/12`")]
    Form(String),
    /// A reach or level that is none.
    #[error("`{0}` is neither a size such as 4K, 64K, 2M, 1G nor a level pgd, pud, pmd")]
    Covers(String),
    /// Entries and ways do not fit.
    #[error("{entries} entries do not divide into sets of {ways} ways")]
    Sets {
        /// Entries asked for.
        entries: u32,
        /// Ways asked for.
        ways: u32,
    },
    /// A level without 4 KiB entries.
    #[error("the first-level {0} TLB must hold 4K entries")]
    NoBasePages(&'static str),
    /// More entries than the model's indexes reach.
    #[error("{entries} first-level entries are too many: at most {max}")]
    TooMany {
        /// Entries asked for.
        entries: u32,
        /// The limit.
        max: u32,
    },
}

/// Parses a list of arrays; `none` and the empty text are no arrays.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_arrays<T: Covers>(text: &str) -> Result<Vec<ArrayGeometry<T>>, GeometryError> {
    let text = text.trim();
    if text.is_empty() || text == "none" {
        return Ok(Vec::new());
    }
    text.split(',').map(|array| parse_array(array.trim())).collect()
}

fn parse_array<T: Covers>(text: &str) -> Result<ArrayGeometry<T>, GeometryError> {
    let form = || GeometryError::Form(text.to_owned());
    let (holds, size) = text.split_once(':').ok_or_else(form)?;
    let holds = holds
        .split('+')
        .map(|name| T::parse(name.trim()).ok_or_else(|| GeometryError::Covers(name.to_owned())))
        .collect::<Result<Vec<T>, _>>()?;
    let mut parts = size.split('/').map(str::trim);
    let entries: u32 = parts.next().and_then(|n| n.parse().ok()).ok_or_else(form)?;
    let ways = match parts.next() {
        Some("full") => entries,
        Some(ways) => ways.parse().map_err(|_| form())?,
        None => return Err(form()),
    };
    let policy = match parts.next() {
        None | Some("lru") => Policy::Lru,
        Some("plru") => Policy::TreePlru,
        Some(_) => return Err(form()),
    };
    if parts.next().is_some() {
        return Err(form());
    }
    let array = ArrayGeometry { holds, entries, ways, policy };
    array.check()?;
    Ok(array)
}

/// The text form of a list of arrays.
pub fn format_arrays<T: Covers>(arrays: &[ArrayGeometry<T>]) -> String {
    if arrays.is_empty() {
        return "none".to_owned();
    }
    arrays.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl<T> ArrayGeometry<T> {
    fn check(&self) -> Result<(), GeometryError> {
        let (entries, ways) = (self.entries, self.ways);
        if entries == 0 || ways == 0 || !entries.is_multiple_of(ways) {
            return Err(GeometryError::Sets { entries, ways });
        }
        Ok(())
    }
}

/// What the MMU does when a cached translation denies an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDenial {
    /// It faults; if the table allows the access by now, the fault is spurious.
    #[default]
    Fault,
    /// It walks the table first, and faults only if that denies the access, too.
    Rewalk,
}

/// The arrays of one level.
pub type Arrays = Vec<ArrayGeometry<Reach>>;

/// The shape of one CPU's TLBs and walk caches.
///
/// A reach that several arrays of one level hold is interleaved between them by the low bits of
/// the page number. A leaf that a first-level TLB has no entries for is cached in pieces of the
/// largest size that it has; a second-level TLB does not cache such a leaf, but caches a
/// contiguous block's descriptors one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// First level, loads (and stores and fetches, if they have no own).
    pub load: Arrays,
    /// First level, stores, if apart.
    pub store: Option<Arrays>,
    /// First level, fetches, if apart.
    pub fetch: Option<Arrays>,
    /// Second level; empty if there is none.
    pub l2: Arrays,
    /// Second level of fetches, if apart.
    pub l2_fetch: Option<Arrays>,
    /// Walk caches (paging-structure caches); empty if there are none.
    pub walk: Vec<ArrayGeometry<TableLevel>>,
    /// Whether a denial is believed.
    pub on_denial: OnDenial,
}

/// First-level ways of one CPU at most: a fast entry names its way in 12 bits.
pub const L1_WAYS_MAX: u32 = 4096;

impl Geometry {
    /// Checks what the model relies on.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), GeometryError> {
        let mut entries = 0u32;
        let first = [
            ("load", Some(&self.load)),
            ("store", self.store.as_ref()),
            ("fetch", self.fetch.as_ref()),
        ];
        for (name, arrays) in first {
            let Some(arrays) = arrays else { continue };
            if !arrays.iter().any(|a| a.holds.contains(&Reach::K4)) {
                return Err(GeometryError::NoBasePages(name));
            }
            entries = arrays.iter().fold(entries, |sum, a| sum.saturating_add(a.entries));
        }
        if entries > L1_WAYS_MAX {
            return Err(GeometryError::TooMany { entries, max: L1_WAYS_MAX });
        }
        let all = first.into_iter().filter_map(|(_, a)| a).chain([&self.l2]);
        for array in all.chain(self.l2_fetch.as_ref()).flatten() {
            array.check()?;
        }
        self.walk.iter().try_for_each(ArrayGeometry::check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        for text in ["4K:64/4, 2M:32/4, 1G:4/full", "4K+64K+2M:1280/5/plru", "none"] {
            let arrays = parse_arrays::<Reach>(text).expect(text);
            assert_eq!(format_arrays(&arrays), text);
        }
        let walk = parse_arrays::<TableLevel>("pml4e:4/full, pdpte:4/4, pde:32/full");
        assert_eq!(format_arrays(&walk.expect("levels")), "pgd:4/full, pud:4/full, pmd:32/full");
    }

    #[test]
    fn nonsense_is_named() {
        let error = |text| parse_arrays::<Reach>(text).expect_err(text).to_string();
        assert!(error("4K").contains("is not REACHES"));
        assert!(error("5K:64/4").contains("`5K`"));
        assert!(error("4K:64/5").contains("64 entries"));
        assert!(error("4K:0/full").contains("0 entries"));
        assert!(error("4K:64/4/random").contains("is not REACHES"));
        assert!(error("4K:64/4/lru/lru").contains("is not REACHES"));
    }
}
