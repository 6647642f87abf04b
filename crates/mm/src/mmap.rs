//! Address-space layout: mmap, munmap, brk, and the splitting and merging of VMAs.
//!
//! Source: Linux mm/mmap.c, mm/vma.c.

use crate::errno::Errno;
use crate::filemap::FileId;
use crate::ksm::MmKsm;
use crate::mmu_gather::MmuGather;
use crate::task_mmu::has_soft_dirty;
use crate::vma::{Mdwe, MmStruct, Rss, VmFlags, VmProt, Vma, VmaId};
use crate::{Mm, memory};
use arch::{Arch, HugeSize, MmId, Platform, Teardown};
use std::collections::BTreeMap;
use units::{PAGE_SIZE, PMD_SIZE, VirtAddr};

bitflags::bitflags! {
    /// MAP_* flags (Linux uapi mman-common.h).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct MapFlags: u64 {
        /// MAP_SHARED
        const SHARED = 0x1;
        /// MAP_PRIVATE
        const PRIVATE = 0x2;
        /// MAP_DROPPABLE
        const DROPPABLE = 0x8;
        /// MAP_FIXED
        const FIXED = 0x10;
        /// MAP_ANONYMOUS
        const ANONYMOUS = 0x20;
        /// MAP_GROWSDOWN
        const GROWSDOWN = 0x100;
        /// MAP_DENYWRITE, ignored
        const DENYWRITE = 0x800;
        /// MAP_LOCKED
        const LOCKED = 0x2000;
        /// MAP_NORESERVE
        const NORESERVE = 0x4000;
        /// MAP_POPULATE
        const POPULATE = 0x8000;
        /// MAP_NONBLOCK
        const NONBLOCK = 0x1_0000;
        /// MAP_STACK, ignored
        const STACK = 0x2_0000;
        /// MAP_HUGETLB
        const HUGETLB = 0x4_0000;
        /// MAP_FIXED_NOREPLACE
        const FIXED_NOREPLACE = 0x10_0000;
        /// No flag of mmap(2): the file was opened for reading only.
        const READONLY_FILE = 1 << 63;
    }
}

/// What a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Zeroes.
    Anonymous,
    /// Zeroes of `/dev/zero`: anonymous memory that is placed as a file.
    ZeroDevice,
    /// Zeroes in huge pages (MAP_HUGETLB).
    HugePages(HugeSize),
    /// A file, from `offset` bytes on.
    File {
        /// The file.
        file: FileId,
        /// Byte offset, page aligned.
        offset: u64,
    },
}

/// What MAP_DROPPABLE asks for.
const DROPPABLE: VmFlags = VmFlags::DROPPABLE
    .union(VmFlags::NORESERVE)
    .union(VmFlags::WIPEONFORK)
    .union(VmFlags::DONTDUMP);
/// `vm.max_map_count`.
pub(crate) const MAX_MAP_COUNT: usize = 65_530;
/// `mmap_min_addr`.
const MMAP_MIN_ADDR: u64 = 0x1_0000;
/// Gap below the stack that mmap leaves: at least 128 MiB, which a stack limit of 8 MiB stays
/// below (`mmap_base()`).
const STACK_GAP: u64 = 128 << 20;

/// Length in whole pages, or EINVAL/ENOMEM as mmap and munmap answer.
pub(crate) fn page_align(len: u64) -> Option<u64> {
    align_up(len, PAGE_SIZE)
}

/// Length in whole units, a power of two.
fn align_up(len: u64, unit: u64) -> Option<u64> {
    Some(len.checked_add(unit - 1)? & !(unit - 1))
}

impl<P: Platform> Mm<P> {
    /// A new, empty address space, with its root table.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn mm_alloc(&mut self) -> Result<MmId, Errno> {
        let root = self.alloc_table().ok_or(Errno::ENOMEM)?;
        let id = self.pt.mm_init(root);
        assert_eq!(id.index(), self.mms.len(), "address spaces are numbered in order");
        let top = P::Arch::TASK_SIZE.get();
        self.mms.push(MmStruct {
            tree: BTreeMap::new(),
            mmap_base: VirtAddr::new(top - STACK_GAP).align_down(PAGE_SIZE),
            start_brk: VirtAddr::ZERO,
            brk: VirtAddr::ZERO,
            def_flags: VmFlags::empty(),
            memlock_limit: u64::MAX,
            mmap_min_addr: MMAP_MIN_ADDR,
            mdwe: Mdwe::empty(),
            rss: Rss::default(),
            hiwater_rss: 0,
            hugetlb_usage: 0,
            total_vm: 0,
            pgtables: 1,
            tlb_batch_pending: 0,
            tlb_batch_flushed: 0,
            ksm: MmKsm::default(),
        });
        Ok(id)
    }

    /// The address space.
    pub fn mm_struct(&self, mm: MmId) -> &MmStruct {
        &self.mms[mm.index()]
    }

    pub(crate) fn mm_mut(&mut self, mm: MmId) -> &mut MmStruct {
        &mut self.mms[mm.index()]
    }

    /// The VMA with that identity.
    #[inline]
    pub fn vma(&self, id: VmaId) -> &Vma {
        &self.vmas[id.index()]
    }

    /// VMAs of an address space, by address.
    pub fn vmas(&self, mm: MmId) -> impl Iterator<Item = &Vma> {
        self.mms[mm.index()].tree.values().map(|&id| self.vma(id))
    }

    /// `find_vma()`: the first VMA that ends after `va`.
    pub(crate) fn find_vma(&self, mm: MmId, va: VirtAddr) -> Option<VmaId> {
        let tree = &self.mms[mm.index()].tree;
        if let Some((_, &id)) = tree.range(..=va).next_back()
            && self.vma(id).end > va
        {
            return Some(id);
        }
        tree.range(va..).next().map(|(_, &id)| id)
    }

    /// `vma_lookup()`: the VMA that contains `va`.
    #[inline]
    pub(crate) fn vma_lookup(&self, mm: MmId, va: VirtAddr) -> Option<VmaId> {
        let (_, &id) = self.mms[mm.index()].tree.range(..=va).next_back()?;
        self.vma(id).contains(va).then_some(id)
    }

    /// VMAs that overlap `[start, end)`, by address.
    pub(crate) fn vmas_in(&self, mm: MmId, start: VirtAddr, end: VirtAddr) -> Vec<VmaId> {
        let mut found = Vec::new();
        let mut at = self.find_vma(mm, start);
        while let Some(id) = at {
            let vma = self.vma(id);
            if vma.start >= end {
                break;
            }
            found.push(id);
            at = self.find_vma(mm, vma.end);
        }
        found
    }

    pub(crate) fn insert_vma(&mut self, vma: Vma) -> VmaId {
        let id = match self.free_vmas.pop() {
            Some(id) => {
                self.vmas[id.index()] = vma;
                id
            }
            None => {
                let id = VmaId(u32::try_from(self.vmas.len()).expect("VMAs are few"));
                self.vmas.push(vma);
                self.anon_chains.push(Vec::new());
                id
            }
        };
        if let Some(file) = vma.file {
            self.file_get(file);
        }
        let ms = self.mm_mut(vma.mm);
        ms.tree.insert(vma.start, id);
        ms.total_vm += vma.pages().get();
        id
    }

    pub(crate) fn remove_vma(&mut self, id: VmaId) {
        let vma = *self.vma(id);
        self.unlink_anon_vmas(id);
        let ms = self.mm_mut(vma.mm);
        ms.tree.remove(&vma.start);
        ms.total_vm -= vma.pages().get();
        self.free_vmas.push(id);
        self.hugetlb_vm_op_close(&vma);
        if let Some(file) = vma.file {
            self.file_put(file);
        }
    }

    /// `split_vma()`: the part from `at` on becomes a VMA of its own, returned.
    pub(crate) fn split_vma(&mut self, id: VmaId, at: VirtAddr) -> VmaId {
        let whole = *self.vma(id);
        debug_assert!(whole.contains(at) && at > whole.start);
        let tail = Vma { start: at, pgoff: whole.pgoff_of(at), ..whole };
        let ms = self.mm_mut(whole.mm);
        ms.total_vm -= tail.pages().get();
        self.vmas[id.index()].end = at;
        // A PMD leaf that spans the new boundary must become a table (vma_adjust_trans_huge).
        if !at.is_aligned(PMD_SIZE) {
            memory::split_huge_pmd_address(self, whole.mm, at);
        }
        let new = self.insert_vma(tail);
        self.hugetlb_vm_op_open(&tail);
        self.clone_anon_vmas(id, new);
        new
    }

    /// Makes `[start, end)` start and end at VMA boundaries, and returns the VMAs in it.
    pub(crate) fn isolate_range(&mut self, mm: MmId, start: VirtAddr, end: VirtAddr) -> Vec<VmaId> {
        if let Some(id) = self.vma_lookup(mm, start)
            && self.vma(id).start < start
        {
            self.split_vma(id, start);
        }
        if let Some(id) = self.vma_lookup(mm, end)
            && self.vma(id).start < end
        {
            self.split_vma(id, end);
        }
        self.vmas_in(mm, start, end)
    }

    /// `vma_merge()`: joins the VMA with its neighbours where nothing tells them apart.
    pub(crate) fn merge_vma(&mut self, id: VmaId) {
        let vma = *self.vma(id);
        let tree = &self.mms[vma.mm.index()].tree;
        let next = tree.get(&vma.end).copied();
        let prev = tree.range(..vma.start).next_back().map(|(_, &p)| p);
        if let Some(next) = next
            && self.can_merge(id, next)
        {
            self.join(id, next);
        }
        if let Some(prev) = prev
            && self.vma(prev).end == vma.start
            && self.can_merge(prev, id)
        {
            self.join(prev, id);
        }
    }

    fn can_merge(&self, low: VmaId, high: VmaId) -> bool {
        let (a, b) = (self.vma(low), self.vma(high));
        let anon = match (a.anon_vma, b.anon_vma) {
            (Some(x), Some(y)) => x == y,
            _ => true,
        };
        // What may not grow is not merged (VM_SPECIAL).
        !a.flags.contains(VmFlags::DONTEXPAND)
            && a.flags | VmFlags::SOFTDIRTY == b.flags | VmFlags::SOFTDIRTY
            && a.file == b.file
            && anon
            && a.end == b.start
            && b.pgoff == a.pgoff + a.pages().get()
    }

    fn join(&mut self, low: VmaId, high: VmaId) {
        let high_vma = *self.vma(high);
        if self.vma(low).anon_vma.is_none() {
            self.clone_anon_vmas(high, low);
            self.vmas[low.index()].anon_vma = high_vma.anon_vma;
        }
        let soft_dirty = high_vma.flags & VmFlags::SOFTDIRTY;
        self.vmas[low.index()].flags |= soft_dirty;
        self.remove_vma(high);
        self.vmas[low.index()].end = high_vma.end;
        self.mm_mut(high_vma.mm).total_vm += high_vma.pages().get();
    }

    /// `get_unmapped_area()`: the highest gap below `mmap_base`, PMD-aligned when a private
    /// anonymous length is a multiple of 2 MiB (Linux 6.7 on).
    fn get_unmapped_area(&self, mm: MmId, len: u64, align: u64) -> Result<VirtAddr, Errno> {
        let ms = self.mm_struct(mm);
        let mut ceiling = ms.mmap_base;
        let below = ms.tree.range(..ceiling).rev().map(|(_, &id)| {
            let vma = self.vma(id);
            (vma.start, vma.end)
        });
        for (start, end) in below.chain([(VirtAddr::ZERO, VirtAddr::new(MMAP_MIN_ADDR))]) {
            if let Some(raw) = ceiling.get().checked_sub(len) {
                let at = VirtAddr::new(raw).align_down(align);
                if at >= end {
                    return Ok(at);
                }
            }
            ceiling = ceiling.min(start);
        }
        Err(Errno::ENOMEM)
    }

    /// `mmap()`.
    ///
    /// # Errors
    /// EINVAL for an unaligned or empty request or contradictory flags, EEXIST for
    /// FIXED_NOREPLACE over something, EPERM for FIXED over what is sealed, EAGAIN beyond the limit of locked
    /// memory, EACCES where MDWE forbids it, ENOMEM when the space or the map count is exhausted.
    pub fn mmap(
        &mut self,
        mm: MmId,
        addr: VirtAddr,
        len: u64,
        prot: VmProt,
        flags: MapFlags,
        backing: Backing,
    ) -> Result<VirtAddr, Errno> {
        if len == 0 || !flags.intersects(MapFlags::SHARED | MapFlags::PRIVATE | MapFlags::DROPPABLE)
        {
            return Err(Errno::EINVAL);
        }
        let huge = self.huge_size_of(backing);
        let len = align_up(len, huge.map_or(PAGE_SIZE, HugeSize::bytes))
            .filter(|&l| l <= P::Arch::TASK_SIZE.get())
            .ok_or(Errno::ENOMEM)?;
        let at = self.mmap_address(mm, addr, len, flags, backing)?;
        let end = at.checked_add(len).ok_or(Errno::ENOMEM)?;
        if self.mm_struct(mm).tree.len() >= MAX_MAP_COUNT {
            return Err(Errno::ENOMEM);
        }
        let vma = self.new_vma(mm, at, end, prot, flags, backing);
        if !self.mlock_future_ok(mm, vma.flags, len) {
            return Err(Errno::EAGAIN);
        }
        if self.map_deny_write_exec(mm, vma.flags, vma.flags) {
            return Err(Errno::EACCES);
        }
        if !self.vmas_in(mm, at, end).is_empty() {
            self.can_modify(mm, at, end)?;
            self.check_split(mm, at, end)?;
            self.do_munmap(mm, at, end);
        }
        let id = self.map_new_vma(mm, (at, end), prot, flags, backing)?;
        self.ksm_add_vma(id);
        self.merge_vma(id);
        if flags.contains(MapFlags::POPULATE) || vma.flags.contains(VmFlags::LOCKED) {
            // mm_populate() ignores failure.
            let _ = self.mm_populate(mm, at, end);
        }
        Ok(at)
    }

    /// The size of the pages that a mapping would have, if they are huge pages.
    fn huge_size_of(&self, backing: Backing) -> Option<HugeSize> {
        match backing {
            Backing::HugePages(size) => Some(size),
            Backing::File { file, .. } => self.file_huge_size(file),
            Backing::Anonymous | Backing::ZeroDevice => None,
        }
    }

    /// Makes the VMA, with a file of its own where memory is shared or made of huge pages.
    /// Source: Linux mm/shmem.c `shmem_zero_setup()`, fs/hugetlbfs/inode.c
    /// `hugetlb_file_setup()`, `hugetlbfs_file_mmap()`.
    ///
    /// # Errors
    /// ENOMEM if a pool of huge pages cannot cover the mapping, EINVAL for a place in its file
    /// that is no multiple of its pages.
    fn map_new_vma(
        &mut self,
        mm: MmId,
        (start, end): (VirtAddr, VirtAddr),
        prot: VmProt,
        flags: MapFlags,
        backing: Backing,
    ) -> Result<VmaId, Errno> {
        let len = end.bytes_since(start);
        let own = match backing {
            Backing::HugePages(size) => {
                Some(self.hugetlb_file_create("/anon_hugepage (deleted)", size, len))
            }
            _ => self.shmem_zero_setup(backing, flags, len),
        };
        let backing = own.map_or(backing, |file| Backing::File { file, offset: 0 });
        let mut vma = self.new_vma(mm, start, end, prot, flags, backing);
        if let Some(size) = self.huge_size_of(backing) {
            vma.huge = Some(size);
            vma.flags |= VmFlags::HUGETLB | VmFlags::DONTEXPAND;
        }
        let aligned = vma.huge.is_none_or(|size| vma.pgoff.is_multiple_of(size.order().pages()));
        let reserved = match aligned {
            true => self.hugetlb_reserve_pages(&mut vma),
            false => Err(Errno::EINVAL),
        };
        let id = reserved.map(|()| self.insert_vma(vma));
        if let Some(file) = own {
            // From here on the mapping holds it.
            self.file_put(file);
        }
        id
    }

    pub(crate) fn mmap_address(
        &self,
        mm: MmId,
        addr: VirtAddr,
        len: u64,
        flags: MapFlags,
        backing: Backing,
    ) -> Result<VirtAddr, Errno> {
        let top = P::Arch::TASK_SIZE;
        let fits = |at: VirtAddr| at.checked_add(len).is_some_and(|end| end <= top);
        let huge = self.huge_size_of(backing);
        let unit = huge.map_or(PAGE_SIZE, HugeSize::bytes);
        if flags.intersects(MapFlags::FIXED | MapFlags::FIXED_NOREPLACE) {
            if !addr.is_aligned(unit) {
                return Err(Errno::EINVAL);
            }
            if !fits(addr) {
                return Err(Errno::ENOMEM);
            }
            if addr.get() < self.mm_struct(mm).mmap_min_addr {
                return Err(Errno::EPERM);
            }
            let taken = self.vmas_in(mm, addr, addr.wrapping_add(len));
            if flags.contains(MapFlags::FIXED_NOREPLACE) && !taken.is_empty() {
                return Err(Errno::EEXIST);
            }
            return Ok(addr);
        }
        let hint = match huge {
            // hugetlb_get_unmapped_area() rounds up.
            Some(_) => addr.checked_align_up(unit).unwrap_or(addr.align_down(unit)),
            None => addr.align_down(PAGE_SIZE),
        };
        if hint.get() >= MMAP_MIN_ADDR
            && fits(hint)
            && self.vmas_in(mm, hint, hint.wrapping_add(len)).is_empty()
        {
            return Ok(hint);
        }
        let anonymous = match backing {
            Backing::Anonymous => true,
            Backing::ZeroDevice => self.pt.kernel.zero_device_aligned,
            Backing::File { .. } | Backing::HugePages(_) => false,
        };
        if anonymous
            && len >= PMD_SIZE
            && len.is_multiple_of(PMD_SIZE)
            && let Ok(at) = self.get_unmapped_area(mm, len, PMD_SIZE)
        {
            return Ok(at);
        }
        self.get_unmapped_area(mm, len, unit)
    }

    fn new_vma(
        &self,
        mm: MmId,
        start: VirtAddr,
        end: VirtAddr,
        prot: VmProt,
        map: MapFlags,
        backing: Backing,
    ) -> Vma {
        let mut flags = prot.vm_flags() | VmFlags::MAYREAD | VmFlags::MAYWRITE | VmFlags::MAYEXEC;
        flags |= self.mm_struct(mm).def_flags;
        if has_soft_dirty::<P::Arch>() {
            flags |= VmFlags::SOFTDIRTY;
        }
        for (from, to) in [
            (MapFlags::SHARED, VmFlags::SHARED | VmFlags::MAYSHARE),
            (MapFlags::GROWSDOWN, VmFlags::GROWSDOWN),
            (MapFlags::LOCKED, VmFlags::LOCKED),
            (MapFlags::NORESERVE, VmFlags::NORESERVE),
            (MapFlags::DROPPABLE, DROPPABLE),
        ] {
            if map.contains(from) {
                flags |= to;
            }
        }
        if let Backing::File { file, .. } = backing
            && self.file_is_pfns(file)
        {
            flags |= VmFlags::PFNMAP;
        }
        if map.contains(MapFlags::READONLY_FILE | MapFlags::SHARED) {
            flags -= VmFlags::SHARED | VmFlags::MAYWRITE;
        }
        let (file, pgoff) = match backing {
            Backing::Anonymous | Backing::ZeroDevice | Backing::HugePages(_) => {
                (None, start.vpn().get())
            }
            Backing::File { file, offset } => (Some(file), offset / PAGE_SIZE),
        };
        Vma { mm, start, end, flags, pgoff, file, anon_vma: None, huge: None, resv: None }
    }

    /// `munmap()`.
    ///
    /// # Errors
    /// EINVAL for an unaligned or empty range or one beyond user space, EPERM if any of it is sealed.
    pub fn munmap(&mut self, mm: MmId, addr: VirtAddr, len: u64) -> Result<(), Errno> {
        let top = P::Arch::TASK_SIZE;
        let len = page_align(len).filter(|&l| l > 0).ok_or(Errno::EINVAL)?;
        let end = addr.checked_add(len).filter(|&e| e <= top).ok_or(Errno::EINVAL)?;
        if !addr.is_aligned(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        self.can_modify(mm, addr, end)?;
        self.check_split(mm, addr, end)?;
        self.do_munmap(mm, addr, end);
        Ok(())
    }

    /// Whether the address space refuses what would be writable and executable, or becomes
    /// executable. Source: Linux include/linux/mman.h `map_deny_write_exec()`.
    pub(crate) fn map_deny_write_exec(&self, mm: MmId, old: VmFlags, new: VmFlags) -> bool {
        let refuses = self.mm_struct(mm).mdwe.contains(Mdwe::REFUSE_EXEC_GAIN);
        refuses
            && new.contains(VmFlags::EXEC)
            && (new.contains(VmFlags::WRITE) || !old.contains(VmFlags::EXEC))
    }

    /// The lowest address that may be asked for by MAP_FIXED: `mmap_min_addr`, or 0 for who has
    /// CAP_SYS_RAWIO.
    pub fn allow_low_mappings(&mut self, mm: MmId, allow: bool) {
        self.mm_mut(mm).mmap_min_addr = if allow { 0 } else { MMAP_MIN_ADDR };
    }

    /// Sets [`MmStruct::mdwe`].
    pub fn set_mdwe(&mut self, mm: MmId, mdwe: Mdwe) {
        self.mm_mut(mm).mdwe = mdwe;
    }

    /// `do_vmi_munmap()`, `unmap_region()`: one gather over all VMAs in the range, then their
    /// page tables.
    pub(crate) fn do_munmap(&mut self, mm: MmId, start: VirtAddr, end: VirtAddr) {
        let ids = self.isolate_range(mm, start, end);
        let (Some(&first), Some(&last)) = (ids.first(), ids.last()) else {
            return;
        };
        let low = self.vma(first).start;
        let high = self.vma(last).end;
        let tree = &self.mms[mm.index()].tree;
        let floor = tree.range(..low).next_back().map(|(_, &id)| self.vma(id).end);
        let ceiling = tree.range(high..).next().map(|(&at, _)| at);
        let mut gather = MmuGather::new(mm, Teardown::Partial);
        memory::unmap_region(self, &mut gather, &ids);
        memory::free_pgtables(self, &mut gather, &ids, floor, ceiling);
        gather.finish(self);
        for id in ids {
            self.remove_vma(id);
        }
    }

    /// Places the heap: brk starts at `start`.
    pub fn set_brk_start(&mut self, mm: MmId, start: VirtAddr) {
        let ms = self.mm_mut(mm);
        (ms.start_brk, ms.brk) = (start, start);
    }

    /// `brk()`: moves the end of the heap and returns where it is.
    pub fn brk(&mut self, mm: MmId, to: VirtAddr) -> VirtAddr {
        let ms = self.mm_struct(mm);
        let (start, old) = (ms.start_brk, ms.brk);
        if to < start {
            return old;
        }
        let (Some(new_end), Some(old_end)) =
            (to.checked_align_up(PAGE_SIZE), old.checked_align_up(PAGE_SIZE))
        else {
            return old;
        };
        if new_end > P::Arch::TASK_SIZE {
            return old;
        }
        if new_end < old_end {
            if self.can_modify(mm, new_end, old_end).is_err() {
                return old;
            }
            self.do_munmap(mm, new_end, old_end);
        } else if new_end > old_end {
            if !self.vmas_in(mm, old_end, new_end).is_empty() {
                return old;
            }
            let prot = VmProt::READ | VmProt::WRITE;
            let mut vma =
                self.new_vma(mm, old_end, new_end, prot, MapFlags::PRIVATE, Backing::Anonymous);
            vma.flags |= VmFlags::HEAP;
            if !self.mlock_future_ok(mm, vma.flags, vma.len()) {
                return old;
            }
            let id = self.insert_vma(vma);
            self.merge_vma(id);
            if vma.flags.contains(VmFlags::LOCKED) {
                let _ = self.mm_populate(mm, old_end, new_end);
            }
        }
        self.mm_mut(mm).brk = to;
        to
    }

    /// Marks the VMA at `va` as the stack, for its name in maps.
    pub fn mark_stack(&mut self, mm: MmId, va: VirtAddr) {
        if let Some(id) = self.vma_lookup(mm, va) {
            self.vmas[id.index()].flags |= VmFlags::STACK | VmFlags::GROWSDOWN;
        }
    }

    /// `expand_stack()`: grows a downward VMA just above `va` to include it.
    pub(crate) fn expand_stack(&mut self, mm: MmId, va: VirtAddr) -> Option<VmaId> {
        let id = self.find_vma(mm, va)?;
        let vma = *self.vma(id);
        let limit = vma.end.get().saturating_sub(8 << 20);
        let start = va.align_down(PAGE_SIZE);
        if !vma.flags.contains(VmFlags::GROWSDOWN) || start.get() < limit {
            return None;
        }
        let grown = vma.start.bytes_since(start) / PAGE_SIZE;
        let ms = self.mm_mut(mm);
        ms.tree.remove(&vma.start);
        ms.tree.insert(start, id);
        ms.total_vm += grown;
        let vma = &mut self.vmas[id.index()];
        vma.pgoff = vma.pgoff.saturating_sub(grown);
        vma.start = start;
        Some(id)
    }
}
