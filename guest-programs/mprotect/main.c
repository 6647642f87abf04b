/* Takes write permission from a filled anonymous mapping and gives it back, again and again, and says how long that took. */
#include "rt.h"

#define HUGE_SIZE (2 * MIB)

static void protect(char *at, size_t len, int prot) {
    long ret = sys_mprotect(at, len, prot);
    if (ret < 0)
        fail("mprotect", ret);
}

/* One page of each 2 MiB apart from its neighbours for a moment: a huge page is mapped by single entries from then on. */
static void split_huge_mappings(char *at, size_t size) {
    for (size_t i = 0; i < size; i += HUGE_SIZE) {
        protect(at + i, PAGE_SIZE, PROT_READ);
        protect(at + i, PAGE_SIZE, PROT_READ | PROT_WRITE);
    }
}

int main(int argc, char **argv) {
    size_t size = mib_argument(argc, argv, 1, 64);
    uint64_t rounds = number_argument(argc, argv, 2, 40);
    uint64_t split = number_argument(argc, argv, 3, 0);

    /* Linux aligns a mapping of this size to 2 MiB if its length is a multiple of 2 MiB. */
    long mapped = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(mapped))
        fail("mmap", mapped);
    char *at = (char *)mapped;
    memset(at, 1, size);
    if (split)
        split_huge_mappings(at, size);

    int64_t start = clock_ns();
    for (uint64_t i = 0; i < rounds; i++) {
        protect(at, size, PROT_READ);
        protect(at, size, PROT_READ | PROT_WRITE);
    }
    int64_t took = clock_ns() - start;
    print(STDOUT, "%lu rounds of mprotect over %zu MiB took %ld ns (%ld ms)\n", rounds, size / MIB, took, took / 1000000);
    return 0;
}
