/* A limit on the memory of this process. */
#ifndef LIMIT_H
#define LIMIT_H

#include "check.h"

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

#endif
