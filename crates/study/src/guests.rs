//! The guest programs that are built in: `@name`.

use units::ArchId;

/// An argument of a guest program.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// What it is called in help.
    pub name: &'static str,
    /// What the program takes when it is absent.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// A guest program with its prebuilt files.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// Its name, without the `@`.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// What it teaches.
    pub lesson: &'static str,
    /// Its arguments, in order.
    pub arguments: &'static [Argument],
    builds: [Option<&'static [u8]>; 2],
}

const GUESTS: &[Guest] = include!(concat!(env!("OUT_DIR"), "/guests.rs"));

impl Guest {
    /// Every guest, in the order of the names.
    pub fn all() -> &'static [Guest] {
        GUESTS
    }

    /// The guest of that name.
    pub fn find(name: &str) -> Option<&'static Guest> {
        GUESTS.iter().find(|g| g.name == name)
    }

    /// The ELF file for `arch`, if there is one.
    pub fn elf(&self, arch: ArchId) -> Option<&'static [u8]> {
        match arch {
            ArchId::Arm64 => self.builds[0],
            ArchId::X86_64 => self.builds[1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_of_the_main_study_is_built_for_both_architectures() {
        let guest = Guest::find("pageout").expect("built in");
        for arch in ArchId::ALL {
            let elf = guest.elf(arch).expect("built");
            assert_eq!(elf[..4], *b"\x7fELF", "{arch}");
        }
        assert_eq!(guest.arguments[0].default, "256");
    }
}
