/* Maps and touches memory until it is killed: for tests of what happens when memory ends. */
#include "rt.h"

#define STEP (64 * MIB)

int main(void) {
    for (size_t total = STEP;; total += STEP) {
        long at = sys_mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
        if (is_error(at))
            fail("mmap", at);
        for (size_t i = 0; i < STEP; i += PAGE_SIZE)
            ((volatile char *)at)[i] = 1;
        print(STDOUT, "touched %zu MiB\n", total / MIB);
    }
}
