/* Maps memory, fills it, moves it and unmaps it, again and again, and says how long moving took. */
#include "rt.h"

/* A fixed place at a multiple of 1 GiB: a move by the length keeps the alignment. */
#define PLACE ((char *)(1UL << 30))

int main(int argc, char **argv) {
    size_t size = mib_argument(argc, argv, 1, 1);
    uint64_t rounds = number_argument(argc, argv, 2, 100);

    int64_t moving = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        long at = sys_mmap(PLACE, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED);
        if (is_error(at))
            fail("mmap", at);
        memset((char *)at, 0xaa, size);
        int64_t start = clock_ns();
        long moved = sys_mremap((char *)at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, PLACE + size);
        moving += clock_ns() - start;
        if (is_error(moved))
            fail("mremap", moved);
        long ret = sys_munmap((char *)moved, size);
        if (is_error(ret))
            fail("munmap", ret);
    }
    print(STDOUT, "%lu moves of %zu MiB took %ld ns (%ld ms)\n", rounds, size / MIB, moving, moving / 1000000);
    return 0;
}
