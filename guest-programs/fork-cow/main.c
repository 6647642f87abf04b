/* Forks with a filled mapping; the child writes to a part of it, which copies pages or splits folios apart. */
#include "rt.h"

int main(int argc, char **argv) {
    size_t size = mib_argument(argc, argv, 1, 64);
    uint64_t percent = number_argument(argc, argv, 2, 0);
    if (percent > 100) {
        print(STDERR, "%s: argument 2, the part that the child writes to, must be at most 100\n", argv[0]);
        return 2;
    }

    long at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(at))
        fail("mmap", at);
    memset((void *)at, 1, size);

    int64_t start = clock_ns();
    long pid = sys_fork();
    int64_t took = clock_ns() - start;
    if (pid < 0)
        fail("fork", pid);
    if (pid == 0) {
        size_t end = size / 100 * percent;
        for (size_t i = 0; i < end; i += PAGE_SIZE)
            ((volatile char *)at)[i] = 2;
        exit_process(0);
    }
    int status;
    long ret = sys_waitpid(pid, &status);
    if (ret < 0)
        fail("waitpid", ret);
    print(STDOUT, "fork with %zu MiB took %ld ns\n", size / MIB, took);
    return status != 0;
}
