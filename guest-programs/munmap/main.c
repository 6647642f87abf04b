/* Unmaps a filled anonymous mapping in one call. */
#include "rt.h"

int main(int argc, char **argv) {
    size_t size = mib_argument(argc, argv, 1, 64);

    /* Linux aligns a mapping of this size to 2 MiB if its length is a multiple of 2 MiB. */
    long at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(at))
        fail("mmap", at);
    memset((void *)at, 1, size);

    int64_t start = clock_ns();
    long ret = sys_munmap((void *)at, size);
    int64_t took = clock_ns() - start;
    if (ret < 0)
        fail("munmap", ret);
    print(STDOUT, "munmap of %zu MiB took %ld ns\n", size / MIB, took);
    return 0;
}
