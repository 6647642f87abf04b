//! What a new program finds.

use super::*;

#[test]
fn segments_heap_and_stack_lie_where_linux_puts_them_on_x86_64() {
    let mut guest = Guest::<X86_64>::new();
    guest.call("brk", &[0x40_7000]);
    let maps = guest.slurp("/proc/self/maps");
    assert_eq!(
        maps,
        "\
00400000-00402000 r-xp 00000000 00:00 1                                  /bin/prog
00402000-00403000 rw-p 00002000 00:00 1                                  /bin/prog
00403000-00406000 rw-p 00000000 00:00 0 
00406000-00407000 rw-p 00000000 00:00 0                                  [heap]
7ffff7ff9000-7ffff7ffd000 r--p 00000000 00:00 0                          [vvar]
7ffff7ffd000-7ffff7fff000 r-xp 00000000 00:00 0                          [vdso]
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]
"
    );
    assert_eq!(guest.peek(DATA + 0x800, 0x2800), vec![0; 0x2800]);
}

#[test]
fn the_vdso_lies_at_the_top_of_the_mappings() {
    let mut guest = Guest::<Arm64>::new();
    let maps = guest.slurp("/proc/self/maps");
    let last: Vec<&str> = maps.lines().rev().take(3).collect();
    assert!(last[0].starts_with("fffffffdf000-1000000000000 rw-p"), "{maps}");
    assert!(last[1].ends_with("[vdso]") && last[1].contains("r-xp"), "{maps}");
    assert!(last[2].ends_with("[vvar]") && last[2].contains("r--p"), "{maps}");
}

#[test]
fn data_of_the_vdso_are_frames_that_a_child_gets_at_once() {
    let mut guest = Guest::<X86_64>::new();
    let vvar = 0x7fff_f7ff_9000;
    assert_eq!(guest.peek(vvar, 8), [0; 8]);
    let reaches = |guest: &mut Guest<X86_64>, va| {
        let mm = guest.kernel.task_mm(guest.task).expect("it lives");
        guest.kernel.mm.handle_user_fault(mm, VirtAddr::new(va), mm::Access::Read)
    };
    assert_eq!(reaches(&mut guest, vvar + 0x1000), Err(mm::FaultSignal::Bus), "no time namespace");
    let mm = guest.kernel.task_mm(guest.task).expect("it lives");
    let before = guest.kernel.mm.mm_struct(mm).rss.file;
    let child = guest.kernel.mm.dup_mmap(mm).expect("there is memory");
    let at = guest.kernel.mm.pt.pmd_offset(child, VirtAddr::new(vvar)).expect("its table");
    assert!(guest.kernel.mm.pt.pte_offset(at, VirtAddr::new(vvar)).is_some());
    assert_eq!(guest.kernel.mm.mm_struct(child).rss.file, 0, "{before} in the parent");
    assert_eq!(guest.call("madvise", &[vvar, 4096, 4]), -22, "MADV_DONTNEED");
    assert!(guest.kernel.mm.validate().is_empty());
}

#[test]
fn a_static_pie_is_placed_below_the_mapping_base() {
    let mut kernel = kernel::<X86_64>(1);
    let elf = program::<X86_64>(3);
    let argv = [b"pie".to_vec()];
    let program = Program { path: "pie", elf: &elf, argv: &argv, envp: &[] };
    let loaded = kernel.load(&program).expect("a good program");
    let mm = kernel.task_mm(loaded.task).expect("an address space");
    let of_the_file =
        |vma: &&mm::Vma| vma.file.is_some_and(|file| kernel.mm.file_name(file) == "/pie");
    let first = kernel.mm.vmas(mm).find(of_the_file).expect("a segment").start;
    assert_eq!(loaded.pc, first.wrapping_add(0x40_1000));
    assert!(first.is_aligned(4096) && first.get() > 0x7fff_0000_0000);
    assert_eq!(kernel.mm.vmas(mm).count(), 6);
}

#[test]
fn what_cannot_be_loaded_says_why_and_leaves_no_task() {
    let mut kernel = kernel::<X86_64>(1);
    let free = kernel.mm.meminfo().free;
    let mut load = |elf: &[u8], argv: &[Vec<u8>]| {
        let program = Program { path: "x", elf, argv, envp: &[] };
        kernel.load(&program).expect_err("refused")
    };
    let error = load(&program::<Arm64>(2), &[]);
    assert_eq!(error.to_string(), "the program is for arm64, but the machine is x86_64");
    let huge = elf(62, 2, &[(1, 6, 0, CODE, 0x1000, 1 << 40)]);
    let error = load(&huge, &[]);
    assert_eq!(error.kind(), LoadErrorKind::Limit);
    let error = load(&program::<X86_64>(2), &[vec![b'a'; 200 << 10]]);
    assert_eq!(error.kind(), LoadErrorKind::Usage);
    assert_eq!(load(&program::<X86_64>(2), &[b"a\0b".to_vec()]), LoadError::NulInArguments);
    assert_eq!(load(b"", &[]).kind(), LoadErrorKind::NotRunnable);
    assert_eq!(kernel.mm.meminfo().free, free);
    assert_eq!(kernel.schedule(CpuId::new(0)), None);
}
