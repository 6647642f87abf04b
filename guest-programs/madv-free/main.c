/* Marks a filled mapping as free, perhaps writes to a part of it again, and pages it out: what is still free is dropped. */
#include "rt.h"

static void advise(char *at, size_t size, int advice, const char *what) {
    long ret = sys_madvise(at, size, advice);
    if (ret < 0)
        fail(what, ret);
}

int main(int argc, char **argv) {
    size_t size = mib_argument(argc, argv, 1, 64);
    uint64_t percent = number_argument(argc, argv, 2, 0);
    if (percent > 100) {
        print(STDERR, "%s: argument 2, the part that is written to again, must be at most 100\n", argv[0]);
        return 2;
    }

    long at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(at))
        fail("mmap", at);
    memset((void *)at, 1, size);

    int64_t start = clock_ns();
    advise((char *)at, size, MADV_FREE, "madvise(MADV_FREE)");
    int64_t freed = clock_ns();
    size_t end = size / 100 * percent;
    for (size_t i = 0; i < end; i += PAGE_SIZE)
        ((volatile char *)at)[i] = 2;
    int64_t written = clock_ns();
    advise((char *)at, size, MADV_PAGEOUT, "madvise(MADV_PAGEOUT)");
    int64_t dropped = clock_ns();
    print(STDOUT, "MADV_FREE took %ld ns, MADV_PAGEOUT afterwards %ld ns\n", freed - start, dropped - written);
    return 0;
}
