/* Moves a filled mapping to another address and back, again and again. */
#include "rt.h"

#define ALIGN (2 * MIB)

/* Address space of its own for the mapping to move to, `offset` bytes past a multiple of 2 MiB. */
static char *room(size_t size, size_t offset) {
    long at = sys_mmap(NULL, size + 2 * ALIGN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (is_error(at))
        fail("mmap", at);
    return (char *)(((unsigned long)at + ALIGN - 1) & ~(ALIGN - 1)) + offset;
}

static void move(char *from, char *to, size_t size) {
    long ret = sys_mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (is_error(ret))
        fail("mremap", ret);
}

int main(int argc, char **argv) {
    size_t size = mib_argument(argc, argv, 1, 64);
    uint64_t offset = number_argument(argc, argv, 2, 0);
    uint64_t rounds = number_argument(argc, argv, 3, 1);
    if (offset >= ALIGN / PAGE_SIZE) {
        print(STDERR, "%s: argument 2, the offset, must be fewer than 512 pages\n", argv[0]);
        return 2;
    }

    char *home = room(size, 0), *away = room(size, offset * PAGE_SIZE);
    long at = sys_mmap(home, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED);
    if (is_error(at))
        fail("mmap", at);
    memset(home, 1, size);

    int64_t start = clock_ns();
    for (uint64_t i = 0; i < rounds; i++) {
        move(home, away, size);
        move(away, home, size);
    }
    int64_t took = clock_ns() - start;
    print(STDOUT, "%lu moves of %zu MiB took %ld ns\n", 2 * rounds, size / MIB, took);
    return 0;
}
