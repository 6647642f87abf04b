//! Virtual memory areas and the address spaces that they make up.

use crate::filemap::FileId;
use crate::hugetlb::ResvId;
use crate::ksm::MmKsm;
use crate::rmap::AnonVmaId;
use arch::{HugeSize, MmId, VmaProt};
use std::collections::BTreeMap;
use units::{NrPages, VirtAddr};

bitflags::bitflags! {
    /// `vma->vm_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct VmFlags: u64 {
        /// VM_READ
        const READ = 1 << 0;
        /// VM_WRITE
        const WRITE = 1 << 1;
        /// VM_EXEC
        const EXEC = 1 << 2;
        /// VM_SHARED
        const SHARED = 1 << 3;
        /// VM_MAYREAD
        const MAYREAD = 1 << 4;
        /// VM_MAYWRITE
        const MAYWRITE = 1 << 5;
        /// VM_MAYEXEC
        const MAYEXEC = 1 << 6;
        /// VM_MAYSHARE: MAP_SHARED, also of a file that may not be written.
        const MAYSHARE = 1 << 7;
        /// VM_GROWSDOWN
        const GROWSDOWN = 1 << 8;
        /// VM_PFNMAP
        const PFNMAP = 1 << 10;
        /// VM_LOCKED
        const LOCKED = 1 << 13;
        /// VM_DONTFORK (DONTCOPY)
        const DONTFORK = 1 << 17;
        /// VM_DONTEXPAND
        const DONTEXPAND = 1 << 18;
        /// VM_LOCKONFAULT
        const LOCKONFAULT = 1 << 19;
        /// VM_NORESERVE
        const NORESERVE = 1 << 21;
        /// VM_HUGETLB
        const HUGETLB = 1 << 22;
        /// VM_WIPEONFORK
        const WIPEONFORK = 1 << 25;
        /// VM_DONTDUMP
        const DONTDUMP = 1 << 26;
        /// VM_SOFTDIRTY: new, so all of it counts as written.
        const SOFTDIRTY = 1 << 27;
        /// VM_HUGEPAGE
        const HUGEPAGE = 1 << 29;
        /// VM_NOHUGEPAGE
        const NOHUGEPAGE = 1 << 30;
        /// VM_MERGEABLE
        const MERGEABLE = 1 << 31;
        /// VM_DROPPABLE
        const DROPPABLE = 1 << 32;
        /// userfaultfd registered in any mode.
        const UFFD_ARMED = 1 << 33;
        /// VM_SEALED
        const SEALED = 1 << 63;
        /// Named "[stack]" in maps.
        const STACK = 1 << 40;
        /// Named "[heap]" in maps.
        const HEAP = 1 << 41;
        /// A huge page was taken away for its owner's sake (`HPAGE_RESV_UNMAPPED`).
        const RESV_UNMAPPED = 1 << 42;
    }
}

bitflags::bitflags! {
    /// PROT_* of mmap and mprotect.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct VmProt: u32 {
        /// PROT_READ
        const READ = 1;
        /// PROT_WRITE
        const WRITE = 2;
        /// PROT_EXEC
        const EXEC = 4;
    }
}

impl VmProt {
    /// The VMA flags that grant it.
    pub fn vm_flags(self) -> VmFlags {
        VmFlags::from_bits_truncate(u64::from(self.bits()))
    }
}

/// Identity of a VMA, stable while it is split, moved or resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmaId(pub(crate) u32);

impl VmaId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A range of one address space with one meaning (`vm_area_struct`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    /// The address space.
    pub mm: MmId,
    /// First address.
    pub start: VirtAddr,
    /// First address after it.
    pub end: VirtAddr,
    /// What is allowed.
    pub flags: VmFlags,
    /// Offset of `start` in the file, or the page number it was created at, in pages.
    pub pgoff: u64,
    /// What is mapped; `None` is anonymous memory.
    pub file: Option<FileId>,
    /// Where the anonymous pages of this VMA are found again.
    pub anon_vma: Option<AnonVmaId>,
    /// The size of its pages, if it maps huge pages of hugetlb (`hstate_vma()`).
    pub huge: Option<HugeSize>,
    /// Where the owner of a private mapping of huge pages notes which of its reservations it
    /// has used.
    pub resv: Option<ResvId>,
}

impl Vma {
    /// Whether it is private anonymous memory (`vma_is_anonymous`).
    pub fn is_anonymous(&self) -> bool {
        self.file.is_none()
    }

    /// Whether `va` lies inside.
    pub fn contains(&self, va: VirtAddr) -> bool {
        self.start <= va && va < self.end
    }

    /// Bytes covered.
    pub fn len(&self) -> u64 {
        self.end.bytes_since(self.start)
    }

    /// Whether it covers nothing; no VMA does.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Pages covered.
    pub fn pages(&self) -> NrPages {
        NrPages::covering(self.len())
    }

    /// Page offset of `va` in the mapping (`linear_page_index`).
    pub fn pgoff_of(&self, va: VirtAddr) -> u64 {
        self.pgoff + (va.vpn().get() - self.start.vpn().get())
    }

    /// Where page offset `pgoff` is mapped, if the VMA covers it (`vma_address`).
    pub fn address_of(&self, pgoff: u64) -> Option<VirtAddr> {
        let page = pgoff.checked_sub(self.pgoff)?;
        let va = self.start.vpn().add(page).addr();
        self.contains(va).then_some(va)
    }

    /// Base protection of its pages, by architecture-neutral bits.
    pub fn page_prot(&self) -> VmaProt {
        VmaProt {
            read: self.flags.contains(VmFlags::READ),
            write: self.flags.contains(VmFlags::WRITE),
            exec: self.flags.contains(VmFlags::EXEC),
            shared: self.flags.contains(VmFlags::SHARED),
            pkey: 0,
        }
    }

    /// Whether private writable pages of it must be copied before a write (`is_cow_mapping`).
    pub fn is_cow(&self) -> bool {
        self.flags & (VmFlags::SHARED | VmFlags::MAYWRITE) == VmFlags::MAYWRITE
    }
}

/// Resident pages by kind (`mm->rss_stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rss {
    /// Anonymous pages.
    pub anon: u64,
    /// File pages.
    pub file: u64,
    /// Pages of tmpfs and shared anonymous memory.
    pub shmem: u64,
    /// Swap entries.
    pub swapents: u64,
}

bitflags::bitflags! {
    /// `MMF_HAS_MDWE`, in the bits of `prctl(PR_SET_MDWE)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Mdwe: u32 {
        /// PR_MDWE_REFUSE_EXEC_GAIN: what was once writable never becomes executable.
        const REFUSE_EXEC_GAIN = 1;
        /// PR_MDWE_NO_INHERIT: children are free of it.
        const NO_INHERIT = 2;
    }
}

/// An address space (`mm_struct`).
#[derive(Clone, Debug)]
pub struct MmStruct {
    /// VMAs by start address.
    pub(crate) tree: BTreeMap<VirtAddr, VmaId>,
    /// Where mmap searches downwards from.
    pub(crate) mmap_base: VirtAddr,
    /// Start of the heap.
    pub(crate) start_brk: VirtAddr,
    /// End of the heap.
    pub(crate) brk: VirtAddr,
    /// Flags of every new mapping (`mm->def_flags`).
    pub(crate) def_flags: VmFlags,
    /// Bytes that may be locked; `u64::MAX` is without limit.
    pub(crate) memlock_limit: u64,
    /// The lowest address of a fixed mapping.
    pub(crate) mmap_min_addr: u64,
    /// Memory-deny-write-execute, as `prctl(PR_SET_MDWE)` set it.
    pub mdwe: Mdwe,
    /// Resident pages.
    pub rss: Rss,
    /// Most resident pages there ever were.
    pub hiwater_rss: u64,
    /// Base pages of huge pages that are mapped.
    pub hugetlb_usage: u64,
    /// Pages mapped by VMAs.
    pub total_vm: u64,
    /// Page-table pages.
    pub pgtables: u64,
    /// `tlb_flush_batched`: unmaps whose flush was put off, ever.
    pub(crate) tlb_batch_pending: u64,
    /// The same, as of the last flush that caught up.
    pub(crate) tlb_batch_flushed: u64,
    /// What KSM knows of it.
    pub ksm: MmKsm,
}

impl MmStruct {
    /// Resident pages.
    pub fn resident(&self) -> u64 {
        self.rss.anon + self.rss.file + self.rss.shmem
    }
}
