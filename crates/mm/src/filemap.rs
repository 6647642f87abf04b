//! Files that can be mapped, and their page cache.
//!
//! A file is what its cached pages hold, and elsewhere the bytes it was given at the start, or
//! zeroes. What is written goes into cached pages, so that `read()`, `write()` and every mapping
//! see the same. Source: Linux mm/filemap.c.
//
// FIDELITY: page-cache file pages are order 0, never written back or reclaimed

use crate::errno::Errno;
use crate::folio::Folio;
use crate::mmu_gather::MmuGather;
use crate::vma::{Vma, VmaId};
use crate::{Mm, hugetlb, memory};
use arch::{HugeSize, Platform, Teardown};
use phys::PageFlags;
use std::collections::{BTreeMap, BTreeSet};
use units::{Order, PAGE_SIZE, Pfn, VirtAddr};

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u32);

/// What kind of file system a file belongs to.
#[derive(Debug)]
pub(crate) enum FileKind {
    /// One on a disk, as the programs' images are: changes must be written back some day.
    Disk,
    /// tmpfs, memfd, shared anonymous memory.
    Shmem,
    /// hugetlbfs.
    Huge(HugeFile),
    /// Pages of the kernel's own, one for each fault (`special_mapping_vmops`).
    Special,
    /// Frames of the kernel's own, without rmap or references (VM_PFNMAP).
    Pfns,
}

/// What a file of huge pages has beside them.
#[derive(Debug)]
pub(crate) struct HugeFile {
    pub(crate) size: HugeSize,
    /// Length in bytes.
    pub(crate) len: u64,
    /// Pages that shared mappings reserved, or that are there (`inode_resv_map()`).
    pub(crate) resv: BTreeSet<u64>,
}

impl HugeFile {
    /// How many of the pages `from..to` are not reserved (`region_chg()`).
    pub(crate) fn missing(&self, from: u64, to: u64) -> u64 {
        to - from - self.resv.range(from..to).count() as u64
    }
}

/// An inode with its `address_space`.
#[derive(Debug)]
struct File {
    name: String,
    kind: FileKind,
    /// Bytes of pages that were never cached; what follows is zeroes.
    initial: Vec<u8>,
    /// Length in bytes.
    len: u64,
    /// Pages in the cache, by their place in units of the file's pages.
    cached: BTreeMap<u64, Pfn>,
    /// VMAs and names that refer to it.
    refs: u32,
}

/// All files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    files: BTreeMap<FileId, File>,
    next: u32,
}

impl Files {
    fn get(&self, id: FileId) -> &File {
        self.files.get(&id).expect("whoever names a file holds a reference to it")
    }
    fn get_mut(&mut self, id: FileId) -> &mut File {
        self.files.get_mut(&id).expect("whoever names a file holds a reference to it")
    }
    fn add(&mut self, file: File) -> FileId {
        let id = FileId(self.next);
        self.next += 1;
        self.files.insert(id, file);
        id
    }
}

impl<P: Platform> Mm<P> {
    fn add_file(&mut self, name: &str, kind: FileKind, initial: Vec<u8>, len: u64) -> FileId {
        let (name, cached) = (name.to_owned(), BTreeMap::new());
        self.files.add(File { name, kind, initial, len, cached, refs: 1 })
    }

    /// A file of a disk file system with the given contents, to be mapped; `name` is for
    /// /proc/self/maps. The caller holds a reference.
    pub fn file_create(&mut self, name: &str, contents: Vec<u8>) -> FileId {
        let len = contents.len() as u64;
        self.add_file(name, FileKind::Disk, contents, len)
    }

    /// Pages of the kernel's own that programs map, as `[vdso]`. The caller holds a reference.
    pub fn special_mapping_create(&mut self, name: &str, contents: Vec<u8>) -> FileId {
        let len = contents.len() as u64;
        self.add_file(name, FileKind::Special, contents, len)
    }

    /// Frames of the kernel's own that programs map, as `[vvar]`: no page is behind them, and
    /// a fork copies the entries. The caller holds a reference.
    pub fn pfn_mapping_create(&mut self, name: &str, contents: Vec<u8>) -> FileId {
        let len = contents.len() as u64;
        self.add_file(name, FileKind::Pfns, contents, len)
    }

    /// A file of a tmpfs. The caller holds a reference.
    pub fn shmem_file_create(&mut self, name: &str, contents: Vec<u8>) -> FileId {
        let len = contents.len() as u64;
        self.add_file(name, FileKind::Shmem, contents, len)
    }

    /// A file of `len` bytes in huge pages. The caller holds a reference.
    pub fn hugetlb_file_create(&mut self, name: &str, size: HugeSize, len: u64) -> FileId {
        let huge = HugeFile { size, len, resv: BTreeSet::new() };
        self.add_file(name, FileKind::Huge(huge), Vec::new(), 0)
    }

    /// One more refers to the file.
    pub fn file_get(&mut self, file: FileId) {
        self.files.get_mut(file).refs += 1;
    }

    /// One less does; with the last one the file goes, and its pages with it.
    pub fn file_put(&mut self, file: FileId) {
        let it = self.files.get_mut(file);
        it.refs -= 1;
        if it.refs == 0 {
            self.drop_cached(file, 0);
            self.files.files.remove(&file);
        }
    }

    /// The name of a file.
    pub fn file_name(&self, file: FileId) -> &str {
        &self.files.get(file).name
    }

    /// Gives the file the name that maps shows from now on.
    pub fn file_rename(&mut self, file: FileId, name: &str) {
        name.clone_into(&mut self.files.get_mut(file).name);
    }

    /// Whether it is in memory only: tmpfs, memfd, shared anonymous memory.
    pub fn file_is_shmem(&self, file: FileId) -> bool {
        matches!(self.files.get(file).kind, FileKind::Shmem)
    }

    /// The size of its pages, if the file consists of huge pages.
    pub fn file_huge_size(&self, file: FileId) -> Option<HugeSize> {
        match &self.files.get(file).kind {
            FileKind::Huge(huge) => Some(huge.size),
            _ => None,
        }
    }

    /// Length in bytes.
    pub fn file_len(&self, file: FileId) -> u64 {
        let it = self.files.get(file);
        match &it.kind {
            FileKind::Huge(huge) => huge.len,
            _ => it.len,
        }
    }

    /// Base pages in the cache.
    pub fn file_cached_pages(&self, file: FileId) -> u64 {
        let order = self.file_huge_size(file).map_or(Order::ZERO, HugeSize::order);
        self.files.get(file).cached.len() as u64 * order.pages()
    }

    pub(crate) fn huge_file(&self, file: FileId) -> &HugeFile {
        match &self.files.get(file).kind {
            FileKind::Huge(huge) => huge,
            _ => unreachable!("a VMA of huge pages has such a file"),
        }
    }

    pub(crate) fn huge_file_mut(&mut self, file: FileId) -> &mut HugeFile {
        match &mut self.files.get_mut(file).kind {
            FileKind::Huge(huge) => huge,
            _ => unreachable!("a VMA of huge pages has such a file"),
        }
    }

    /// Pages that files of huge pages were promised and do not have yet; for `validate()`.
    pub(crate) fn promised_by_files(&self, size: HugeSize) -> u64 {
        let of = |file: &File| match &file.kind {
            FileKind::Huge(huge) if huge.size == size => {
                huge.resv.len() as u64 - file.cached.len() as u64
            }
            _ => 0,
        };
        self.files.files.values().map(of).sum()
    }

    /// Frames in the cache, with the size of their folio; for `validate()`.
    pub(crate) fn cached_frames(&self) -> impl Iterator<Item = Pfn> {
        self.files.files.values().flat_map(|file| file.cached.values().copied())
    }

    /// Pages that shmem holds.
    pub(crate) fn shmem_pages(&self) -> u64 {
        let shmem = |file: &&File| matches!(file.kind, FileKind::Shmem);
        self.files.files.values().filter(shmem).map(|file| file.cached.len() as u64).sum()
    }

    /// Whether its mappings show frames (VM_PFNMAP).
    pub(crate) fn file_is_pfns(&self, file: FileId) -> bool {
        matches!(self.files.get(file).kind, FileKind::Pfns)
    }

    /// Whether a fault may map cached neighbours (`vm_ops->map_pages`).
    pub(crate) fn file_maps_pages(&self, file: FileId) -> bool {
        matches!(self.files.get(file).kind, FileKind::Disk | FileKind::Shmem)
    }

    /// Pages of the file, the last one perhaps partly.
    pub(crate) fn file_pages(&self, file: FileId) -> u64 {
        self.files.get(file).len.div_ceil(PAGE_SIZE)
    }

    /// Whether the file system must know of writes through shared mappings, to write them back.
    /// Source: Linux mm/gup.c `writable_file_mapping_allowed()`, `vma_needs_dirty_tracking()`.
    pub(crate) fn file_needs_dirty_tracking(&self, file: FileId) -> bool {
        matches!(self.files.get(file).kind, FileKind::Disk)
    }

    /// VMAs that map the file (its `i_mmap`).
    pub(crate) fn vmas_of_file(&self, file: Option<FileId>) -> Vec<VmaId> {
        let all = self.mms.iter().flat_map(|ms| ms.tree.values().copied());
        all.filter(|&id| file.is_some() && self.vma(id).file == file).collect()
    }

    // ---- the page cache

    /// The cached page at `index`, if there is one.
    pub(crate) fn filemap_get(&self, file: FileId, index: u64) -> Option<Folio> {
        let pfn = *self.files.get(file).cached.get(&index)?;
        Some(self.page_folio(pfn))
    }

    /// The page at `index`, if the cache holds it; it does what the file was created with.
    pub(crate) fn filemap_cached(&mut self, file: FileId, index: u64) -> Option<Folio> {
        let initial = self.files.get(file).initial.len() as u64;
        match index < initial.div_ceil(PAGE_SIZE) {
            true => self.filemap_read(file, index),
            false => self.filemap_get(file, index),
        }
    }

    /// Puts a page, with the reference that the cache holds from now on, at `index`.
    pub(crate) fn add_to_page_cache(&mut self, file: FileId, index: u64, folio: Folio) {
        let old = self.files.get_mut(file).cached.insert(index, folio.pfn);
        debug_assert_eq!(old, None, "one page for each place");
    }

    /// The page at `index`, read into the cache if needed; `None` when memory has run out.
    pub(crate) fn filemap_read(&mut self, file: FileId, index: u64) -> Option<Folio> {
        if let Some(folio) = self.filemap_get(file, index) {
            return Some(folio);
        }
        let folio = self.folio_alloc_reclaiming(Order::ZERO)?;
        let it = self.files.get(file);
        let from = usize::try_from(index * PAGE_SIZE).ok()?;
        let initial = it.initial.get(from..).unwrap_or(&[]);
        let shmem = matches!(it.kind, FileKind::Shmem);
        if initial.is_empty() && shmem {
            self.folio_zero(folio);
        } else {
            let frame = self.pt.ram.frame_mut(folio.pfn);
            let len = initial.len().min(frame.len());
            frame[..len].copy_from_slice(&initial[..len]);
            frame[len..].fill(0);
        }
        self.add_to_page_cache(file, index, folio);
        self.folio_set(folio, PageFlags::UPTODATE);
        if shmem {
            self.folio_set(folio, PageFlags::SWAPBACKED);
        }
        Some(folio)
    }

    /// Drops what is cached from page `from` on.
    fn drop_cached(&mut self, file: FileId, from: u64) {
        let gone = self.files.get_mut(file).cached.split_off(&from);
        for &pfn in gone.values() {
            let folio = self.page_folio(pfn);
            self.folio_put_refs(folio, 1);
        }
        if self.file_huge_size(file).is_some() {
            self.hugetlb_unreserve_pages(file, from, gone.len() as u64);
        }
    }

    // ---- read, write, truncate

    /// Bytes from `offset` on, fewer at the end of the file.
    pub fn file_read(&self, file: FileId, offset: u64, len: usize) -> Vec<u8> {
        let end = self.file_len(file).min(offset.saturating_add(len as u64));
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let n = (PAGE_SIZE - at % PAGE_SIZE).min(end - at);
            self.read_part(file, at, n as usize, &mut bytes);
            at += n;
        }
        bytes
    }

    /// `len` bytes at `at`, all in one base page, appended to `bytes`.
    fn read_part(&self, file: FileId, at: u64, len: usize, bytes: &mut Vec<u8>) {
        let it = self.files.get(file);
        let unit = self.file_huge_size(file).map_or(PAGE_SIZE, HugeSize::bytes);
        if let Some(&pfn) = it.cached.get(&(at / unit)) {
            let from = pfn.addr().wrapping_add(at % unit);
            bytes.extend_from_slice(self.pt.ram.slice(from, len));
            return;
        }
        let from = usize::try_from(at).unwrap_or(usize::MAX);
        let known = it.initial.get(from..).unwrap_or(&[]);
        let known = &known[..known.len().min(len)];
        bytes.extend_from_slice(known);
        bytes.resize(bytes.len() + len - known.len(), 0);
    }

    /// Writes at `offset`; the file grows as needed.
    ///
    /// # Errors
    /// EINVAL for a file of huge pages, ENOSPC when memory has run out; what fitted is there.
    pub fn file_write(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        if self.file_huge_size(file).is_some() {
            return Err(Errno::EINVAL);
        }
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = (PAGE_SIZE - at % PAGE_SIZE).min(rest.len() as u64);
            let (now, later) = rest.split_at(n as usize);
            let folio = self.filemap_read(file, at / PAGE_SIZE).ok_or(Errno::ENOSPC)?;
            let to = folio.pfn.addr().wrapping_add(at % PAGE_SIZE);
            self.pt.ram.slice_mut(to, now.len()).copy_from_slice(now);
            self.folio_set(folio, PageFlags::DIRTY);
            at += n;
            let it = self.files.get_mut(file);
            it.len = it.len.max(at);
            rest = later;
        }
        Ok(())
    }

    /// `truncate()`: pages beyond `len` go, from page tables too.
    /// Source: Linux mm/truncate.c `truncate_pagecache()`, fs/hugetlbfs/inode.c
    /// `hugetlb_vmtruncate()`.
    ///
    /// # Errors
    /// EINVAL for a length that is no multiple of the file's huge pages.
    pub fn file_truncate(&mut self, file: FileId, len: u64) -> Result<(), Errno> {
        let unit = self.file_huge_size(file).map_or(PAGE_SIZE, HugeSize::bytes);
        let huge = unit > PAGE_SIZE;
        if huge && !len.is_multiple_of(unit) {
            return Err(Errno::EINVAL);
        }
        let shrinks = len < self.file_len(file);
        match huge {
            true => self.huge_file_mut(file).len = len,
            false => self.files.get_mut(file).len = len,
        }
        if !shrinks {
            return Ok(());
        }
        let first = len.div_ceil(unit);
        self.unmap_mapping_range(file, first * unit / PAGE_SIZE);
        self.drop_cached(file, first);
        let it = self.files.get_mut(file);
        it.initial.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        if let Some(&last) = it.cached.get(&(len / unit)).filter(|_| !len.is_multiple_of(unit)) {
            let tail = last.addr().wrapping_add(len % unit);
            self.pt.ram.slice_mut(tail, (unit - len % unit) as usize).fill(0);
        }
        Ok(())
    }

    /// Takes the pages of the file from page offset `from` on out of every page table, private
    /// copies too. Source: Linux mm/memory.c `unmap_mapping_range()`.
    fn unmap_mapping_range(&mut self, file: FileId, from: u64) {
        for id in self.vmas_of_file(Some(file)) {
            let vma = *self.vma(id);
            if let Some(start) = first_address(&vma, from) {
                let mut gather = MmuGather::new(vma.mm, Teardown::Partial);
                match vma.huge {
                    Some(size) => {
                        hugetlb::unmap_hugepage_range(self, &mut gather, id, size, start, vma.end)
                    }
                    None => memory::unmap_page_range(
                        self,
                        &mut gather,
                        id,
                        start,
                        vma.end,
                        memory::Reclaim::KeepTables,
                    ),
                }
                gather.finish(self);
            }
        }
    }
}

/// The first address of the VMA that shows page offset `from` or more.
fn first_address(vma: &Vma, from: u64) -> Option<VirtAddr> {
    let skip = from.saturating_sub(vma.pgoff);
    (skip < vma.pages().get()).then(|| vma.start.wrapping_add(skip * PAGE_SIZE))
}
