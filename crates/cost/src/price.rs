//! Price lists.

use crate::explain::{Breakdown, Term};
use crate::{ClassId, Classes, Difference, Picos, Posterior, Unknown};
use events::Counters;
use serde::Deserialize;
use units::ArchId;

/// What is wrong with a price list or with the classes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    /// A price file of another schema.
    #[error("the schema of the price file is `{0}`, not `{SCHEMA}`")]
    Schema(String),
    /// Not TOML of the expected shape.
    #[error("the price file does not parse: {0}")]
    Toml(String),
    /// An architecture that does not exist.
    #[error("unknown architecture `{0}`")]
    Arch(String),
    /// An event that does not exist.
    #[error("unknown event `{0}`: `ptescope events` lists them")]
    Event(String),
    /// A kind of events that does not exist.
    #[error("unknown kind of events `{0}`")]
    Kind(String),
    /// An event in two places.
    #[error("the event `{0}` is placed twice")]
    Twice(String),
    /// An event in no place.
    #[error("the event `{0}` is neither priced nor declared free: add it to prices/classes.toml")]
    Nowhere(&'static str),
    /// A class that does not exist.
    #[error("unknown price class `{0}`")]
    Class(String),
    /// A class without a price.
    #[error("the class `{class}` has no price in `{list}`")]
    Missing {
        /// The class.
        class: String,
        /// The price list.
        list: String,
    },
    /// A price that is no price.
    #[error("the price of `{class}` is {value}: it must be a number from 0 up")]
    Value {
        /// The class.
        class: String,
        /// What stands there.
        value: String,
    },
}

/// What one event of a class costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    /// Cost of one event.
    pub cost: Picos,
    /// Relative uncertainty, one standard deviation.
    pub spread: f64,
    /// What was believed before the fit, for a list that was fitted.
    pub prior: Option<Picos>,
    /// Relative uncertainty of that.
    pub prior_spread: Option<f64>,
    /// Where the number comes from.
    pub source: String,
}

/// The prices of one machine.
#[derive(Clone, Debug)]
pub struct PriceList {
    name: String,
    arch: ArchId,
    summary: String,
    fitted_on: Vec<String>,
    classes: Classes,
    prices: Vec<Option<Price>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    name: String,
    arch: String,
    summary: String,
    fitted_on: Vec<String>,
    price: Vec<FilePrice>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePrice {
    class: String,
    ns: f64,
    spread: f64,
    prior_ns: Option<f64>,
    prior_spread: Option<f64>,
    source: String,
}

/// The schema of price lists.
const SCHEMA: &str = "ptescope.prices/2";

const MACHINES: &[&str] =
    &[include_str!("../prices/apple-m3-vm.toml"), include_str!("../prices/x86-bare-metal.toml")];

const GENERIC_ARM64: &str = include_str!("../prices/generic-arm64.toml");
const GENERIC_X86_64: &str = include_str!("../prices/generic-x86_64.toml");

impl PriceList {
    /// The prices of the machine preset `machine`; those of its architecture in general, with
    /// wide spreads, if nobody has written down any for it.
    ///
    /// # Errors
    /// [`PriceError`] if an embedded list is wrong (tests read them all).
    pub fn for_machine(machine: &str, arch: ArchId) -> Result<PriceList, PriceError> {
        for text in MACHINES {
            let list = PriceList::parse(text)?;
            if list.name == machine && list.arch == arch {
                return Ok(list);
            }
        }
        PriceList::generic(arch)
    }

    /// Every list that is built in, the generic ones last.
    ///
    /// # Errors
    /// [`PriceError`] as for [`PriceList::for_machine`].
    pub fn builtin() -> Result<Vec<PriceList>, PriceError> {
        MACHINES.iter().chain(&[GENERIC_ARM64, GENERIC_X86_64]).map(|t| Self::parse(t)).collect()
    }

    /// Reads a price list.
    ///
    /// # Errors
    /// [`PriceError`] that names what is missing, unknown, twice or no number.
    pub fn parse(text: &str) -> Result<PriceList, PriceError> {
        let file: File = toml::from_str(text).map_err(|e| PriceError::Toml(e.to_string()))?;
        if file.schema != SCHEMA {
            return Err(PriceError::Schema(file.schema));
        }
        let arch = ArchId::parse(&file.arch).ok_or(PriceError::Arch(file.arch))?;
        let classes = Classes::builtin(arch)?;
        let mut prices = vec![None; classes.list().count()];
        for entry in file.price {
            let Some(id) = classes.find(&entry.class) else {
                return Err(PriceError::Class(entry.class));
            };
            let class = entry.class.clone();
            if prices[id.index()].replace(Price::from_file(entry)?).is_some() {
                return Err(PriceError::Twice(class));
            }
        }
        let foreign = |a: Option<ArchId>| a.is_some_and(|a| a != arch);
        for (id, class) in classes.list() {
            if prices[id.index()].is_none() && !foreign(class.arch) {
                return Err(PriceError::Missing { class: class.name.clone(), list: file.name });
            }
        }
        let File { name, summary, fitted_on, .. } = file;
        Ok(PriceList { name, arch, summary, fitted_on, classes, prices })
    }

    /// The same list with `ns` nanoseconds for a guest instruction: the rate belongs to the machine
    /// that runs it, which may have been changed.
    ///
    /// # Errors
    /// [`PriceError::Value`] for what is no price.
    pub fn with_instruction(mut self, ns: f64) -> Result<PriceList, PriceError> {
        let cost = picos("instruction", ns)?;
        if let Some(price) = &mut self.prices[ClassId::INSTRUCTION.index()] {
            price.cost = cost;
        }
        Ok(self)
    }

    /// The generic list of `arch`: the priors that a fit of a machine starts from.
    ///
    /// # Errors
    /// [`PriceError`] as for [`PriceList::for_machine`].
    pub fn generic(arch: ArchId) -> Result<PriceList, PriceError> {
        PriceList::parse(match arch {
            ArchId::Arm64 => GENERIC_ARM64,
            ArchId::X86_64 => GENERIC_X86_64,
        })
    }

    /// The prices as unknowns of a fit, from what was believed before any; in the order of the classes.
    pub fn unknowns(&self) -> Vec<Unknown> {
        let priced = self.priced().map(|(id, price)| Unknown {
            name: self.classes.get(id).name.clone(),
            prior: ns(price.prior.unwrap_or(price.cost)),
            spread: price.prior_spread.unwrap_or(price.spread),
        });
        priced.collect()
    }

    /// How often each of [`PriceList::unknowns`] occurs in the counts.
    pub fn occurrences(&self, counts: &Counters, instructions: u64) -> Vec<f64> {
        let sums = self.classes.count(counts, instructions);
        #[expect(clippy::cast_precision_loss, reason = "a fit needs a few digits of a count")]
        let count = |id: ClassId| sums[id.index()] as f64;
        self.priced().map(|(id, _)| count(id)).collect()
    }

    /// The list with what a fit of its [`PriceList::unknowns`] found.
    ///
    /// # Errors
    /// [`PriceError::Value`] for an estimate beyond all prices.
    pub fn fitted(
        &self,
        found: &Posterior,
        name: &str,
        summary: &str,
        fitted_on: Vec<String>,
    ) -> Result<PriceList, PriceError> {
        let (name, summary) = (name.to_owned(), summary.to_owned());
        let mut list = PriceList { name, summary, fitted_on, ..self.clone() };
        let ids: Vec<ClassId> = self.priced().map(|(id, _)| id).collect();
        for (i, id) in ids.into_iter().enumerate() {
            let Some(price) = &mut list.prices[id.index()] else { continue };
            let prior = *price.prior.get_or_insert(price.cost);
            let spread = *price.prior_spread.get_or_insert(price.spread);
            (price.cost, price.spread) = (prior, spread);
            if found.is_learned(i) {
                price.cost = picos(&found.unknowns()[i].name, significant(found.values()[i]))?;
                price.spread = round(found.spread(i));
            }
        }
        Ok(list)
    }

    /// The list as a price file, with `comment` (lines that start with `#`) on top.
    pub fn to_toml(&self, comment: &str) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let mut text = format!(
            "{comment}schema = {}\nname = {}\narch = {}\nsummary = {}\n",
            quoted(SCHEMA),
            quoted(&self.name),
            quoted(self.arch.name()),
            quoted(&self.summary)
        );
        let rows = self.fitted_on.iter().map(|row| format!("    {},\n", quoted(row)));
        let rows: String = rows.collect();
        text += &if rows.is_empty() {
            "fitted_on = []\n".to_owned()
        } else {
            format!("fitted_on = [\n{rows}]\n")
        };
        for (id, price) in self.priced() {
            text += &format!(
                "\n[[price]]\nclass = {}\nns = {}\nspread = {}\n",
                quoted(&self.classes.get(id).name),
                ns(price.cost),
                price.spread
            );
            if let Some((prior, spread)) = price.prior.zip(price.prior_spread) {
                text += &format!("prior_ns = {}\nprior_spread = {spread}\n", ns(prior));
            }
            text += &format!("source = {}\n", quoted(&price.source));
        }
        text
    }

    fn priced(&self) -> impl Iterator<Item = (ClassId, &Price)> {
        let ids = self.classes.list().map(|(id, _)| id);
        ids.zip(&self.prices).filter_map(|(id, price)| Some((id, price.as_ref()?)))
    }

    /// Its name: that of the machine, or `generic-<arch>`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The architecture it is for.
    pub fn arch(&self) -> ArchId {
        self.arch
    }

    /// A line on the machine.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// The published results that the prices were fitted on: a time of theirs is no prediction.
    pub fn fitted_on(&self) -> &[String] {
        &self.fitted_on
    }

    /// Whether these are no machine's prices in particular.
    pub fn is_generic(&self) -> bool {
        self.name.starts_with("generic-")
    }

    /// What is priced together.
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// The price of a class; `None` if it belongs to the other architecture.
    pub fn price(&self, id: ClassId) -> Option<&Price> {
        self.prices[id.index()].as_ref()
    }

    /// Modelled time of the events and instructions, without an interval: what a clock shows.
    pub fn time(&self, counts: &Counters, instructions: u64) -> Picos {
        let sums = self.classes.count(counts, instructions);
        sums.iter()
            .zip(&self.prices)
            .map(|(&n, p)| p.as_ref().map_or(Picos::ZERO, |p| p.cost.times(n)))
            .sum()
    }

    /// Modelled time split into classes.
    pub fn explain(&self, counts: &Counters, instructions: u64) -> Breakdown {
        let sums = self.classes.count(counts, instructions);
        let terms = self.classes.list().zip(&self.prices).zip(sums).filter(|(_, n)| *n != 0);
        Breakdown::new(
            terms
                .map(|(((_, class), price), count)| Term {
                    class: class.name.clone(),
                    words: class.words.clone(),
                    count,
                    time: price.as_ref().map_or(Picos::ZERO, |p| p.cost.times(count)),
                    spread: price.as_ref().map_or(0.0, |p| p.spread),
                })
                .collect(),
        )
    }

    /// `before` minus `after` split into classes.
    pub fn difference(&self, before: (&Counters, u64), after: (&Counters, u64)) -> Difference {
        Difference::between(&self.explain(before.0, before.1), &self.explain(after.0, after.1))
    }
}

impl Price {
    fn from_file(entry: FilePrice) -> Result<Price, PriceError> {
        let class = &entry.class;
        let spread = entry.spread;
        if !(0.0..=10.0).contains(&spread) {
            return Err(PriceError::Value { class: class.clone(), value: spread.to_string() });
        }
        let prior = entry.prior_ns.map(|ns| picos(class, ns)).transpose()?;
        let prior_spread = entry.prior_spread;
        Ok(Price {
            cost: picos(class, entry.ns)?,
            spread,
            prior,
            prior_spread,
            source: entry.source,
        })
    }
}

/// Nanoseconds of a price.
#[expect(clippy::cast_precision_loss, reason = "a price has a handful of digits")]
fn ns(price: Picos) -> f64 {
    price.get() as f64 / 1e3
}

/// To three significant digits: the rest says nothing, and may differ between hosts.
fn significant(x: f64) -> f64 {
    let unit = 10f64.powf(x.abs().log10().floor() - 2.0);
    if unit.is_finite() && unit > 0.0 { (x / unit).round() * unit } else { x }
}

/// To two digits after the point.
fn round(x: f64) -> f64 {
    (x * 1e2).round() / 1e2
}

/// `ns` as whole picoseconds.
fn picos(class: &str, ns: f64) -> Result<Picos, PriceError> {
    const NS_MAX: f64 = 1e9;
    if !(0.0..=NS_MAX).contains(&ns) {
        return Err(PriceError::Value { class: class.to_owned(), value: ns.to_string() });
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most 10^12 after the check above")]
    let picos = (ns * 1e3).round() as i128;
    Ok(Picos::new(picos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_list_parses_and_prices_its_architecture() {
        let lists = PriceList::builtin().expect("embedded lists are whole");
        let names: Vec<_> = lists.iter().map(PriceList::name).collect();
        assert_eq!(names, ["apple-m3-vm", "x86-bare-metal", "generic-arm64", "generic-x86_64"]);
        for list in &lists {
            let prices: Vec<_> =
                list.classes().list().filter_map(|(id, _)| list.price(id)).collect();
            assert!(prices.len() > 20 && prices.iter().all(|p| !p.source.is_empty()));
        }
    }

    #[test]
    fn a_machine_without_prices_gets_the_generic_list() {
        let list = PriceList::for_machine("zen2", ArchId::X86_64).expect("generic");
        assert!(list.is_generic() && list.fitted_on().is_empty());
        let list = PriceList::for_machine("apple-m3-vm", ArchId::Arm64).expect("own");
        assert!(!list.is_generic() && !list.fitted_on().is_empty());
        let list = PriceList::for_machine("apple-m3-vm", ArchId::X86_64).expect("generic");
        assert_eq!(list.name(), "generic-x86_64");
    }

    #[test]
    fn the_rate_of_instructions_is_the_machines() {
        let list = PriceList::for_machine("apple-m3-vm", ArchId::Arm64).expect("own");
        let slow = list.with_instruction(1.0).expect("a price");
        assert_eq!(slow.time(&Counters::new(), 5), Picos::new(5000));
        assert!(slow.with_instruction(f64::INFINITY).is_err());
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        for list in PriceList::builtin().expect("embedded lists are whole") {
            let again = PriceList::parse(&list.to_toml("# A comment.\n")).expect("parses");
            assert_eq!(again.prices, list.prices, "{}", list.name());
            assert_eq!(again.fitted_on(), list.fitted_on());
        }
    }

    #[test]
    fn a_wrong_list_says_what_is_wrong() {
        let list = |class: &str, ns: &str| {
            let head = "schema = \"ptescope.prices/2\"\nname = \"x\"\narch = \"arm64\"\nsummary = \"\"\nfitted_on = []\n";
            let price =
                format!("[[price]]\nclass = \"{class}\"\nns = {ns}\nspread = 0.1\nsource = \"\"\n");
            PriceList::parse(&format!("{head}{price}")).expect_err("wrong").to_string()
        };
        assert!(list("tlbi", "1.0").contains("unknown price class `tlbi`"));
        assert!(list("lock", "-1.0").contains("must be a number from 0 up"));
        assert!(list("lock", "nan").contains("must be a number from 0 up"));
        assert!(list("lock", "1.0").contains("has no price in `x`"));
    }
}
