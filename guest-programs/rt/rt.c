/* The parts of rt.h that are the same with and without a C library. */
#include "rt.h"

static unsigned digit_value(char c) {
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    if (c >= 'a' && c <= 'f')
        return (unsigned)(c - 'a') + 10;
    if (c >= 'A' && c <= 'F')
        return (unsigned)(c - 'A') + 10;
    return 99;
}

int parse_number(const char *s, uint64_t *value) {
    unsigned base = 10;
    if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
        base = 16;
        s += 2;
    }
    if (!*s)
        return 0;
    uint64_t sum = 0;
    for (; *s; s++) {
        unsigned digit = digit_value(*s);
        if (digit >= base || sum > (UINT64_MAX - digit) / base)
            return 0;
        sum = sum * base + digit;
    }
    *value = sum;
    return 1;
}

uint64_t number_argument(int argc, char **argv, int index, uint64_t otherwise) {
    uint64_t value = otherwise;
    if (index < argc && !parse_number(argv[index], &value)) {
        print(STDERR, "%s: argument %d is not a number: '%s'\n", argv[0], index, argv[index]);
        exit_process(2);
    }
    return value;
}

size_t mib_argument(int argc, char **argv, int index, uint64_t otherwise) {
    uint64_t mib = number_argument(argc, argv, index, otherwise);
    if (mib == 0 || mib >= 1UL << 27) {
        print(STDERR, "%s: argument %d must be a size of 1 to %lu MiB, not %lu\n", argv[0], index, (1UL << 27) - 1, mib);
        exit_process(2);
    }
    return mib * MIB;
}

size_t next_word(const char **text, char *word, size_t size) {
    const char *s = *text;
    size_t len = 0;
    while (*s == ' ' || *s == '\t')
        s++;
    for (; *s && *s != ' ' && *s != '\t' && *s != '\n'; s++)
        if (len + 1 < size)
            word[len++] = *s;
    word[len] = 0;
    *text = s;
    return len;
}

int next_line(const char **text) {
    const char *s = *text;
    while (*s && *s != '\n')
        s++;
    if (*s)
        s++;
    *text = s;
    return *s != 0;
}

void print(int fd, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    write_all(fd, line, (size_t)len < sizeof line ? (size_t)len : sizeof line - 1);
}

void write_all(int fd, const char *text, size_t len) {
    while (len) {
        long n = sys_write(fd, text, len);
        if (n <= 0)
            return;
        text += n;
        len -= (size_t)n;
    }
}

const char *error_name(long ret) {
    switch (-ret) {
    case 1: return "EPERM";
    case 2: return "ENOENT";
    case 4: return "EINTR";
    case 5: return "EIO";
    case 9: return "EBADF";
    case 10: return "ECHILD";
    case 11: return "EAGAIN";
    case 12: return "ENOMEM";
    case 13: return "EACCES";
    case 14: return "EFAULT";
    case 16: return "EBUSY";
    case 17: return "EEXIST";
    case 22: return "EINVAL";
    case 38: return "ENOSYS";
    default: return "unknown error";
    }
}

_Noreturn void fail(const char *what, long ret) {
    print(STDERR, "%s failed: errno %ld (%s)\n", what, -ret, error_name(ret));
    exit_process(1);
}

long read_file(const char *path, char *to, size_t size) {
    to[0] = 0;
    long fd = sys_open(path, O_RDONLY);
    if (fd < 0)
        return fd;
    size_t len = 0;
    long n = 0;
    while (len + 1 < size && (n = sys_read((int)fd, to + len, size - 1 - len)) > 0)
        len += (size_t)n;
    to[len] = 0;
    sys_close((int)fd);
    return n < 0 ? n : (long)len;
}

long write_number(const char *path, uint64_t value) {
    char text[24];
    int len = snprintf(text, sizeof text, "%lu", (unsigned long)value);
    long fd = sys_open(path, O_RDWR);
    if (fd < 0)
        return fd;
    long n = sys_write((int)fd, text, (size_t)len);
    sys_close((int)fd);
    return n < 0 ? n : 0;
}
