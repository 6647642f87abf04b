/* Merges pages by KSM and times it; takes the options of, and prints the lines of, the program ksm_tests among Linux's own
 * tests. Unlike that one it sleeps between looks at how far the scan is. */
#include "rt.h"

#define KSM "/sys/kernel/mm/ksm/"
#define PR_SET_MEMORY_MERGE 67
#define SKIPPED 4
#define NS_PER_S 1000000000UL

static struct {
    char test;
    int prot, by_prctl;
    uint64_t pages, seconds, zero_pages, across_nodes, mib;
} options = {
    .test = 'M',
    .prot = PROT_READ | PROT_WRITE,
    .pages = 10,
    .seconds = 120,
    .across_nodes = 1,
};

/* What the files say before the test, to be put back. */
static struct {
    const char *path;
    uint64_t value;
} knobs[] = {
    {KSM "max_page_sharing", 0}, {KSM "merge_across_nodes", 0}, {KSM "sleep_millisecs", 0},
    {KSM "pages_to_scan", 0},    {KSM "use_zero_pages", 0},     {KSM "stable_node_chains_prune_millisecs", 0},
    {KSM "run", 0},
};

static uint64_t get(const char *path) {
    char text[32];
    uint64_t value;
    long len = read_file(path, text, sizeof text);
    if (len < 0)
        fail(path, len);
    if (len > 0 && text[len - 1] == '\n')
        text[len - 1] = 0;
    if (!parse_number(text, &value))
        fail(path, -22);
    return value;
}

static void set(const char *path, uint64_t value) {
    long ret = write_number(path, value);
    if (ret < 0)
        fail(path, ret);
}

static void *map(size_t size, int byte) {
    long at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(at))
        fail("mmap", at);
    memset((void *)at, byte, size);
    long ret = sys_mprotect((void *)at, size, options.prot);
    if (ret < 0)
        fail("mprotect", ret);
    return (void *)at;
}

/* Waits until everything has been scanned `scans` times; says whether there was time enough. */
static int scan(uint64_t scans, int64_t start) {
    uint64_t until = get(KSM "full_scans") + scans;
    while (get(KSM "full_scans") < until) {
        if ((uint64_t)(clock_ns() - start) / NS_PER_S > options.seconds) {
            print(STDOUT, "Scan time limit exceeded\n");
            return 0;
        }
        sleep_ns(1000000);
    }
    return 1;
}

static void merge_by(int on, void *at, size_t size) {
    long ret = options.by_prctl ? sys_prctl(PR_SET_MEMORY_MERGE, (unsigned long)on)
                                : sys_madvise(at, size, on ? MADV_MERGEABLE : MADV_UNMERGEABLE);
    if (ret < 0)
        fail(options.by_prctl ? "prctl" : "madvise", ret);
}

/* A page merges when two scans in a row found it unchanged. */
static int merge(void *at, size_t size, int64_t start) {
    merge_by(1, at, size);
    set(KSM "run", 1);
    return scan(2, start);
}

/* Whether so many equal pages are merged as far as the limit of sharers lets them. */
static int are_merged(uint64_t pages) {
    uint64_t limit = get(KSM "max_page_sharing"), shared = get(KSM "pages_shared"), sharing = get(KSM "pages_sharing");
    if (pages % limit <= 1)
        return shared == pages / limit && sharing == shared * (limit - 1);
    return shared == pages / limit + 1 && sharing == pages - shared;
}

/* The last `count` decimal digits of a number, zeroes in front included. */
static const char *digits(char *to, uint64_t value, int count) {
    to[count] = 0;
    while (count-- > 0) {
        to[count] = (char)('0' + value % 10);
        value /= 10;
    }
    return to;
}

static void speed(size_t bytes, int64_t took) {
    char fraction[16];
    uint64_t ns = took < 1 ? 1 : (uint64_t)took;
    /* Thousandths of a MiB per second: 10^12 / 256 for a page in a nanosecond. */
    uint64_t rate = bytes / PAGE_SIZE * 3906250000UL / ns;
    print(STDOUT, "Total time:    %lu.%s s\n", ns / NS_PER_S, digits(fraction, ns, 9));
    print(STDOUT, "Average speed:  %lu.%s MiB/s\n", rate / 1000, digits(fraction, rate, 3));
}

static int verdict(int good) {
    print(STDOUT, good ? "OK\n" : "Not OK\n");
    return !good;
}

static int test_merge(void) {
    print(STDOUT, "# Merging %lu pages\n", options.pages);
    size_t size = options.pages * PAGE_SIZE;
    void *at = map(size, '*');
    return verdict(merge(at, size, clock_ns()) && are_merged(options.pages));
}

static int test_unmerge(void) {
    int64_t start = clock_ns();
    char *at = map(2 * PAGE_SIZE, '*');
    if (!merge(at, 2 * PAGE_SIZE, start))
        return verdict(0);
    at[0] = '-';
    at[PAGE_SIZE] = '+';
    return verdict(scan(1, start) && are_merged(0));
}

static int test_zero_pages(void) {
    size_t size = options.pages * PAGE_SIZE;
    set(KSM "use_zero_pages", options.zero_pages);
    void *at = map(size, 0);
    int merged = merge(at, size, clock_ns());
    return verdict(merged && are_merged(options.zero_pages ? 0 : options.pages));
}

static int time_merging(void) {
    size_t size = options.mib * MIB;
    void *at = map(size, '*');
    int64_t start = clock_ns();
    if (!merge(at, size, start))
        return 1;
    int64_t took = clock_ns() - start;
    print(STDOUT, "Total size:    %lu MiB\n", options.mib);
    speed(size, took);
    return 0;
}

static int time_unmerging(void) {
    size_t size = options.mib * MIB;
    void *at = map(size, '*');
    if (!merge(at, size, clock_ns()))
        return 1;
    int64_t start = clock_ns();
    merge_by(0, at, size);
    int64_t took = clock_ns() - start;
    print(STDOUT, "Total size:    %lu MiB\n", options.mib);
    speed(size, took);
    return 0;
}

/* Writes to every second page of `pages`. */
static int64_t write_to_half(char *at, size_t pages) {
    int64_t start = clock_ns();
    for (size_t i = 0; i + 1 < pages; i += 2)
        at[i * PAGE_SIZE] = '-';
    return clock_ns() - start;
}

static int time_writing(void) {
    const size_t pages = 4000, half = pages / 2 * PAGE_SIZE;
    char *at = map(pages * PAGE_SIZE, '*');
    print(STDOUT, "Total size:    %lu MiB\n\n", pages * PAGE_SIZE / MIB);
    print(STDOUT, "Not merged pages:\n");
    speed(half, write_to_half(at, pages));
    print(STDOUT, "\n");
    for (size_t i = 0; i + 1 < pages; i += 2) {
        memset(at + i * PAGE_SIZE, '+', i / 2 + 1);
        memset(at + (i + 1) * PAGE_SIZE, '+', i / 2 + 1);
        at[i * PAGE_SIZE + i / 2 + 1] = '*';
        at[(i + 1) * PAGE_SIZE + i / 2 + 1] = '*';
    }
    if (!merge(at, pages * PAGE_SIZE, clock_ns()))
        return 1;
    print(STDOUT, "Merged pages:\n");
    speed(half, write_to_half(at, pages));
    return 0;
}

_Noreturn static void usage(const char *what, char option) {
    print(STDERR, "ksm: -%c: %s\n", option, what);
    exit_process(2);
}

static void set_prot(const char *letters) {
    options.prot = 0;
    for (; *letters; letters++) {
        switch (*letters) {
        case 'r': options.prot |= PROT_READ; break;
        case 'w': options.prot |= PROT_WRITE; break;
        case 'x': options.prot |= PROT_EXEC; break;
        default: usage("only the letters r, w and x", 'a');
        }
    }
}

static void set_value(char option, const char *text) {
    uint64_t value;
    if (option == 'a')
        return set_prot(text);
    if (!parse_number(text, &value))
        usage("a number must follow", option);
    switch (option) {
    case 'p': options.pages = value; break;
    case 'l': options.seconds = value; break;
    case 's': options.mib = value; break;
    case 'z': options.zero_pages = value != 0; break;
    case 'm': options.across_nodes = value != 0; break;
    case 't': options.by_prctl = value != 0; break;
    }
}

static void help(void) {
    print(STDOUT, "usage: ksm [-h] [-M|-U|-Z|-P|-D|-C] [-a rwx] [-p pages] [-l seconds] [-z 0|1] [-m 0|1] [-s MiB] [-t 0|1]\n");
    exit_process(0);
}

static void parse_arguments(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char option = argv[i][0] == '-' ? argv[i][1] : 0;
        switch (option) {
        case 'h': help(); break;
        case 'd': break; /* debugfs has nothing more to say here */
        case 'M': case 'U': case 'Z': case 'P': case 'D': case 'C': case 'N': case 'H': options.test = option; break;
        case 'a': case 'p': case 'l': case 's': case 'z': case 'm': case 't': {
            const char *text = argv[i][2] ? argv[i] + 2 : i + 1 < argc ? argv[++i] : NULL;
            if (!text)
                usage("a value must follow", option);
            set_value(option, text);
            break;
        }
        default: usage("no such option", option ? option : '?');
        }
    }
    if (options.pages == 0 || options.pages > 1UL << 30)
        usage("1 page or more", 'p');
    if ((options.test == 'P' || options.test == 'D') && (options.mib == 0 || options.mib >= 1UL << 27))
        usage("a size of 1 MiB or more that fits an address space", 's');
}

static int run(void) {
    switch (options.test) {
    case 'M': return test_merge();
    case 'U': return test_unmerge();
    case 'Z': return test_zero_pages();
    case 'P': return time_merging();
    case 'D': return time_unmerging();
    case 'C': return time_writing();
    case 'N': print(STDOUT, "At least 2 NUMA nodes must be available\n"); return SKIPPED;
    default: print(STDOUT, "merging of huge pages is not timed here\n"); return SKIPPED;
    }
}

int main(int argc, char **argv) {
    parse_arguments(argc, argv);
    for (size_t i = 0; i < COUNT_OF(knobs); i++)
        knobs[i].value = get(knobs[i].path);
    set(KSM "run", 2);
    set(KSM "sleep_millisecs", 0);
    set(KSM "merge_across_nodes", options.across_nodes);
    set(KSM "pages_to_scan", options.pages);
    int status = run();
    for (size_t i = 0; i < COUNT_OF(knobs); i++)
        set(knobs[i].path, knobs[i].value);
    return status;
}
