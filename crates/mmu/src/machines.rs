//! The machines that can be modelled: hardware facts, TLB geometry and clock under one name.
//!
//! A [`Machine`] is made of *figures*, each a key, a value in text form, a source and a
//! confidence. Presets are tables of them (`presets.rs`); `--set machine.KEY=VALUE` changes one
//! ([`Machine::set`]) by the same parser, and the figure then names the override as its source.

use crate::geometry::{
    ArrayGeometry, Arrays, Covers, Geometry, GeometryError, OnDenial, Policy, format_arrays,
    parse_arrays,
};
use crate::mmu::Mmu;
use crate::presets::{PRESETS, Preset};
use crate::tlb::Model;
use crate::walk::{AccessDirty, Contiguous, Controls, HwWalk};
use arch::{BbmLevel, Hw};
use units::{ArchId, Reach};

/// How far a figure can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// From memory, guesses, or one unofficial measurement.
    Low,
    /// Derived from documents, or documents disagree.
    Medium,
    /// From the vendor's documents or the part itself.
    High,
    /// The user set it.
    Override,
}

impl Confidence {
    /// The word that listings show.
    pub const fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
            Confidence::Override => "set",
        }
    }
}

/// One number of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What `--set machine.KEY=` calls it.
    pub key: String,
    /// Its value, in the form that `--set` takes.
    pub value: String,
    /// Where it comes from.
    pub source: String,
    /// How far to trust that.
    pub confidence: Confidence,
}

/// Nominal speed of a core, to price plain instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Cycles per nanosecond.
    pub ghz: f64,
    /// Guest instructions per cycle.
    pub ipc: f64,
}

impl Clock {
    /// Nanoseconds per guest instruction.
    pub fn ns_per_instruction(&self) -> f64 {
        1.0 / (self.ghz * self.ipc)
    }
}

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The preset's name.
    pub name: &'static str,
    /// Architecture.
    pub arch: ArchId,
    /// What it stands for, in a phrase.
    pub about: &'static str,
    /// What Linux looks at; `cpus` is 1 until the run says otherwise.
    pub hw: Hw,
    /// TLBs and walk caches of each CPU.
    pub geometry: Geometry,
    /// Nominal speed.
    pub clock: Clock,
    /// What TLBs do with arm64 contiguous blocks.
    pub contiguous: Contiguous,
    /// What the walker coalesces.
    pub coalesce: Option<Reach>,
    /// Physical address bits.
    pub pa_bits: u8,
    figures: Vec<Figure>,
}

/// Why a machine cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// No preset of that name.
    #[error("unknown machine `{name}`; known: {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// No such setting.
    #[error("unknown machine setting `{key}`; known: {known}")]
    UnknownKey {
        /// The key asked for.
        key: String,
        /// Those that there are.
        known: String,
    },
    /// A setting of the other architecture.
    #[error("machine setting `{key}` means nothing on {arch}")]
    WrongArch {
        /// The key.
        key: String,
        /// The machine's architecture.
        arch: ArchId,
    },
    /// A value that the setting cannot have.
    #[error("machine setting `{key}` cannot be `{value}`: expected {expected}")]
    Value {
        /// The key.
        key: String,
        /// The value asked for.
        value: String,
        /// What would do.
        expected: &'static str,
    },
    /// Arrays that cannot be.
    #[error("machine setting `{key}`: {error}")]
    Geometry {
        /// The key.
        key: String,
        /// What is wrong.
        error: GeometryError,
    },
}

/// A setting that `--set machine.KEY=VALUE` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key.
    pub key: &'static str,
    /// The architecture that it means something on, if not both.
    pub arch: Option<ArchId>,
    /// What it is.
    pub about: &'static str,
    /// What values it takes.
    pub expected: &'static str,
}

const ARM: Option<ArchId> = Some(ArchId::Arm64);
const X86: Option<ArchId> = Some(ArchId::X86_64);
const ON_OFF: &str = "on or off";
const ARRAYS: &str = "arrays such as `4K:64/4, 2M:32/4` (REACHES:ENTRIES/WAYS[/plru]), or none";
const ARRAYS_OR_SHARED: &str = "arrays such as `4K:64/4, 2M:32/4`, or shared";

const fn setting(
    key: &'static str,
    arch: Option<ArchId>,
    about: &'static str,
    expected: &'static str,
) -> Setting {
    Setting { key, arch, about, expected }
}

/// Every setting. Arrays have fields beside: `l1d.entries`, `l1d.ways`, `l1d.policy`, which change
/// the first array of the list.
pub const SETTINGS: &[Setting] = &[
    setting("tlbirange", ARM, "FEAT_TLBIRANGE: TLBI by range", ON_OFF),
    setting("hw_ad", ARM, "FEAT_HAFDBS: the walker sets AF and the dirty state", ON_OFF),
    setting("bbm", ARM, "break-before-make level that Linux trusts", "0, 2 or 3"),
    setting("asid_bits", ARM, "width of ASIDs", "8 or 16"),
    setting("contiguous", ARM, "what a TLB makes of CONT", "ignored, faulting or first"),
    setting("pcid", X86, "PCID", ON_OFF),
    setting("invpcid", X86, "INVPCID", ON_OFF),
    setting("flush_ceiling", X86, "tlb_single_page_flush_ceiling, in pages", "a number"),
    setting("kpti", None, "page-table isolation (KPTI, PTI)", ON_OFF),
    setting("coalesce", None, "reach of coalesced 4K entries", "off, 8K, 16K, 32K or 64K"),
    setting("on_denial", None, "what a cached denial does", "fault or rewalk"),
    setting("pa_bits", None, "physical address bits", "32 to 52 (arm64: to 48)"),
    setting("clock_ghz", None, "nominal clock", "a positive number"),
    setting("ipc", None, "instructions per cycle", "a positive number"),
    setting("l1d", None, "first-level TLB for loads, and stores if not apart", ARRAYS),
    setting("l1s", None, "first-level TLB for stores", ARRAYS_OR_SHARED),
    setting("l1i", None, "first-level TLB for fetches", ARRAYS_OR_SHARED),
    setting("l2", None, "second-level TLB", ARRAYS),
    setting("l2i", None, "second-level TLB for fetches", ARRAYS_OR_SHARED),
    setting("walk_caches", None, "paging-structure caches, by level pgd, pud, pmd", ARRAYS),
];

impl Machine {
    /// Names of all presets, in the order of listings.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|preset| preset.name)
    }

    /// All presets.
    pub fn all() -> impl Iterator<Item = Machine> {
        PRESETS.iter().map(Machine::from_preset)
    }

    /// The preset `name`.
    ///
    /// # Errors
    /// If there is none; the message lists them.
    pub fn by_name(name: &str) -> Result<Machine, MachineError> {
        match PRESETS.iter().find(|preset| preset.name == name) {
            Some(preset) => Ok(Machine::from_preset(preset)),
            None => Err(MachineError::Unknown {
                name: name.to_owned(),
                known: Machine::names().collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// The machine for `arch` when none is named.
    pub fn default_for(arch: ArchId) -> Machine {
        let found = PRESETS.iter().find(|preset| preset.arch == arch);
        Machine::from_preset(found.expect("each architecture has presets (test: `presets_parse`)"))
    }

    fn from_preset(preset: &Preset) -> Machine {
        let arrays = |text| parse_arrays(text).expect("a constant (test: `presets_parse`)");
        let mut machine = Machine {
            name: preset.name,
            arch: preset.arch,
            about: preset.about,
            hw: match preset.arch {
                ArchId::Arm64 => Hw::arm64(),
                ArchId::X86_64 => Hw::x86_64(),
            },
            geometry: Geometry {
                load: arrays("4K:64/4"),
                store: None,
                fetch: None,
                l2: Vec::new(),
                l2_fetch: None,
                walk: Vec::new(),
                on_denial: OnDenial::Fault,
            },
            clock: Clock { ghz: 1.0, ipc: 1.0 },
            contiguous: Contiguous::Faulting,
            coalesce: None,
            pa_bits: 48,
            figures: Vec::new(),
        };
        for &(key, value, source, confidence) in preset.rows {
            machine.apply(key, value).expect("presets are valid (test: `presets_parse`)");
            machine.note(key, value, source, confidence);
        }
        machine
    }

    /// Every number with its source, in the order of the preset; overrides in place.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Changes one number: `--set machine.KEY=VALUE`.
    ///
    /// # Errors
    /// An unknown key, a key of the other architecture, or a value that cannot be; the machine
    /// is then unchanged.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), MachineError> {
        let mut changed = self.clone();
        changed.apply(key, value.trim())?;
        let group = key.split_once('.').map_or(key, |(group, _)| group);
        let shown = changed.shown(group).unwrap_or_else(|| value.trim().to_owned());
        changed.note(group, &shown, "set by the user", Confidence::Override);
        *self = changed;
        Ok(())
    }

    /// What the walker looks at, over `ram_bytes` of RAM.
    pub fn controls(&self, ram_bytes: u64) -> Controls {
        Controls {
            pa_bits: self.pa_bits,
            access_dirty: match self.hw.hw_access_dirty {
                true => AccessDirty::Hardware,
                false => AccessDirty::Software,
            },
            contiguous: self.contiguous,
            coalesce: self.coalesce,
            ..Controls::new(ram_bytes)
        }
    }

    /// The MMUs of the machine's CPUs (`hw.cpus`), over `ram_bytes` of RAM.
    pub fn mmu<A: HwWalk, M: Model>(&self, ram_bytes: u64) -> Mmu<A, M> {
        Mmu::new(&self.geometry, self.controls(ram_bytes), self.hw.cpus)
    }

    fn note(&mut self, key: &str, value: &str, source: &str, confidence: Confidence) {
        let figure = Figure {
            key: key.to_owned(),
            value: value.to_owned(),
            source: source.to_owned(),
            confidence,
        };
        match self.figures.iter_mut().find(|known| known.key == key) {
            Some(known) => *known = figure,
            None => self.figures.push(figure),
        }
    }

    fn shown(&self, group: &str) -> Option<String> {
        let geometry = &self.geometry;
        let shared = |arrays: &Option<Arrays>| {
            arrays.as_ref().map_or("shared".to_owned(), |arrays| format_arrays(arrays))
        };
        Some(match group {
            "l1d" => format_arrays(&geometry.load),
            "l1s" => shared(&geometry.store),
            "l1i" => shared(&geometry.fetch),
            "l2" => format_arrays(&geometry.l2),
            "l2i" => shared(&geometry.l2_fetch),
            "walk_caches" => format_arrays(&geometry.walk),
            _ => return None,
        })
    }

    fn apply(&mut self, key: &str, value: &str) -> Result<(), MachineError> {
        let (group, field) = match key.split_once('.') {
            Some((group, field)) => (group, Some(field)),
            None => (key, None),
        };
        let known = SETTINGS.iter().find(|setting| setting.key == group);
        let has_fields = self.shown(group).is_some();
        let field_known = field.is_none_or(|f| has_fields && FIELDS.contains(&f));
        let Some(setting) = known.filter(|_| field_known) else {
            let known: Vec<_> = SETTINGS.iter().map(|setting| setting.key).collect();
            let known = format!("{}, and l1d.entries, .ways, .policy", known.join(", "));
            return Err(MachineError::UnknownKey { key: key.to_owned(), known });
        };
        if setting.arch.is_some_and(|arch| arch != self.arch) {
            return Err(MachineError::WrongArch { key: key.to_owned(), arch: self.arch });
        }
        let expected = if field.is_some() { FIELD_EXPECTED } else { setting.expected };
        let applied = match (has_fields, field) {
            (true, Some(field)) => self.apply_field(group, field, value),
            (true, None) => self.apply_arrays(group, value),
            _ => self.apply_plain(group, value).ok_or(None),
        };
        applied.map_err(|error| match error {
            Some(error) => MachineError::Geometry { key: key.to_owned(), error },
            None => MachineError::Value { key: key.to_owned(), value: value.to_owned(), expected },
        })
    }

    /// Settings that are one value; `None` if the value will not do.
    fn apply_plain(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "tlbirange" => self.hw.tlbi_range = on_off(value)?,
            "hw_ad" => self.hw.hw_access_dirty = on_off(value)?,
            "bbm" => {
                self.hw.bbm = match value {
                    "0" => BbmLevel::Level0,
                    "2" => BbmLevel::Level2NoAbort,
                    "3" => BbmLevel::Level3,
                    _ => return None,
                }
            }
            "asid_bits" => {
                self.hw.asid_bits = value.parse().ok().filter(|bits| matches!(bits, 8 | 16))?;
            }
            "contiguous" => {
                self.contiguous = match value {
                    "ignored" => Contiguous::Ignored,
                    "faulting" => Contiguous::Faulting,
                    "first" => Contiguous::First,
                    _ => return None,
                }
            }
            "pcid" => self.hw.pcid = on_off(value)?,
            "invpcid" => self.hw.invpcid = on_off(value)?,
            "flush_ceiling" => self.hw.tlb_single_page_flush_ceiling = value.parse().ok()?,
            "kpti" => self.hw.kpti = on_off(value)?,
            "coalesce" => self.coalesce = coalesce(value)?,
            "on_denial" => {
                self.geometry.on_denial = match value {
                    "fault" => OnDenial::Fault,
                    "rewalk" => OnDenial::Rewalk,
                    _ => return None,
                }
            }
            "pa_bits" => {
                let max = if self.arch == ArchId::Arm64 { 48 } else { 52 };
                self.pa_bits = value.parse().ok().filter(|bits| (32..=max).contains(bits))?;
            }
            "clock_ghz" => self.clock.ghz = positive(value)?,
            "ipc" => self.clock.ipc = positive(value)?,
            _ => return None,
        }
        Some(())
    }

    fn apply_arrays(&mut self, group: &str, value: &str) -> Result<(), Option<GeometryError>> {
        let or_shared = |value: &str| match value {
            "shared" => Ok(None),
            value => parse_arrays(value).map(Some),
        };
        let geometry = &mut self.geometry;
        match group {
            "l1d" => geometry.load = parse_arrays(value)?,
            "l1s" => geometry.store = or_shared(value)?,
            "l1i" => geometry.fetch = or_shared(value)?,
            "l2" => geometry.l2 = parse_arrays(value)?,
            "l2i" => geometry.l2_fetch = or_shared(value)?,
            _ => geometry.walk = parse_arrays(value)?,
        }
        Ok(geometry.check()?)
    }

    fn apply_field(
        &mut self,
        group: &str,
        field: &str,
        value: &str,
    ) -> Result<(), Option<GeometryError>> {
        let geometry = &mut self.geometry;
        match group {
            "l1d" => change_array(geometry.load.first_mut(), field, value)?,
            "l1s" => change_array(first_of(&mut geometry.store), field, value)?,
            "l1i" => change_array(first_of(&mut geometry.fetch), field, value)?,
            "l2" => change_array(geometry.l2.first_mut(), field, value)?,
            "l2i" => change_array(first_of(&mut geometry.l2_fetch), field, value)?,
            _ => change_array(geometry.walk.first_mut(), field, value)?,
        }
        Ok(geometry.check()?)
    }
}

const FIELDS: [&str; 3] = ["entries", "ways", "policy"];
const FIELD_EXPECTED: &str =
    "a number (or full, for ways; lru or plru, for policy) of an array that the machine has";

fn first_of(arrays: &mut Option<Arrays>) -> Option<&mut ArrayGeometry<Reach>> {
    arrays.as_mut()?.first_mut()
}

/// Changes one field of an array; a fully associative one stays so when it is resized.
fn change_array<T: Covers>(
    array: Option<&mut ArrayGeometry<T>>,
    field: &str,
    value: &str,
) -> Result<(), Option<GeometryError>> {
    let array = array.ok_or(None)?;
    match (field, value) {
        ("entries", number) => {
            let full = array.ways == array.entries;
            array.entries = number.parse().map_err(|_| None)?;
            if full {
                array.ways = array.entries;
            }
        }
        ("ways", "full") => array.ways = array.entries,
        ("ways", number) => array.ways = number.parse().map_err(|_| None)?,
        ("policy", "lru") => array.policy = Policy::Lru,
        ("policy", "plru") => array.policy = Policy::TreePlru,
        _ => return Err(None),
    }
    Ok(())
}

fn on_off(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn positive(value: &str) -> Option<f64> {
    value.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}

fn coalesce(value: &str) -> Option<Option<Reach>> {
    if value == "off" {
        return Some(None);
    }
    let reach = <Reach as Covers>::parse(value)?;
    (reach > Reach::K4 && reach <= Reach::K64).then_some(Some(reach))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_parse() {
        for machine in Machine::all() {
            assert_eq!(machine.geometry.check(), Ok(()), "{}", machine.name);
            assert_eq!(Machine::by_name(machine.name), Ok(machine.clone()));
            for figure in machine.figures() {
                let mut again = machine.clone();
                again.set(&figure.key, &figure.value).expect("a figure is a setting");
                assert_eq!(again.geometry, machine.geometry, "{} {}", machine.name, figure.key);
                assert_eq!(again.hw, machine.hw, "{} {}", machine.name, figure.key);
            }
        }
        assert_eq!(Machine::default_for(ArchId::Arm64).name, "apple-m3-vm");
        assert_eq!(Machine::default_for(ArchId::X86_64).name, "x86-bare-metal");
    }

    #[test]
    fn every_preset_has_the_figures_of_its_architecture() {
        for machine in Machine::all() {
            for setting in SETTINGS.iter().filter(|s| s.arch == Some(machine.arch)) {
                let noted = machine.figures().iter().any(|figure| figure.key == setting.key);
                assert!(noted, "{} does not say `{}`", machine.name, setting.key);
            }
        }
    }

    #[test]
    fn overrides_change_one_number_and_say_so() {
        let mut machine = Machine::by_name("skylake").expect("a preset");
        machine.set("l1d.entries", "128").expect("divides by 4 ways");
        assert_eq!(format_arrays(&machine.geometry.load), "4K:128/4, 2M:32/4, 1G:4/full");
        let figure = machine.figures().iter().find(|f| f.key == "l1d").expect("noted");
        assert_eq!(figure.value, "4K:128/4, 2M:32/4, 1G:4/full");
        assert_eq!(figure.confidence, Confidence::Override);
        machine.set("l2", "none").expect("no second level");
        assert!(machine.geometry.l2.is_empty());
        machine.set("kpti", "on").expect("a boolean");
        assert!(machine.hw.kpti);
    }

    #[test]
    fn wrong_overrides_are_one_sentence() {
        let mut machine = Machine::by_name("skylake").expect("a preset");
        let before = machine.clone();
        let mut error = |key, value| machine.set(key, value).expect_err(key).to_string();
        assert!(
            error("tlbi", "on").starts_with("unknown machine setting `tlbi`; known: tlbirange")
        );
        assert!(error("l1d.size", "1").starts_with("unknown machine setting `l1d.size`"));
        assert!(error("kpti.entries", "1").starts_with("unknown machine setting"));
        assert_eq!(error("bbm", "0"), "machine setting `bbm` means nothing on x86_64");
        assert_eq!(
            error("pcid", "maybe"),
            "machine setting `pcid` cannot be `maybe`: expected on or off"
        );
        assert!(error("l1d.entries", "63").contains("63 entries do not divide"));
        assert!(error("l1d", "2M:8/full").contains("must hold 4K"));
        assert!(error("l1d", "4K:8192/full").contains("too many"));
        assert!(error("l1s.entries", "4").contains("an array that the machine has"));
        assert!(error("ipc", "0").contains("a positive number"));
        assert!(error("pa_bits", "60").contains("32 to 52"));
        assert_eq!(machine, before);
        let unknown = Machine::by_name("vax").expect_err("none").to_string();
        assert!(unknown.starts_with("unknown machine `vax`; known: apple-m3-vm, x86-bare-metal"));
    }

    #[test]
    fn a_clock_prices_instructions() {
        let apple = Machine::by_name("apple-m3-vm").expect("a preset");
        assert!((apple.clock.ns_per_instruction() - 0.0823).abs() < 1e-4);
    }
}
