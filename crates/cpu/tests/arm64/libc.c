// What a C library brings with it: formatting, strings, sorting, mathematics, threads.
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void strings(void) {
    char a[300], b[300];
    for (int n = 0; n < 280; n += 7) {
        memset(a, 'a' + n % 26, sizeof a);
        memset(a + n, 0, 1);
        strcpy(b, a);
        b[n / 2] ^= n & 1;
        printf("%zu %d %d %td %td;", strlen(a), strcmp(a, b) < 0, memcmp(a, b, 290) != 0,
               (char *)memchr(a, 0, 300) - a, strrchr(a, a[0]) ? strrchr(a, a[0]) - a : -1);
    }
    memmove(a + 3, a, 200);
    memcpy(b, a, 300);
    printf("\n%d %s %s\n", memcmp(a, b, 300), strstr("the quick brown fox", "brown"), strtok(strdup("x,y"), ","));
}

static void numbers(void) {
    for (int i = -3; i < 12; i++) {
        double x = i * 1.37 + 0.11;
        printf("%g %.15e %a %d %.3f %.17g %.17g %.17g\n", x, x * 1e-300, x, (int)x, pow(fabs(x), 0.7),
               sin(x), exp(x), log(fabs(x)));
        printf("%.9g %.9g %.17g %.17g %.17g\n", (double)sinf((float)x), (double)sqrtf((float)fabs(x)), atan2(x, 3),
               fmod(x, 1.1), cbrt(x));
    }
    printf("%.17g %.17g %lf %g %g\n", strtod("1.7976931348623157e308", 0), strtod("4.9e-324", 0), 0.1 + 0.2, NAN, -INFINITY);
    printf("%Lf %.30Lg\n", 1.0L / 3, sqrtl(2.0L));
    printf("%d %ld %llx %o %c %5.2s|%-8d|%08.3f\n", -7, 1L << 40, ~0ull, 511, 'z', "abc", 42, 3.14159);
    printf("%ld %lu %d\n", strtol("-0x7fff", 0, 16), strtoul("18446744073709551615", 0, 10), atoi("  99"));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long shared, atomically;
static __thread long mine;

static void *work(void *arg) {
    for (int i = 0; i < 2000; i++) {
        pthread_mutex_lock(&lock);
        shared += (long)(intptr_t)arg;
        pthread_mutex_unlock(&lock);
        __atomic_fetch_add(&atomically, 1, __ATOMIC_RELAXED);
        mine++;
    }
    return (void *)mine;
}

int main(int argc, char **argv) {
    printf("%d %s\n", argc, argc > 1 ? argv[1] : "");
    strings();
    numbers();
    int *v = malloc(5000 * sizeof *v);
    unsigned r = 1;
    for (int i = 0; i < 5000; i++) v[i] = (int)(r = r * 1103515245 + 12345);
    qsort(v, 5000, sizeof *v, by_value);
    printf("%d %d %d\n", v[0], v[2500], v[4999]);
    free(v);
    jmp_buf env;
    volatile int hops = 0;
    if (setjmp(env) < 5) longjmp(env, ++hops);
    printf("hops %d\n", hops);
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, work, (void *)(intptr_t)(i + 1));
    long sum = 0;
    for (int i = 0; i < 3; i++) {
        void *got;
        pthread_join(t[i], &got);
        sum += (long)got;
    }
    printf("%ld %ld %ld\n", shared, atomically, sum);
    return 3;
}
