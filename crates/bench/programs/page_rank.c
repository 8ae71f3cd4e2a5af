/* PageRank of a text of edges, by definition B, as one would write it by hand: rows of
 * predecessors, ranks divided by out-degrees ahead of each iteration, one barrier between two.
 *
 *   page_rank EDGES ITERATIONS THREADS
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint32_t nodes, *starts, *others, *degrees;
static double *ranks, *handed, *next;
static int iterations, threads;
static pthread_barrier_t barrier;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *work(void *argument) {
    uint32_t part = (uint32_t)(uintptr_t)argument, first = 0, end;
    /* As many edges for each thread. */
    uint64_t edges = starts[nodes];
    while (first < nodes && starts[first] < edges * part / threads) first++;
    for (end = first; end < nodes && starts[end] < edges * (part + 1) / threads; end++);
    if (part + 1 == (uint32_t)threads) end = nodes;
    for (int i = 0; i < iterations; i++) {
        for (uint32_t node = first; node < end; node++) {
            double sum = 0;
            for (uint32_t e = starts[node]; e < starts[node + 1]; e++) sum += handed[others[e]];
            ranks[node] = 0.15 + 0.85 * sum;
            next[node] = degrees[node] ? ranks[node] / degrees[node] : 0;
        }
        pthread_barrier_wait(&barrier);
        if (part == 0) {
            double *swap = handed;
            handed = next;
            next = swap;
        }
        pthread_barrier_wait(&barrier);
    }
    return 0;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    FILE *file = fopen(words[1], "r");
    iterations = atoi(words[2]);
    threads = atoi(words[3]);
    if (!file) return 1;
    double start = now();
    uint64_t room = 1 << 20, edges = 0;
    uint32_t *ends = malloc(room * 8), ids = 0;
    char line[128];
    while (fgets(line, sizeof line, file)) {
        char *rest;
        if (line[0] == '#') continue;
        if (edges == room) ends = realloc(ends, (room *= 2) * 8);
        ends[2 * edges] = strtoul(line, &rest, 10);
        ends[2 * edges + 1] = strtoul(rest, 0, 10);
        for (int i = 0; i < 2; i++)
            if (ends[2 * edges + i] >= ids) ids = ends[2 * edges + i] + 1;
        edges++;
    }
    uint32_t *numbers = malloc(ids * 4ul);
    for (uint32_t i = 0; i < ids; i++) numbers[i] = UINT32_MAX;
    for (uint64_t i = 0; i < 2 * edges; i++) {
        if (numbers[ends[i]] == UINT32_MAX) numbers[ends[i]] = nodes++;
        ends[i] = numbers[ends[i]];
    }
    starts = calloc(nodes + 1, 4);
    degrees = calloc(nodes, 4);
    others = malloc(edges * 4);
    for (uint64_t i = 0; i < edges; i++) {
        degrees[ends[2 * i]]++;
        starts[ends[2 * i + 1]]++;
    }
    for (uint32_t i = 0, sum = 0; i <= nodes; i++) starts[i] = sum += starts[i];
    for (uint64_t i = 0; i < edges; i++) others[--starts[ends[2 * i + 1]]] = ends[2 * i];
    ranks = malloc(nodes * 8ul);
    handed = malloc(nodes * 8ul);
    next = malloc(nodes * 8ul);
    for (uint32_t i = 0; i < nodes; i++) handed[i] = degrees[i] ? 1.0 / degrees[i] : 0;
    double built = now();
    pthread_t all[64];
    pthread_barrier_init(&barrier, 0, threads);
    for (int i = 1; i < threads; i++) pthread_create(&all[i], 0, work, (void *)(uintptr_t)i);
    work(0);
    for (int i = 1; i < threads; i++) pthread_join(all[i], 0);
    double took = now() - built, sum = 0;
    for (uint32_t i = 0; i < nodes; i++) sum += ranks[i];
    printf("{\"nodes\": %u, \"sum\": %.6f, \"build_s\": %.6f, \"iteration_s\": %.6f}\n", nodes, sum,
           built - start, took / iterations);
    return 0;
}
