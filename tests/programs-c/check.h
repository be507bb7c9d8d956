/* Checks that name their place and end the program. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(99);                                                                                      \
        }                                                                                                  \
    } while (0)

/* A call that must give MPI_SUCCESS. */
#define OK(call)                                                                                           \
    do {                                                                                                   \
        int check_code = (call);                                                                           \
        if (check_code != MPI_SUCCESS) {                                                                   \
            char check_text[MPI_MAX_ERROR_STRING];                                                         \
            int check_length;                                                                              \
            MPI_Error_string(check_code, check_text, &check_length);                                       \
            fprintf(stderr, "%s:%d: %s gave %s\n", __FILE__, __LINE__, #call, check_text);                 \
            exit(99);                                                                                      \
        }                                                                                                  \
    } while (0)

/* A call that must give an error of this class. */
#define FAILS(class, call)                                                                                 \
    do {                                                                                                   \
        int check_code = (call), check_class = -1;                                                         \
        MPI_Error_class(check_code, &check_class);                                                         \
        if (check_class != (class)) {                                                                      \
            fprintf(stderr, "%s:%d: %s gave class %d, not %s\n", __FILE__, __LINE__, #call, check_class, #class); \
            exit(99);                                                                                      \
        }                                                                                                  \
    } while (0)

#endif
