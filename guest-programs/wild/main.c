/* Jumps to an address where there is no code: for tests of the signal that follows. */
#include "rt.h"

int main(int argc, char **argv) {
    uint64_t target = number_argument(argc, argv, 1, 0xddba11000);
    print(STDOUT, "jumping to 0x%lx\n", target);
    ((void (*)(void))target)();
    print(STDOUT, "came back\n");
    return 0;
}
