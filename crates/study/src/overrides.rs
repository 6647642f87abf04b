//! `--set kernel.FIELD=VALUE`: single behaviours of a kernel.

use crate::settings::{SettingError, parse_switch};
use machine::{BreakKsm, KernelConfig, SwapApi};

macro_rules! switches {
    ($($field:ident)*) => {
        const SWITCHES: &[&str] = &[$(stringify!($field)),*];

        fn switch<'k>(kernel: &'k mut KernelConfig, field: &str) -> Option<&'k mut bool> {
            match field {
                $(stringify!($field) => Some(&mut kernel.$field),)*
                _ => None,
            }
        }
    };
}

switches! {
    access_flags_flush_local
    anon_mthp
    anon_unmap_batched
    anon_unmap_marker_check
    arm64_pte_needs_flush
    bbml2_noabort
    bbml3
    cold_pmd_invalidate
    contpte
    contpte_get_early_stop
    fork_copies_tlb_batch
    gup_batch_own_scan
    gup_fast_recheck_lockless
    gup_hugetlb_generic
    gup_hugetlb_unified
    gup_longterm_file_refused
    gup_merge_grab
    gup_pte_batch
    gup_ro_pin_exclusive_run
    gup_thp_stride
    hugetlb_restore_reserve
    hugetlb_tlb_hints
    ksm_fault_write
    lazyfree_pmd_discard
    lazyfree_unmap_batched
    migrate_splits_in_walk
    mprotect_batched
    mremap_batched
    pt_reclaim
    pte_marker_uffd_wp
    pvmw_lockless_precheck
    softleaf_raw_check
    vdso_generic_data
    wp_reuse_large
    x86_rcu_table_free
    young_ptes_batched
    zero_device_aligned
}

const BREAK_KSM: [(&str, BreakKsm); 5] = [
    ("follow-page", BreakKsm::FollowPage),
    ("walk-vma", BreakKsm::WalkVma),
    ("walk-vma-pud", BreakKsm::WalkVmaPud),
    ("folio-walk", BreakKsm::FolioWalk),
    ("range-walk", BreakKsm::RangeWalk),
];

const SWAP_API: [(&str, SwapApi); 2] =
    [("slot-cache", SwapApi::SlotCache), ("cluster", SwapApi::Cluster)];

/// The fields that can be set, without their `kernel.`, in order.
pub fn kernel_fields() -> Vec<&'static str> {
    let mut fields = [SWITCHES, &["break_ksm", "swap_api"]].concat();
    fields.sort_unstable();
    fields
}

/// Sets `field` of `kernel` to what `value` says.
pub(crate) fn set_kernel(
    kernel: &mut KernelConfig,
    field: &str,
    value: &str,
) -> Result<(), SettingError> {
    if let Some(switch) = switch(kernel, field) {
        *switch = parse_switch(field, value)?;
        return Ok(());
    }
    match field {
        "break_ksm" => kernel.break_ksm = choose(field, value, &BREAK_KSM)?,
        "swap_api" => kernel.swap_api = choose(field, value, &SWAP_API)?,
        _ => {
            let known = kernel_fields().join(", ");
            return Err(SettingError(format!("unknown field `kernel.{field}`; known: {known}")));
        }
    }
    Ok(())
}

fn choose<T: Copy>(field: &str, value: &str, values: &[(&str, T)]) -> Result<T, SettingError> {
    values.iter().find(|v| v.0 == value).map(|v| v.1).ok_or_else(|| {
        let known: Vec<_> = values.iter().map(|v| v.0).collect();
        SettingError(format!("`{field}` is one of {}, not `{value}`", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_set_by_name() {
        let mut kernel = KernelConfig::parse("v7.3").expect("known");
        set_kernel(&mut kernel, "softleaf_raw_check", "off").expect("a switch");
        assert!(!kernel.softleaf_raw_check);
        set_kernel(&mut kernel, "break_ksm", "walk-vma").expect("a choice");
        assert_eq!(kernel.break_ksm, BreakKsm::WalkVma);
    }

    #[test]
    fn wrong_fields_and_values_list_the_right_ones() {
        let mut kernel = KernelConfig::parse("v7.3").expect("known");
        let mut check = |field: &str, value: &str, part: &str| {
            let message = set_kernel(&mut kernel, field, value).expect_err("wrong").to_string();
            assert!(message.contains(part), "{message}");
        };
        check("contptes", "on", "unknown field `kernel.contptes`; known: access_flags_flush_local");
        check("contpte", "maybe", "either on or off");
        check("break_ksm", "hammer", "range-walk");
    }

    #[test]
    fn every_field_of_the_config_can_be_set() {
        let debug = format!("{:#?}", KernelConfig::parse("v7.3").expect("known"));
        let fields = debug.lines().filter_map(|l| l.trim().split_once(':')).map(|(name, _)| name);
        let known = kernel_fields();
        for field in fields.filter(|&f| f != "name") {
            assert!(known.contains(&field), "{field}");
        }
    }
}
