/* Events are as many as the counters say: sends without credit, sleeps, messages before their receive.
 * ranks: 2
 * env: WHIMBREL_UNEXPECTED_MAX=4096
 */
#include "world.h"

enum { KINDS = 4, MANY = 300, BYTES = 1000 };

static const char *const events[KINDS] = {"send_held_back", "send_held_to_header", "slept", "message_unexpected"};
static const char *const counters[KINDS] = {"sends_held_back", "sends_held_to_header", "sleeps", "unexpected_messages"};

struct told {
    unsigned long long times;
    MPI_Count total;
};

static void tell(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety level, void *data)
{
    struct told *told = data;
    struct { int peer, tag; MPI_Count bytes; } message;
    MPI_Count duration_ns;
    (void)registration;
    (void)level;
    if (told->total >= 0) {
        OK(MPI_T_event_copy(instance, &message));
        CHECK(message.peer == 1 - rank && message.tag >= 0 && message.tag <= MANY && message.bytes >= 0 && message.bytes <= 2 * BYTES);
        told->total += message.bytes;
    } else {
        OK(MPI_T_event_read(instance, 0, &duration_ns));
        CHECK(duration_ns >= 0);
    }
    told->times++;
}

int main(int argc, char **argv)
{
    int provided, index, count;
    struct told told[KINDS] = {{0, 0}, {0, 0}, {0, -1}, {0, 0}};
    MPI_T_event_registration registrations[KINDS];
    MPI_T_pvar_handle handles[KINDS];
    MPI_T_pvar_session session;
    begin(&argc, &argv);
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int k = 0; k < KINDS; k++) {
        OK(MPI_T_pvar_get_index(counters[k], MPI_T_PVAR_CLASS_COUNTER, &index));
        OK(MPI_T_pvar_handle_alloc(session, index, NULL, &handles[k], &count));
        OK(MPI_T_event_get_index(events[k], &index));
        OK(MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &registrations[k]));
        OK(MPI_T_event_register_callback(registrations[k], MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, &told[k], tell));
    }
    OK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));

    static char data[MANY][2 * BYTES];
    MPI_Request requests[MANY];
    if (rank == 0) {
        for (int i = 0; i < MANY; i++)
            OK(MPI_Isend(data[i], BYTES + i, MPI_BYTE, 1, i, MPI_COMM_WORLD, &requests[i]));
        OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
        OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else {
        nap_ms(50);
        for (int i = MANY - 1; i >= 0; i--)
            OK(MPI_Recv(data[i], 2 * BYTES, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        nap_ms(50);
        OK(MPI_Send(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD));
    }
    OK(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES));
    for (int k = 0; k < KINDS; k++) {
        unsigned long long counted;
        OK(MPI_T_pvar_read(session, handles[k], &counted));
        if (counted != told[k].times)
            fprintf(stderr, "rank %d: %s: counted %llu, told %llu\n", rank, events[k], counted, told[k].times);
        CHECK(counted == told[k].times);
    }
    if (rank == 0)
        CHECK(told[1].times > 0 && told[1].total >= BYTES && told[2].times > 0);
    else
        CHECK(told[3].times > 0);
    OK(MPI_T_finalize());
    return end();
}
