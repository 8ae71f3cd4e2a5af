/* The client's side of a ring; docs/ring.md of Kvasir has the bytes, and why no bell is missed. */
#define _GNU_SOURCE
#include "kvasir_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define HEADER 4096
#define REPLY_MAX 4096

enum { FOR_DATA = 1, FOR_ROOM = 2 };

/* Where the words of the header stand. */
enum {
    AT_SIZE = 8,
    REQUESTS_TAIL = 64,
    REQUESTS_HEAD = 128,
    REPLIES_TAIL = 192,
    REPLIES_HEAD = 256,
    SERVER_WAITS = 320,
    CLIENT_WAITS = 384
};

struct kvasir_ring {
    int socket;
    /* What this side rings, and what it hears; -1 without a ring. */
    int bell, heard;
    unsigned char *memory;
    uint32_t size;
    /* Up to where this side has written and read, modulo 2^32. */
    uint32_t tail, head;
    unsigned spin;
    int timeout;
    char *reason;
    /* What came by the socket behind the reply that tells of the ring; without one, what was read
     * and not used. */
    unsigned char *before;
    size_t before_at, before_count;
};

static _Atomic uint32_t *word(const kvasir_ring *ring, size_t at) {
    return (_Atomic uint32_t *)(void *)(ring->memory + at);
}

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* What the other side says may be impossible. */
static ssize_t distance(const kvasir_ring *ring, uint32_t ahead, uint32_t behind) {
    uint32_t between = ahead - behind;
    if (between > ring->size) {
        errno = EPROTO;
        return -1;
    }
    return (ssize_t)between;
}

static ssize_t readable(const kvasir_ring *ring) {
    uint32_t tail = atomic_load_explicit(word(ring, REPLIES_TAIL), memory_order_acquire);
    return distance(ring, tail, ring->head);
}

static ssize_t room(const kvasir_ring *ring) {
    uint32_t head = atomic_load_explicit(word(ring, REQUESTS_HEAD), memory_order_acquire);
    ssize_t used = distance(ring, ring->tail, head);
    return used < 0 ? used : (ssize_t)ring->size - used;
}

static ssize_t there_is(const kvasir_ring *ring, uint32_t reason) {
    return reason == FOR_DATA ? readable(ring) : room(ring);
}

static int ring_for(kvasir_ring *ring, uint32_t reason) {
    atomic_thread_fence(memory_order_seq_cst);
    _Atomic uint32_t *waits = word(ring, SERVER_WAITS);
    if (!(atomic_load_explicit(waits, memory_order_relaxed) & reason))
        return 0;
    atomic_store_explicit(waits, 0, memory_order_relaxed);
    uint64_t one = 1;
    return write(ring->bell, &one, sizeof one) == sizeof one ? 0 : -1;
}

/* 1: it is there; 0: the server has gone; -1: an error, or too late. */
static int wait_for(kvasir_ring *ring, uint32_t reason) {
    if (ring->spin > 0) {
        uint64_t end = now_us() + ring->spin;
        do {
            for (int look = 0; look < 16; look++) {
                relax();
                if (there_is(ring, reason) != 0)
                    return 1;
            }
        } while (now_us() < end);
    }
    _Atomic uint32_t *waits = word(ring, CLIENT_WAITS);
    atomic_store_explicit(waits, reason, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    int result = 1;
    if (there_is(ring, reason) == 0) {
        struct pollfd heard = {.fd = ring->heard, .events = POLLIN};
        int found = 1;
        if (ring->timeout >= 0)
            while ((found = poll(&heard, 1, ring->timeout)) < 0 && errno == EINTR) {}
        if (found == 0)
            errno = EAGAIN;
        if (found <= 0) {
            result = -1;
        } else {
            char bells[256];
            ssize_t count;
            while ((count = read(ring->heard, bells, sizeof bells)) < 0 && errno == EINTR) {}
            result = count < 0 ? -1 : count > 0;
        }
    }
    atomic_store_explicit(waits, 0, memory_order_relaxed);
    return result;
}

static ssize_t wait_readable(kvasir_ring *ring) {
    for (int found = 1;;) {
        ssize_t count = readable(ring);
        if (count != 0 || found == 0)
            return count;
        found = wait_for(ring, FOR_DATA);
        if (found < 0)
            return -1;
    }
}

static int send_all(int socket, const void *bytes, size_t count) {
    const char *at = bytes;
    while (count > 0) {
        ssize_t sent = send(socket, at, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return -1;
        at += sent;
        count -= (size_t)sent;
    }
    return 0;
}

int kvasir_ring_write(kvasir_ring *ring, const void *bytes, size_t count) {
    if (ring->reason)
        return send_all(ring->socket, bytes, count);
    const unsigned char *from = bytes;
    while (count > 0) {
        ssize_t space = room(ring);
        if (space < 0)
            return -1;
        if (space == 0) {
            int found = wait_for(ring, FOR_ROOM);
            if (found == 0)
                errno = EPIPE;
            if (found <= 0)
                return -1;
            continue;
        }
        size_t part = (size_t)space < count ? (size_t)space : count;
        size_t place = ring->tail & (ring->size - 1);
        size_t first = part < ring->size - place ? part : ring->size - place;
        memcpy(ring->memory + HEADER + place, from, first);
        memcpy(ring->memory + HEADER, from + first, part - first);
        ring->tail += (uint32_t)part;
        atomic_store_explicit(word(ring, REQUESTS_TAIL), ring->tail, memory_order_release);
        if (ring_for(ring, FOR_DATA) < 0)
            return -1;
        from += part;
        count -= part;
    }
    return 0;
}

/* Without a ring: at least one byte in `before`. */
static ssize_t fill(kvasir_ring *ring) {
    if (ring->before_count > 0)
        return 1;
    if (!ring->before && !(ring->before = malloc(REPLY_MAX)))
        return -1;
    struct pollfd there = {.fd = ring->socket, .events = POLLIN};
    int found = 1;
    if (ring->timeout >= 0)
        while ((found = poll(&there, 1, ring->timeout)) < 0 && errno == EINTR) {}
    if (found == 0)
        errno = EAGAIN;
    if (found <= 0)
        return -1;
    ssize_t count;
    while ((count = recv(ring->socket, ring->before, REPLY_MAX, 0)) < 0 && errno == EINTR) {}
    ring->before_at = 0;
    ring->before_count = count > 0 ? (size_t)count : 0;
    return count;
}

ssize_t kvasir_ring_peek(kvasir_ring *ring, const void **bytes) {
    if (ring->reason) {
        ssize_t count = fill(ring);
        if (count <= 0)
            return count;
    }
    if (ring->before_count > 0) {
        *bytes = ring->before + ring->before_at;
        return (ssize_t)ring->before_count;
    }
    ssize_t count = wait_readable(ring);
    if (count <= 0)
        return count;
    size_t place = ring->head & (ring->size - 1);
    size_t first = (size_t)count < ring->size - place ? (size_t)count : ring->size - place;
    *bytes = ring->memory + HEADER + ring->size + place;
    return (ssize_t)first;
}

void kvasir_ring_use(kvasir_ring *ring, size_t count) {
    if (ring->before_count > 0) {
        ring->before_at += count;
        ring->before_count -= count;
        return;
    }
    ring->head += (uint32_t)count;
    atomic_store_explicit(word(ring, REPLIES_HEAD), ring->head, memory_order_release);
    ring_for(ring, FOR_ROOM);
}

ssize_t kvasir_ring_read(kvasir_ring *ring, void *bytes, size_t count) {
    size_t done = 0;
    if (count == 0)
        return 0;
    do {
        const void *from;
        ssize_t there = kvasir_ring_peek(ring, &from);
        if (there <= 0)
            return there;
        size_t part = (size_t)there < count - done ? (size_t)there : count - done;
        memcpy((char *)bytes + done, from, part);
        kvasir_ring_use(ring, part);
        done += part;
        /* The other part of what wraps around. */
    } while (!ring->reason && done < count && readable(ring) > 0);
    return (ssize_t)done;
}

void kvasir_ring_set_spin(kvasir_ring *ring, unsigned microseconds) {
    ring->spin = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? microseconds : 0;
}

void kvasir_ring_set_timeout(kvasir_ring *ring, int milliseconds) {
    ring->timeout = milliseconds;
}

const char *kvasir_ring_reason(const kvasir_ring *ring) {
    return ring->reason;
}

void kvasir_ring_close(kvasir_ring *ring) {
    if (!ring)
        return;
    if (ring->memory)
        munmap(ring->memory, HEADER + 2 * (size_t)ring->size);
    /* The socket last: by its end the server looks whether anybody hears. */
    int descriptors[] = {ring->bell, ring->heard, ring->socket};
    for (int index = 0; index < 3; index++)
        if (descriptors[index] >= 0)
            close(descriptors[index]);
    free(ring->reason);
    free(ring->before);
    free(ring);
}

/* Maps what came with the reply, if it is a ring. */
static int map(kvasir_ring *ring, int memory) {
    unsigned char head[12];
    struct stat status;
    if (pread(memory, head, sizeof head, 0) != sizeof head || fstat(memory, &status) < 0)
        return -1;
    uint32_t size = (uint32_t)head[AT_SIZE] | (uint32_t)head[AT_SIZE + 1] << 8
        | (uint32_t)head[AT_SIZE + 2] << 16 | (uint32_t)head[AT_SIZE + 3] << 24;
    size_t length = HEADER + 2 * (size_t)size;
    int seals = fcntl(memory, F_GET_SEALS);
    errno = EPROTO;
    if (memcmp(head, "KVRING01", 8) != 0 || size < 4096 || (size & (size - 1)) != 0
        || (size_t)status.st_size != length || seals < 0 || !(seals & F_SEAL_SHRINK))
        return -1;
    void *start = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (start == MAP_FAILED)
        return -1;
    ring->memory = start;
    ring->size = size;
    return 0;
}

/* What came with an answer. */
struct came {
    int descriptors[3];
    int count;
};

static void close_all(struct came *came) {
    while (came->count > 0)
        close(came->descriptors[--came->count]);
}

/* Keeps the descriptors of a message, and closes those that are too many. */
static void keep(struct came *came, struct msghdr *message) {
    for (struct cmsghdr *with = CMSG_FIRSTHDR(message); with; with = CMSG_NXTHDR(message, with)) {
        if (with->cmsg_level != SOL_SOCKET || with->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (with->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t index = 0; index < count; index++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(with) + index * sizeof(int), sizeof descriptor);
            if (came->count < 3)
                came->descriptors[came->count++] = descriptor;
            else
                close(descriptor);
        }
    }
}

/* Reads from the socket up to a line's end; with it come descriptors, or none. */
static char *read_answer(int socket, size_t *count, struct came *came) {
    char *answer = malloc(REPLY_MAX + 1);
    *count = 0;
    while (answer && !memchr(answer, '\n', *count)) {
        union {
            struct cmsghdr header;
            char space[CMSG_SPACE(3 * sizeof(int))];
        } control;
        struct iovec part = {.iov_base = answer + *count, .iov_len = REPLY_MAX - *count};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
        };
        ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            int error = got == 0 ? ECONNRESET : errno;
            close_all(came);
            free(answer);
            errno = error;
            return NULL;
        }
        keep(came, &message);
        *count += (size_t)got;
    }
    return answer;
}

static kvasir_ring *fail(kvasir_ring *ring) {
    int error = errno;
    kvasir_ring_close(ring);
    errno = error;
    return NULL;
}

kvasir_ring *kvasir_ring_open(int socket, uint32_t ring_bytes, int flags) {
    kvasir_ring *ring = calloc(1, sizeof *ring);
    if (!ring) {
        close(socket);
        return NULL;
    }
    ring->socket = socket;
    ring->bell = ring->heard = -1;
    ring->timeout = -1;
    kvasir_ring_set_spin(ring, 20);
    char request[64];
    if (ring_bytes > 0)
        snprintf(request, sizeof request, "CLIENT RING SIZE %u\r\n", ring_bytes);
    else
        strcpy(request, "CLIENT RING\r\n");
    struct came came = {.count = 0};
    size_t count;
    if (send_all(socket, request, strlen(request)) < 0)
        return fail(ring);
    char *answer = read_answer(socket, &count, &came);
    if (!answer)
        return fail(ring);
    size_t line = (size_t)((char *)memchr(answer, '\n', count) - answer) + 1;
    int result = -1;
    errno = EPROTO;
    if (answer[0] == ':' && came.count == 3) {
        ring->heard = came.descriptors[--came.count];
        ring->bell = came.descriptors[--came.count];
        result = map(ring, came.descriptors[0]);
        ring->before_count = count - line;
        if (result == 0 && ring->before_count > 0) {
            ring->before = malloc(ring->before_count);
            result = ring->before ? 0 : -1;
            if (ring->before)
                memcpy(ring->before, answer + line, ring->before_count);
        }
    } else if (answer[0] == '-') {
        answer[line - 2] = 0;
        ring->reason = strdup(answer + 1);
        result = ring->reason ? 0 : -1;
        if (result == 0 && !(flags & KVASIR_RING_QUIET))
            fprintf(stderr, "kvasir_ring: no ring, going on over the socket: %s\n", ring->reason);
    }
    int error = errno;
    close_all(&came);
    free(answer);
    errno = error;
    return result == 0 ? ring : fail(ring);
}

kvasir_ring *kvasir_ring_connect(const char *path, const char *auth, int flags) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    strcpy(address.sun_path, path);
    int socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_fd < 0)
        return NULL;
    int is_refused = 0;
    if (connect(socket_fd, (struct sockaddr *)&address, sizeof address) < 0)
        goto failed;
    if (auth) {
        struct came none = {.count = 0};
        size_t count;
        if (send_all(socket_fd, auth, strlen(auth)) < 0)
            goto failed;
        char *answer = read_answer(socket_fd, &count, &none);
        if (!answer)
            goto failed;
        close_all(&none);
        is_refused = answer[0] == '-';
        free(answer);
        if (is_refused) {
            errno = EACCES;
            goto failed;
        }
    }
    return kvasir_ring_open(socket_fd, 0, flags);
failed:;
    int error = errno;
    close(socket_fd);
    errno = error;
    return NULL;
}
