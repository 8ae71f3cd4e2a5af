"""A ring: memory that this process shares with a Kvasir of the same machine.

`RingSocket` is used as a socket is. The bytes of the memory, and why no bell is missed, are in
docs/ring.md of Kvasir; the names of the words are those of that page.
"""

import errno
import fcntl
import mmap
import os
import platform
import select
import socket
import struct
import threading
import time

MAGIC = b"KVRING01"
HEADER = 4096
# Indices of the words, of four bytes each.
REQUESTS_TAIL, REQUESTS_HEAD = 64 // 4, 128 // 4
REPLIES_TAIL, REPLIES_HEAD = 192 // 4, 256 // 4
SERVER_WAITS, CLIENT_WAITS = 320 // 4, 384 // 4
FOR_DATA, FOR_ROOM = 1, 2

# How often to look for something before sleeping, where somebody else may do it meanwhile.
LOOKS = 100 if (os.cpu_count() or 1) > 1 else 0

# Where stores and loads may pass each other in ways that a lock does not prevent, the other side
# is always rung, and a sleep is cut into pieces.
IS_ORDERED = platform.machine() in ("x86_64", "AMD64")
PIECE_OF_SLEEP = 0.02


class NoRing(Exception):
    """The server gives no ring; its reason."""


class RingBroken(ConnectionError):
    """The memory says what cannot be."""


def ask(sock, size=None):
    """Asks for a ring over a connected unix socket on which nothing is under way.

    Returns a RingSocket, which owns the socket from then on. Raises NoRing where the socket goes on
    as it is.
    """
    words = [b"CLIENT", b"RING"]
    if size is not None:
        words += [b"SIZE", b"%d" % size]
    request = b"*%d\r\n" % len(words)
    sock.sendall(request + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    reply, descriptors = b"", []
    try:
        while b"\r\n" not in reply:
            chunk, more, _, _ = socket.recv_fds(sock, 4096, 3, socket.MSG_CMSG_CLOEXEC)
            descriptors += more
            if not chunk:
                raise ConnectionError("the connection was closed")
            reply += chunk
        line, rest = reply.split(b"\r\n", 1)
        if line[:1] == b"-":
            raise NoRing(line[1:].decode(errors="replace"))
        if line[:1] != b":" or len(descriptors) != 3:
            raise RingBroken("an odd answer to CLIENT RING: %r" % line)
        ring = RingSocket(sock, descriptors, rest)
        # The bells are the ring's; the memory is mapped.
        del descriptors[1:]
        return ring
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def size_of_rings(memory):
    """The size of each ring in memory that came from elsewhere, if it is what it should be."""
    head = os.pread(memory, 12, 0)
    size = struct.unpack("<I", head[8:12])[0] if len(head) == 12 else 0
    is_possible = size >= 4096 and size & (size - 1) == 0
    if head[:8] != MAGIC or not is_possible or os.fstat(memory).st_size != HEADER + 2 * size:
        raise RingBroken("this is no ring's memory")
    # Who could shorten it could have us killed.
    if not fcntl.fcntl(memory, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise RingBroken("the size of the memory is not sealed")
    return size


class RingSocket:
    """What a connection receives and sends, through a ring. One thread at a time may use it.

    If it can be made, the socket and the two bells are its own; the memory's descriptor is not.
    """

    def __init__(self, sock, descriptors, before=b""):
        memory, self._bell, self._heard = descriptors
        self._socket = sock
        self._timeout = sock.gettimeout()
        # What came by the socket behind the reply that tells of the ring.
        self._before = before
        self._is_open = True
        self._barrier = threading.Lock()
        os.set_blocking(self._heard, False)
        self.size = size_of_rings(memory)
        self._memory = mmap.mmap(memory, HEADER + 2 * self.size)
        self._bytes = memoryview(self._memory)
        self._words = self._bytes[:HEADER].cast("I")
        self._tail = 0
        self._head = 0

    # What a socket has.

    def settimeout(self, timeout):
        self._timeout = timeout

    def gettimeout(self):
        return self._timeout

    def setblocking(self, blocking):
        self._timeout = None if blocking else 0.0

    def fileno(self):
        """A number, as a socket has one. Nothing is rung for who polls it: use `recv`."""
        return self._heard if self._is_open else -1

    def sendall(self, data):
        view = memoryview(data).cast("B")
        deadline = self._deadline()
        while view.nbytes:
            room = self._room()
            if room == 0:
                if not self._wait(FOR_ROOM, deadline):
                    raise BrokenPipeError("the server has closed the connection")
                continue
            count = min(room, view.nbytes)
            self._put(view[:count])
            view = view[count:]

    def send(self, data):
        self.sendall(data)
        return len(data)

    def recv(self, size, flags=0):
        if self._before:
            data, self._before = self._before[:size], self._before[size:]
            return data
        count = min(self._wait_readable(), size)
        if not count:
            return b""
        place, first = self._place(self._head, count)
        base = HEADER + self.size
        data = bytes(self._bytes[base + place : base + place + first])
        if first < count:
            data += bytes(self._bytes[base : base + count - first])
        self._took(count)
        return data

    def recv_into(self, buffer, nbytes=0, flags=0):
        view = memoryview(buffer).cast("B")
        data = self.recv(nbytes or view.nbytes)
        view[: len(data)] = data
        return len(data)

    def shutdown(self, how):
        if self._is_open:
            self._socket.shutdown(how)

    def close(self):
        if not self._is_open:
            return
        self._is_open = False
        self._words.release()
        self._bytes.release()
        self._memory.close()
        os.close(self._bell)
        os.close(self._heard)
        self._socket.close()

    def __del__(self):
        if getattr(self, "_words", None) is not None:
            self.close()

    # The ring.

    def _word(self, index):
        if not self._is_open:
            raise OSError("the connection is closed")
        return self._words[index]

    def _readable(self):
        count = (self._word(REPLIES_TAIL) - self._head) & 0xFFFFFFFF
        if count > self.size:
            raise RingBroken("the server has broken its indices")
        return count

    def _room(self):
        used = (self._tail - self._word(REQUESTS_HEAD)) & 0xFFFFFFFF
        if used > self.size:
            raise RingBroken("the server has broken its indices")
        return self.size - used

    def _place(self, index, count):
        place = index & (self.size - 1)
        return place, min(count, self.size - place)

    def _put(self, data):
        count = data.nbytes
        place, first = self._place(self._tail, count)
        self._bytes[HEADER + place : HEADER + place + first] = data[:first]
        if first < count:
            self._bytes[HEADER : HEADER + count - first] = data[first:]
        self._tail = (self._tail + count) & 0xFFFFFFFF
        self._order()
        self._words[REQUESTS_TAIL] = self._tail
        self._ring(FOR_DATA)

    def _took(self, count):
        self._head = (self._head + count) & 0xFFFFFFFF
        self._order()
        self._words[REPLIES_HEAD] = self._head
        self._ring(FOR_ROOM)

    def _order(self):
        """Has what was written before be seen before what is written after."""
        self._barrier.acquire()
        self._barrier.release()

    def _ring(self, reason):
        self._order()
        is_asleep = self._words[SERVER_WAITS] & reason
        if is_asleep or not IS_ORDERED:
            self._words[SERVER_WAITS] = 0
            os.write(self._bell, b"\1\0\0\0\0\0\0\0")

    def _wait_readable(self):
        deadline = None
        while True:
            count = self._readable()
            if count:
                return count
            if deadline is None:
                deadline = self._deadline()
            if not self._wait(FOR_DATA, deadline):
                return self._readable()

    def _is_there(self, reason):
        return self._readable() if reason == FOR_DATA else self._room()

    def _deadline(self):
        return time.monotonic() + self._timeout if self._timeout is not None else float("inf")

    def _wait(self, reason, deadline):
        """Until the server has written or read; False if it has gone."""
        if self._timeout == 0:
            return self._look()
        for _ in range(LOOKS):
            if self._is_there(reason):
                return True
        self._words[CLIENT_WAITS] = reason
        self._order()
        try:
            return bool(self._is_there(reason)) or self._sleep(deadline, reason)
        finally:
            if self._is_open:
                self._words[CLIENT_WAITS] = 0

    def _look(self):
        """As `_wait`, of one that never does: there was nothing."""
        try:
            if not os.read(self._heard, 4096):
                return False
        except BlockingIOError:
            pass
        raise BlockingIOError(errno.EAGAIN, "nothing is there")

    def _sleep(self, deadline, reason):
        poll = select.poll()
        poll.register(self._heard, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout("timed out")
            if not IS_ORDERED:
                left = min(left, PIECE_OF_SLEEP)
            if poll.poll(None if left == float("inf") else left * 1000):
                try:
                    return bool(os.read(self._heard, 4096))
                except BlockingIOError:
                    pass
            if self._is_there(reason):
                return True
