//! What counted events cost: price lists, modelled time with an interval, and its explanation.
//!
//! Counts are facts, prices are opinions: this crate knows events and never how they came about.
//! [`Classes`] says which events cost the same, a [`PriceList`] (a TOML file with sources) what
//! each class costs on one machine. Time is the sum of count × price; [`Breakdown`] and
//! [`Difference`] split it into terms that add up to it exactly, because all sums are integers
//! of [`Picos`]. Where prices come from is [`fit()`]'s business. Left out: bandwidth, contention and overlap, beyond
//! what a price averages over.

mod class;
mod explain;
mod fit;
mod picos;
mod price;
mod sensitivity;
mod work;

pub use class::{Class, ClassId, Classes};
pub use explain::{Breakdown, Change, Difference, Estimate, Ratio, Term};
pub use fit::{Datum, FitError, Posterior, Predicted, Unknown, fit};
pub use picos::Picos;
pub use price::{Price, PriceError, PriceList};
pub use sensitivity::{Bill, Flip, Lever, Sensitivity};
pub use work::{Work, WorkTable};
