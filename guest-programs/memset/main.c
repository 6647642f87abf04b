/* Fills an anonymous mapping twice: first touch, then memory that is already mapped. */
#include "rt.h"

static void fill(char *at, size_t size, int byte, const char *what) {
    int64_t start = clock_ns();
    memset(at, byte, size);
    print(STDOUT, "memset of %zu MiB, %s: %ld ns\n", size / MIB, what, clock_ns() - start);
}

int main(int argc, char **argv) {
    size_t size = mib_argument(argc, argv, 1, 256);
    long at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(at))
        fail("mmap", at);
    fill((char *)at, size, 1, "first touch");
    fill((char *)at, size, 2, "mapped");
    return 0;
}
