/* Loaded before all libraries (LD_PRELOAD): the C library tells of as many processors as WHIMBREL_TEST_PROCESSORS says, so that more ranks than the machine
 * has processors run as on a machine where each has one. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set)
{
    const char *text = getenv("WHIMBREL_TEST_PROCESSORS");
    int processors = text ? atoi(text) : 0;
    memset(set, 0, bytes);
    if (processors < 1)
        return syscall(SYS_sched_getaffinity, process, bytes, set) < 0 ? -1 : 0;
    for (int i = 0; i < processors; i++)
        CPU_SET_S((size_t)i, bytes, set);
    return 0;
}
