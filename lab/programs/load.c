/* The load generator of the lab: YCSB's operations on Redis, and plain GET and SET.
 *
 * One thread drives any number of clients; where a server of many workers needs more than one core
 * of load, several processes share the clients (--processes), and their counts are added up. A
 * client is what YCSB calls a thread: it does one operation at a time, which may take several
 * calls. In a closed loop it begins the next one when
 * the last is over. In an open loop (--rate) operations are due at fixed times whatever the server
 * does, and latency counts from the time that one was due, so that a stalled server is not excused
 * by a generator that waited with it (coordinated omission).
 *
 * It prints one JSON object. Python starts it, see kvlab/load.py.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READ, UPDATE, INSERT, SCAN, RMW, GET, SET, KINDS };
static const char *KIND[KINDS] = {"read", "update", "insert", "scan", "rmw", "get", "set"};
enum { UNIFORM, ZIPFIAN, LATEST, SEQUENTIAL };
enum { NODES_MAX = 64, SLOTS = 16384, SUB_BITS = 6, BUCKETS = 64 << SUB_BITS };
static const char INDEX[] = "_indices";

static struct {
    int clients, fields, field_size, scan_max, distribution, pipeline, processes;
    uint64_t records, requests, seed;
    double seconds, warmup, rate, mix[KINDS];
    char *values;
    size_t values_size;
    int load;
} opt = {.clients = 1, .fields = 10, .field_size = 100, .scan_max = 100, .pipeline = 1,
         .processes = 1, .records = 1000, .seed = 1, .values = ""};

static int nodes, port_of[NODES_MAX];
static uint8_t node_of_slot[SLOTS];

struct buffer {
    char *data;
    size_t size, room;
};

struct client {
    int socket[NODES_MAX];
    struct buffer in, out;
    size_t sent;
    int node, is_busy, kind, step, expected;
    uint64_t key, due_ns;
    uint64_t *found; /* Where the keys of a scan begin, and how many there are and were read. */
    int found_count, found_at;
    struct buffer names;
};

/* What a process has seen. */
struct result {
    struct { uint64_t count, max_ns, bucket[BUCKETS]; double sum_ns; } seen[KINDS];
    uint64_t errors, unsent;
    double took_s, cpu_s;
    char first_error[160];
};

static struct result mine;
static uint64_t begun, finished, inserted, loaded, random_state, next_sequential;
static int is_recording;

static void die(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, errno ? strerror(errno) : "wrong");
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* SplitMix64. */
static uint64_t draw(void) {
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double fraction(void) { return (double)(draw() >> 11) / 9007199254740992.0; }

/* FNV-1a of a number's bytes: YCSB spreads its keys by it. */
static uint64_t fnv(uint64_t number) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int byte = 0; byte < 8; byte++, number >>= 8)
        hash = (hash ^ (number & 255)) * 0x100000001b3u;
    return hash;
}

/* Zipf's law with theta 0.99 in constant time (Gray et al., SIGMOD 1994). */
static const double THETA = 0.99;
static double zeta_n, eta, alpha;

static void prepare_zipf(uint64_t n) {
    double zeta_2 = 1 + pow(0.5, THETA);
    for (uint64_t rank = 1; rank <= n; rank++) zeta_n += pow(1.0 / (double)rank, THETA);
    alpha = 1 / (1 - THETA);
    eta = (1 - pow(2.0 / (double)n, 1 - THETA)) / (1 - zeta_2 / zeta_n);
}

static uint64_t draw_zipf(void) {
    double u = fraction(), uz = u * zeta_n;
    if (uz < 1) return 0;
    if (uz < 1 + pow(0.5, THETA)) return 1;
    uint64_t rank = (uint64_t)((double)opt.records * pow(eta * u - eta + 1, alpha));
    return rank < opt.records ? rank : opt.records - 1;
}

static uint64_t draw_key(void) {
    switch (opt.distribution) {
    case ZIPFIAN: return fnv(draw_zipf()) % opt.records;
    case LATEST: {
        uint64_t back = draw_zipf();
        return loaded + inserted > back ? loaded + inserted - 1 - back : 0;
    }
    case SEQUENTIAL: return next_sequential++ % opt.records;
    default: return draw() % opt.records;
    }
}

static void append(struct buffer *to, const void *data, size_t size) {
    if (to->size + size > to->room) {
        to->room = 2 * (to->size + size);
        to->data = realloc(to->data, to->room);
        if (!to->data) die("memory");
    }
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void append_words(struct buffer *to, int count) {
    char text[32];
    append(to, text, (size_t)sprintf(text, "*%d\r\n", count));
}

static void append_word(struct buffer *to, const char *word, size_t size) {
    char text[32];
    append(to, text, (size_t)sprintf(text, "$%zu\r\n", size));
    append(to, word, size);
    append(to, "\r\n", 2);
}

/* A value from the file of values, or letters that do not repeat. */
static void append_value(struct buffer *to, size_t size) {
    static char *letters;
    static const size_t LETTERS = 1 << 20;
    if (!opt.values_size && !letters) {
        if (!(letters = malloc(LETTERS))) die("memory");
        for (size_t at = 0; at < LETTERS; at++) letters[at] = (char)('a' + draw() % 26);
    }
    const char *from = opt.values_size ? opt.values : letters;
    size_t room = opt.values_size ? opt.values_size : LETTERS;
    if (size > room) die("the file of values is shorter than a value");
    append_word(to, from + draw() % (room - size + 1), size);
}

static uint16_t crc16(const char *data, size_t size) {
    uint16_t crc = 0;
    for (size_t at = 0; at < size; at++) {
        crc ^= (uint16_t)((uint8_t)data[at] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

static int node_of(const char *key, size_t size) {
    return nodes == 1 ? 0 : node_of_slot[crc16(key, size) % SLOTS];
}

static size_t name_of(const struct client *client, char *name) {
    if (client->kind == GET || client->kind == SET)
        return (size_t)sprintf(name, "key:%012llu", (unsigned long long)client->key);
    return (size_t)sprintf(name, "user%llu", (unsigned long long)fnv(client->key));
}

/* The order of the index: by a hash of the key, as the Redis binding of YCSB has it. */
static double score_of(const char *name, size_t size) {
    return (double)crc16(name, size) * 256 + (double)(unsigned char)name[size - 1];
}

static void write_hset(struct client *client, const char *name, size_t size, int first, int count) {
    append_words(&client->out, 2 + 2 * count);
    append_word(&client->out, "HSET", 4);
    append_word(&client->out, name, size);
    for (int field = first; field < first + count; field++) {
        char text[32];
        append_word(&client->out, text, (size_t)sprintf(text, "field%d", field));
        append_value(&client->out, (size_t)opt.field_size);
    }
}

static void write_call(struct client *client, const char *command, const char *name, size_t size) {
    append_words(&client->out, 2);
    append_word(&client->out, command, strlen(command));
    append_word(&client->out, name, size);
}

static void write_index(struct client *client, const char *name, size_t size) {
    char score[32];
    int length = sprintf(score, "%.0f", score_of(name, size));
    append_words(&client->out, client->kind == SCAN ? 7 : 4);
    const char *command = client->kind == SCAN ? "ZRANGEBYSCORE" : "ZADD";
    append_word(&client->out, command, strlen(command));
    append_word(&client->out, INDEX, sizeof INDEX - 1);
    append_word(&client->out, score, (size_t)length);
    if (client->kind != SCAN) {
        append_word(&client->out, name, size);
        return;
    }
    append_word(&client->out, "+inf", 4);
    append_word(&client->out, "LIMIT", 5);
    append_word(&client->out, "0", 1);
    unsigned long long most = 1 + draw() % (uint64_t)opt.scan_max;
    append_word(&client->out, score, (size_t)sprintf(score, "%llu", most));
}

/* Writes what the operation asks next; false when it is over. */
static int write_step(struct client *client) {
    char name[64];
    size_t size = name_of(client, name);
    int step = client->step++;
    client->expected = 1;
    client->node = node_of(name, size);
    switch (client->kind) {
    case GET: case SET:
        if (step > 0) return 0;
        for (int call = 0; call < opt.pipeline; call++) {
            /* In a cluster all of a pipeline go to one node. */
            for (int tries = 0; call > 0 && tries < 10000; tries++) {
                client->key = draw_key();
                size = name_of(client, name);
                if (node_of(name, size) == client->node) break;
            }
            if (client->kind == GET) {
                write_call(client, "GET", name, size);
            } else {
                append_words(&client->out, 3);
                append_word(&client->out, "SET", 3);
                append_word(&client->out, name, size);
                append_value(&client->out, (size_t)opt.field_size);
            }
        }
        client->expected = opt.pipeline;
        return 1;
    case READ:
        if (step > 0) return 0;
        write_call(client, "HGETALL", name, size);
        return 1;
    case UPDATE:
        if (step > 0) return 0;
        write_hset(client, name, size, (int)(draw() % (uint64_t)opt.fields), 1);
        return 1;
    case RMW:
        if (step > 1) return 0;
        if (step == 0) write_call(client, "HGETALL", name, size);
        else write_hset(client, name, size, (int)(draw() % (uint64_t)opt.fields), 1);
        return 1;
    case INSERT:
        if (step > 1) return 0;
        if (step == 0) { write_hset(client, name, size, 0, opt.fields); return 1; }
        client->node = node_of(INDEX, sizeof INDEX - 1);
        write_index(client, name, size);
        return 1;
    default:
        if (step == 0) {
            client->node = node_of(INDEX, sizeof INDEX - 1);
            client->found_count = client->found_at = 0;
            write_index(client, name, size);
            return 1;
        }
        if (client->found_at == client->found_count) return 0;
        const char *key = client->names.data + client->found[client->found_at++];
        client->node = node_of(key, strlen(key));
        write_call(client, "HGETALL", key, strlen(key));
        return 1;
    }
}

/* Where a reply ends, 0 if it is not all there. Bulk strings of the first level are kept. */
static size_t end_of_reply(struct client *client, size_t at, int level) {
    const char *data = client->in.data, *line = data + at;
    const char *end = at < client->in.size ? memchr(line, '\n', client->in.size - at) : NULL;
    if (!end) return 0;
    size_t next = (size_t)(end - data) + 1;
    long count = *line == '*' || *line == '$' || *line == '%' ? atol(line + 1) : 0;
    switch (*line) {
    case '-':
        mine.errors++;
        if (!mine.first_error[0])
            snprintf(mine.first_error, sizeof mine.first_error, "%.*s", (int)(end - line - 1),
                     line);
        return next;
    case '$':
        if (count < 0) return next;
        if (next + (size_t)count + 2 > client->in.size) return 0;
        if (level == 1 && client->kind == SCAN && client->step == 1) {
            client->found[client->found_count++] = client->names.size;
            append(&client->names, data + next, (size_t)count);
            append(&client->names, "", 1);
        }
        return next + (size_t)count + 2;
    case '*': case '%':
        for (count *= *line == '%' ? 2 : 1; count > 0; count--)
            if (!(next = end_of_reply(client, next, level + 1))) return 0;
        return next;
    default: return next;
    }
}

static int bucket_of(uint64_t ns) {
    if (ns < 1u << SUB_BITS) return (int)ns;
    int shift = 63 - __builtin_clzll(ns) - SUB_BITS;
    return ((shift + 1) << SUB_BITS) + (int)((ns >> shift) - (1u << SUB_BITS));
}

static double middle_of(int bucket) {
    int shift = (bucket >> SUB_BITS) - 1;
    if (shift < 0) return bucket;
    return ((double)(bucket & ((1 << SUB_BITS) - 1)) + (1 << SUB_BITS) + 0.5) * pow(2, shift);
}

static void record(int kind, uint64_t ns) {
    uint64_t calls = kind == GET || kind == SET ? (uint64_t)opt.pipeline : 1;
    mine.seen[kind].count += calls;
    mine.seen[kind].sum_ns += (double)ns * (double)calls;
    mine.seen[kind].bucket[bucket_of(ns)] += calls;
    if (ns > mine.seen[kind].max_ns) mine.seen[kind].max_ns = ns;
}

static void push(struct client *client) {
    while (client->sent < client->out.size) {
        ssize_t size = write(client->socket[client->node], client->out.data + client->sent,
                             client->out.size - client->sent);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) die("the server does not take a request");
        client->sent += (size_t)size;
    }
    client->out.size = client->sent = 0;
}

static void begin(struct client *client, uint64_t due_ns) {
    double which = fraction(), sum = 0;
    client->kind = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        sum += opt.mix[kind];
        if (opt.mix[kind] > 0) client->kind = kind;
        if (which < sum) break;
    }
    if (client->kind == INSERT) client->key = loaded + inserted++;
    else client->key = draw_key();
    client->step = 0;
    client->is_busy = 1;
    client->due_ns = due_ns;
    begun++;
    write_step(client);
    push(client);
}

/* Takes what has come; true when an operation is over. */
static int receive(struct client *client) {
    char chunk[65536];
    ssize_t size = read(client->socket[client->node], chunk, sizeof chunk);
    if (size < 0 && errno == EINTR) return 0;
    if (size <= 0) die("the server closed a connection");
    append(&client->in, chunk, (size_t)size);
    size_t at = 0;
    while (client->expected > 0) {
        int found = client->found_count;
        size_t names = client->names.size;
        uint64_t errors_before = mine.errors;
        size_t end = end_of_reply(client, at, 0);
        if (!end) {
            client->found_count = found;
            client->names.size = names;
            mine.errors = errors_before;
            break;
        }
        at = end;
        client->expected--;
    }
    memmove(client->in.data, client->in.data + at, client->in.size - at);
    client->in.size -= at;
    if (client->expected > 0) return 0;
    if (write_step(client)) {
        push(client);
        return 0;
    }
    if (is_recording) record(client->kind, now_ns() - client->due_ns);
    client->is_busy = 0;
    client->names.size = 0;
    finished++;
    return 1;
}

static int connect_to(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die("cannot connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

static struct client *connect_all(int queue) {
    struct client *clients = calloc((size_t)opt.clients, sizeof *clients);
    if (!clients) die("memory");
    for (int index = 0; index < opt.clients; index++) {
        struct client *client = clients + index;
        client->found = calloc((size_t)opt.scan_max + 1, sizeof *client->found);
        for (int node = 0; node < nodes; node++) {
            struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
            client->socket[node] = connect_to(port_of[node]);
            if (epoll_ctl(queue, EPOLL_CTL_ADD, client->socket[node], &event)) die("epoll");
        }
    }
    return clients;
}

/* Runs until a time or a number of operations, and then until what was begun is over. Returns how
 * many operations were due and not begun, which only an open loop has. */
static uint64_t run(struct client *clients, int queue, double seconds, uint64_t requests) {
    struct epoll_event events[256];
    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    uint64_t patience = end + (end - start);
    uint64_t due = 0, started = 0, before = finished, begun_before = begun;
    double gap = opt.rate > 0 ? 1e9 / opt.rate : 0;
    struct client **idle = calloc((size_t)opt.clients, sizeof *idle);
    int idle_count = 0;
    for (int index = opt.clients - 1; index >= 0; index--) idle[idle_count++] = clients + index;
    for (;;) {
        uint64_t now = now_ns();
        int is_over = requests ? started >= requests : now >= end;
        if (gap > 0) due = (uint64_t)((double)((now < end ? now : end) - start) / gap);
        while (idle_count > 0 && (gap > 0 ? started < due : !is_over)) {
            uint64_t due_ns = gap > 0 ? start + (uint64_t)((double)started * gap) : now_ns();
            begin(idle[--idle_count], due_ns);
            started++;
            is_over = requests ? started >= requests : is_over;
        }
        int is_quiet = finished - before == begun - begun_before;
        if (is_over && is_quiet && (gap == 0 || started >= due)) break;
        if (gap > 0 && now > patience) break;
        int wait_ms = gap > 0 && !is_over ? 0 : 1;
        int count = epoll_wait(queue, events, 256, wait_ms);
        for (int at = 0; at < count; at++) {
            struct client *client = events[at].data.ptr;
            if (client->is_busy && receive(client)) idle[idle_count++] = client;
        }
    }
    free(idle);
    return due > started ? due - started : 0;
}

static double quantile_us(int kind, double q) {
    uint64_t wanted = (uint64_t)ceil(q * (double)mine.seen[kind].count), sum = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++)
        if ((sum += mine.seen[kind].bucket[bucket]) >= wanted && sum > 0)
            return middle_of(bucket) / 1e3;
    return 0;
}

static double cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double whole = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec);
    return whole + 1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void report(void) {
    uint64_t all = 0;
    for (int kind = 0; kind < KINDS; kind++) all += mine.seen[kind].count;
    for (char *at = mine.first_error; *at; at++)
        if (*at == '"' || *at == '\\' || *at < ' ') *at = '\'';
    printf("{\"seconds\": %.6f, \"operations\": %llu, \"ops_s\": %.3f, ", mine.took_s,
           (unsigned long long)all, (double)all / mine.took_s);
    printf("\"errors\": %llu, ", (unsigned long long)mine.errors);
    printf("\"first_error\": \"%s\", ", mine.first_error);
    printf("\"unsent\": %llu, \"load_cpu_s\": %.4f, ", (unsigned long long)mine.unsent, mine.cpu_s);
    printf("\"by_kind\": {");
    const char *comma = "";
    for (int kind = 0; kind < KINDS; kind++) {
        if (!mine.seen[kind].count) continue;
        double count = (double)mine.seen[kind].count;
        printf("%s\"%s\": {\"count\": %.0f, ", comma, KIND[kind], count);
        printf("\"mean_us\": %.3f, ", mine.seen[kind].sum_ns / 1e3 / count);
        printf("\"p50_us\": %.3f, ", quantile_us(kind, 0.5));
        printf("\"p95_us\": %.3f, ", quantile_us(kind, 0.95));
        printf("\"p99_us\": %.3f, ", quantile_us(kind, 0.99));
        printf("\"p999_us\": %.3f, ", quantile_us(kind, 0.999));
        printf("\"max_us\": %.3f}", (double)mine.seen[kind].max_ns / 1e3);
        comma = ", ";
    }
    printf("}}\n");
}

static void read_values(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    fseek(file, 0, SEEK_END);
    opt.values_size = (size_t)ftell(file);
    rewind(file);
    opt.values = malloc(opt.values_size + 1);
    if (!opt.values || fread(opt.values, 1, opt.values_size, file) != opt.values_size) die(path);
    fclose(file);
}

/* `7001:0-5460`, or a port alone. */
static void add_node(const char *text) {
    int first = 0, last = SLOTS - 1;
    int count = sscanf(text, "%d:%d-%d", &port_of[nodes % NODES_MAX], &first, &last);
    if (nodes == NODES_MAX || count < 1 || first < 0) die("--node");
    for (int slot = first; slot <= last && slot < SLOTS; slot++)
        node_of_slot[slot] = (uint8_t)nodes;
    nodes++;
}

static void set_mix(char *text) {
    double sum = 0;
    for (char *part = strtok(text, ","); part; part = strtok(NULL, ",")) {
        char *value = strchr(part, '=');
        if (!value) die("--mix");
        *value++ = 0;
        int kind = 0;
        while (kind < KINDS && strcmp(KIND[kind], part)) kind++;
        if (kind == KINDS) die("--mix knows no such operation");
        sum += opt.mix[kind] = atof(value);
    }
    for (int kind = 0; kind < KINDS; kind++) opt.mix[kind] /= sum;
}

static void parse(int count, char **words) {
    for (int at = 1; at < count; at += 2) {
        const char *name = words[at];
        if (at + 1 == count) die("an option lacks its value");
        char *value = words[at + 1];
        if (!strcmp(name, "--node")) add_node(value);
        else if (!strcmp(name, "--clients")) opt.clients = atoi(value);
        else if (!strcmp(name, "--seconds")) opt.seconds = atof(value);
        else if (!strcmp(name, "--warmup")) opt.warmup = atof(value);
        else if (!strcmp(name, "--requests")) opt.requests = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--records")) opt.records = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--fields")) opt.fields = atoi(value);
        else if (!strcmp(name, "--field-size")) opt.field_size = atoi(value);
        else if (!strcmp(name, "--scan-max")) opt.scan_max = atoi(value);
        else if (!strcmp(name, "--rate")) opt.rate = atof(value);
        else if (!strcmp(name, "--seed")) opt.seed = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--pipeline")) opt.pipeline = atoi(value);
        else if (!strcmp(name, "--processes")) opt.processes = atoi(value);
        else if (!strcmp(name, "--mix")) set_mix(value);
        else if (!strcmp(name, "--values")) read_values(value);
        else if (!strcmp(name, "--load")) opt.load = atoi(value);
        else if (!strcmp(name, "--distribution")) {
            static const char *known[] = {"uniform", "zipfian", "latest", "sequential"};
            while (opt.distribution < 4 && strcmp(known[opt.distribution], value))
                opt.distribution++;
            if (opt.distribution == 4) die("--distribution");
        } else die(name);
    }
    if (!nodes || opt.clients < 1 || opt.records < 1 || opt.pipeline < 1) die("options");
    if (opt.processes < 1 || opt.processes > opt.clients) die("--processes");
    /* Two processes would insert the same keys. */
    if (opt.processes > 1 && (opt.load || opt.mix[INSERT] > 0)) die("--processes and inserts");
    if (opt.fields < 1 || opt.field_size < 0 || opt.scan_max < 1) die("options");
}

/* Begins when all processes have their connections. */
static void measure(atomic_int *waited_for) {
    int queue = epoll_create1(0);
    struct client *clients = connect_all(queue);
    if (waited_for) atomic_fetch_sub(waited_for, 1);
    while (waited_for && atomic_load(waited_for) > 0) sched_yield();
    if (opt.warmup > 0) {
        double rate = opt.rate;
        opt.rate = 0;
        run(clients, queue, opt.warmup, 0);
        opt.rate = rate;
        mine.errors = 0;
        mine.first_error[0] = 0;
    }
    is_recording = 1;
    uint64_t start = now_ns();
    mine.unsent = run(clients, queue, opt.seconds, opt.requests);
    mine.took_s = (double)(now_ns() - start) / 1e9;
    mine.cpu_s = cpu_s();
}

/* This process's part of the clients, of the rate and of the requests. */
static void take_part(int index) {
    uint64_t parts = (uint64_t)opt.processes, at = (uint64_t)index;
    int clients = opt.clients / opt.processes + (index < opt.clients % opt.processes);
    opt.requests = opt.requests / parts + (at < opt.requests % parts);
    opt.rate = opt.rate * clients / opt.clients;
    opt.clients = clients;
    for (int skipped = 0; skipped <= index; skipped++) random_state = draw();
}

static void add(const struct result *other) {
    for (int kind = 0; kind < KINDS; kind++) {
        mine.seen[kind].count += other->seen[kind].count;
        mine.seen[kind].sum_ns += other->seen[kind].sum_ns;
        if (other->seen[kind].max_ns > mine.seen[kind].max_ns)
            mine.seen[kind].max_ns = other->seen[kind].max_ns;
        for (int bucket = 0; bucket < BUCKETS; bucket++)
            mine.seen[kind].bucket[bucket] += other->seen[kind].bucket[bucket];
    }
    mine.errors += other->errors;
    mine.unsent += other->unsent;
    mine.cpu_s += other->cpu_s;
    if (other->took_s > mine.took_s) mine.took_s = other->took_s;
    if (!mine.first_error[0]) memcpy(mine.first_error, other->first_error, sizeof mine.first_error);
}

/* Several processes, whose results come by memory that they share with this one. */
static void share_out(void) {
    struct shared { atomic_int waited_for; struct result results[]; } *shared;
    size_t size = sizeof *shared + (size_t)opt.processes * sizeof shared->results[0];
    shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) die("memory");
    atomic_store(&shared->waited_for, opt.processes);
    for (int index = 0; index < opt.processes; index++) {
        pid_t child = fork();
        if (child < 0) die("fork");
        if (child > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        take_part(index);
        measure(&shared->waited_for);
        shared->results[index] = mine;
        _exit(0);
    }
    for (int index = 0; index < opt.processes; index++) {
        int status;
        if (wait(&status) < 0 || status) exit(1);
    }
    for (int index = 0; index < opt.processes; index++) add(shared->results + index);
}

int main(int count, char **words) {
    parse(count, words);
    random_state = opt.seed * 0x2545f4914f6cdd1du;
    loaded = opt.load ? 0 : opt.records;
    if (opt.load) {
        memset(opt.mix, 0, sizeof opt.mix);
        opt.mix[INSERT] = 1;
        opt.requests = opt.records;
        opt.warmup = 0;
    }
    if (opt.distribution == ZIPFIAN || opt.distribution == LATEST) prepare_zipf(opt.records);
    if (opt.processes == 1) measure(NULL);
    else share_out();
    report();
    return 0;
}
