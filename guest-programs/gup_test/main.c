/* Times get_user_pages() and pin_user_pages() through /sys/kernel/debug/gup_test; takes the options of, and prints the lines of,
 * the program of that name among Linux's own tests. */
#include "rt.h"
#include "window.h"

#define GUP_TEST "/sys/kernel/debug/gup_test"
#define FOLL_WRITE 1
#define FOLL_TOUCH 2
#define USE_PIN 1
#define DUMPED 8
#define MAX_THREADS 64

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
    int advice, write, touch, pin_dump, map_flags;
    const char *file;
    uint32_t which_pages[DUMPED];
    unsigned dumped;
} options = {
    .command = GUP_FAST_BENCHMARK,
    .mib = 128,
    .repeats = 1,
    .threads = 1,
    .pages_per_call = 1,
    .advice = -1,
    .write = 1,
    .map_flags = MAP_PRIVATE,
    .file = "/dev/zero",
};

static int fd;
static struct request request;
static uint32_t printing; /* held by the thread that prints */
static unsigned tests, passed;

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

static void set_number(char option, const char *value) {
    switch (option) {
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
    }
}

static void set_option(char option) {
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
    case 'z': options.touch = 1; break;
    case 'S': options.map_flags = (options.map_flags & ~MAP_PRIVATE) | MAP_SHARED; break;
    case 'H': options.map_flags |= MAP_HUGETLB | MAP_ANONYMOUS; break;
    default: usage("no such option", option);
    }
}

static int is_one_of(char option, const char *list) {
    for (const char *s = list; *s; s++)
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
            if (!is_one_of(*s, "mrnFfj")) {
                set_option(*s);
                continue;
            }
            const char *value = s[1] ? s + 1 : i + 1 < argc ? argv[++i] : NULL;
            if (*s != 'f')
                set_number(*s, value);
            else if (value)
                options.file = value;
            else
                usage("a file must follow", 'f');
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

static void totals(void) {
    if (tests != options.threads)
        print(STDOUT, "# Planned tests != run tests (%lu != %u)\n", options.threads, tests);
    print(STDOUT, "# Totals: pass:%u fail:%u xfail:0 xpass:0 skip:0 error:0\n", passed, tests - passed);
}

/* As strerror(), for what opening and mapping can return. */
static const char *reason(long ret) {
    switch (-ret) {
    case 2: return "No such file or directory";
    case 9: return "Bad file descriptor";
    case 12: return "Cannot allocate memory";
    case 13: return "Permission denied";
    case 19: return "No such device";
    case 20: return "Not a directory";
    case 21: return "Is a directory";
    case 22: return "Invalid argument";
    default: return error_name(ret);
    }
}

_Noreturn static void bail_out(const char *what, const char *file, long ret) {
    print(STDOUT, "Bail out! %s%s: %s\n", what, file, reason(ret));
    totals();
    exit_process(1);
}

static void lock_printing(void) {
    while (__atomic_exchange_n(&printing, 1, __ATOMIC_ACQUIRE))
        sys_sched_yield();
}

static void unlock_printing(void) {
    __atomic_store_n(&printing, 0, __ATOMIC_RELEASE);
}

static void report(const struct request *done, uint64_t size) {
    lock_printing();
    const char *name = names[options.command];
    int cut = done->size != size;
    if (options.command <= PIN_LONGTERM_BENCHMARK) {
        print(STDOUT, "# %s: Time: get:%lu put:%lu us", name, done->get_delta_usec, done->put_delta_usec);
        if (cut)
            print(STDOUT, "# , truncated (size: %lu)", done->size);
        print(STDOUT, "# \n");
    } else {
        print(STDOUT, "# %s: done\n", name);
        if (cut)
            print(STDOUT, "# Truncated (size: %lu)\n", done->size);
    }
    unlock_printing();
}

/* One request; with MM_EVENTS in the environment, and what the kernel counted during it. */
static long try_gup(struct request *mine, uint64_t iteration) {
    unsigned long command = 0xC0506700 + options.command;
    if (!getenv("MM_EVENTS"))
        return sys_ioctl(fd, command, mine);
    char phase[32];
    snprintf(phase, sizeof phase, "gup_iter%lu", iteration);
    window_open();
    long ret = sys_ioctl(fd, command, mine);
    window_close(phase);
    return ret;
}

static void run(void *unused) {
    (void)unused;
    uint64_t size = options.mib * MIB;
    uint64_t repeats = options.command <= PIN_LONGTERM_BENCHMARK ? options.repeats : 1;
    struct request mine = request;
    long ret = 0;
    for (uint64_t i = 0; i < repeats; i++) {
        mine.size = size;
        ret = try_gup(&mine, i);
        if (ret < 0)
            break;
        report(&mine, size);
    }
    lock_printing();
    tests++;
    passed += ret == 0;
    print(STDOUT, "%s %u ioctl status %d\n", ret == 0 ? "ok" : "not ok", tests, ret == 0 ? 0 : -1);
    unlock_printing();
}

static char *map(size_t size) {
    long file = sys_open(options.file, O_RDWR | O_CREAT);
    if (file < 0)
        bail_out("Unable to open ", options.file, file);
    fd = (int)sys_open(GUP_TEST, O_RDWR);
    if (fd < 0)
        bail_out("Unable to open ", GUP_TEST, fd);
    long at = sys_mmap_file(NULL, size, PROT_READ | PROT_WRITE, options.map_flags, (int)file);
    if (is_error(at))
        bail_out("mmap", "", at);
    if (options.advice >= 0)
        sys_madvise((void *)at, size, options.advice);
    if (options.touch)
        request.gup_flags |= FOLL_TOUCH;
    for (size_t i = 0; !options.touch && i < size; i += PAGE_SIZE)
        *(volatile char *)(at + i) = 0;
    return (char *)at;
}

int main(int argc, char **argv) {
    static struct thread threads[MAX_THREADS];
    parse_arguments(argc, argv);
    print(STDOUT, "TAP version 13\n1..%lu\n", options.threads);
    size_t size = options.mib * MIB;
    int64_t per_call = options.pages_per_call < 0 ? (int64_t)(size / PAGE_SIZE) : options.pages_per_call;
    request.addr = (uint64_t)map(size);
    request.size = size;
    request.nr_pages_per_call = (uint32_t)per_call;
    request.gup_flags |= (uint32_t)options.flags | (options.write ? FOLL_WRITE : 0);
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
    totals();
    return 0;
}
