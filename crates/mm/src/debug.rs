//! What the kernel says of a page when it is asked to describe it.
//!
//! Source: Linux mm/debug.c.

use crate::Mm;
use arch::Platform;
use phys::PageFlags;
use units::Pfn;

/// Flags that Linux has under the same names, in the order of its bits.
const NAMES: [(PageFlags, &str); 13] = [
    (PageFlags::LOCKED, "locked"),
    (PageFlags::WRITEBACK, "writeback"),
    (PageFlags::REFERENCED, "referenced"),
    (PageFlags::UPTODATE, "uptodate"),
    (PageFlags::DIRTY, "dirty"),
    (PageFlags::LRU, "lru"),
    (PageFlags::HEAD, "head"),
    (PageFlags::ACTIVE, "active"),
    (PageFlags::WORKINGSET, "workingset"),
    (PageFlags::RECLAIM, "reclaim"),
    (PageFlags::SWAPBACKED, "swapbacked"),
    (PageFlags::UNEVICTABLE, "unevictable"),
    (PageFlags::MLOCKED, "mlocked"),
];

impl<P: Platform> Mm<P> {
    /// `dump_page()`: lines for the kernel's log, of the page, its folio if that is large, and why.
    // FIDELITY: dump-page — addresses of kernel objects, words in hexadecimal, and the number of
    // the flags are missing.
    pub fn dump_page(&self, page: Pfn, reason: &str) -> Vec<String> {
        let folio = self.page_folio(page);
        let head = self.pt.pages.page(folio.pfn);
        let own = self.pt.pages.page(page);
        let mapped = own.mapcount.saturating_add(head.entire_mapcount);
        let index = head.index.saturating_add(folio.index_of(page));
        let mut lines = vec![format!(
            "page: refcount:{} mapcount:{mapped} index:{index:#x} pfn:{:#x}",
            head.refcount,
            page.get()
        )];
        if folio.is_large() {
            lines.push(format!(
                "head: order:{} mapcount:{} entire_mapcount:{} nr_pages_mapped:{} pincount:{}",
                folio.order.get(),
                head.large_mapcount,
                head.entire_mapcount,
                head.nr_pages_mapped,
                head.pincount
            ));
        }
        let kind = match (head.flags.contains(PageFlags::KSM), self.is_anon(folio.pfn)) {
            (true, _) => "ksm ",
            (false, true) => "anon ",
            (false, false) => "",
        };
        let names = NAMES.iter().filter(|(flag, _)| head.flags.contains(*flag));
        let names: Vec<&str> = names.map(|&(_, name)| name).collect();
        lines.push(format!("{kind}flags: ({})", names.join("|")));
        lines.push(format!("page dumped because: {reason}"));
        lines
    }

    fn is_anon(&self, head: Pfn) -> bool {
        self.pt.pages.page(head).flags.contains(PageFlags::ANON)
    }
}
