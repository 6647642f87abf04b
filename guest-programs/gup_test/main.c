/* Times get_user_pages() and pin_user_pages() through /sys/kernel/debug/gup_test; takes the options of, and prints the lines of,
 * the program of that name among Linux's own tests. */
#include "rt.h"

#define GUP_TEST "/sys/kernel/debug/gup_test"
#define FOLL_WRITE 1
#define USE_PIN 1
#define DUMPED 8
#define MAX_THREADS 64
#define SKIPPED 4

/* struct gup_test of the kernel. */
struct request {
    uint64_t get_delta_usec, put_delta_usec, addr, size;
    uint32_t nr_pages_per_call, gup_flags, test_flags, which_pages[DUMPED];
};

enum { GUP_FAST_BENCHMARK = 1, PIN_FAST_BENCHMARK, PIN_LONGTERM_BENCHMARK, GUP_BASIC_TEST, PIN_BASIC_TEST, DUMP_USER_PAGES_TEST };

static const char *const names[] = {
    "", "GUP_FAST_BENCHMARK", "PIN_FAST_BENCHMARK", "PIN_LONGTERM_BENCHMARK", "GUP_BASIC_TEST", "PIN_BASIC_TEST", "DUMP_USER_PAGES_TEST",
};

static struct {
    unsigned command;
    uint64_t mib, repeats, flags, threads;
    int64_t pages_per_call;
    int advice, write, pin_dump;
    const char *file;
    uint32_t which_pages[DUMPED];
    unsigned dumped;
} options = {
    .command = GUP_FAST_BENCHMARK, .mib = 128, .repeats = 1, .threads = 1, .pages_per_call = 1, .advice = -1, .write = 1, .file = "/dev/zero",
};

static int fd;
static struct request request;

_Noreturn static void usage(const char *what, char option) {
    print(STDERR, "gup_test: -%c: %s\n", option, what);
    exit_process(2);
}

static uint64_t number(const char *text, char option) {
    uint64_t value;
    if (!text || !parse_number(text, &value))
        usage("a number must follow", option);
    return value;
}

static void set_option(char option, const char *value) {
    switch (option) {
    case 'a': options.command = PIN_FAST_BENCHMARK; break;
    case 'b': options.command = PIN_BASIC_TEST; break;
    case 'L': options.command = PIN_LONGTERM_BENCHMARK; break;
    case 'c': options.command = DUMP_USER_PAGES_TEST; break;
    case 'u': options.command = GUP_FAST_BENCHMARK; break;
    case 'U': options.command = GUP_BASIC_TEST; break;
    case 'p': options.pin_dump = 1; break;
    case 't': options.advice = MADV_HUGEPAGE; break;
    case 'T': options.advice = MADV_NOHUGEPAGE; break;
    case 'w': options.write = 1; break;
    case 'W': options.write = 0; break;
    case 'm': options.mib = number(value, option); break;
    case 'r': options.repeats = number(value, option); break;
    case 'F': options.flags = number(value, option); break;
    case 'j': options.threads = number(value, option); break;
    case 'n':
        if (value && value[0] == '-')
            options.pages_per_call = -(int64_t)number(value + 1, option);
        else
            options.pages_per_call = (int64_t)number(value, option);
        break;
    case 'f':
        options.file = value ? value : "";
        if (strcmp(options.file, "/dev/zero") != 0) {
            print(STDERR, "gup_test: -f %s: files are not supported yet\n", options.file);
            exit_process(SKIPPED);
        }
        break;
    case 'S':
    case 'H':
        print(STDERR, "gup_test: -%c: %s memory is not supported yet\n", option, option == 'S' ? "shared" : "hugetlb");
        exit_process(SKIPPED);
    default: usage("no such option", option);
    }
}

static int takes_value(char option) {
    for (const char *s = "mrnFfj"; *s; s++)
        if (*s == option)
            return 1;
    return 0;
}

static void parse_arguments(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (arg[0] != '-' || !arg[1]) {
            if (options.dumped == DUMPED)
                usage("at most 8 pages can be dumped", 'c');
            options.which_pages[options.dumped++] = (uint32_t)number(arg, 'c') + 1;
            continue;
        }
        for (const char *s = arg + 1; *s; s++) {
            if (!takes_value(*s)) {
                set_option(*s, NULL);
                continue;
            }
            const char *value = s[1] ? s + 1 : i + 1 < argc ? argv[++i] : NULL;
            set_option(*s, value);
            break;
        }
    }
    if (options.mib == 0 || options.mib >= 1UL << 27)
        usage("a size of 1 MiB or more that fits an address space", 'm');
    if (options.threads == 0 || options.threads > MAX_THREADS)
        usage("1 to 64 threads", 'j');
    if (options.command == DUMP_USER_PAGES_TEST && options.dumped == 0)
        options.which_pages[options.dumped++] = 1;
}

static void run(void *unused) {
    (void)unused;
    uint64_t size = options.mib * MIB;
    for (uint64_t i = 0; i < options.repeats; i++) {
        struct request mine = request;
        long ret = sys_ioctl(fd, 0xC0506700 + options.command, &mine);
        if (ret < 0)
            fail(names[options.command], ret);
        char truncated[64] = "";
        if (mine.size != size)
            snprintf(truncated, sizeof truncated, ", truncated (size: %lu)", mine.size);
        if (options.command <= PIN_LONGTERM_BENCHMARK)
            print(STDOUT, "%s: Time: get:%lu put:%lu us%s\n", names[options.command], mine.get_delta_usec, mine.put_delta_usec,
                  truncated);
        else
            print(STDOUT, "%s: done%s\n", names[options.command], truncated);
    }
}

static char *map(size_t size) {
    long zero = sys_open(options.file, O_RDWR);
    if (zero < 0)
        fail(options.file, zero);
    long at = sys_mmap_file(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, (int)zero);
    if (is_error(at))
        fail("mmap", at);
    long ret = options.advice < 0 ? 0 : sys_madvise((void *)at, size, options.advice);
    if (ret < 0)
        fail("madvise", ret);
    for (size_t i = 0; i < size; i += PAGE_SIZE)
        *(volatile char *)(at + i) = 0;
    return (char *)at;
}

int main(int argc, char **argv) {
    static struct thread threads[MAX_THREADS];
    parse_arguments(argc, argv);
    fd = (int)sys_open(GUP_TEST, O_RDWR);
    if (fd < 0)
        fail(GUP_TEST, fd);
    size_t size = options.mib * MIB;
    int64_t per_call = options.pages_per_call < 0 ? (int64_t)(size / PAGE_SIZE) : options.pages_per_call;
    request.addr = (uint64_t)map(size);
    request.size = size;
    request.nr_pages_per_call = (uint32_t)per_call;
    request.gup_flags = (uint32_t)options.flags | (options.write ? FOLL_WRITE : 0);
    request.test_flags = options.pin_dump ? USE_PIN : 0;
    memcpy(request.which_pages, options.which_pages, sizeof request.which_pages);
    for (uint64_t i = 1; i < options.threads; i++) {
        long ret = thread_start(&threads[i], run, NULL);
        if (ret < 0)
            fail("thread", ret);
    }
    run(NULL);
    for (uint64_t i = 1; i < options.threads; i++)
        thread_join(&threads[i]);
    return 0;
}
