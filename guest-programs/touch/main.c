/* Writes one byte in every `stride` bytes of an anonymous mapping, then reads them back. */
#include "rt.h"

int main(int argc, char **argv) {
    size_t size = mib_argument(argc, argv, 1, 64);
    uint64_t stride = number_argument(argc, argv, 2, PAGE_SIZE);
    if (stride == 0 || stride > size) {
        print(STDERR, "%s: argument 2, the stride, must be between 1 and the size of the mapping\n", argv[0]);
        return 2;
    }
    long at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(at))
        fail("mmap", at);

    volatile char *memory = (volatile char *)at;
    uint64_t touched = 0, sum = 0;
    for (uint64_t i = 0; i < size; i += stride, touched++)
        memory[i] = 1;
    for (uint64_t i = 0; i < size; i += stride)
        sum += (uint64_t)memory[i];
    print(STDOUT, "wrote %lu bytes, read back a sum of %lu\n", touched, sum);
    return sum == touched ? 0 : 1;
}
