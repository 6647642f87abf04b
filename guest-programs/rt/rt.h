/* The guests' runtime: what a program needs of Linux and of a C library, and no more.
 *
 * A guest is built freestanding: freestanding.c and one of x86_64.S and arm64.S give it everything declared here, and its
 * `main` is called from `_start`. It can also be built on glibc (hosted.c): the same program, with the
 * start-up and the image of an ordinary one. System calls return what the kernel returned: a value, or minus an
 * errno. There is no heap and no buffering of output. */
#pragma once

#if __STDC_HOSTED__
#define _GNU_SOURCE
#endif

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_SIZE 4096UL
#define MIB (1UL << 20)
#define STDOUT 1
#define STDERR 2
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#if __STDC_HOSTED__
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#else
/* Values of the Linux ABI that both architectures share. */
#define O_RDONLY 0
#define O_RDWR 2
#define O_CREAT 0x40
#define SEEK_SET 0
#define PROT_NONE 0
#define PROT_READ 1
#define PROT_WRITE 2
#define PROT_EXEC 4
#define MAP_SHARED 0x01
#define MAP_PRIVATE 0x02
#define MAP_FIXED 0x10
#define MAP_ANONYMOUS 0x20
#define MAP_NORESERVE 0x4000
#define MAP_HUGETLB 0x40000
#define MREMAP_MAYMOVE 1
#define MREMAP_FIXED 2
#define MADV_DONTNEED 4
#define MADV_FREE 8
#define MADV_MERGEABLE 12
#define MADV_UNMERGEABLE 13
#define MADV_HUGEPAGE 14
#define MADV_NOHUGEPAGE 15
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#define MADV_POPULATE_READ 22
#define CLOCK_MONOTONIC 1
#define CLOCK_THREAD_CPUTIME_ID 3

struct timespec {
    int64_t tv_sec;
    int64_t tv_nsec;
};

/* The part of the C library that guests use. */
void *memset(void *to, int byte, size_t len);
void *memcpy(void *to, const void *from, size_t len);
size_t strlen(const char *s);
int strcmp(const char *a, const char *b);
char *getenv(const char *name);
/* Formats with %s %c %d %u %ld %lu %zu %lx %%. Returns the length it would need; the result always ends in a 0 byte if size > 0. */
int vsnprintf(char *to, size_t size, const char *format, va_list args);
int snprintf(char *to, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
#endif

/* System calls. */
/* A file that O_CREAT makes may be read by all and written by its owner's group. */
long sys_open(const char *path, int flags);
long sys_close(int fd);
long sys_read(int fd, void *to, size_t len);
long sys_write(int fd, const void *from, size_t len);
long sys_lseek(int fd, long offset, int whence);
long sys_ioctl(int fd, unsigned long number, void *arg);
long sys_pipe(int fds[2]);
long sys_mmap(void *at, size_t len, int prot, int flags);
/* The same of an open file, from its start. */
long sys_mmap_file(void *at, size_t len, int prot, int flags, int fd);
long sys_munmap(void *at, size_t len);
long sys_mprotect(void *at, size_t len, int prot);
long sys_mremap(void *from, size_t old_len, size_t new_len, int flags, void *to);
long sys_madvise(void *at, size_t len, int advice);
long sys_prctl(int option, unsigned long arg);
long sys_fork(void);
long sys_waitpid(long pid, int *status);
long sys_sched_yield(void);
_Noreturn void exit_process(int status);

/* Whether a value returned by sys_mmap or sys_mremap is an error, not an address. */
static inline int is_error(long ret) {
    return (unsigned long)ret > -4096UL;
}

/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t clock_ns(void);
/* Nanoseconds that the calling thread has run. */
int64_t cpu_clock_ns(void);
void sleep_ns(int64_t ns);
/* Binds the calling thread to one CPU. */
void pin_to_cpu(unsigned cpu);

/* Threads: they share the memory of the process, have no TLS, and end when their function returns. */
struct thread {
    uint32_t alive;       /* freestanding: cleared and woken by the kernel when the thread has ended */
    unsigned long handle; /* hosted: the pthread_t */
    void (*run)(void *);
    void *arg;
};
long thread_start(struct thread *thread, void (*run)(void *), void *arg);
void thread_join(struct thread *thread);

/* Reads a whole decimal or 0x-hexadecimal number; returns 0 and leaves `*value` alone if it is not one. */
int parse_number(const char *s, uint64_t *value);
/* Argument `index` of the program as a number, or `otherwise` if it is not given; ends the program if it is no number. */
uint64_t number_argument(int argc, char **argv, int index, uint64_t otherwise);
/* Argument `index` as a size in MiB, turned into bytes; ends the program if it is 0 or has no place in a 47-bit address space. */
size_t mib_argument(int argc, char **argv, int index, uint64_t otherwise);

/* Takes the next word of at most `size - 1` bytes from `*text` and stops at the end of the line; returns its length, 0 if there is none. */
size_t next_word(const char **text, char *word, size_t size);
/* Moves to the start of the next line; returns 0 at the end of the text. */
int next_line(const char **text);

/* Formats at most 1 KiB and writes it in one system call. */
void print(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes all of `text`. */
void write_all(int fd, const char *text, size_t len);
/* The usual name of an errno, or "unknown error". `ret` is a negative return value of a system call. */
const char *error_name(long ret);
/* Says on stderr that `what` failed and why, and ends the program with status 1. */
_Noreturn void fail(const char *what, long ret);

/* Writes a number into a file; returns 0 or minus an errno. */
long write_number(const char *path, uint64_t value);
/* Reads a file from the start into `to` as a string; returns its length or minus an errno. */
long read_file(const char *path, char *to, size_t size);
