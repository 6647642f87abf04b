//! What a run is set up with, as users write it: sizes, folio sizes, overrides.

use std::fmt;

/// Why a setting makes no sense; one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingError(pub(crate) String);

/// When faults may use a folio size (`hugepages-<kB>kB/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThpPolicy {
    /// Everywhere.
    Always,
    /// As the global knob says.
    Inherit,
    /// Where MADV_HUGEPAGE asked.
    Madvise,
    /// Nowhere.
    Never,
}

impl ThpPolicy {
    const ALL: [(&'static str, ThpPolicy); 4] = [
        ("always", ThpPolicy::Always),
        ("inherit", ThpPolicy::Inherit),
        ("madvise", ThpPolicy::Madvise),
        ("never", ThpPolicy::Never),
    ];

    /// The word in sysfs.
    pub fn name(self) -> &'static str {
        match self {
            ThpPolicy::Always => "always",
            ThpPolicy::Inherit => "inherit",
            ThpPolicy::Madvise => "madvise",
            ThpPolicy::Never => "never",
        }
    }
}

/// One `--thp SIZE=POLICY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ThpSetting {
    /// Size of the folio in kB: 16, 32, … 2048.
    pub kib: u64,
    /// When to use it.
    pub policy: ThpPolicy,
}

impl fmt::Display for ThpSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}kB={}", self.kib, self.policy.name())
    }
}

/// Reads `64kB=always`, `64K=always`, `2M=madvise`, `2048kB=never`.
///
/// # Errors
/// [`SettingError`] naming what is wrong and what would be right.
pub fn parse_thp(text: &str) -> Result<ThpSetting, SettingError> {
    let Some((size, policy)) = text.split_once('=') else {
        return Err(SettingError(format!("`{text}` is not SIZE=POLICY, as in 64kB=always")));
    };
    let kib = parse_bytes(size)? >> 10;
    if !kib.is_power_of_two() || !(16..=2048).contains(&kib) {
        return Err(SettingError(format!(
            "there are no folios of {size}: a power of two from 16kB to 2M is needed"
        )));
    }
    let Some(&(_, policy)) = ThpPolicy::ALL.iter().find(|(name, _)| *name == policy) else {
        return Err(SettingError(format!(
            "unknown policy `{policy}`; known: always, inherit, madvise, never"
        )));
    };
    Ok(ThpSetting { kib, policy })
}

/// Reads a number of bytes with a suffix: `64kB`, `64K`, `1G`, `1GiB`, `4096`; all suffixes are
/// powers of 1024.
///
/// # Errors
/// [`SettingError`] for what is no number, has an unknown suffix or does not fit 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64, SettingError> {
    let digits_nr = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(digits_nr);
    if digits.is_empty() {
        return Err(SettingError(format!("`{text}` is no size: give a number and K, M or G")));
    }
    let unit = suffix.to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => {
            return Err(SettingError(format!(
                "unknown unit `{suffix}` in `{text}`; known: K, M, G"
            )));
        }
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| SettingError(format!("{text} does not fit 64 bits")))
}

/// The least guest RAM that a kernel and a program can live in.
pub const MEM_BYTES_MIN: u64 = 8 << 20;
/// The most guest RAM: its metadata would outgrow most hosts.
pub const MEM_BYTES_MAX: u64 = 1 << 40;

/// Reads the size of guest RAM.
///
/// # Errors
/// As [`parse_bytes`]; and sizes outside [`MEM_BYTES_MIN`] to [`MEM_BYTES_MAX`].
pub fn parse_mem(text: &str) -> Result<u64, SettingError> {
    let bytes = parse_bytes(text)?;
    if bytes < MEM_BYTES_MIN {
        return Err(SettingError(format!("guest RAM of {text} is too small: give 8M or more")));
    }
    if bytes > MEM_BYTES_MAX {
        return Err(SettingError(format!("guest RAM of {text} is too large: give 1T or less")));
    }
    Ok(bytes)
}

/// Reads the size of swap; none (0) is fine.
///
/// # Errors
/// As [`parse_bytes`]; and more than [`MEM_BYTES_MAX`].
pub fn parse_swap(text: &str) -> Result<u64, SettingError> {
    let bytes = parse_bytes(text)?;
    if bytes > MEM_BYTES_MAX {
        return Err(SettingError(format!("swap of {text} is too large: give 1T or less")));
    }
    Ok(bytes)
}

/// One `--set SUBJECT.FIELD=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// `machine.tlbirange`.
    pub key: String,
    /// `off`.
    pub value: String,
}

/// Reads `machine.FIELD=VALUE` or `kernel.FIELD=VALUE`.
///
/// # Errors
/// [`SettingError`] if it has no such shape; whether the field exists shows when it is applied.
pub fn parse_set(text: &str) -> Result<Override, SettingError> {
    let wrong = || {
        SettingError(format!(
            "`{text}` is neither machine.FIELD=VALUE nor kernel.FIELD=VALUE, as in machine.tlbirange=off"
        ))
    };
    let (key, value) = text.split_once('=').ok_or_else(wrong)?;
    let known = key.starts_with("machine.") || key.starts_with("kernel.");
    if !known || value.is_empty() {
        return Err(wrong());
    }
    Ok(Override { key: key.to_owned(), value: value.to_owned() })
}

/// Reads a switch.
///
/// # Errors
/// [`SettingError`] for anything but on, off, true, false, yes, no, 1, 0.
pub(crate) fn parse_switch(key: &str, value: &str) -> Result<bool, SettingError> {
    match value {
        "on" | "true" | "yes" | "1" => Ok(true),
        "off" | "false" | "no" | "0" => Ok(false),
        _ => Err(SettingError(format!("`{key}` is either on or off, not `{value}`"))),
    }
}

/// `FILE=TEXT`, to be written before the program starts.
///
/// # Errors
/// The sentence for what is not of that form.
pub fn parse_write(text: &str) -> Result<(String, String), SettingError> {
    match text.split_once('=') {
        Some((file, text)) if file.starts_with('/') => Ok((file.to_owned(), text.to_owned())),
        _ => Err(SettingError("it must be FILE=TEXT with an absolute path".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: fmt::Debug>(result: Result<T, SettingError>, part: &str) {
        let message = result.expect_err("wrong").to_string();
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64kB", 64 << 10),
            ("64K", 64 << 10),
            ("64KiB", 64 << 10),
            ("2M", 2 << 20),
            ("1G", 1 << 30),
            ("1gb", 1 << 30),
            ("0", 0),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        check(parse_bytes("lots"), "is no size");
        check(parse_bytes("-1G"), "is no size");
        check(parse_bytes("1X"), "unknown unit `X`");
        check(parse_bytes("99999999999999999999"), "does not fit");
        check(parse_bytes("16E"), "does not fit");
    }

    #[test]
    fn absurd_amounts_of_memory_are_refused() {
        assert_eq!(parse_mem("1G"), Ok(1 << 30));
        check(parse_mem("0"), "too small");
        check(parse_mem("1E"), "too large");
        check(parse_mem(""), "is no size");
        assert_eq!(parse_swap("0"), Ok(0));
        check(parse_swap("2T"), "too large");
    }

    #[test]
    fn folio_sizes_are_powers_of_two_with_a_policy() {
        let setting = ThpSetting { kib: 64, policy: ThpPolicy::Always };
        for text in ["64kB=always", "64K=always", "65536=always"] {
            assert_eq!(parse_thp(text), Ok(setting), "{text}");
        }
        assert_eq!(parse_thp("2M=inherit").map(|s| s.to_string()), Ok("2048kB=inherit".to_owned()));
        check(parse_thp("64kB"), "is not SIZE=POLICY");
        check(parse_thp("4kB=always"), "no folios of 4kB");
        check(parse_thp("48kB=always"), "no folios of 48kB");
        check(parse_thp("64kB=sometimes"), "unknown policy `sometimes`");
    }

    #[test]
    fn overrides_name_a_subject() {
        let set = parse_set("machine.tlbirange=off").expect("right");
        assert_eq!((set.key.as_str(), set.value.as_str()), ("machine.tlbirange", "off"));
        for text in ["tlbirange=off", "machine.tlbirange", "kernel.contpte="] {
            check(parse_set(text), "neither machine.FIELD=VALUE");
        }
    }
}
