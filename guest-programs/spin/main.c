/* Never ends: for tests of the limits that a run can be given. */
#include "rt.h"

int main(void) {
    print(STDOUT, "spinning\n");
    for (;;)
        __asm__ volatile("");
}
