/* probe PROGRAM [MiB] [a] [b]: does one thing to an anonymous mapping, phase by phase, and prints what each phase cost.
 *
 * Each phase is one line `@@{json}` (window.h) with the counters that the kernel keeps in /sys/kernel/debug/mm_events.
 * Environment: NTHR=n starts n spinning threads first, VERIFY checks the data after a refault, EV_META is put into
 * every line, EV_OFF leaves the counters alone, ADVISE=large or small says which folios are wanted. The same binary runs on Linux and under ptescope. */
#include "rt.h"
#include "window.h"

#define MAX_THREADS 8
#define PMD_SIZE (2 * MIB)

/* What the command line asked for. */
struct request {
    size_t size;
    int a, b;
};

static volatile unsigned threads_running;
static volatile int threads_stop;
static char *polluted; /* the page that `pollute` keeps touching */

/* Where threads and read passes leave their results, on a page of its own. In the recorded runs gcc had put it on a page
 * that on arm64 had been written before the first window, and on x86-64 only read: there the first read pass
 * writes to the zero page, and has one write fault. See prepare_result. */
static volatile uint64_t result[PAGE_SIZE / sizeof(uint64_t)] __attribute__((aligned(PAGE_SIZE)));

static void prepare_result(void) {
#if defined(__x86_64__)
    (void)result[0];
#else
    result[0] = 0;
#endif
}

static _Noreturn void die(const char *what, long ret) {
    print(STDOUT, "@@ERR %s errno=%ld\n", what, -ret);
    exit_process(1);
}

static void check(const char *what, long ret) {
    if (is_error(ret))
        die(what, ret);
}

/* An anonymous mapping that starts at a multiple of 2 MiB and has nothing readable next to it. */
static char *region(size_t size) {
    long outer = sys_mmap(NULL, size + 2 * PMD_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    check("mmap", outer);
    long start = (long)(((unsigned long)outer + PMD_SIZE) & ~(PMD_SIZE - 1));
    check("mmap2", sys_mmap((void *)start, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED));
    const char *advice = getenv("ADVISE");
    if (advice)
        check("madvise", sys_madvise((void *)start, size, strcmp(advice, "small") == 0 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE));
    return (char *)start;
}

static char *filled_region(size_t size, int byte) {
    char *at = region(size);
    memset(at, byte, size);
    return at;
}

static void touch_write(char *at, size_t size) {
    for (size_t i = 0; i < size; i += PAGE_SIZE)
        ((volatile char *)at)[i] = 1;
}

static void touch_read(char *at, size_t size) {
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i += PAGE_SIZE)
        sum += (uint64_t)((volatile char *)at)[i];
    result[0] = sum;
}

static void spin(void *cpu) {
    pin_to_cpu((unsigned)(uintptr_t)cpu);
    __atomic_fetch_add(&threads_running, 1, __ATOMIC_SEQ_CST);
    while (!threads_stop)
        result[0]++;
}

static void spin_touching(void *cpu) {
    pin_to_cpu((unsigned)(uintptr_t)cpu);
    __atomic_fetch_add(&threads_running, 1, __ATOMIC_SEQ_CST);
    for (size_t i = 0; !threads_stop; i += 64)
        result[0] += (uint64_t)((volatile char *)polluted)[i % PAGE_SIZE];
}

/* Starts `nr` threads on the CPUs from 2 on and waits until all of them run. */
static void start_threads(struct thread *threads, unsigned nr, void (*run)(void *)) {
    unsigned wanted = threads_running + nr;
    for (unsigned i = 0; i < nr; i++)
        check("clone", thread_start(&threads[i], run, (void *)(uintptr_t)((2 + i) % 4)));
    while (threads_running < wanted)
        sys_sched_yield();
}

static void stop_threads(struct thread *threads, unsigned nr) {
    threads_stop = 1;
    for (unsigned i = 0; i < nr; i++)
        thread_join(&threads[i]);
}

/* The measured operations: nothing but the operation between opening and closing the window. */

static void measure_madvise(char *at, size_t size, int advice, const char *phase) {
    window_open();
    long ret = sys_madvise(at, size, advice);
    window_close(phase);
    check(phase, ret);
}

static void measure_mprotect(char *at, size_t size, int prot, const char *phase) {
    window_open();
    long ret = sys_mprotect(at, size, prot);
    window_close(phase);
    check(phase, ret);
}

static void measure_munmap(char *at, size_t size, const char *phase) {
    window_open();
    long ret = sys_munmap(at, size);
    window_close(phase);
    check(phase, ret);
}

static char *measure_mremap(char *from, size_t size, char *to, const char *phase) {
    window_open();
    long ret = sys_mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    window_close(phase);
    check(phase, ret);
    return (char *)ret;
}

static void measure_touch_write(char *at, size_t size, const char *phase) {
    window_open();
    touch_write(at, size);
    window_close(phase);
}

static void measure_touch_read(char *at, size_t size, const char *phase) {
    window_open();
    touch_read(at, size);
    window_close(phase);
}

/* A child that does nothing but wait for its parent to close the pipe. */
struct waiting_child {
    long pid;
    int pipe[2];
};

static struct waiting_child measure_fork(const char *phase) {
    struct waiting_child child;
    check("pipe", sys_pipe(child.pipe));
    window_open();
    child.pid = sys_fork();
    if (child.pid == 0) {
        char byte;
        sys_close(child.pipe[1]);
        sys_read(child.pipe[0], &byte, 1);
        exit_process(0);
    }
    window_close(phase);
    check("fork", child.pid);
    return child;
}

static void release(struct waiting_child child) {
    int status;
    sys_close(child.pipe[1]);
    sys_waitpid(child.pid, &status);
}

/* Forks a child that exits at once, and waits for it. */
static void fork_and_wait(void) {
    int status;
    long pid = sys_fork();
    if (pid == 0)
        exit_process(0);
    check("fork", pid);
    sys_waitpid(pid, &status);
}

/* Checks that the data of a paged-out region came back; `rewritten` means that touch_write ran over it. */
static void verify(const char *at, size_t size, int fill, int rewritten) {
    size_t bad = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char expected = rewritten && i % PAGE_SIZE == 0 ? 1 : (unsigned char)fill;
        if ((unsigned char)at[i] != expected)
            bad++;
    }
    if (bad)
        print(STDOUT, "@@ERR data mismatch %zu\n", bad);
    else
        print(STDOUT, "data ok\n");
}

/* a: fill byte; b: 1 = read everything back afterwards, 2 = write to it. */
static void program_pageout(struct request r) {
    char *at = filled_region(r.size, r.a);
    measure_madvise(at, r.size, MADV_PAGEOUT, "pageout");
    if (r.b == 1) {
        measure_touch_read(at, r.size, "refault_read");
        measure_touch_write(at, 0, "write_after_refault");
    } else if (r.b) {
        measure_touch_write(at, r.size, "refault_write");
        measure_touch_write(at, r.size, "write_after_refault");
    }
    if (r.b == 1 || getenv("VERIFY"))
        verify(at, r.size, r.a, r.b == 2);
    measure_munmap(at, r.size, "munmap_after");
}

static void program_fault(struct request r) {
    char *at = region(r.size);
    measure_touch_write(at, r.size, "first_touch_write");
    measure_madvise(at, r.size, MADV_COLD, "madv_cold");
    measure_madvise(at, r.size, MADV_COLD, "madv_cold_again");
    measure_touch_read(at, r.size, "touch_read_after_cold");
}

/* a: fill byte. */
static void program_munmap(struct request r) {
    measure_munmap(filled_region(r.size, r.a), r.size, "munmap");
}

static void program_dontneed(struct request r) {
    measure_madvise(filled_region(r.size, 1), r.size, MADV_DONTNEED, "dontneed");
}

static void program_madvfree(struct request r) {
    char *at = filled_region(r.size, 1);
    size_t half = r.size / 2;
    measure_madvise(at, r.size, MADV_FREE, "madv_free");
    measure_madvise(at, r.size, MADV_FREE, "madv_free_again");
    measure_madvise(at, half, MADV_PAGEOUT, "pageout_lazyfree_half");
    measure_touch_write(at + half, half, "redirty_half");
    measure_madvise(at + half, half, MADV_PAGEOUT, "pageout_redirtied_half");
}

static void program_mprotect(struct request r) {
    char *at = filled_region(r.size, 1);
    measure_mprotect(at, r.size, PROT_READ, "mprotect_ro");
    measure_touch_read(at, r.size, "read_ro");
    measure_mprotect(at, r.size, PROT_READ | PROT_WRITE, "mprotect_rw");
    measure_touch_write(at, r.size, "write_rw");
    measure_mprotect(at, r.size, PROT_NONE, "mprotect_none");
    measure_mprotect(at, r.size, PROT_READ | PROT_WRITE, "mprotect_none_to_rw");
}

/* Operations on one or a few pages in the middle of large folios, each in its own part of a region of at least 40 MiB. */
static void program_partial(struct request r) {
    char *at = filled_region(r.size, 1);
    size_t page = 7 * PAGE_SIZE; /* inside a 64 KiB block */
    measure_mprotect(at + page, PAGE_SIZE, PROT_READ, "mprotect_ro_1page");
    measure_mprotect(at + page, PAGE_SIZE, PROT_READ | PROT_WRITE, "mprotect_rw_1page");
    measure_touch_write(at + page, PAGE_SIZE, "write_1page");
    measure_mprotect(at + 4 * MIB + page, 2 * PAGE_SIZE, PROT_READ, "mprotect_ro_2page");
    measure_munmap(at + 8 * MIB + page, PAGE_SIZE, "munmap_1page");
    measure_madvise(at + 12 * MIB + page, PAGE_SIZE, MADV_DONTNEED, "dontneed_1page");
    measure_touch_write(at + 12 * MIB + page, PAGE_SIZE, "refault_after_dontneed_1page");
    measure_madvise(at + 16 * MIB + page, PAGE_SIZE, MADV_FREE, "madvfree_1page");
    measure_madvise(at + 20 * MIB + page, PAGE_SIZE, MADV_PAGEOUT, "pageout_1page");
    measure_madvise(at + 24 * MIB + page, PAGE_SIZE, MADV_COLD, "cold_1page");

    long ret = 0;
    window_open();
    for (size_t offset = page; offset < 4 * MIB && ret == 0; offset += 65536)
        ret = sys_madvise(at + 28 * MIB + offset, PAGE_SIZE, MADV_DONTNEED);
    window_close("dontneed_1page_per_64k_4MiB");
    check("dontneed_1page_per_64k_4MiB", ret);

    measure_munmap(at + 34 * MIB - 8 * PAGE_SIZE, 16 * PAGE_SIZE, "munmap_16page_unaligned");
    measure_mremap(at + 36 * MIB, PAGE_SIZE, at + 8 * MIB + page, "mremap_1page_into_hole");
}

static void program_fork(struct request r) {
    char *at = filled_region(r.size, 1);
    struct waiting_child child = measure_fork("fork");
    measure_touch_read(at, r.size, "parent_read_after_fork");
    measure_touch_write(at, r.size, "parent_cow_write");
    release(child);
    fork_and_wait();
    measure_touch_write(at, r.size, "parent_write_after_child_exit_reuse");
}

static void program_mremap(struct request r) {
    char *at = filled_region(r.size, 1);
    at = measure_mremap(at, r.size, region(r.size + PMD_SIZE), "mremap_pmd_aligned");
    at = measure_mremap(at, r.size, region(r.size + PMD_SIZE) + 65536, "mremap_64k_shift");
    measure_mremap(at, r.size, region(r.size + PMD_SIZE) + PAGE_SIZE, "mremap_4k_shift");
}

/* Counts the exit of a child that has filled a region. The counters belong to whoever started them last: the child. */
static void program_exit(struct request r) {
    int status, go[2];
    check("pipe", sys_pipe(go));
    long pid = sys_fork();
    if (pid == 0) {
        char byte;
        pin_to_cpu(1);
        filled_region(r.size, 1);
        sys_read(go[0], &byte, 1); /* the parent has opened its window */
        exit_process(counters_start() ? 0 : 1);
    }
    check("fork", pid);
    window_open();
    sys_write(go[1], "", 1);
    sys_waitpid(pid, &status);
    window_close("exit_child");
}

static void program_forkreuse(struct request r) {
    char *at = filled_region(r.size, 1);
    fork_and_wait();
    measure_touch_read(at, r.size, "read_after_child_exit");
    measure_touch_write(at, r.size, "write_after_child_exit");
    measure_touch_write(at, r.size, "write_again");
}

/* Operations on memory that is swapped out. */
static void program_swapped(struct request r) {
    char *at = filled_region(r.size, 1);
    size_t half = r.size / 2;
    check("madvise", sys_madvise(at, r.size, MADV_PAGEOUT));
    measure_madvise(at, r.size, MADV_PAGEOUT, "pageout_again_on_swap_ptes");
    measure_mprotect(at, r.size, PROT_READ, "mprotect_on_swap_ptes");
    check("mprotect", sys_mprotect(at, r.size, PROT_READ | PROT_WRITE));
    struct waiting_child child = measure_fork("fork_on_swap_ptes");
    measure_madvise(at, half, MADV_DONTNEED, "dontneed_on_shared_swap_ptes_half");
    release(child);
    measure_munmap(at + half, half, "munmap_on_swap_ptes_half");
}

/* With a region larger than RAM: reclaim by memory pressure. */
static void program_pressure(struct request r) {
    char *at = region(r.size);
    measure_touch_write(at, r.size, "pressure_write");
    measure_touch_read(at, r.size, "pressure_read");
}

/* Pages out while two threads touch another page of the same process, whose TLB entries must go too. */
static void program_pollute(struct request r) {
    struct thread threads[2];
    char *at = region(r.size + 4 * MIB);
    polluted = at + r.size;
    memset(at, 1, r.size + PAGE_SIZE);
    start_threads(threads, 2, spin_touching);
    measure_madvise(at, r.size, MADV_PAGEOUT, "pageout_2threads");
    measure_mprotect(at, r.size / 2, PROT_READ, "mprotect_swapped");
    stop_threads(threads, 2);
}

/* What an empty window costs: to be subtracted from the others. */
static void program_idle(struct request r) {
    (void)r;
    window_open();
    window_close("idle");
    window_open();
    sleep_ns(200000000);
    window_close("idle_200ms");
}

static const struct {
    const char *name;
    void (*run)(struct request);
} programs[] = {
    {"pageout", program_pageout},     {"fault", program_fault},       {"munmap", program_munmap},
    {"dontneed", program_dontneed},   {"madvfree", program_madvfree}, {"mprotect", program_mprotect},
    {"partial", program_partial},     {"fork", program_fork},         {"mremap", program_mremap},
    {"exit", program_exit},           {"forkreuse", program_forkreuse}, {"swapped", program_swapped},
    {"pressure", program_pressure},   {"pollute", program_pollute},   {"idle", program_idle},
};

static unsigned spinners_wanted(void) {
    const char *text = getenv("NTHR");
    uint64_t nr = 0;
    if (text && (!parse_number(text, &nr) || nr > MAX_THREADS))
        die("NTHR", -22);
    return (unsigned)nr;
}

int main(int argc, char **argv) {
    static struct thread spinners[MAX_THREADS];
    for (size_t i = 0; i < COUNT_OF(programs); i++) {
        if (argc < 2 || strcmp(argv[1], programs[i].name) != 0)
            continue;
        struct request request = {
            .size = mib_argument(argc, argv, 2, 64),
            .a = (int)number_argument(argc, argv, 3, 0),
            .b = (int)number_argument(argc, argv, 4, 0),
        };
        unsigned nr = spinners_wanted();
        pin_to_cpu(1);
        prepare_result();
        start_threads(spinners, nr, spin);
        programs[i].run(request);
        stop_threads(spinners, nr);
        return 0;
    }
    die("unknown prog", 0);
}
