//! Files that can be mapped, and their page cache.
//!
//! A file is bytes; its pages enter the cache when a fault wants them and stay there. Source:
//! Linux mm/filemap.c.
//
// FIDELITY: page-cache file pages are order 0, never written back or reclaimed

use crate::Mm;
use crate::folio::Folio;
use arch::Platform;
use phys::PageFlags;
use std::collections::BTreeMap;
use units::{Order, PAGE_SIZE, Pfn};

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u32);

/// What serves the faults of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileKind {
    /// The page cache (`generic_file_vm_ops`): a read fault maps cached neighbours, too.
    #[default]
    Cached,
    /// Pages of the kernel's own, one for each fault (`special_mapping_vmops`).
    Special,
    /// Frames without rmap or references (VM_PFNMAP).
    Pfns,
}

/// An `address_space`: contents, and the pages that are cached.
#[derive(Debug)]
struct File {
    contents: Vec<u8>,
    name: String,
    kind: FileKind,
    cached: BTreeMap<u64, Pfn>,
}

/// All files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    files: Vec<File>,
}

impl<P: Platform> Mm<P> {
    /// A file with the given contents, to be mapped; `name` is for /proc/self/maps.
    pub fn file_create(&mut self, name: &str, contents: Vec<u8>) -> FileId {
        self.file_create_of_kind(name, contents, FileKind::Cached)
    }

    /// The same, for what is no file to the kernel.
    pub fn file_create_of_kind(&mut self, name: &str, contents: Vec<u8>, kind: FileKind) -> FileId {
        let id = FileId(u32::try_from(self.files.files.len()).expect("files are few"));
        let name = name.to_owned();
        self.files.files.push(File { contents, name, kind, cached: BTreeMap::new() });
        id
    }

    /// The name of a file.
    pub fn file_name(&self, file: FileId) -> &str {
        &self.files.files[file.0 as usize].name
    }

    /// What serves the faults of its mappings.
    pub(crate) fn file_kind(&self, file: FileId) -> FileKind {
        self.files.files[file.0 as usize].kind
    }

    /// Pages of the file, the last one perhaps partly.
    pub(crate) fn file_pages(&self, file: FileId) -> u64 {
        (self.files.files[file.0 as usize].contents.len() as u64).div_ceil(PAGE_SIZE)
    }

    /// The cached page at `index`, if there is one.
    pub(crate) fn filemap_get(&self, file: FileId, index: u64) -> Option<Folio> {
        let pfn = *self.files.files[file.0 as usize].cached.get(&index)?;
        Some(self.page_folio(pfn))
    }

    /// The page at `index`, read into the cache if needed; `None` when memory has run out.
    pub(crate) fn filemap_read(&mut self, file: FileId, index: u64) -> Option<Folio> {
        if let Some(folio) = self.filemap_get(file, index) {
            return Some(folio);
        }
        let folio = self.folio_alloc(Order::ZERO)?;
        let from = usize::try_from(index * PAGE_SIZE).ok()?;
        let file = &mut self.files.files[file.0 as usize];
        let frame = self.pt.ram.frame_mut(folio.pfn);
        let tail = file.contents.get(from..).unwrap_or(&[]);
        let len = tail.len().min(frame.len());
        frame[..len].copy_from_slice(&tail[..len]);
        frame[len..].fill(0);
        file.cached.insert(index, folio.pfn);
        self.folio_set(folio, PageFlags::UPTODATE);
        Some(folio)
    }
}
