//! Classes: events that cost the same; and the instructions that the kernel executes for each event.

use crate::{PriceError, WorkTable};
use events::{Counters, Event, EventKind};
use serde::Deserialize;
use units::ArchId;

/// Index of a [`Class`] in [`Classes::list`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(usize);

impl ClassId {
    /// The class of instructions, the first of the file.
    pub(crate) const INSTRUCTION: ClassId = ClassId(0);
    /// The class of the kernel's instructions, the second.
    pub(crate) const KERNEL_INSTRUCTION: ClassId = ClassId(1);

    pub(crate) const fn index(self) -> usize {
        self.0
    }
}

/// Events that share a price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The name in price lists and JSON.
    pub name: String,
    /// The name in reports: a plural noun.
    pub words: String,
    /// The only architecture that has these events, if there is one.
    pub arch: Option<ArchId>,
}

/// Which events are priced together, and which not at all.
#[derive(Clone, Debug)]
pub struct Classes {
    list: Vec<Class>,
    of_event: Vec<Option<ClassId>>,
    /// Instructions that the kernel executes for one event.
    work: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    class: Vec<FileClass>,
    free: Vec<FileFree>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileClass {
    name: String,
    words: String,
    arch: Option<String>,
    events: Vec<String>,
    rest_of: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFree {
    #[expect(dead_code, reason = "for whoever reads the file; demanded by its schema")]
    reason: String,
    kind: Option<String>,
    #[serde(default)]
    events: Vec<String>,
}

impl Classes {
    /// The classes of `prices/classes.toml`, with the work of the kernel on `arch` from
    /// `prices/work.toml`.
    ///
    /// # Errors
    /// [`PriceError`] if a file contradicts itself or the list of events (a test reads them).
    pub fn builtin(arch: ArchId) -> Result<Classes, PriceError> {
        let classes = Classes::parse(include_str!("../prices/classes.toml"))?;
        Ok(Classes { work: WorkTable::builtin()?.per_event(arch), ..classes })
    }

    /// Every class.
    pub fn list(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        self.list.iter().enumerate().map(|(i, c)| (ClassId(i), c))
    }

    /// The class of an id.
    pub fn get(&self, id: ClassId) -> &Class {
        &self.list[id.0]
    }

    /// The class of that name.
    pub fn find(&self, name: &str) -> Option<ClassId> {
        self.list.iter().position(|c| c.name == name).map(ClassId)
    }

    /// The class that prices `event`; `None` if it costs nothing by itself.
    pub fn of(&self, event: Event) -> Option<ClassId> {
        self.of_event[event as usize]
    }

    /// How often each class occurred, in the order of [`Classes::list`].
    pub fn count(&self, counts: &Counters, instructions: u64) -> Vec<u64> {
        let mut sums = vec![0; self.list.len()];
        sums[ClassId::INSTRUCTION.0] = instructions;
        for (event, n) in counts.nonzero() {
            sums[ClassId::KERNEL_INSTRUCTION.0] += n * self.work[event as usize];
            if let Some(id) = self.of(event) {
                sums[id.0] += n;
            }
        }
        sums
    }

    /// Instructions that the kernel executes for one `event`: a figure fitted on counts of
    /// executed instructions, good for sums over whole operations.
    pub fn work(&self, event: Event) -> u64 {
        self.work[event as usize]
    }

    fn parse(text: &str) -> Result<Classes, PriceError> {
        let file: File = toml::from_str(text).map_err(|e| PriceError::Toml(e.to_string()))?;
        let mut table = Table { placed: vec![None; Event::COUNT] };
        let mut rest = Vec::new();
        for (i, class) in file.class.iter().enumerate() {
            table.place_all(&class.events, Place::Class(ClassId(i)))?;
            if let Some(kind) = &class.rest_of {
                rest.push((kind_of(kind)?, Place::Class(ClassId(i))));
            }
        }
        for free in &file.free {
            table.place_all(&free.events, Place::Free)?;
            if let Some(kind) = &free.kind {
                rest.push((kind_of(kind)?, Place::Free));
            }
        }
        for (kind, place) in rest {
            table.place_rest(kind, place);
        }
        let list = file.class.into_iter().map(Class::from_file).collect::<Result<_, _>>()?;
        Ok(Classes { list, of_event: table.finish()?, work: vec![0; Event::COUNT] })
    }
}

impl Class {
    fn from_file(class: FileClass) -> Result<Class, PriceError> {
        let arch = match class.arch {
            Some(name) => Some(ArchId::parse(&name).ok_or(PriceError::Arch(name))?),
            None => None,
        };
        Ok(Class { name: class.name, words: class.words, arch })
    }
}

#[derive(Clone, Copy)]
enum Place {
    Class(ClassId),
    Free,
}

/// Where each event has been put so far.
struct Table {
    placed: Vec<Option<Place>>,
}

impl Table {
    fn place_all(&mut self, names: &[String], place: Place) -> Result<(), PriceError> {
        for name in names {
            let event = Event::parse(name).ok_or_else(|| PriceError::Event(name.clone()))?;
            if self.placed[event as usize].replace(place).is_some() {
                return Err(PriceError::Twice(name.clone()));
            }
        }
        Ok(())
    }

    fn place_rest(&mut self, kind: EventKind, place: Place) {
        for &event in Event::ALL.iter().filter(|e| e.kind() == kind) {
            self.placed[event as usize].get_or_insert(place);
        }
    }

    fn finish(self) -> Result<Vec<Option<ClassId>>, PriceError> {
        let unplaced = Event::ALL.iter().zip(&self.placed).find(|(_, place)| place.is_none());
        if let Some((event, _)) = unplaced {
            return Err(PriceError::Nowhere(event.name()));
        }
        let class = |place| match place {
            Some(Place::Class(id)) => Some(id),
            _ => None,
        };
        Ok(self.placed.into_iter().map(class).collect())
    }
}

fn kind_of(name: &str) -> Result<EventKind, PriceError> {
    match name {
        "pte_api" => Ok(EventKind::PteApi),
        "pte_touch" => Ok(EventKind::PteTouch),
        "tlb" => Ok(EventKind::Tlb),
        "flush_decision" => Ok(EventKind::FlushDecision),
        "struct" => Ok(EventKind::Struct),
        "function" => Ok(EventKind::Function),
        _ => Err(PriceError::Kind(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_in_one_class_or_free() {
        let classes =
            Classes::builtin(ArchId::Arm64).expect("classes.toml places every event once");
        assert_eq!(classes.get(ClassId::INSTRUCTION).name, "instruction");
        assert_eq!(classes.get(ClassId::KERNEL_INSTRUCTION).name, "kernel_instruction");
        let name = |event| classes.of(event).map(|id| classes.get(id).name.as_str());
        assert_eq!(name(Event::PteXchg), Some("pte_atomic"));
        assert_eq!(name(Event::PtepGet), None);
        assert_eq!(name(Event::FnTryToUnmapOne), None);
    }

    #[test]
    fn contradictions_are_refused() {
        let check = |text: &str| Classes::parse(text).expect_err("wrong").to_string();
        let class = |events: &str| {
            format!("free = []\n[[class]]\nname = \"a\"\nwords = \"b\"\nevents = [{events}]\n")
        };
        assert!(check(&class("\"pte_read\", \"pte_read\"")).contains("`pte_read`"));
        assert!(check(&class("\"pte_reed\"")).contains("`pte_reed`"));
        assert!(check(&class("\"pte_read\"")).contains("neither"));
    }
}
