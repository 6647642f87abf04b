/* The smallest guest: one system call and out. */
#include "rt.h"

int main(int argc, char **argv) {
    print(STDOUT, "hello, %s\n", argc > 1 ? argv[1] : "world");
    return 0;
}
