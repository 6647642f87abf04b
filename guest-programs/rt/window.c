/* See window.h. Everything that could fault inside a window is touched before the first one opens. */
#include "window.h"

#include "rt.h"

#define COUNTERS "/sys/kernel/debug/mm_events"
#define TEXT_SIZE (256UL << 10)
#define STACK_USED (32UL << 10)

/* No-ops that a QEMU plugin recognises: they bound the window in a trace of executed instructions. */
#if defined(__x86_64__)
#define MARK_OPEN() __asm__ volatile(".byte 0x0f, 0x1f, 0x80, 0x11, 0x22, 0x33, 0x44" ::: "memory")
#define MARK_CLOSE() __asm__ volatile(".byte 0x0f, 0x1f, 0x80, 0x11, 0x22, 0x33, 0x55" ::: "memory")
#else
#define MARK_OPEN() __asm__ volatile("hint #0x55" ::: "memory")
#define MARK_CLOSE() __asm__ volatile("hint #0x56" ::: "memory")
#endif

static const char *const folio_sizes[] = {"16", "32", "64", "128", "1024", "2048"};
static const char *const folio_stats[] = {
    "anon_fault_alloc", "anon_fault_fallback", "swpout", "swpout_fallback", "split", "split_failed", "split_deferred",
};
static const char *const vmstat_names[] = {
    "thp_split_pmd",
    "thp_split_page",
    "thp_deferred_split_page",
    "pgfault",
    "pswpin",
    "pswpout",
    "swpin_zero",
    "swpout_zero",
    "pgmigrate_success",
    "nr_tlb_remote_flush",
    "nr_tlb_remote_flush_received",
    "nr_tlb_local_flush_all",
    "nr_tlb_local_flush_one",
    "ksm_swpin_copy",
    "cow_ksm",
    "pgsteal_anon",
    "pgscan_anon",
    "thp_swpout",
    "thp_swpout_fallback",
};

/* The statistics that are read on both sides of a window. */
struct statistics {
    int64_t folio[COUNT_OF(folio_sizes)][COUNT_OF(folio_stats)];
    int64_t vmstat[COUNT_OF(vmstat_names)];
};

static struct {
    int counters_fd; /* 0: closed */
    int64_t opened_ns, opened_cpu_ns;
    struct statistics before, after;
    size_t line_len;
    char line[TEXT_SIZE]; /* the line being put together */
    char text[TEXT_SIZE]; /* a file that was read */
} window __attribute__((aligned(PAGE_SIZE)));

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int len = vsnprintf(window.line + window.line_len, TEXT_SIZE - window.line_len, format, args);
    va_end(args);
    window.line_len += (size_t)len;
    if (window.line_len >= TEXT_SIZE)
        fail("a line longer than its buffer", -12);
}

/* One statistic of one folio size; -1 if the kernel does not keep it. */
static int64_t folio_stat(const char *size, const char *stat) {
    char path[160], number[32];
    snprintf(path, sizeof path, "/sys/kernel/mm/transparent_hugepage/hugepages-%skB/stats/%s", size, stat);
    uint64_t value;
    char word[24];
    const char *text = number;
    if (read_file(path, number, sizeof number) < 0 || !next_word(&text, word, sizeof word) || !parse_number(word, &value))
        return -1;
    return (int64_t)value;
}

static void read_vmstat(int64_t *values) {
    memset(values, 0, sizeof(int64_t) * COUNT_OF(vmstat_names));
    read_file("/proc/vmstat", window.text, TEXT_SIZE);
    const char *text = window.text;
    do {
        char name[64], number[24];
        uint64_t value;
        next_word(&text, name, sizeof name);
        next_word(&text, number, sizeof number);
        if (!parse_number(number, &value))
            continue;
        for (size_t i = 0; i < COUNT_OF(vmstat_names); i++)
            if (strcmp(name, vmstat_names[i]) == 0)
                values[i] = (int64_t)value;
    } while (next_line(&text));
}

static void read_statistics(struct statistics *statistics) {
    for (size_t i = 0; i < COUNT_OF(folio_sizes); i++)
        for (size_t j = 0; j < COUNT_OF(folio_stats); j++)
            statistics->folio[i][j] = folio_stat(folio_sizes[i], folio_stats[j]);
    read_vmstat(statistics->vmstat);
}

/* Touches the program's own pages, so that no window contains a fault of the probe itself. */
static void prefault(void) {
    extern char __ehdr_start[], _etext[];
    static int done;
    if (done)
        return;
    done = 1;
    size_t image = ((size_t)(_etext - __ehdr_start) + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1);
    sys_madvise(__ehdr_start, image, MADV_POPULATE_READ);
    for (size_t i = 0; i < image; i += PAGE_SIZE)
        (void)*(volatile char *)(__ehdr_start + i);
    memset(window.line, 1, TEXT_SIZE);
    memset(window.text, 1, TEXT_SIZE);
    memset(&window.before, 1, sizeof window.before);
    volatile char stack[STACK_USED];
    for (size_t i = 0; i < STACK_USED; i += PAGE_SIZE)
        stack[i] = 1;
    (void)stack[0];
    clock_ns();
}

static int counting(void) {
    return !getenv("EV_OFF") && window.counters_fd > 0;
}

int counters_start(void) {
    window.counters_fd = (int)sys_open(COUNTERS, O_RDWR);
    if (!counting())
        return 0;
    if (sys_write(window.counters_fd, "1", 1) == 1)
        return 1;
    print(STDERR, "the counters in %s did not start\n", COUNTERS);
    return 0;
}

void window_open(void) {
    prefault();
    read_statistics(&window.before);
    counters_start();
    window.opened_cpu_ns = cpu_clock_ns();
    window.opened_ns = clock_ns();
    MARK_OPEN();
}

static void counters_stop(void) {
    if (window.counters_fd > 0 && sys_write(window.counters_fd, "0", 1) != 1)
        print(STDERR, "the counters in %s did not stop\n", COUNTERS);
}

static void add_folio_changes(void) {
    const char *comma = "";
    for (size_t i = 0; i < COUNT_OF(folio_sizes); i++)
        for (size_t j = 0; j < COUNT_OF(folio_stats); j++) {
            int64_t change = window.after.folio[i][j] - window.before.folio[i][j];
            if (!change)
                continue;
            add("%s\"%sk.%s\":%ld", comma, folio_sizes[i], folio_stats[j], change);
            comma = ",";
        }
}

static void add_vmstat_changes(void) {
    const char *comma = "";
    for (size_t i = 0; i < COUNT_OF(vmstat_names); i++) {
        int64_t change = window.after.vmstat[i] - window.before.vmstat[i];
        if (!change)
            continue;
        add("%s\"%s\":%ld", comma, vmstat_names[i], change);
        comma = ",";
    }
}

/* Reads the counters back, line by line `BANK SCOPE EVENT VALUE`. */
static void add_counters(void) {
    if (!counting())
        return;
    sys_lseek(window.counters_fd, 0, SEEK_SET);
    size_t len = 0;
    long n;
    while ((n = sys_read(window.counters_fd, window.text + len, TEXT_SIZE - 1 - len)) > 0)
        len += (size_t)n;
    window.text[len] = 0;

    const char *comma = "";
    const char *text = window.text;
    do {
        char bank[32], scope[64], event[64], value[24];
        next_word(&text, bank, sizeof bank);
        next_word(&text, scope, sizeof scope);
        next_word(&text, event, sizeof event);
        if (!next_word(&text, value, sizeof value))
            continue;
        add("%s\"%s.%s.%s\":%s", comma, bank, scope, event, value);
        comma = ",";
    } while (next_line(&text));
}

void window_close(const char *phase) {
    MARK_CLOSE();
    int64_t closed_ns = clock_ns();
    int64_t closed_cpu_ns = cpu_clock_ns();
    counters_stop();
    read_statistics(&window.after);

    const char *meta = getenv("EV_META");
    window.line_len = 0;
    add("@@{%s%s\"phase\":\"%s\",\"ns\":%ld,\"cpu_ns\":%ld,\"mthp\":{", meta ? meta : "", meta && *meta ? "," : "", phase,
        closed_ns - window.opened_ns, closed_cpu_ns - window.opened_cpu_ns);
    add_folio_changes();
    add("},\"vmstat\":{");
    add_vmstat_changes();
    add("},\"counters\":{");
    add_counters();
    add("}}\n");
    write_all(STDOUT, window.line, window.line_len);
    if (window.counters_fd > 0)
        sys_close(window.counters_fd);
    window.counters_fd = 0;
}
