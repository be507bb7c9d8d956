/* What the machine allows for bulk data between two hosts, without MPI: `network_limits receive|send RECEIVER_IP HOW TOTAL_BYTES MS`.
 * Data goes again and again from a buffer of TOTAL_BYTES to one as long, by HOW:
 *
 * - `datagrams`: UDP datagrams of 1472 bytes, cut and joined by the kernel, from and into one hot piece of memory, credited every 256 KiB;
 * - `placed`: each is put together behind a head of 64 bytes from the buffer, and copied to its place there;
 * - `read`: all bytes are also read once on each side, which is the least that an authenticator does;
 * - `stream`: TCP straight from buffer to buffer, 256 KiB a call;
 * - `stream-read`: the same, and all bytes read once on each side.
 *
 * The sender prints the bytes that the receiver has said it has, per microsecond, as JSON.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { HEAD = 64, DATAGRAM = 1472, PAYLOAD = DATAGRAM - HEAD, JOINED = 44, PIECE = 65536, CALL = 256 << 10, IN_FLIGHT = 1 << 20, PORT = 7900 };

static volatile uint64_t sink;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * t.tv_sec + 1e-3 * t.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* Eight sums, so that the compiler takes several words at a time. */
static void read_once(const char *bytes, size_t count)
{
    uint64_t sums[8] = {0}, words[8];
    for (; count >= sizeof words; bytes += sizeof words, count -= sizeof words) {
        memcpy(words, bytes, sizeof words);
        for (int i = 0; i < 8; i++)
            sums[i] += words[i];
    }
    for (int i = 0; i < 8; i++)
        sink += sums[i];
}

static void report(const char *how, size_t total, uint64_t bytes, double us)
{
    printf("{\"bench\": \"limits\", \"how\": \"%s\", \"bytes\": %zu, \"mb_s\": %.1f}\n", how, total, bytes / us);
}

static int listening(struct sockaddr_in *at)
{
    int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(s, (void *)at, sizeof *at) || listen(s, 1))
        fail("listen");
    int accepted = accept(s, NULL, NULL);
    close(s);
    return accepted;
}

static int connected(struct sockaddr_in *at)
{
    for (int tries = 0; tries < 500; tries++) {
        int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
        if (connect(s, (void *)at, sizeof *at) == 0) {
            setsockopt(s, SOL_TCP, TCP_NODELAY, &on, sizeof on);
            return s;
        }
        close(s);
        usleep(10000);
    }
    fail("connect");
    return -1;
}

static int datagram_socket(struct sockaddr_in *own, struct sockaddr_in *other, int sends)
{
    int s = socket(AF_INET, SOCK_DGRAM, 0), bytes = 8 << 20, on = 1, datagram = DATAGRAM;
    setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    setsockopt(s, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
    if (bind(s, (void *)own, sizeof *own) || connect(s, (void *)other, sizeof *other))
        fail("UDP socket");
    if (setsockopt(s, IPPROTO_UDP, sends ? UDP_SEGMENT : UDP_GRO, sends ? &datagram : &on, sizeof on))
        fail("UDP_SEGMENT or UDP_GRO");
    return s;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return fprintf(stderr, "usage: network_limits receive|send RECEIVER_IP HOW TOTAL_BYTES MS\n"), 2;
    int sends = strcmp(argv[1], "send") == 0;
    const char *how = argv[3];
    size_t total = strtoul(argv[4], NULL, 10), at = 0;
    double budget_us = 1e3 * atof(argv[5]);
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(sends, &core);
    sched_setaffinity(0, sizeof core, &core);
    int streams = strncmp(how, "stream", 6) == 0, reads = strstr(how, "read") != NULL, places = strcmp(how, "datagrams") != 0;
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (inet_pton(AF_INET, argv[2], &there.sin_addr) != 1)
        return fprintf(stderr, "%s is no address\n", argv[2]), 2;
    char *buffer = aligned_alloc(4096, total), *piece = aligned_alloc(4096, PIECE);
    memset(buffer, 1, total);
    memset(piece, 1, PIECE);

    /* The stream tells the two where the other's datagrams come from, and when all is over. */
    int stream = sends ? connected(&there) : listening(&there);
    struct sockaddr_in own = {0}, other = {0};
    socklen_t length = sizeof own;
    getsockname(stream, (void *)&own, &length);
    length = sizeof other;
    getpeername(stream, (void *)&other, &length);
    own.sin_port = htons(PORT + 1);
    other.sin_port = htons(PORT + 1);
    int s = streams ? stream : datagram_socket(&own, &other, sends);
    char ready = 1;
    uint64_t bytes = 0, credited = 0;
    double start = now_us();

    if (sends && streams) {
        while (now_us() - start < budget_us) {
            size_t count = total - at < CALL ? total - at : CALL;
            if (reads)
                read_once(buffer + at, count);
            for (size_t sent = 0; sent < count;) {
                ssize_t r = send(s, buffer + at + sent, count - sent, 0);
                if (r <= 0)
                    fail("send");
                sent += r;
            }
            bytes += count;
            at = (at + count) % total;
        }
        report(how, total, bytes, now_us() - start);
    } else if (streams) {
        for (;;) {
            size_t count = total - at < CALL ? total - at : CALL, came = 0;
            while (came < count) {
                ssize_t r = recv(s, buffer + at + came, count - came, MSG_DONTWAIT);
                if (r == 0)
                    return 0;
                if (r > 0 && reads)
                    read_once(buffer + at + came, r);
                came += r > 0 ? r : 0;
            }
            at = (at + count) % total;
        }
    } else if (sends) {
        if (recv(stream, &ready, 1, 0) != 1)
            fail("the receiver has ended");
        double heard = start = now_us();
        while (now_us() - start < budget_us) {
            for (uint64_t said; recv(s, &said, sizeof said, MSG_DONTWAIT) == sizeof said; heard = now_us())
                credited = said;
            if (bytes - credited >= IN_FLIGHT) {
                /* What was lost is not sent again: it is taken as credited. */
                if (now_us() - heard > 10000)
                    bytes = credited;
                continue;
            }
            size_t used = 0;
            for (int i = 0; i < JOINED; i++, used += DATAGRAM) {
                if (places) {
                    if (at + PAYLOAD > total)
                        at = 0;
                    if (reads)
                        read_once(buffer + at, PAYLOAD);
                    memcpy(piece + used, &bytes, sizeof bytes);
                    memcpy(piece + used + HEAD, buffer + at, PAYLOAD);
                    at += PAYLOAD;
                }
            }
            if (send(s, piece, used, 0) < 0 && errno != EAGAIN && errno != ENOBUFS)
                fail("send");
            bytes += JOINED * PAYLOAD;
        }
        report(how, total, credited, now_us() - start);
    } else {
        uint64_t told = 0;
        if (send(stream, &ready, 1, 0) != 1)
            fail("the sender has ended");
        for (unsigned empty = 0;;) {
            ssize_t came = recv(s, piece, PIECE, MSG_DONTWAIT);
            if (came < 0) {
                if (++empty % 1024 == 0 && recv(stream, &ready, 1, MSG_DONTWAIT) == 0)
                    return 0;
                continue;
            }
            for (ssize_t from = 0; from + DATAGRAM <= came; from += DATAGRAM) {
                if (reads)
                    read_once(piece + from + HEAD, PAYLOAD);
                if (places) {
                    if (at + PAYLOAD > total)
                        at = 0;
                    memcpy(buffer + at, piece + from + HEAD, PAYLOAD);
                    at += PAYLOAD;
                }
                bytes += PAYLOAD;
            }
            if (bytes - told >= IN_FLIGHT / 4) {
                told = bytes;
                send(s, &told, sizeof told, 0);
            }
        }
    }
    return 0;
}
