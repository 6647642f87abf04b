/* Pages out a filled mapping and reads it back, page by page. */
#include "rt.h"

int main(int argc, char **argv) {
    size_t size = mib_argument(argc, argv, 1, 64);

    long at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(at))
        fail("mmap", at);
    memset((void *)at, 1, size);
    long ret = sys_madvise((void *)at, size, MADV_PAGEOUT);
    if (ret < 0)
        fail("madvise(MADV_PAGEOUT)", ret);

    int64_t start = clock_ns();
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i += PAGE_SIZE)
        sum += (uint64_t)((volatile char *)at)[i];
    int64_t took = clock_ns() - start;
    print(STDOUT, "reading %zu MiB back took %ld ns\n", size / MIB, took);
    return sum != size / PAGE_SIZE;
}
