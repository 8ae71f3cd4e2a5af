/* Sets and gets through a ring, and says how long a get takes.
 *
 *     cc -O2 -o example example.c kvasir_ring.c && ./example /run/kvasir/kvasir.sock */
#define _POSIX_C_SOURCE 200809L
#include "kvasir_ring.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 20000, LARGE = 1000000 };

static char reply[LARGE + 64];

/* Writes a request, and reads until the reply has so many bytes. */
static int ask(kvasir_ring *ring, const void *request, size_t size, size_t reply_size) {
    if (kvasir_ring_write(ring, request, size) < 0)
        return -1;
    for (size_t done = 0; done < reply_size;) {
        ssize_t count = kvasir_ring_read(ring, reply + done, sizeof reply - done);
        if (count <= 0)
            return -1;
        done += (size_t)count;
    }
    return 0;
}

static int check(int is_right, const char *what) {
    if (!is_right)
        fprintf(stderr, "wrong: %s\n", what);
    return is_right ? 0 : 1;
}

int main(int argc, char **argv) {
    kvasir_ring *ring = kvasir_ring_connect(argc > 1 ? argv[1] : "kvasir.sock", NULL, 0);
    if (!ring) {
        perror("connect");
        return 1;
    }
    int failed = 0;
    ask(ring, "SET greeting hello\r\n", 20, 5);
    failed |= check(memcmp(reply, "+OK\r\n", 5) == 0, "SET");

    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int round = 0; round < ROUNDS; round++) {
        ask(ring, "GET greeting\r\n", 14, 11);
        failed |= check(memcmp(reply, "$5\r\nhello\r\n", 11) == 0, "GET");
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double us = ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec))
        / 1e3 / ROUNDS;

    /* More than the ring holds. */
    static char request[LARGE + 64];
    int head = snprintf(request, sizeof request, "*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n", LARGE);
    memset(request + head, 'x', LARGE);
    memcpy(request + head + LARGE, "\r\n", 2);
    failed |= check(ask(ring, request, (size_t)head + LARGE + 2, 5) == 0, "SET of much");
    failed |= check(ask(ring, "GET large\r\n", 11, LARGE + 12) == 0, "GET of much");
    failed |= check(memcmp(reply, "$1000000\r\nxxxx", 14) == 0, "much");

    printf("%s: a GET takes %.2f us\n", kvasir_ring_reason(ring) ? "socket" : "ring", us);
    kvasir_ring_close(ring);
    return failed;
}
