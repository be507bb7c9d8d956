/* A rank whose stack overflows, and one that aborts, say so too.
 * ranks: 1
 * crash: SIGSEGV
 * status: nonzero
 * cflags: -g -O0
 * output: (?s)rank 0: signal 11 \(SIGSEGV\).* deeper at .*crash_stack.c
 */
#include "check.h"

__attribute__((noinline)) static int deeper(int depth) {
    volatile char room[4096];
    room[0] = (char)depth;
    return depth < 0 ? 0 : deeper(depth + 1) + room[0];
}

int main(int argc, char **argv) {
    OK(MPI_Init(&argc, &argv));
    int depth = deeper(0);
    OK(MPI_Finalize());
    return depth;
}
