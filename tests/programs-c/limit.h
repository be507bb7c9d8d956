/* A limit on the memory of this process. Programs that use it say `env: WHIMBREL_COSTS=off`: beside a thread that has measured, what the first thread gets no more
 * would come from that one's reserve. */
#ifndef LIMIT_H
#define LIMIT_H

#include "check.h"

#include <string.h>
#include <sys/resource.h>

/* This process may map so many more bytes. */
static void limit(long spare)
{
    static struct rlimit unlimited;
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    if (unlimited.rlim_cur == 0)
        CHECK(getrlimit(RLIMIT_AS, &unlimited) == 0);
    struct rlimit now = unlimited;
    if (spare >= 0)
        now.rlim_cur = (rlim_t)(pages * 4096 + spare);
    CHECK(setrlimit(RLIMIT_AS, &now) == 0);
}

/* A call has failed for want of memory, and its text names the call and has a word of more. */
static inline void no_memory(int code, const char *call, const char *more)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int class, length;
    CHECK(code != MPI_SUCCESS);
    OK(MPI_Error_class(code, &class));
    OK(MPI_Error_string(code, text, &length));
    if (class != MPI_ERR_NO_MEM)
        printf("%s: %s\n", call, text);
    CHECK(class == MPI_ERR_NO_MEM);
    CHECK(strstr(text, call) && strstr(text, more));
}

#endif
