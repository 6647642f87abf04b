/* Reads bytes at random places of a mapping that was written to before. */
#include "rt.h"

int main(int argc, char **argv) {
    uint64_t kib = number_argument(argc, argv, 1, 4096);
    uint64_t accesses = number_argument(argc, argv, 2, 100000);
    size_t size = kib << 10;
    if (kib < 4 || kib > 1 << 30) {
        print(STDERR, "%s: argument 1, the footprint, must be between 4 and 1073741824 KiB\n", argv[0]);
        return 2;
    }

    /* As large as a multiple of 2 MiB, which Linux aligns to 2 MiB, so that every folio size fits. */
    long at = sys_mmap(NULL, (size + 2 * MIB - 1) & ~(2 * MIB - 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(at))
        fail("mmap", at);
    volatile char *memory = (volatile char *)at;
    uint64_t pages = size / PAGE_SIZE;
    for (uint64_t i = 0; i < pages; i++)
        memory[i * PAGE_SIZE] = 1;

    /* The upper bits of a linear congruential generator, scaled to the number of pages. */
    uint64_t state = 1, sum = 0;
    for (uint64_t i = 0; i < accesses; i++) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
        uint64_t page = (state >> 32) * pages >> 32;
        sum += (uint64_t)memory[page * PAGE_SIZE];
    }
    print(STDOUT, "read %lu bytes of %lu KiB\n", sum, kib);
    return sum != accesses;
}
