/* rt.h without a C library. The parts that need assembly are in x86_64.S and arm64.S. */
#include "rt.h"

#if defined(__x86_64__)
#include "sys_x86_64.h"
#elif defined(__aarch64__)
#include "sys_arm64.h"
#else
#error "guests are built for x86-64 and arm64"
#endif

#define AT_FDCWD -100
#define SIGCHLD 17
#define CLONE_VM 0x100
#define CLONE_FS 0x200
#define CLONE_FILES 0x400
#define CLONE_SIGHAND 0x800
#define CLONE_THREAD 0x10000
#define CLONE_SYSVSEM 0x40000
#define CLONE_CHILD_CLEARTID 0x200000
#define FUTEX_WAIT 0
#define THREAD_STACK_SIZE (64UL << 10)

long rt_clone_thread(unsigned long flags, void *stack, uint32_t *ctid);
_Noreturn void rt_start(long *stack);
int main(int argc, char **argv);

static char **environment;

_Noreturn void rt_start(long *stack) {
    int argc = (int)stack[0];
    char **argv = (char **)(stack + 1);
    environment = argv + argc + 1;
    exit_process(main(argc, argv));
}

static long syscall0(long nr) { return syscall6(nr, 0, 0, 0, 0, 0, 0); }
static long syscall1(long nr, long a) { return syscall6(nr, a, 0, 0, 0, 0, 0); }
static long syscall2(long nr, long a, long b) { return syscall6(nr, a, b, 0, 0, 0, 0); }
static long syscall3(long nr, long a, long b, long c) { return syscall6(nr, a, b, c, 0, 0, 0); }

long sys_open(const char *path, int flags) { return syscall6(SYS_OPENAT, AT_FDCWD, (long)path, flags, 0664, 0, 0); }
long sys_close(int fd) { return syscall1(SYS_CLOSE, fd); }
long sys_read(int fd, void *to, size_t len) { return syscall3(SYS_READ, fd, (long)to, (long)len); }
long sys_write(int fd, const void *from, size_t len) { return syscall3(SYS_WRITE, fd, (long)from, (long)len); }
long sys_lseek(int fd, long offset, int whence) { return syscall3(SYS_LSEEK, fd, offset, whence); }
long sys_ioctl(int fd, unsigned long number, void *arg) { return syscall3(SYS_IOCTL, fd, (long)number, (long)arg); }
long sys_pipe(int fds[2]) { return syscall2(SYS_PIPE2, (long)fds, 0); }
long sys_mmap(void *at, size_t len, int prot, int flags) { return syscall6(SYS_MMAP, (long)at, (long)len, prot, flags, -1, 0); }
long sys_mmap_file(void *at, size_t len, int prot, int flags, int fd) { return syscall6(SYS_MMAP, (long)at, (long)len, prot, flags, fd, 0); }
long sys_munmap(void *at, size_t len) { return syscall2(SYS_MUNMAP, (long)at, (long)len); }
long sys_mprotect(void *at, size_t len, int prot) { return syscall3(SYS_MPROTECT, (long)at, (long)len, prot); }
long sys_mremap(void *from, size_t old_len, size_t new_len, int flags, void *to) {
    return syscall6(SYS_MREMAP, (long)from, (long)old_len, (long)new_len, flags, (long)to, 0);
}
long sys_madvise(void *at, size_t len, int advice) { return syscall3(SYS_MADVISE, (long)at, (long)len, advice); }
long sys_prctl(int option, unsigned long arg) { return syscall6(SYS_PRCTL, option, (long)arg, 0, 0, 0, 0); }
long sys_fork(void) { return syscall6(SYS_CLONE, SIGCHLD, 0, 0, 0, 0, 0); }
long sys_waitpid(long pid, int *status) { return syscall6(SYS_WAIT4, pid, (long)status, 0, 0, 0, 0); }
long sys_sched_yield(void) { return syscall0(SYS_SCHED_YIELD); }

_Noreturn void exit_process(int status) {
    for (;;)
        syscall1(SYS_EXIT_GROUP, status);
}

static int64_t read_clock(int clock) {
    struct timespec now;
    syscall2(SYS_CLOCK_GETTIME, clock, (long)&now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

int64_t cpu_clock_ns(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void sleep_ns(int64_t ns) {
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    syscall2(SYS_NANOSLEEP, (long)&time, 0);
}

void pin_to_cpu(unsigned cpu) {
    uint64_t mask[2] = {0, 0};
    mask[cpu / 64 % 2] = 1UL << cpu % 64;
    syscall3(SYS_SCHED_SETAFFINITY, 0, sizeof mask, (long)mask);
}

/* What a new thread finds at the top of its stack. */
struct thread_frame {
    void (*enter)(struct thread *);
    struct thread *thread;
};

static void thread_enter(struct thread *thread) {
    thread->run(thread->arg);
    for (;;)
        syscall1(SYS_EXIT, 0);
}

long thread_start(struct thread *thread, void (*run)(void *), void *arg) {
    long stack = sys_mmap(NULL, THREAD_STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(stack))
        return stack;
    struct thread_frame *frame = (struct thread_frame *)(stack + (long)THREAD_STACK_SIZE) - 1;
    *frame = (struct thread_frame){thread_enter, thread};
    *thread = (struct thread){.alive = 1, .run = run, .arg = arg};
    return rt_clone_thread(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID,
                           frame, &thread->alive);
}

void thread_join(struct thread *thread) {
    while (__atomic_load_n(&thread->alive, __ATOMIC_ACQUIRE))
        syscall6(SYS_FUTEX, (long)&thread->alive, FUTEX_WAIT, 1, 0, 0, 0);
}

size_t strlen(const char *s) {
    size_t len = 0;
    while (s[len])
        len++;
    return len;
}

int strcmp(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

char *getenv(const char *name) {
    for (char **entry = environment; *entry; entry++) {
        char *s = *entry;
        const char *n = name;
        while (*n && *s == *n)
            s++, n++;
        if (!*n && *s == '=')
            return s + 1;
    }
    return NULL;
}

/* Where formatted text goes: bytes beyond `size` are counted, not stored. */
struct text {
    char *to;
    size_t size, len;
};

static void put_char(struct text *text, char c) {
    if (text->len + 1 < text->size)
        text->to[text->len] = c;
    text->len++;
}

static void put_string(struct text *text, const char *s) {
    while (*s)
        put_char(text, *s++);
}

static void put_number(struct text *text, uint64_t value, unsigned base) {
    char digits[20];
    int n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value);
    while (n)
        put_char(text, digits[--n]);
}

static void put_signed(struct text *text, int64_t value) {
    if (value < 0)
        put_char(text, '-');
    put_number(text, value < 0 ? -(uint64_t)value : (uint64_t)value, 10);
}

int vsnprintf(char *to, size_t size, const char *format, va_list args) {
    struct text text = {to, size, 0};
    for (const char *f = format; *f; f++) {
        if (*f != '%') {
            put_char(&text, *f);
            continue;
        }
        int is_long = 0;
        while (*++f == 'l' || *f == 'z')
            is_long = 1;
        switch (*f) {
        case 's': put_string(&text, va_arg(args, const char *)); break;
        case 'c': put_char(&text, (char)va_arg(args, int)); break;
        case 'd': put_signed(&text, is_long ? va_arg(args, long) : va_arg(args, int)); break;
        case 'u': put_number(&text, is_long ? va_arg(args, unsigned long) : va_arg(args, unsigned), 10); break;
        case 'x': put_number(&text, is_long ? va_arg(args, unsigned long) : va_arg(args, unsigned), 16); break;
        case '%': put_char(&text, '%'); break;
        default: __builtin_trap();
        }
    }
    if (size)
        to[text.len < size ? text.len : size - 1] = 0;
    return (int)text.len;
}

int snprintf(char *to, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int len = vsnprintf(to, size, format, args);
    va_end(args);
    return len;
}
