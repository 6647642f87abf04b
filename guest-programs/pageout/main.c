/* Pages out an anonymous mapping and says how long madvise(MADV_PAGEOUT) took. */
#include "rt.h"

int main(int argc, char **argv) {
    size_t size = mib_argument(argc, argv, 1, 256);
    uint64_t fill = number_argument(argc, argv, 2, 0);

    /* Linux aligns a mapping of this size to 2 MiB if its length is a multiple of 2 MiB. */
    long at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(at))
        fail("mmap", at);
    memset((void *)at, (int)(fill & 0xff), size);

    int64_t start = clock_ns();
    long ret = sys_madvise((void *)at, size, MADV_PAGEOUT);
    int64_t took = clock_ns() - start;
    if (ret < 0)
        fail("madvise(MADV_PAGEOUT)", ret);
    print(STDOUT, "madvise(MADV_PAGEOUT) took %ld ns (%ld ms)\n", took, took / 1000000);
    return 0;
}
