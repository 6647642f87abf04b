/* Changes the protection of single pages while other threads run on all other CPUs: each change must be seen by all of them. */
#include "rt.h"

#define MAX_THREADS 256

static volatile unsigned running;
static volatile int stop;

static void run(void *cpu) {
    pin_to_cpu((unsigned)(uintptr_t)cpu);
    __atomic_fetch_add(&running, 1, __ATOMIC_SEQ_CST);
    while (!stop)
        sys_sched_yield();
}

static void protect(char *at, int prot) {
    long ret = sys_mprotect(at, PAGE_SIZE, prot);
    if (ret < 0)
        fail("mprotect", ret);
}

int main(int argc, char **argv) {
    static struct thread threads[MAX_THREADS];
    uint64_t cpus = number_argument(argc, argv, 1, 2);
    uint64_t changes = number_argument(argc, argv, 2, 100);
    if (cpus < 1 || cpus > MAX_THREADS) {
        print(STDERR, "%s: argument 1, the number of CPUs, must be between 1 and %d\n", argv[0], MAX_THREADS);
        return 2;
    }

    size_t size = (changes + 1) * PAGE_SIZE;
    long at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (is_error(at))
        fail("mmap", at);
    memset((void *)at, 1, size);

    pin_to_cpu(0);
    for (unsigned i = 1; i < cpus; i++) {
        long ret = thread_start(&threads[i], run, (void *)(uintptr_t)i);
        if (ret < 0)
            fail("clone", ret);
    }
    while (running + 1 < cpus)
        sys_sched_yield();

    int64_t start = clock_ns();
    for (uint64_t i = 0; i < changes; i++)
        protect((char *)at + i * PAGE_SIZE, PROT_READ);
    int64_t took = clock_ns() - start;
    stop = 1;
    for (unsigned i = 1; i < cpus; i++)
        thread_join(&threads[i]);
    print(STDOUT, "%lu changes seen by %lu CPUs took %ld ns\n", changes, cpus, took);
    return 0;
}
