//! The numbers of the modelled machines, each with where it comes from.
//!
//! A preset is a list of rows that [`Machine`](crate::Machine) applies to its architecture's plain
//! machine, as `--set machine.KEY=VALUE` would.

use crate::machines::Confidence::{self, High, Low, Medium};
use units::ArchId;

/// One number: key, value, source, how far to trust it.
pub(crate) type Row = (&'static str, &'static str, &'static str, Confidence);

/// A preset.
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) arch: ArchId,
    pub(crate) about: &'static str,
    pub(crate) rows: &'static [Row],
}

const CPUID_6252: &str =
    "CPUID leaf 2 of a Xeon Gold 6252 (dump in the raw-cpuid 11.6.0 crate's tests)";
const CPUID_12700K: &str =
    "CPUID leaf 0x18 of an i7-12700K P-core (dump in the raw-cpuid 11.6.0 crate's tests)";
const CPUID_MATISSE: &str = "CPUID 0x80000005/6/19 of a family 17h model 71h part (dump in the raw-cpuid 11.6.0 crate's tests)";
const A76_TRM: &str = "Arm Cortex-A76 TRM, A5.2 and table A6-31 (the same core design)";
const TRM_MEMORY: &str = "Arm Neoverse V1 TRM, from memory";
const PSC: &str =
    "assumed: Intel does not publish paging-structure cache sizes; microbenchmarks suggest these";
const APPLE: &str =
    "AnandTech's analysis of A14 and M1; Apple publishes nothing, no M3 document found";
const LINUX_CEILING: &str = "Linux arch/x86/mm/tlb.c, default of tlb_single_page_flush_ceiling";
const BBM_LIST: &str = "Linux 7.3 arch/arm64/kernel/cpufeature.c: not on the list of relaxed cores";
const TCG: &str = "read from the measured kernels' boot logs and counts (groundtruth/README.md)";
const TCG_TLB: &str =
    "not hardware: stands for QEMU's own direct-mapped translation cache, which ignores CONT";

pub(crate) const PRESETS: &[Preset] = &[
    Preset {
        name: "apple-m3-vm",
        arch: ArchId::Arm64,
        about: "Linux virtual machine with 4 KiB pages on an Apple M3, performance core",
        rows: &[
            (
                "tlbirange",
                "on",
                "Armv8.4 and later require FEAT_TLBIRANGE; assumed passed through to the VM",
                Medium,
            ),
            ("hw_ad", "on", "assumed: FEAT_HAFDBS as in Armv8.5 and later cores", Low),
            ("bbm", "0", BBM_LIST, High),
            ("kpti", "off", "not affected by Meltdown (ID_AA64PFR0_EL1.CSV3)", High),
            ("asid_bits", "16", "ID_AA64MMFR0_EL1 of Apple cores, as Linux reports it", Medium),
            ("clock_ghz", "4.05", "Apple M3 performance core, published clock", High),
            ("ipc", "3", "assumed for integer code; makes 0.08 ns an instruction", Low),
            ("l1d", "4K+64K+2M+32M+1G:256/full", APPLE, Low),
            ("l1i", "4K+64K+2M+32M+1G:192/full", APPLE, Low),
            ("l2", "4K+64K+2M+32M+1G:3072/12", APPLE, Low),
            ("walk_caches", "pgd+pud+pmd:64/full", "assumed", Low),
            ("contiguous", "faulting", "assumed: CONT is honoured", Low),
        ],
    },
    Preset {
        name: "x86-bare-metal",
        arch: ArchId::X86_64,
        about: "an unnamed recent x86-64 machine without virtualisation: Skylake-class TLBs, PCID, no PTI",
        rows: &[
            ("pcid", "on", "every server and desktop core of the last ten years", High),
            ("invpcid", "on", "every server and desktop core of the last ten years", High),
            ("kpti", "off", "assumed: a core that is not affected by Meltdown", Medium),
            ("flush_ceiling", "33", LINUX_CEILING, High),
            ("clock_ghz", "3.3", "assumed", Low),
            ("ipc", "3", "assumed for integer code; makes 0.1 ns an instruction", Low),
            ("pa_bits", "46", "assumed, as Skylake-SP", Medium),
            ("l1d", "4K:64/4, 2M:32/4, 1G:4/full", "as skylake", Medium),
            ("l1i", "4K:64/8, 2M:8/full", "as skylake", Medium),
            ("l2", "4K+2M:1536/12, 1G:16/4", "as skylake", Medium),
            ("walk_caches", "pgd:4/full, pud:4/full, pmd:32/full", PSC, Low),
        ],
    },
    Preset {
        name: "skylake",
        arch: ArchId::X86_64,
        about: "Intel Skylake-SP / Cascade Lake (client Skylake has the same TLBs)",
        rows: &[
            ("pcid", "on", "Intel SDM, CPUID.01H:ECX.PCID", High),
            ("invpcid", "on", "Intel SDM, CPUID.07H:EBX.INVPCID", High),
            (
                "kpti",
                "off",
                "Cascade Lake reports RDCL_NO; Skylake-SP needs PTI (--set machine.kpti=on)",
                Medium,
            ),
            ("flush_ceiling", "33", LINUX_CEILING, High),
            ("clock_ghz", "3.7", "Xeon Gold 6252, maximum turbo", Medium),
            ("ipc", "2", "assumed for integer code", Low),
            ("pa_bits", "46", "CPUID 0x80000008 of a Xeon Gold 6252", High),
            ("l1d", "4K:64/4, 2M:32/4, 1G:4/full", CPUID_6252, High),
            (
                "l1i",
                "4K:64/8, 2M:8/full",
                "CPUID leaf 2 descriptors 0xB5 and 0x76; per hyperthread",
                High,
            ),
            (
                "l2",
                "4K+2M:1536/12, 1G:16/4",
                "size: CPUID descriptor 0xC3, which says 6-way; 12-way by WikiChip and measurements",
                Medium,
            ),
            ("walk_caches", "pgd:4/full, pud:4/full, pmd:32/full", PSC, Low),
        ],
    },
    Preset {
        name: "golden-cove",
        arch: ArchId::X86_64,
        about: "Intel Golden Cove (Alder Lake P-core, Sapphire Rapids)",
        rows: &[
            ("pcid", "on", "Intel SDM, CPUID.01H:ECX.PCID", High),
            ("invpcid", "on", "Intel SDM, CPUID.07H:EBX.INVPCID", High),
            ("kpti", "off", "IA32_ARCH_CAPABILITIES.RDCL_NO", High),
            ("flush_ceiling", "33", LINUX_CEILING, High),
            ("clock_ghz", "4.9", "i7-12700K, maximum turbo of a P-core", Medium),
            ("ipc", "3", "assumed for integer code", Low),
            ("pa_bits", "46", "CPUID 0x80000008 of an i7-12700K", Medium),
            (
                "l1d",
                "4K:96/6, 2M:32/4, 1G:8/full",
                "loads. 4K: Intel's launch material (96, 6-way; the CPUID dump says 64, 4-way); 2M and 1G: CPUID leaf 0x18",
                Medium,
            ),
            ("l1s", "4K+2M+1G:16/full", CPUID_12700K, High),
            ("l1i", "4K:256/8, 2M:32/8", CPUID_12700K, High),
            (
                "l2",
                "4K+2M:1024/8, 4K+1G:1024/8",
                "CPUID leaf 0x18; how 4K pages are dealt to the halves is assumed (alternating)",
                High,
            ),
            ("walk_caches", "pgd:4/full, pud:4/full, pmd:32/full", PSC, Low),
        ],
    },
    Preset {
        name: "zen2",
        arch: ArchId::X86_64,
        about: "AMD Zen 2 (Ryzen 9 3900X)",
        rows: &[
            ("pcid", "off", "PCID came with Zen 3", High),
            ("invpcid", "off", "INVPCID came with Zen 3", High),
            ("kpti", "off", "AMD is not affected by Meltdown", High),
            ("flush_ceiling", "33", LINUX_CEILING, High),
            ("clock_ghz", "4.6", "Ryzen 9 3900X, maximum boost", Medium),
            ("ipc", "2.5", "assumed for integer code", Low),
            ("pa_bits", "48", "CPUID 0x80000008 of family 17h", High),
            ("l1d", "4K+16K+2M+1G:64/full", CPUID_MATISSE, High),
            ("l1i", "4K+16K+2M+1G:64/full", CPUID_MATISSE, High),
            (
                "l2",
                "4K+16K+2M:2048/8",
                "size: CPUID; the real structure is skewed (CPUID: 4K 8-way, 2M 4-way); no 1G",
                Medium,
            ),
            ("l2i", "4K+16K+2M:1024/8", "CPUID; WikiChip says 512", Medium),
            (
                "walk_caches",
                "pgd:4/full, pud:4/full, pmd:32/full",
                "assumed, as Intel; AMD publishes 64 PDE entries for other families",
                Low,
            ),
            ("coalesce", "16K", "AMD, \"PTE coalescing\": aligned groups of four entries", Medium),
        ],
    },
    Preset {
        name: "neoverse-n1",
        arch: ArchId::Arm64,
        about: "Arm Neoverse N1 (Graviton2, Ampere Altra)",
        rows: &[
            ("tlbirange", "off", "FEAT_TLBIRANGE is Armv8.4; N1 is Armv8.2", High),
            ("hw_ad", "on", "Armv8.1 FEAT_HAFDBS, N1 TRM ID_AA64MMFR1_EL1", High),
            ("bbm", "0", BBM_LIST, High),
            ("kpti", "off", "ID_AA64PFR0_EL1.CSV3 = 1", High),
            ("asid_bits", "16", "N1 TRM, ID_AA64MMFR0_EL1", High),
            ("clock_ghz", "2.5", "Graviton2", High),
            ("ipc", "2", "assumed for integer code", Low),
            ("l1d", "4K+16K+64K+2M+512M:48/full", A76_TRM, High),
            ("l1i", "4K+16K+64K+2M+512M:48/full", A76_TRM, High),
            ("l2", "4K+16K+64K+2M+32M+512M+1G:1280/5", A76_TRM, High),
            (
                "walk_caches",
                "pgd+pud+pmd:64/full",
                "assumed size; the real core keeps walk results in its L2 TLB",
                Low,
            ),
            (
                "contiguous",
                "faulting",
                "which descriptor of the block is cached is not published",
                Medium,
            ),
            (
                "coalesce",
                "off",
                "the L2 TLB may merge four adjacent 4K pages (--set machine.coalesce=16K)",
                Medium,
            ),
        ],
    },
    Preset {
        name: "neoverse-v1",
        arch: ArchId::Arm64,
        about: "Arm Neoverse V1 (Graviton3)",
        rows: &[
            ("tlbirange", "on", "Armv8.4", High),
            ("hw_ad", "on", "Armv8.1 FEAT_HAFDBS", High),
            ("bbm", "0", BBM_LIST, High),
            ("kpti", "off", "ID_AA64PFR0_EL1.CSV3 = 1", High),
            ("asid_bits", "16", TRM_MEMORY, Medium),
            ("clock_ghz", "2.6", "Graviton3", High),
            ("ipc", "2.5", "assumed for integer code", Low),
            ("l1d", "4K+16K+64K+2M+512M:40/full", TRM_MEMORY, Low),
            ("l1i", "4K+16K+64K+2M+512M:48/full", TRM_MEMORY, Low),
            ("l2", "4K+16K+64K+2M+32M+512M+1G:2048/4", TRM_MEMORY, Low),
            ("walk_caches", "pgd+pud+pmd:64/full", "assumed, as neoverse-n1", Low),
            (
                "contiguous",
                "faulting",
                "which descriptor of the block is cached is not published",
                Medium,
            ),
        ],
    },
    Preset {
        name: "qemu-max-arm64",
        arch: ArchId::Arm64,
        about: "QEMU 7.2 TCG, -cpu max: what the arm64 ground truth was measured on",
        rows: &[
            ("tlbirange", "on", TCG, High),
            ("hw_ad", "on", TCG, High),
            ("bbm", "0", TCG, High),
            ("kpti", "off", TCG, High),
            ("asid_bits", "16", TCG, High),
            ("clock_ghz", "1", "none: virtual time is not hardware time", Low),
            ("ipc", "1", "none: virtual time is not hardware time", Low),
            ("l1d", "4K:256/1", TCG_TLB, Low),
            ("l1i", "shared", TCG_TLB, Low),
            ("l2", "none", TCG_TLB, Low),
            ("walk_caches", "none", "QEMU walks from the root", High),
            ("contiguous", "ignored", "QEMU target/arm ignores CONT", High),
            ("on_denial", "rewalk", "QEMU walks again before it delivers a permission fault", High),
        ],
    },
    Preset {
        name: "qemu-cortex-a72",
        arch: ArchId::Arm64,
        about: "QEMU 7.2 TCG, -cpu cortex-a72: ground truth without TLB ranges and hardware access flags",
        rows: &[
            ("tlbirange", "off", TCG, High),
            ("hw_ad", "off", TCG, High),
            ("bbm", "0", TCG, High),
            ("kpti", "off", TCG, High),
            ("asid_bits", "16", TCG, High),
            ("clock_ghz", "1", "none: virtual time is not hardware time", Low),
            ("ipc", "1", "none: virtual time is not hardware time", Low),
            ("l1d", "4K:256/1", TCG_TLB, Low),
            ("l1i", "shared", TCG_TLB, Low),
            ("l2", "none", TCG_TLB, Low),
            ("walk_caches", "none", "QEMU walks from the root", High),
            ("contiguous", "ignored", "QEMU target/arm ignores CONT", High),
            ("on_denial", "rewalk", "QEMU walks again before it delivers a permission fault", High),
        ],
    },
    Preset {
        name: "qemu-max-x86_64",
        arch: ArchId::X86_64,
        about: "QEMU 7.2 TCG, -cpu max: what the x86-64 ground truth was measured on",
        rows: &[
            ("pcid", "off", TCG, High),
            ("invpcid", "off", TCG, High),
            ("kpti", "off", TCG, High),
            ("flush_ceiling", "33", LINUX_CEILING, High),
            ("clock_ghz", "1", "none: virtual time is not hardware time", Low),
            ("ipc", "1", "none: virtual time is not hardware time", Low),
            ("pa_bits", "40", "QEMU target/i386, default phys-bits of TCG", Medium),
            ("l1d", "4K:256/1", TCG_TLB, Low),
            ("l1i", "shared", TCG_TLB, Low),
            ("l2", "none", TCG_TLB, Low),
            ("walk_caches", "none", "QEMU walks from the root", High),
            ("on_denial", "rewalk", "QEMU walks again before it delivers a page fault", High),
        ],
    },
];
