/* The wire: each process has a Unix datagram socket in the abstract namespace, named by its number, and one connected socket for each process that it
 * sends to. Names go away with their processes, and no file is left behind. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "standin.h"

static int own = -1;
static struct {
    int socket; /* plus 1 */
    uint64_t full_since;
} others[PROCESSES_MAX];
/* Of so many packets that come one is lost, and of so many requests of connections one breaks its connection, by a sequence that begins with the process's number;
 * 0: none. */
static uint32_t loss, breaks, drawn;
/* What comes between these times is lost. */
static uint64_t silent_from_ns, silent_until_ns;

static socklen_t name(struct sockaddr_un *into, uint32_t process)
{
    *into = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(into->sun_path + 1, sizeof into->sun_path - 1, "whimbrel-standin-%u-%u", (unsigned)getuid(), process);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

uint32_t wire_begin(void)
{
    own = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    uint32_t first = 0;
    /* Numbers of processes that have just ended are not likely to be given out again. */
    if (own < 0 || getrandom(&first, sizeof first, 0) != sizeof first)
        return 0;
    for (uint32_t tried = 0; tried < PROCESSES_MAX - 1; tried++) {
        struct sockaddr_un address;
        uint32_t process = (first + tried) % (PROCESSES_MAX - 1) + 1;
        socklen_t length = name(&address, process);
        if (bind(own, (struct sockaddr *)&address, length) == 0) {
            const char *text = getenv("STANDIN_LOSS");
            loss = text ? (uint32_t)strtoul(text, NULL, 10) : 0;
            text = getenv("STANDIN_SILENT");
            unsigned from_ms = 0, until_ms = 0;
            if (text && sscanf(text, "%u,%u", &from_ms, &until_ms) == 2)
                silent_from_ns = now_ns() + from_ms * 1000000ull, silent_until_ns = now_ns() + until_ms * 1000000ull;
            text = getenv("STANDIN_BREAK");
            breaks = text ? (uint32_t)strtoul(text, NULL, 10) : 0;
            drawn = process;
            return process;
        }
    }
    return 0;
}

int wire_socket(void)
{
    return own;
}

int wire_socket_to(uint32_t process)
{
    return others[process].socket - 1;
}

uint64_t wire_full_since(uint32_t process)
{
    return others[process].full_since;
}

bool wire_unread(uint32_t process)
{
    int bytes = 0;
    return others[process].socket && ioctl(others[process].socket - 1, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

static bool reach(uint32_t process)
{
    if (others[process].socket)
        return true;
    int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;
    socklen_t length = name(&address, process);
    if (made < 0 || connect(made, (struct sockaddr *)&address, length) != 0) {
        if (made >= 0)
            close(made);
        return false;
    }
    others[process].socket = made + 1;
    return true;
}

enum left wire_send(const struct packet *packet, const void *bytes)
{
    uint32_t process = process_of(packet->to);
    if (process == 0 || process >= PROCESSES_MAX || !reach(process))
        return GONE;
    struct iovec parts[2] = {{(void *)packet, sizeof *packet}, {(void *)bytes, packet->bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (sendmsg(others[process].socket - 1, &message, MSG_NOSIGNAL) >= 0) {
        others[process].full_since = 0;
        return LEFT;
    }
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
        if (!others[process].full_since)
            others[process].full_since = now_ns();
        return FULL;
    }
    /* The process has ended; another one may take its number. */
    close(others[process].socket - 1);
    others[process].socket = 0;
    others[process].full_since = 0;
    return GONE;
}

static bool one_of(uint32_t many)
{
    drawn = drawn * 1664525u + 1013904223u;
    return many && (drawn >> 8) % many == 0;
}

bool wire_breaks(void)
{
    return one_of(breaks);
}

bool wire_receive(struct packet *packet, void *bytes)
{
    for (;;) {
        struct iovec parts[2] = {{packet, sizeof *packet}, {bytes, PACKET_BYTES_MAX}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t came = recvmsg(own, &message, 0);
        if (came < 0)
            return false;
        bool is_lost = one_of(loss) || (silent_until_ns && now_ns() >= silent_from_ns && now_ns() < silent_until_ns);
        bool is_whole = came >= (ssize_t)sizeof *packet && came == (ssize_t)sizeof *packet + (ssize_t)packet->bytes;
        if (is_whole && !is_lost)
            return true;
    }
}
