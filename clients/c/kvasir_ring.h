/* A ring: memory that this process shares with a Kvasir of the same machine, by which a connection
 * receives and sends without system calls while both sides are awake. Linux, C11.
 *
 * What goes through it is the protocol of Redis, unchanged: any client library that can be given
 * its own way to read and write can use this. One thread at a time may use a ring.
 *
 *     kvasir_ring *ring = kvasir_ring_connect("/run/kvasir/kvasir.sock", NULL, 0);
 *
 * Functions fail with -1 and errno. Bytes and protocol: docs/ring.md of Kvasir. */
#ifndef KVASIR_RING_H
#define KVASIR_RING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvasir_ring kvasir_ring;

/* Connects to a unix socket and asks for a ring. Where the server gives none, the result speaks
 * over the socket; then kvasir_ring_reason tells why, and a line on standard error does, unless
 * flags say otherwise. `auth` is NULL, or bytes that are sent first and answered by one line, such
 * as "AUTH secret\r\n". NULL: there is no connection, or `auth` was refused (EACCES). */
kvasir_ring *kvasir_ring_connect(const char *path, const char *auth, int flags);

/* As that, of a socket that is connected and authenticated; it belongs to the result, also if that
 * is NULL. ring_bytes: the size to ask for, 0 as the server has it. */
kvasir_ring *kvasir_ring_open(int socket, uint32_t ring_bytes, int flags);

/* Says nothing on standard error. */
#define KVASIR_RING_QUIET 1

/* NULL if there is a ring; else why not. */
const char *kvasir_ring_reason(const kvasir_ring *ring);

/* For how long to look for something before sleeping; at first 20, and 0 on a machine of one core. */
void kvasir_ring_set_spin(kvasir_ring *ring, unsigned microseconds);

/* How long a read or a write waits at most, then it fails with EAGAIN; -1, as at first: for ever. */
void kvasir_ring_set_timeout(kvasir_ring *ring, int milliseconds);

/* Writes all of it, and waits for room if there is none: 0. EPIPE: the server has gone. */
int kvasir_ring_write(kvasir_ring *ring, const void *bytes, size_t count);

/* Reads what there is, at most `count` bytes, and waits if there is nothing. 0: the server has
 * closed the connection. */
ssize_t kvasir_ring_read(kvasir_ring *ring, void *bytes, size_t count);

/* A view of what there is, at least one byte, without a copy: it is valid until it is used up. The
 * server could change it; whoever trusts the server need not care. */
ssize_t kvasir_ring_peek(kvasir_ring *ring, const void **bytes);
void kvasir_ring_use(kvasir_ring *ring, size_t count);

void kvasir_ring_close(kvasir_ring *ring);

#ifdef __cplusplus
}
#endif
#endif
