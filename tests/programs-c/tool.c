/* The tool information interface: everything that can be listed, parameters before and after initialization, counters, sessions.
 * ranks: 1 2 4
 */
#include "world.h"

/* A code of the interface is its own class, and no error handler is called. */
#define GIVES(code, call)                                                                                  \
    do {                                                                                                   \
        int check_code = (call);                                                                           \
        if (check_code != (code)) {                                                                        \
            fprintf(stderr, "%s:%d: %s gave %d, not %s\n", __FILE__, __LINE__, #call, check_code, #code);  \
            exit(99);                                                                                      \
        }                                                                                                  \
    } while (0)

enum { TEXT = 1000 };

static void texts(void)
{
    char name[TEXT], cut[5];
    int length = TEXT, need = 0, short_length = sizeof(cut);
    OK(MPI_T_cvar_get_info(0, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK((int)strlen(name) + 1 == length);
    OK(MPI_T_cvar_get_info(0, NULL, &need, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(need == length);
    need = 7;
    OK(MPI_T_cvar_get_info(0, NULL, &need, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(need == length);
    OK(MPI_T_cvar_get_info(0, cut, &short_length, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(short_length == length && strlen(cut) == 4 && strncmp(cut, name, 4) == 0);
    memset(cut, 'x', sizeof(cut));
    OK(MPI_T_cvar_get_info(0, cut, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(cut[0] == 'x');
    need = 0;
    OK(MPI_T_cvar_get_info(0, cut, &need, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(cut[0] == 'x' && need == length);
}

static void enumeration(MPI_T_enum items)
{
    int number, value, length = TEXT;
    char name[TEXT];
    OK(MPI_T_enum_get_info(items, &number, name, &length));
    CHECK(number > 0 && length == (int)strlen(name) + 1 && length > 1);
    for (int i = 0; i < number; i++) {
        length = TEXT;
        OK(MPI_T_enum_get_item(items, i, &value, name, &length));
        CHECK(length > 1);
    }
    GIVES(MPI_T_ERR_INVALID_INDEX, MPI_T_enum_get_item(items, number, &value, NULL, NULL));
    GIVES(MPI_T_ERR_INVALID_INDEX, MPI_T_enum_get_item(items, -1, &value, NULL, NULL));
}

static void control_variables(void)
{
    int number, found;
    OK(MPI_T_cvar_get_num(&number));
    CHECK(number >= 9);
    for (int i = 0; i < number; i++) {
        char name[TEXT], text[TEXT];
        int name_length = TEXT, text_length = TEXT, verbosity, bind, scope, count;
        MPI_Datatype datatype;
        MPI_T_enum items;
        MPI_T_cvar_handle handle;
        OK(MPI_T_cvar_get_info(i, name, &name_length, &verbosity, &datatype, &items, text, &text_length, &bind, &scope));
        CHECK(bind == MPI_T_BIND_NO_OBJECT && text_length > 1 && strncmp(name, "WHIMBREL_", 9) == 0);
        CHECK(datatype == MPI_INT || datatype == MPI_UNSIGNED_LONG_LONG || datatype == MPI_CHAR);
        CHECK((datatype == MPI_INT) == (items != MPI_T_ENUM_NULL));
        if (items != MPI_T_ENUM_NULL)
            enumeration(items);
        OK(MPI_T_cvar_get_index(name, &found));
        CHECK(found == i);
        OK(MPI_T_cvar_handle_alloc(i, NULL, &handle, &count));
        CHECK(count == (datatype == MPI_CHAR ? 1024 : 1));
        union { int small; unsigned long long wide; char text[1024]; } value;
        OK(MPI_T_cvar_read(handle, &value));
        /* What only mpiexec reads cannot be written here; this process reads everything else. */
        int launchers = !strcmp(name, "WHIMBREL_ABORT_GRACE") || !strcmp(name, "WHIMBREL_FAILURE_GRACE") || !strcmp(name, "WHIMBREL_INTERRUPT_GRACE")
            || !strcmp(name, "WHIMBREL_PARTIAL_LINE_WAIT");
        CHECK(launchers == (scope == MPI_T_SCOPE_READONLY));
        if (scope == MPI_T_SCOPE_READONLY)
            GIVES(MPI_T_ERR_CVAR_SET_NEVER, MPI_T_cvar_write(handle, &value));
        else
            OK(MPI_T_cvar_write(handle, &value));
        OK(MPI_T_cvar_handle_free(&handle));
        CHECK(handle == MPI_T_CVAR_HANDLE_NULL);
        GIVES(MPI_T_ERR_INVALID_HANDLE, MPI_T_cvar_handle_free(&handle));
    }
    GIVES(MPI_T_ERR_INVALID_INDEX, MPI_T_cvar_get_info(number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    GIVES(MPI_T_ERR_INVALID_INDEX, MPI_T_cvar_get_info(-1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    GIVES(MPI_T_ERR_INVALID_NAME, MPI_T_cvar_get_index("WHIMBREL_NOTHING", &found));
    GIVES(MPI_T_ERR_INVALID_NAME, MPI_T_cvar_get_index("EAGER_MAX", &found));
    GIVES(MPI_T_ERR_INVALID, MPI_T_cvar_get_index(NULL, &found));
}

static void performance_variables(void)
{
    int number, found;
    OK(MPI_T_pvar_get_num(&number));
    MPI_T_pvar_session session;
    OK(MPI_T_pvar_session_create(&session));
    for (int i = 0; i < number; i++) {
        char name[TEXT], text[TEXT];
        int name_length = TEXT, text_length = TEXT, verbosity, class, bind, readonly, continuous, atomic, count;
        MPI_Datatype datatype;
        MPI_T_enum items;
        OK(MPI_T_pvar_get_info(i, name, &name_length, &verbosity, &class, &datatype, &items, text, &text_length, &bind, &readonly,
                               &continuous, &atomic));
        CHECK(name_length > 1 && text_length > 1 && class >= MPI_T_PVAR_CLASS_STATE && class <= MPI_T_PVAR_CLASS_GENERIC);
        CHECK((class == MPI_T_PVAR_CLASS_PERCENTAGE) == (datatype == MPI_DOUBLE));
        CHECK((class == MPI_T_PVAR_CLASS_STATE) == (items != MPI_T_ENUM_NULL));
        if (items != MPI_T_ENUM_NULL)
            enumeration(items);
        OK(MPI_T_pvar_get_index(name, class, &found));
        CHECK(found == i);
        GIVES(MPI_T_ERR_INVALID_NAME, MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_GENERIC, &found));
        if (bind != MPI_T_BIND_NO_OBJECT)
            continue;
        MPI_T_pvar_handle handle;
        OK(MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &count));
        CHECK(count >= 1 && count <= 64);
        unsigned long long values[64];
        OK(MPI_T_pvar_read(session, handle, values));
        if (readonly) {
            GIVES(MPI_T_ERR_PVAR_NO_WRITE, MPI_T_pvar_reset(session, handle));
            GIVES(MPI_T_ERR_PVAR_NO_WRITE, MPI_T_pvar_write(session, handle, values));
        } else {
            OK(MPI_T_pvar_reset(session, handle));
        }
        GIVES(continuous ? MPI_T_ERR_PVAR_NO_STARTSTOP : MPI_SUCCESS, MPI_T_pvar_start(session, handle));
        GIVES(continuous ? MPI_T_ERR_PVAR_NO_STARTSTOP : MPI_SUCCESS, MPI_T_pvar_stop(session, handle));
        GIVES(atomic ? MPI_SUCCESS : MPI_T_ERR_PVAR_NO_ATOMIC, MPI_T_pvar_readreset(session, handle, values));
    }
    OK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    OK(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES));
    OK(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES));
    unsigned long long value;
    GIVES(MPI_T_ERR_INVALID_HANDLE, MPI_T_pvar_read(session, MPI_T_PVAR_ALL_HANDLES, &value));
    GIVES(MPI_T_ERR_INVALID_INDEX, MPI_T_pvar_get_info(number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    OK(MPI_T_pvar_session_free(&session));
    CHECK(session == MPI_T_PVAR_SESSION_NULL);
    GIVES(MPI_T_ERR_INVALID_SESSION, MPI_T_pvar_session_free(&session));
}

/* Each variable and event belongs to one category, and the first category leads to all others. */
static void categories(void)
{
    int number, members[3] = {0, 0, 0}, there[3], below = 0, changed, again, found;
    OK(MPI_T_category_get_num(&number));
    OK(MPI_T_category_changed(&changed));
    for (int i = 0; i < number; i++) {
        char name[TEXT], text[TEXT];
        int name_length = TEXT, text_length = TEXT, counts[4], indices[256];
        OK(MPI_T_category_get_info(i, name, &name_length, text, &text_length, &counts[0], &counts[1], &counts[2]));
        OK(MPI_T_category_get_num_events(i, &counts[3]));
        OK(MPI_T_category_get_index(name, &found));
        CHECK(found == i);
        OK(MPI_T_category_get_cvars(i, 256, indices));
        OK(MPI_T_category_get_pvars(i, 256, indices));
        OK(MPI_T_category_get_events(i, 256, indices));
        OK(MPI_T_category_get_categories(i, 256, indices));
        for (int c = 0; c < counts[2]; c++)
            CHECK(indices[c] > i && indices[c] < number);
        if (counts[1] > 1) {
            indices[1] = -7;
            OK(MPI_T_category_get_pvars(i, 1, indices));
            CHECK(indices[1] == -7);
        }
        members[0] += counts[0];
        members[1] += counts[1];
        members[2] += counts[3];
        below += counts[2];
    }
    OK(MPI_T_cvar_get_num(&there[0]));
    OK(MPI_T_pvar_get_num(&there[1]));
    OK(MPI_T_event_get_num(&there[2]));
    CHECK(memcmp(members, there, sizeof(there)) == 0 && below == number - 1);
    OK(MPI_T_category_changed(&again));
    CHECK(again == changed);
    GIVES(MPI_T_ERR_INVALID_INDEX, MPI_T_category_get_info(number, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    GIVES(MPI_T_ERR_INVALID_NAME, MPI_T_category_get_index("nothing", &found));
}

static unsigned long long control(const char *name, const unsigned long long *set, int gives)
{
    int index, count;
    unsigned long long value;
    MPI_T_cvar_handle handle;
    OK(MPI_T_cvar_get_index(name, &index));
    OK(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count));
    if (set)
        GIVES(gives, MPI_T_cvar_write(handle, set));
    OK(MPI_T_cvar_read(handle, &value));
    OK(MPI_T_cvar_handle_free(&handle));
    return value;
}

static MPI_T_pvar_handle performance(MPI_T_pvar_session session, const char *name, int class, void *object)
{
    int index, count;
    MPI_T_pvar_handle handle;
    OK(MPI_T_pvar_get_index(name, class, &index));
    OK(MPI_T_pvar_handle_alloc(session, index, object, &handle, &count));
    return handle;
}

static unsigned long long reading(MPI_T_pvar_session session, MPI_T_pvar_handle handle)
{
    unsigned long long value;
    OK(MPI_T_pvar_read(session, handle, &value));
    return value;
}

static int phase(MPI_T_pvar_session session, MPI_T_pvar_handle handle)
{
    int value;
    OK(MPI_T_pvar_read(session, handle, &value));
    return value;
}

static void counting(MPI_T_pvar_session session)
{
    MPI_T_pvar_session other;
    OK(MPI_T_pvar_session_create(&other));
    MPI_T_pvar_handle messages = performance(session, "messages_received", MPI_T_PVAR_CLASS_COUNTER, NULL);
    MPI_T_pvar_handle bytes = performance(session, "bytes_received", MPI_T_PVAR_CLASS_AGGREGATE, NULL);
    MPI_T_pvar_handle own = performance(other, "own_messages", MPI_T_PVAR_CLASS_COUNTER, NULL);
    char data[100] = {0};
    OK(MPI_T_pvar_start(session, messages));
    for (int i = 0; i < 5; i++)
        OK(MPI_Sendrecv(data, 20, MPI_BYTE, 0, 0, data + 50, 20, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(reading(session, messages) == 5 && reading(session, bytes) == 0);
    OK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    OK(MPI_T_pvar_start(other, own));
    OK(MPI_Sendrecv(data, 20, MPI_BYTE, 0, 0, data + 50, 20, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(reading(session, messages) == 6 && reading(session, bytes) == 20);
    unsigned long long classes[9];
    OK(MPI_T_pvar_read(other, own, classes));
    for (int c = 0; c < 9; c++)
        CHECK(classes[c] == (c == 2));
    OK(MPI_T_pvar_stop(session, messages));
    OK(MPI_Sendrecv(data, 20, MPI_BYTE, 0, 0, data + 50, 20, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(reading(session, messages) == 6 && reading(session, bytes) == 40);
    unsigned long long set = 1000, before;
    OK(MPI_T_pvar_write(session, messages, &set));
    OK(MPI_T_pvar_start(session, messages));
    OK(MPI_Sendrecv(data, 20, MPI_BYTE, 0, 0, data + 50, 20, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_T_pvar_readreset(session, messages, &before));
    CHECK(before == 1001 && reading(session, messages) == 0);
    GIVES(MPI_T_ERR_INVALID_HANDLE, MPI_T_pvar_read(other, messages, &before));
    GIVES(MPI_T_ERR_INVALID_HANDLE, MPI_T_pvar_handle_free(other, &messages));
    OK(MPI_T_pvar_handle_free(session, &messages));
    CHECK(messages == MPI_T_PVAR_HANDLE_NULL);
    OK(MPI_T_pvar_session_free(&other));
    GIVES(MPI_T_ERR_INVALID_SESSION, MPI_T_pvar_read(other, own, &before));
}

/* Levels of the whole process and of one communicator. */
static void queues(MPI_T_pvar_session session)
{
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    MPI_T_pvar_handle all = performance(session, "posted_receives", MPI_T_PVAR_CLASS_LEVEL, NULL);
    MPI_T_pvar_handle most = performance(session, "posted_receives_most", MPI_T_PVAR_CLASS_HIGHWATERMARK, NULL);
    MPI_T_pvar_handle here = performance(session, "communicator_posted_receives", MPI_T_PVAR_CLASS_LEVEL, &comm);
    MPI_T_pvar_handle early = performance(session, "communicator_unexpected_queue", MPI_T_PVAR_CLASS_LEVEL, &comm);
    enum { MANY = 30 };
    MPI_Request requests[MANY];
    int in[MANY], out = 7;
    unsigned long long before = reading(session, all);
    for (int i = 0; i < MANY; i++)
        OK(MPI_Irecv(&in[i], 1, MPI_INT, 0, i, i % 3 ? MPI_COMM_SELF : comm, &requests[i]));
    CHECK(reading(session, all) == before + MANY && reading(session, here) == MANY / 3);
    CHECK(reading(session, most) >= before + MANY);
    for (int i = 0; i < MANY; i++)
        OK(MPI_Send(&out, 1, MPI_INT, 0, i, i % 3 ? MPI_COMM_SELF : comm));
    OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
    CHECK(reading(session, all) == before && reading(session, here) == 0);
    OK(MPI_Send(&out, 1, MPI_INT, 0, 1, comm));
    CHECK(reading(session, early) == 1);
    OK(MPI_Recv(&in[0], 1, MPI_INT, 0, 1, comm, MPI_STATUS_IGNORE));
    CHECK(reading(session, early) == 0);
    OK(MPI_Comm_free(&comm));
    unsigned long long value;
    GIVES(MPI_T_ERR_INVALID_HANDLE, MPI_T_pvar_read(session, here, &value));
}

/* What was set before initialization, and what is set while it lasts, decides how messages go through shared memory. */
static void protocols(MPI_T_pvar_session session)
{
    const char *fabric = getenv("WHIMBREL_FABRIC");
    if (size == 1 || (fabric && strcmp(fabric, "udp") == 0))
        return;
    enum { BYTES = 1000 };
    char data[BYTES] = {0};
    int peer = rank ^ 1;
    MPI_T_pvar_handle eager = performance(session, "eager_messages", MPI_T_PVAR_CLASS_COUNTER, NULL);
    OK(MPI_T_pvar_start(session, eager));
    for (int round = 0; round < 2; round++) {
        unsigned long long most = 4096, counts[9];
        if (round == 0)
            CHECK(control("WHIMBREL_EAGER_MAX", NULL, 0) == 500);
        else
            CHECK(control("WHIMBREL_EAGER_MAX", &most, MPI_SUCCESS) == 4096);
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_T_pvar_reset(session, eager));
        OK(MPI_Sendrecv_replace(data, BYTES, MPI_BYTE, peer, 3, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_T_pvar_read(session, eager, counts));
        CHECK(counts[3] == (unsigned long long)round);
    }
}

int main(int argc, char **argv)
{
    int provided, flag, number;
    unsigned long long value = 500;
    GIVES(MPI_T_ERR_NOT_INITIALIZED, MPI_T_cvar_get_num(&number));
    GIVES(MPI_T_ERR_NOT_INITIALIZED, MPI_T_finalize());
    GIVES(MPI_T_ERR_INVALID, MPI_T_init_thread(12345, &provided));
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    CHECK(provided == MPI_THREAD_SINGLE);
    OK(MPI_T_finalize());
    texts();
    control_variables();
    performance_variables();
    categories();
    MPI_T_pvar_session session;
    OK(MPI_T_pvar_session_create(&session));
    MPI_T_pvar_handle state = performance(session, "phase", MPI_T_PVAR_CLASS_STATE, NULL);
    CHECK(phase(session, state) == 0);
    CHECK(control("WHIMBREL_EAGER_MAX", &value, MPI_SUCCESS) == 500);
    value = 1ull << 62;
    CHECK(control("WHIMBREL_EAGER_MAX", &value, MPI_T_ERR_INVALID) == 500);
    OK(MPI_Initialized(&flag));
    CHECK(!flag);

    begin(&argc, &argv);
    CHECK(phase(session, state) == 1);
    value = 65536;
    control("WHIMBREL_RING_MEMORY", &value, MPI_T_ERR_CVAR_SET_NOT_NOW);
    control("WHIMBREL_ABORT_GRACE", &value, MPI_T_ERR_CVAR_SET_NEVER);
    categories();
    counting(session);
    queues(session);
    if (size % 2 == 0)
        protocols(session);
    MPI_T_pvar_handle share = performance(session, "waiting_share", MPI_T_PVAR_CLASS_PERCENTAGE, NULL);
    double percent = -1;
    OK(MPI_T_pvar_read(session, share, &percent));
    CHECK(percent >= 0 && percent <= 1);
    MPI_T_pvar_handle memory = performance(session, "shared_memory_bytes", MPI_T_PVAR_CLASS_SIZE, NULL);
    const char *fabric = getenv("WHIMBREL_FABRIC");
    /* Over datagrams alone nobody shares memory. */
    CHECK(size == 1 || (fabric && !strcmp(fabric, "udp")) || reading(session, memory) > 0);
    OK(MPI_Finalize());

    CHECK(phase(session, state) == 2);
    value = 100;
    control("WHIMBREL_SPIN", &value, MPI_T_ERR_CVAR_SET_NOT_NOW);
    OK(MPI_T_pvar_session_free(&session));
    OK(MPI_T_finalize());
    GIVES(MPI_T_ERR_NOT_INITIALIZED, MPI_T_cvar_get_num(&number));
    OK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    OK(MPI_T_finalize());
    return 0;
}
