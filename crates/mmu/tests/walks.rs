//! Walks over tables written by hand: what comes out, what hardware leaves behind, what it cost.

mod common;

use arch::{Arm64, TableLevel, X86_64};
use common::tables::{Tables, Words};
use mmu::{
    Access, AccessDirty, Contiguous, Controls, Entry, Fault, FaultKind, HwWalk, LEVELS, Leaf,
    Rights, Start, Step, Trail, WalkStats, explain_walk, walk,
};
use proptest::prelude::*;
use units::{PhysAddr, Reach, VirtAddr};

const RAM: u64 = 3 << 30;
const VA: u64 = 0x1234_5678_9000 & 0x7fff_ffff_ffff;
const PAGE: u64 = 0x4000_5000;

/// The four entries on the way to [`VA`], root first; those after a leaf are not written.
struct Case<A> {
    words: Vec<u64>,
    controls: Controls,
    va: u64,
    marker: std::marker::PhantomData<A>,
}

struct Walked {
    result: Result<Leaf, Fault>,
    after: Vec<u64>,
    stats: WalkStats,
}

impl<A: Words> Case<A> {
    /// Three tables and a page that a user may read and write, nothing accessed yet.
    fn new() -> Case<A> {
        let leaf = A::clean(A::old(A::leaf(PAGE, TableLevel::Pte)));
        let words = vec![A::table(0x2000), A::table(0x3000), A::table(0x4000), leaf];
        Case { words, controls: Controls::new(RAM), va: VA, marker: std::marker::PhantomData }
    }

    /// A leaf at `level` instead.
    fn leaf(level: TableLevel, raw: u64) -> Case<A> {
        let mut case = Case::new();
        case.words.truncate(level as usize);
        case.words.push(raw);
        case
    }

    fn word(mut self, level: TableLevel, change: impl Fn(u64) -> u64) -> Self {
        let word = &mut self.words[level as usize];
        *word = change(*word);
        self
    }

    fn controls(mut self, change: impl Fn(&mut Controls)) -> Self {
        change(&mut self.controls);
        self
    }

    fn va(mut self, va: u64) -> Self {
        self.va = va;
        self
    }

    fn walk(&self, access: Access) -> Walked {
        let mut tables = Tables::new(RAM);
        let slots: Vec<PhysAddr> = LEVELS
            .iter()
            .zip([0x1000, 0x2000, 0x3000, 0x4000])
            .map(|(level, table)| level.slot(PhysAddr::new(table), VirtAddr::new(VA)))
            .collect();
        for (&slot, &word) in slots.iter().zip(&self.words) {
            tables.ram.store_u64(slot, word);
        }
        let (mut trail, mut stats) = (Trail::default(), WalkStats::default());
        let (ram, va) = (&mut tables.ram, VirtAddr::new(self.va));
        let root = PhysAddr::new(0x1000);
        let told = explain_walk::<A>(ram, &self.controls, root, va, access);
        for (&slot, &word) in slots.iter().zip(&self.words) {
            assert_eq!(ram.load_u64(slot), word, "an explanation changes nothing");
        }
        let start = Start::root(root);
        let result = walk::<A>(ram, &self.controls, start, (va, access), &mut trail, &mut stats);
        let after = slots.iter().zip(&self.words).map(|(&slot, _)| ram.load_u64(slot)).collect();
        assert_eq!(told.outcome, result.map(|leaf| (leaf.translate(va), leaf)));
        let last = told.levels.last().map(|level| (level.slot, level.written));
        if let Some((slot, Some(written))) = last {
            assert_eq!(written, ram.load_u64(slot));
        }
        Walked { result, after, stats }
    }

    /// The access is allowed and leaves the entries so.
    fn yields(&self, access: Access, leaf: (u64, Reach, Rights), after: &[u64]) {
        let walked = self.walk(access);
        let found = walked.result.map(|leaf| (leaf.base.get(), leaf.reach, leaf.rights));
        assert_eq!(found, Ok(leaf), "{access:?}");
        assert_eq!(walked.after, after, "{access:?}: {:x?} against {after:x?}", walked.after);
        assert_eq!(walked.stats.loads_total(), self.words.len() as u64);
    }

    /// The access faults, and the entries up to the faulting one are left so.
    fn faults(&self, access: Access, kind: FaultKind, code: u64) {
        let walked = self.walk(access);
        let fault = Fault { va: VirtAddr::new(self.va), access, kind };
        assert_eq!(walked.result, Err(fault));
        let found = match A::ID {
            units::ArchId::X86_64 => u64::from(fault.error_code()),
            units::ArchId::Arm64 => fault.status_code(),
        };
        assert_eq!(found, code, "{kind:?}");
        assert_eq!(walked.stats.faults, 1);
        let last = walked.after.last().copied();
        assert_eq!(last, self.words.last().copied(), "a faulting entry is not marked");
    }
}

const RW: Rights = Rights::ALL.without(Rights::EXEC);

mod x86_64 {
    use super::*;

    type X = Case<X86_64>;
    const A: u64 = 0x20;
    const D: u64 = 0x40;

    #[test]
    fn a_page_is_found_in_four_loads_and_marked_on_every_level() {
        let case = X::new();
        let [pml4e, pdpte, pde, pte] = case.words[..] else { panic!("four levels") };
        let tables = [pml4e | A, pdpte | A, pde | A];
        let leaf = (PAGE, Reach::K4, RW);
        case.yields(Access::Read, leaf, &[tables[0], tables[1], tables[2], pte | A]);
        case.yields(Access::Write, leaf, &[tables[0], tables[1], tables[2], pte | A | D]);
        let walked = case.walk(Access::Write);
        assert_eq!(walked.stats.loads, [1, 1, 1, 1]);
        assert_eq!((walked.stats.accessed_writes, walked.stats.dirty_writes), (4, 1));
    }

    #[test]
    fn large_leaves_end_the_walk_early() {
        let pde = 0x4000_0000 | 0xe7;
        X::leaf(TableLevel::Pmd, pde).yields(
            Access::Exec,
            (0x4000_0000, Reach::M2, Rights::ALL),
            &[0x2027, 0x3027, pde],
        );
        let pdpte = 0x4000_0000 | 0x1087;
        X::leaf(TableLevel::Pud, pdpte).yields(
            Access::Write,
            (0x4000_0000, Reach::G1, Rights::ALL),
            &[0x2027, pdpte | A | D],
        );
    }

    #[test]
    fn not_present_faults_at_its_level() {
        for level in LEVELS {
            let case = X::new().word(level, |word| word & !1);
            case.walk(Access::Read);
            case.faults_upto(level, Access::Write, 0b0_0110);
        }
    }

    impl X {
        fn faults_upto(mut self, level: TableLevel, access: Access, code: u64) {
            self.words.truncate(level as usize + 1);
            self.faults(access, FaultKind::Translation(level), code);
        }
    }

    #[test]
    fn rights_are_anded_over_the_levels() {
        for level in LEVELS {
            let denied = FaultKind::Permission(TableLevel::Pte);
            let read_only = X::new().word(level, |word| word & !2);
            read_only.faults(Access::Write, denied, 0b0_0111);
            assert!(read_only.walk(Access::Read).result.is_ok());
            let supervisor = X::new().word(level, |word| word & !4);
            supervisor.faults(Access::Read, denied, 0b0_0101);
            let executable = X::new().word(TableLevel::Pte, X86_64::executable);
            assert!(executable.walk(Access::Exec).result.is_ok());
            let no_exec = executable.word(level, |word| word | 1 << 63);
            no_exec.faults(Access::Exec, denied, 0b1_0101);
        }
    }

    #[test]
    fn reserved_bits_fault_before_rights() {
        let case = |level, bit: u32| {
            let mut case = X::new().word(level, move |word| word & !2 | 1 << bit);
            case.words.truncate(level as usize + 1);
            case
        };
        let check = |case: X, level| {
            case.faults(Access::Write, FaultKind::Reserved(level), 0b0_1111);
        };
        check(case(TableLevel::Pgd, 7), TableLevel::Pgd);
        check(case(TableLevel::Pmd, 51), TableLevel::Pmd);
        check(case(TableLevel::Pte, 48), TableLevel::Pte);
        let pde = 0x4000_0000 | 0xe7 | 1 << 13;
        check(X::leaf(TableLevel::Pmd, pde), TableLevel::Pmd);
        let pdpte = 0x4000_0000 | 0xe7 | 1 << 21;
        check(X::leaf(TableLevel::Pud, pdpte), TableLevel::Pud);
        let narrow = X::new().controls(|c| c.pa_bits = 36).word(TableLevel::Pte, |w| w | 1 << 40);
        check(narrow, TableLevel::Pte);
    }

    #[test]
    fn addresses_beyond_ram_fault_instead_of_panicking() {
        let far = |level| X::new().word(level, |word| word | 1 << 40);
        let kind = FaultKind::Reserved;
        far(TableLevel::Pte).faults(Access::Read, kind(TableLevel::Pte), 0b0_1101);
        let mut table = far(TableLevel::Pud);
        table.words.truncate(2);
        table.faults(Access::Read, kind(TableLevel::Pud), 0b0_1101);
        // The last table starts in RAM, but a 2 MiB page would end after it.
        let pde = (RAM - (1 << 20)) & !0x1f_ffff | 0xe7;
        let short = X::leaf(TableLevel::Pmd, pde).controls(|c| c.ram_bytes = RAM - (1 << 20));
        short.faults(Access::Read, kind(TableLevel::Pmd), 0b0_1101);
    }

    #[test]
    fn non_canonical_addresses_are_general_protection_faults() {
        for va in [0x8000_0000_0000, 0x0100_0000_0000_0000, u64::MAX >> 1] {
            let walked = X::new().va(va).walk(Access::Read);
            let fault = walked.result.expect_err("not canonical");
            assert_eq!((fault.vector(), fault.error_code()), (13, 0));
            assert_eq!(walked.stats.loads_total(), 0);
        }
    }

    #[test]
    fn protection_keys_deny_data_and_never_fetches() {
        let keyed = || X::new().word(TableLevel::Pte, |w| X86_64::executable(w) | 3 << 59);
        let denied = FaultKind::ProtectionKey(TableLevel::Pte);
        let no_write = keyed().controls(|c| c.pkru = 0b10 << 6);
        no_write.faults(Access::Write, denied, 0b10_0111);
        assert!(no_write.walk(Access::Read).result.is_ok());
        let no_access = keyed().controls(|c| c.pkru = 0b01 << 6);
        no_access.faults(Access::Read, denied, 0b10_0101);
        assert!(no_access.walk(Access::Exec).result.is_ok());
    }

    #[test]
    fn four_adjacent_entries_coalesce_only_if_alike() {
        let mut tables = Tables::new(RAM);
        let root = tables.table();
        let leaf = X86_64::leaf(0x4000_4000, TableLevel::Pte);
        let reach = |tables: &mut Tables, page: u64| {
            let controls = Controls { coalesce: Some(Reach::K16), ..Controls::new(RAM) };
            let (mut trail, mut stats) = (Trail::default(), WalkStats::default());
            let at = (VirtAddr::new(VA & !0x3fff | page << 12), Access::Read);
            let (ram, start) = (&mut tables.ram, Start::root(root));
            let leaf = walk::<X86_64>(ram, &controls, start, at, &mut trail, &mut stats);
            assert_eq!(stats.loads_total(), 4);
            leaf.map(|leaf| (leaf.reach, leaf.base.get()))
        };
        for page in 0..4 {
            let va = VA & !0x3fff | page << 12;
            tables.map::<X86_64>(root, va, TableLevel::Pte, leaf + (page << 12));
        }
        assert_eq!(reach(&mut tables, 2), Ok((Reach::K16, 0x4000_4000)));
        let clean = X86_64::clean(leaf + (1 << 12));
        tables.map::<X86_64>(root, VA & !0x3fff | 1 << 12, TableLevel::Pte, clean);
        assert_eq!(reach(&mut tables, 2), Ok((Reach::K4, 0x4000_6000)));
    }
}

mod arm64 {
    use super::*;

    type M = Case<Arm64>;
    const AF: u64 = 1 << 10;
    const RDONLY: u64 = 1 << 7;
    const DBM: u64 = 1 << 51;
    const CONT: u64 = 1 << 52;

    #[test]
    fn hardware_sets_the_access_flag_and_clears_ap2() {
        let case = M::new();
        let [pgd, pud, pmd, pte] = case.words[..] else { panic!("four levels") };
        let leaf = (PAGE, Reach::K4, RW);
        case.yields(Access::Read, leaf, &[pgd, pud, pmd, pte | AF]);
        case.yields(Access::Write, leaf, &[pgd, pud, pmd, (pte | AF) & !RDONLY]);
        let walked = case.walk(Access::Write);
        assert_eq!((walked.stats.accessed_writes, walked.stats.dirty_writes), (1, 1));
    }

    #[test]
    fn without_hardware_management_the_kernel_is_asked() {
        let software = || M::new().controls(|c| c.access_dirty = AccessDirty::Software);
        software().faults(Access::Read, FaultKind::AccessFlag(TableLevel::Pte), 0x0b);
        let young = software().word(TableLevel::Pte, |word| word | AF);
        young.faults(Access::Write, FaultKind::Permission(TableLevel::Pte), 0x0f);
        let read_only = Rights::READ;
        young.yields(Access::Read, (PAGE, Reach::K4, read_only), &young.words);
        let dirty = young.word(TableLevel::Pte, |word| word & !RDONLY);
        dirty.yields(Access::Write, (PAGE, Reach::K4, RW), &dirty.words);
    }

    #[test]
    fn blocks_end_the_walk_early() {
        let pmd = Arm64::leaf(0x4000_0000, TableLevel::Pmd);
        let case = M::leaf(TableLevel::Pmd, pmd);
        case.yields(Access::Read, (0x4000_0000, Reach::M2, RW), &case.words);
        let pud = Arm64::executable(Arm64::leaf(0x4000_0000, TableLevel::Pud));
        let case = M::leaf(TableLevel::Pud, pud);
        case.yields(Access::Exec, (0x4000_0000, Reach::G1, Rights::ALL), &case.words);
    }

    #[test]
    fn invalid_and_reserved_types_are_translation_faults() {
        for (level, kind) in [
            (TableLevel::Pgd, 0),
            (TableLevel::Pgd, 1),
            (TableLevel::Pud, 2),
            (TableLevel::Pmd, 0),
            (TableLevel::Pte, 1),
            (TableLevel::Pte, 2),
        ] {
            let mut case = M::new().word(level, |word| word & !3 | kind);
            case.words.truncate(level as usize + 1);
            case.faults(Access::Read, FaultKind::Translation(level), 0x04 + level as u64);
        }
    }

    #[test]
    fn table_attributes_only_remove_rights() {
        let denied = FaultKind::Permission(TableLevel::Pte);
        for level in [TableLevel::Pgd, TableLevel::Pud, TableLevel::Pmd] {
            let with = |bit: u32| {
                let leaf = M::new().word(TableLevel::Pte, Arm64::executable);
                leaf.word(level, move |word| word | 1 << bit)
            };
            with(62).faults(Access::Write, denied, 0x0f);
            assert!(with(62).walk(Access::Read).result.is_ok());
            with(61).faults(Access::Read, denied, 0x0f);
            assert!(with(61).walk(Access::Exec).result.is_ok());
            with(60).faults(Access::Exec, denied, 0x0f);
            assert!(with(60).walk(Access::Write).result.is_ok());
            assert!(with(59).walk(Access::Exec).result.is_ok(), "PXNTable is not EL0's");
        }
    }

    #[test]
    fn execute_only_pages_can_be_fetched_and_not_read() {
        let case = M::new().word(TableLevel::Pte, |word| Arm64::executable(word) & !(1 << 6));
        assert!(case.walk(Access::Exec).result.is_ok());
        case.faults(Access::Read, FaultKind::Permission(TableLevel::Pte), 0x0f);
        M::new().faults(Access::Exec, FaultKind::Permission(TableLevel::Pte), 0x0f);
    }

    #[test]
    fn the_top_byte_is_ignored_and_the_rest_is_not() {
        let tagged = M::new().va(VA | 0xa5 << 56);
        assert_eq!(tagged.walk(Access::Read).result.map(|l| l.base.get()), Ok(PAGE));
        for va in [VA | 1 << 55, VA | 1 << 48] {
            let fault = M::new().va(va).walk(Access::Read).result.expect_err("outside TTBR0");
            assert_eq!(fault.kind, FaultKind::Translation(TableLevel::Pgd));
            assert_eq!(fault.esr(), 0x9200_0004);
        }
    }

    #[test]
    fn addresses_beyond_ram_are_address_size_faults() {
        for level in LEVELS {
            let mut case = M::new().word(level, |word| word | 1 << 40);
            case.words.truncate(level as usize + 1);
            case.faults(Access::Read, FaultKind::AddressSize(level), level as u64);
        }
    }

    fn block(first_clean: bool) -> (Tables, PhysAddr, u64) {
        let mut tables = Tables::new(RAM);
        let root = tables.table();
        let leaf = Arm64::contiguous(Arm64::leaf(0x4001_0000, TableLevel::Pte));
        let va = VA & !0xffff;
        for page in 0..16 {
            let raw = leaf + (page << 12);
            let raw = if page == 0 && first_clean { Arm64::clean(raw) } else { raw };
            tables.map::<Arm64>(root, va + (page << 12), TableLevel::Pte, raw);
        }
        (tables, root, va)
    }

    #[test]
    fn a_contiguous_block_reaches_64k_from_the_one_descriptor_that_was_hit() {
        let (mut tables, root, va) = block(false);
        let (mut trail, mut stats) = (Trail::default(), WalkStats::default());
        let slot = tables.slot::<Arm64>(root, va + 0x5000, TableLevel::Pte);
        let old = Arm64::clean(Arm64::old(tables.ram.load_u64(slot)));
        tables.ram.store_u64(slot, old);
        let controls = Controls::new(RAM);
        let at = (VirtAddr::new(va + 0x5678), Access::Write);
        let (ram, start) = (&mut tables.ram, Start::root(root));
        let leaf = walk::<Arm64>(ram, &controls, start, at, &mut trail, &mut stats);
        let leaf = leaf.expect("mapped");
        assert_eq!((leaf.reach, leaf.base.get()), (Reach::K64, 0x4001_0000));
        assert_eq!(leaf.translate(VirtAddr::new(va + 0xf123)).get(), 0x4001_f123);
        assert_eq!(stats.loads_total(), 4);
        assert_eq!(tables.ram.load_u64(slot), (old | AF) & !RDONLY);
        let next = slot.wrapping_add(8);
        assert_eq!(tables.ram.load_u64(next) & (AF | RDONLY | DBM | CONT), AF | DBM | CONT);
    }

    #[test]
    fn the_first_descriptor_can_speak_for_the_block() {
        let (mut tables, root, va) = block(true);
        let controls = Controls { contiguous: Contiguous::First, ..Controls::new(RAM) };
        let first = tables.slot::<Arm64>(root, va, TableLevel::Pte);
        let (mut trail, mut stats) = (Trail::default(), WalkStats::default());
        let at = (VirtAddr::new(va + 0x5678), Access::Write);
        let (ram, start) = (&mut tables.ram, Start::root(root));
        let leaf = walk::<Arm64>(ram, &controls, start, at, &mut trail, &mut stats);
        assert_eq!(leaf.map(|leaf| leaf.translate(at.0).get()), Ok(0x4001_5678));
        assert_eq!((stats.loads_total(), stats.dirty_writes), (5, 1));
        assert_eq!(tables.ram.load_u64(first) & RDONLY, 0);
    }

    #[test]
    fn contiguous_blocks_of_2m_reach_32m_unless_the_bit_is_ignored() {
        let pmd = Arm64::contiguous(Arm64::leaf(0x4000_0000 + (7 << 21), TableLevel::Pmd));
        let case = M::leaf(TableLevel::Pmd, pmd);
        case.yields(Access::Read, (0x4000_0000, Reach::M32, RW), &case.words);
        let ignored =
            M::leaf(TableLevel::Pmd, pmd).controls(|c| c.contiguous = Contiguous::Ignored);
        ignored.yields(Access::Read, (0x4000_0000 + (7 << 21), Reach::M2, RW), &case.words);
    }
}

fn total<A: HwWalk>(raw: u64, pa_bits: u8) {
    let controls = Controls { pa_bits, ..Controls::new(RAM) };
    for level in LEVELS {
        match A::decode(raw, level, &controls) {
            Entry::Table { next, .. } => {
                assert!(level != TableLevel::Pte && controls.is_ram(next, 4096));
            }
            Entry::Leaf(leaf) => {
                assert!(level != TableLevel::Pgd && controls.is_ram(leaf.base, 1 << level.shift()));
            }
            Entry::Invalid | Entry::Malformed => {}
        }
        let mut rest = 64;
        let mut again = 0u128;
        for field in A::fields(raw, level) {
            assert_eq!(field.high + 1, rest, "{} leaves a gap", field.name);
            assert!(field.low <= field.high, "{}", field.name);
            again |= u128::from(field.value) << field.low;
            rest = field.low;
        }
        assert_eq!((rest, again), (0, u128::from(raw)), "fields cover the word");
    }
}

/// Words as tables hold them, and any word at all.
fn word() -> impl Strategy<Value = u64> {
    let likely = (any::<u64>(), 0..RAM >> 12)
        .prop_map(|(bits, frame)| bits & 0xfff0_0000_0000_0fff | frame << 12 | bits >> 3 & 1);
    prop_oneof![any::<u64>(), likely]
}

proptest! {
    #[test]
    fn decode_is_total(raw in word(), pa_bits in 32..49u8) {
        total::<X86_64>(raw, pa_bits);
        total::<Arm64>(raw, pa_bits);
    }

    #[test]
    fn walks_of_random_tables_end_as_explained(
        attributes in prop::collection::vec(any::<u64>(), 3),
        last in word(),
        stray in (0..8usize, word()),
        software in any::<bool>(),
    ) {
        // Mostly valid tables with any attributes; sometimes any word instead of one.
        let mut words: Vec<u64> = [0x2000, 0x3000, 0x4000]
            .iter()
            .zip(&attributes)
            .map(|(next, bits)| bits & 0xfff0_0000_0000_0f7f & !(1 << 12) | next | 7)
            .collect();
        words.push(last);
        if let Some(word) = words.get_mut(stray.0) {
            *word = stray.1;
        }
        let controls = |c: &mut Controls| {
            c.coalesce = Some(Reach::K16);
            if software {
                c.access_dirty = AccessDirty::Software;
            }
        };
        for access in Access::ALL {
            let case = Case::<X86_64> { words: words.clone(), ..Case::new() };
            case.controls(controls).walk(access);
            let case = Case::<Arm64> { words: words.clone(), ..Case::new() };
            case.controls(controls).walk(access);
        }
    }
}

#[test]
fn an_explanation_names_each_step() {
    let mut tables = Tables::new(RAM);
    let root = tables.table();
    let pte = Arm64::contiguous(Arm64::leaf(0x4000_5000, TableLevel::Pte));
    tables.map::<Arm64>(root, VA, TableLevel::Pte, pte);
    let va = VirtAddr::new(VA + 0x123);
    let told = explain_walk::<Arm64>(&tables.ram, &Controls::new(RAM), root, va, Access::Read);
    assert_eq!(told.levels.len(), 4);
    assert!(matches!(told.levels[0].step, Step::Table { .. }));
    assert!(matches!(told.levels[3].step, Step::Leaf { base, .. } if base.get() == 0x4000_5000));
    let cont = told.levels[3].fields.iter().find(|f| f.name == "CONT").expect("a field");
    assert_eq!((cont.high, cont.low, cont.value), (52, 52, 1));
    assert_eq!(told.levels[3].index, VA >> 12 & 511);
}
