/* MPI_THREAD_MULTIPLE: threads make, use and free communicators at the same time, each on its own parent, and by tags on a common one.
 * ranks: 1 2 4
 * cflags: -pthread
 * timeout: 120
 */
#include "world.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 40 };

static MPI_Comm parents[THREADS];
static MPI_Group world;

static void sums(MPI_Comm comm, int n)
{
    int one = 1, sum = 0, later = 0;
    MPI_Request request;
    OK(MPI_Iallreduce(&one, &later, 1, MPI_INT, MPI_SUM, comm, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == n && later == n);
}

static void *work(void *argument)
{
    int number = *(int *)argument;
    char name[32];
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm copy, half, named, tagged;
        MPI_Request request;
        int half_size;
        OK(MPI_Comm_dup(parents[number], &copy));
        sums(copy, size);
        OK(MPI_Comm_split(copy, rank % 2, 0, &half));
        OK(MPI_Comm_size(half, &half_size));
        sums(half, half_size);
        OK(MPI_Comm_create_group(MPI_COMM_WORLD, world, 100 + number, &tagged));
        sums(tagged, size);
        snprintf(name, sizeof name, "thread %d", number);
        OK(MPI_Comm_create_from_group(world, name, MPI_INFO_NULL, MPI_ERRORS_RETURN, &named));
        sums(named, size);
        OK(MPI_Comm_free(&half));
        OK(MPI_Comm_idup(named, &half, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        sums(half, size);
        OK(MPI_Comm_free(&copy));
        OK(MPI_Comm_free(&half));
        OK(MPI_Comm_free(&named));
        OK(MPI_Comm_free(&tagged));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    pthread_t threads[THREADS];
    int numbers[THREADS];
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int i = 0; i < THREADS; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &parents[i]));
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        OK(MPI_Comm_free(&parents[i]));
    }
    OK(MPI_Group_free(&world));
    return end();
}
