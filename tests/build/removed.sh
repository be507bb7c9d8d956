#!/bin/sh
# Programs from before MPI-3 build and run: the functions that MPI has removed draw a warning each, and do what they did. Programs
# that expect MPI_Fint and the conversions of handles in mpi.h get them from mpi_fint.h.
set -eu
# What lattice programs of the time call at their start.
cat > old.c <<'C'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#define CHECK(condition) do { if (!(condition)) { fprintf(stderr, "line %d: %s\n", __LINE__, #condition); exit(9); } } while (0)
struct message { char kind; double values[3]; int site; };
static int failures;
static void err_func(MPI_Comm *comm, int *code, ...) { (void) comm; failures += *code == MPI_ERR_RANK; }
static int copied, deleted;
static int copy_fn(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void) comm, (void) key, (void) extra;
    *(void **) out = in, *flag = 1, copied++;
    return MPI_SUCCESS;
}
static int delete_fn(MPI_Comm comm, int key, void *value, void *extra)
{
    (void) comm, (void) key, (void) value, (void) extra;
    deleted++;
    return MPI_SUCCESS;
}
int main(int argc, char **argv)
{
    struct message sent[2] = {{'a', {1, 2, 3}, 4}, {'b', {5, 6, 7}, 8}}, got[2];
    MPI_Handler_function *function = err_func;
    MPI_Errhandler handler, before;
    MPI_Aint base, places[5], extent, lb, ub;
    MPI_Datatype type, part, kinds[5] = {MPI_LB, MPI_CHAR, MPI_DOUBLE, MPI_INT, MPI_UB};
    MPI_Comm copy;
    int lengths[5] = {1, 1, 3, 1, 1}, *tag_ub, flag, key, value = 7, *found, rank, k, pair[2] = {1, 1};
    MPI_Aint apart[2] = {0, 16};
    double line[4] = {1, 2, 3, 4}, other[4] = {0, 0, 0, 0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Errhandler_get(MPI_COMM_WORLD, &before);
    CHECK(before == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_create(function, &handler);
    MPI_Errhandler_set(MPI_COMM_WORLD, handler);
    CHECK(MPI_Send(&value, 1, MPI_INT, 1000, 0, MPI_COMM_WORLD) == MPI_ERR_RANK && failures == 1);
    PMPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Errhandler_set(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CHECK(MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRHANDLER_NULL) == MPI_ERR_ERRHANDLER);

    MPI_Address(&sent[0], &base);
    MPI_Address(&sent[0].kind, &places[1]);
    MPI_Address(&sent[0].values, &places[2]);
    MPI_Address(&sent[0].site, &places[3]);
    for (k = 1; k < 4; k++) places[k] -= base;
    places[0] = 0, places[4] = sizeof(struct message);
    CHECK(places[3] == offsetof(struct message, site));
    MPI_Type_struct(5, lengths, places, kinds, &type);
    MPI_Type_commit(&type);
    MPI_Type_extent(type, &extent), MPI_Type_lb(type, &lb), MPI_Type_ub(type, &ub);
    CHECK(extent == sizeof(struct message) && lb == 0 && ub == sizeof(struct message));
    memset(got, 0, sizeof got);
    MPI_Sendrecv(sent, 2, type, 0, 1, got, 2, type, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    CHECK(got[1].kind == 'b' && got[1].values[2] == 7 && got[1].site == 8);
    MPI_Type_free(&type);
    /* Bounds outside of the data: lb below, ub above. */
    places[0] = -8, places[4] = 64;
    MPI_Type_struct(5, lengths, places, kinds, &type);
    MPI_Type_extent(type, &extent), MPI_Type_lb(type, &lb), MPI_Type_ub(type, &ub);
    CHECK(extent == 72 && lb == -8 && ub == 64);
    MPI_Type_free(&type);

    MPI_Type_hvector(2, 1, 16, MPI_DOUBLE, &type);
    MPI_Type_hindexed(2, pair, apart, MPI_DOUBLE, &part);
    MPI_Type_commit(&type), MPI_Type_commit(&part);
    MPI_Sendrecv(line, 1, type, 0, 2, other, 1, part, 0, 2, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    CHECK(other[0] == 1 && other[1] == 0 && other[2] == 3 && other[3] == 0);
    MPI_Type_free(&type), MPI_Type_free(&part);
    CHECK(MPI_Type_struct(1, NULL, places, kinds, &type) == MPI_ERR_ARG);

    MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &flag);
    CHECK(flag && *tag_ub >= 32767);
    MPI_Keyval_create(copy_fn, delete_fn, &key, NULL);
    MPI_Attr_put(MPI_COMM_SELF, key, &value);
    MPI_Comm_dup(MPI_COMM_SELF, &copy);
    MPI_Attr_get(copy, key, &found, &flag);
    CHECK(flag && found == &value && copied == 1);
    MPI_Attr_delete(copy, key), MPI_Comm_free(&copy), MPI_Attr_delete(MPI_COMM_SELF, key), MPI_Keyval_free(&key);
    CHECK(deleted == 2);
    MPI_Keyval_create(MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, &key, NULL), MPI_Keyval_free(&key);
    MPI_Keyval_create(MPI_DUP_FN, MPI_NULL_DELETE_FN, &key, NULL), MPI_Keyval_free(&key);
    switch (MPI_COMBINER_HVECTOR) { case MPI_COMBINER_HVECTOR_INTEGER: case MPI_COMBINER_HINDEXED_INTEGER: case MPI_COMBINER_STRUCT_INTEGER: return 9; }
    MPI_Finalize();
    return 0;
}
C
mpicc -O1 -Wall -Wextra old.c -o old 2> warnings || { cat warnings; exit 1; }
for name in Address Errhandler_create Errhandler_get Errhandler_set Type_extent Type_hindexed Type_hvector Type_lb Type_struct Type_ub; do
    grep -q "MPI_$name.*deprecated.*removed from MPI" warnings || { echo "MPI_$name draws no warning"; cat warnings; exit 1; }
done
mpiexec -n 2 ./old
for compiler in 'mpicc -std=c89 -pedantic' 'mpicxx -x c++ -std=c++98'; do $compiler -w -c old.c -o old.o; done
if mpicc -Werror=implicit-function-declaration -DMPI_OMIT_REMOVED -c old.c 2> /dev/null; then echo "MPI_OMIT_REMOVED leaves nothing out"; exit 1; fi

cat > fint.c <<'C'
#include <mpi.h>
static MPI_Fint passed;
static void fortran_routine(MPI_Fint *comm) { passed = *comm; }
int main(int argc, char **argv)
{
    MPI_Status status, back;
    MPI_Fint comm, kept[MPI_F_STATUS_SIZE];
    MPI_Datatype type;
    MPI_Init(&argc, &argv);
    comm = MPI_Comm_c2f(MPI_COMM_WORLD);
    fortran_routine(&comm);
    MPI_Type_contiguous(3, MPI_INT, &type);
    if (MPI_Comm_f2c(passed) != MPI_COMM_WORLD || MPI_Type_f2c(MPI_Type_c2f(type)) != type) return 1;
    if (MPI_Op_f2c(MPI_Op_c2f(MPI_SUM)) != MPI_SUM || MPI_Request_f2c(MPI_Request_c2f(MPI_REQUEST_NULL)) != MPI_REQUEST_NULL) return 2;
    if (MPI_Group_f2c(MPI_Group_c2f(MPI_GROUP_EMPTY)) != MPI_GROUP_EMPTY || MPI_Info_f2c(MPI_Info_c2f(MPI_INFO_NULL)) != MPI_INFO_NULL) return 3;
    MPI_Recv(NULL, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    MPI_Status_c2f(&status, kept);
    if (kept[MPI_F_SOURCE] != MPI_PROC_NULL || MPI_Status_f2c(kept, &back) || back.MPI_SOURCE != MPI_PROC_NULL) return 4;
    MPI_Type_free(&type);
    return MPI_Finalize();
}
C
mpicc -std=c89 -pedantic -Wall -Wextra -Werror -include mpi_fint.h fint.c -o fint
mpiexec -n 1 ./fint
mpicxx -x c++ -Wall -Wextra -Werror -include mpi_fint.h -c fint.c -o fint.o
