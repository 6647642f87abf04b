/* rt.h on glibc. */
#include "rt.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the kernel returned, from what glibc made of it. */
static long kernel_return(long ret) { return ret == -1 ? -errno : ret; }

long sys_open(const char *path, int flags) { return kernel_return(open(path, flags, 0664)); }
long sys_close(int fd) { return kernel_return(close(fd)); }
long sys_read(int fd, void *to, size_t len) { return kernel_return(read(fd, to, len)); }
long sys_write(int fd, const void *from, size_t len) { return kernel_return(write(fd, from, len)); }
long sys_lseek(int fd, long offset, int whence) { return kernel_return(lseek(fd, offset, whence)); }
long sys_ioctl(int fd, unsigned long number, void *arg) { return kernel_return(ioctl(fd, number, arg)); }
long sys_pipe(int fds[2]) { return kernel_return(pipe(fds)); }
long sys_mmap(void *at, size_t len, int prot, int flags) { return kernel_return((long)mmap(at, len, prot, flags, -1, 0)); }
long sys_mmap_file(void *at, size_t len, int prot, int flags, int fd) { return kernel_return((long)mmap(at, len, prot, flags, fd, 0)); }
long sys_munmap(void *at, size_t len) { return kernel_return(munmap(at, len)); }
long sys_mprotect(void *at, size_t len, int prot) { return kernel_return(mprotect(at, len, prot)); }
long sys_mremap(void *from, size_t old_len, size_t new_len, int flags, void *to) {
    return kernel_return((long)mremap(from, old_len, new_len, flags, to));
}
long sys_madvise(void *at, size_t len, int advice) { return kernel_return(madvise(at, len, advice)); }
long sys_prctl(int option, unsigned long arg) { return kernel_return(prctl(option, arg, 0, 0, 0)); }
long sys_fork(void) { return kernel_return(fork()); }
long sys_waitpid(long pid, int *status) { return kernel_return(waitpid((pid_t)pid, status, 0)); }
long sys_sched_yield(void) { return kernel_return(sched_yield()); }
_Noreturn void exit_process(int status) { _exit(status); }

static int64_t read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
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
    nanosleep(&time, NULL);
}

void pin_to_cpu(unsigned cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *thread_enter(void *thread) {
    ((struct thread *)thread)->run(((struct thread *)thread)->arg);
    return NULL;
}

long thread_start(struct thread *thread, void (*run)(void *), void *arg) {
    *thread = (struct thread){.run = run, .arg = arg};
    pthread_t handle;
    int error = pthread_create(&handle, NULL, thread_enter, thread);
    thread->handle = handle;
    return -error;
}

void thread_join(struct thread *thread) {
    pthread_join(thread->handle, NULL);
}
