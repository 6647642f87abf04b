/* Gives back the first pages of each group of pages of a filled mapping. */
#include "rt.h"

static void give_back(char *at, size_t size, size_t pages, size_t group) {
    size_t step = group * PAGE_SIZE;
    for (size_t i = 0; pages && i + step <= size; i += step) {
        long ret = sys_madvise(at + i, pages * PAGE_SIZE, MADV_DONTNEED);
        if (ret < 0)
            fail("madvise(MADV_DONTNEED)", ret);
    }
}

int main(int argc, char **argv) {
    size_t size = mib_argument(argc, argv, 1, 64);
    uint64_t pages = number_argument(argc, argv, 2, 1);
    uint64_t group = number_argument(argc, argv, 3, 16);
    if (group == 0 || pages > group) {
        print(STDERR, "%s: argument 2, the pages given back, must be at most argument 3, the pages of a group\n", argv[0]);
        return 2;
    }

    long at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(at))
        fail("mmap", at);
    memset((void *)at, 1, size);

    int64_t start = clock_ns();
    give_back((char *)at, size, pages, group);
    int64_t took = clock_ns() - start;
    print(STDOUT, "madvise(MADV_DONTNEED) of %lu of each %lu pages took %ld ns\n", pages, group, took);
    return 0;
}
