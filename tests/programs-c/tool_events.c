/* Events of the tool interface: told in order with their values, dropped past the limit of the log, freed once.
 * ranks: 1 2
 */
#include "world.h"

#define GIVES(code, call) CHECK((call) == (code))

/* Empty messages that may come too early beside them: the last one, and one of the next barrier. */
enum { MANY = 6000, EMPTY_MAX = 2 };

struct seen {
    int events, freed, last_tag, instance_failed;
    MPI_Count dropped, last_time;
    MPI_T_cb_safety level;
    MPI_T_event_registration self;
    MPI_T_event_instance kept;
};

static int index_of(const char *name)
{
    int index;
    OK(MPI_T_event_get_index(name, &index));
    return index;
}

static void unexpected(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety level, void *data)
{
    struct seen *seen = data;
    struct { int source, tag; MPI_Count bytes; } copy;
    int tag, source_index, flag;
    MPI_Count bytes, time, now;
    OK(MPI_T_event_read(instance, 1, &tag));
    OK(MPI_T_event_read(instance, 2, &bytes));
    OK(MPI_T_event_copy(instance, &copy));
    CHECK(copy.tag == tag && copy.bytes == bytes);
    GIVES(MPI_T_ERR_INVALID_INDEX, MPI_T_event_read(instance, 3, &tag));
    OK(MPI_T_event_get_source(instance, &source_index));
    CHECK(source_index == 0 && registration == seen->self);
    OK(MPI_T_event_get_timestamp(instance, &time));
    OK(MPI_T_source_get_timestamp(0, &now));
    CHECK(time >= seen->last_time && time <= now);
    /* Anything may be called here. */
    OK(MPI_Iprobe(MPI_ANY_SOURCE, 777, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    seen->last_time = time;
    seen->level = level;
    seen->kept = instance;
    /* Between hosts the messages of barriers and of the last receive come early, too: they are empty. */
    if (bytes == 0)
        return;
    CHECK(bytes == 8);
    seen->last_tag = tag;
    seen->events++;
}

static void dropped(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety level, void *data)
{
    struct seen *seen = data;
    (void)level;
    CHECK(source == 0 && registration == seen->self && count > 0);
    seen->dropped += count;
}

static void freed(MPI_T_event_registration registration, MPI_T_cb_safety level, void *data)
{
    struct seen *seen = data;
    (void)level;
    CHECK(registration == seen->self);
    seen->freed++;
}

static void once(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety level, void *data)
{
    struct seen *seen = data;
    (void)instance;
    (void)level;
    seen->events++;
    OK(MPI_T_event_handle_free(registration, data, freed));
    CHECK(seen->freed == 0);
}

static void list(void)
{
    int number;
    OK(MPI_T_event_get_num(&number));
    CHECK(number >= 5);
    for (int i = 0; i < number; i++) {
        char name[100], text[500], item[100];
        int name_length = sizeof(name), text_length = sizeof(text), verbosity, elements = 8, bind, items, index, item_length = sizeof(item);
        MPI_Datatype types[8];
        MPI_Aint places[8];
        MPI_T_enum names;
        MPI_Info info;
        OK(MPI_T_event_get_info(i, name, &name_length, &verbosity, types, places, &elements, &names, &info, text, &text_length, &bind));
        CHECK(elements >= 1 && elements <= 3 && bind == MPI_T_BIND_NO_OBJECT && text_length > 1);
        for (int e = 0; e < elements; e++)
            CHECK((types[e] == MPI_INT || types[e] == MPI_COUNT) && (e == 0 ? places[e] == 0 : places[e] > places[e - 1]));
        OK(MPI_T_enum_get_info(names, &items, NULL, NULL));
        CHECK(items == elements);
        OK(MPI_T_enum_get_item(names, 0, &index, item, &item_length));
        OK(MPI_Info_free(&info));
        OK(MPI_T_event_get_index(name, &index));
        CHECK(index == i);
        elements = 0;
        OK(MPI_T_event_get_info(i, NULL, NULL, NULL, NULL, NULL, &elements, NULL, NULL, NULL, NULL, NULL));
        CHECK(elements == items);
    }
    int sources, length = 0;
    MPI_T_source_order order;
    MPI_Count ticks, most, first, second;
    OK(MPI_T_source_get_num(&sources));
    CHECK(sources == 1);
    OK(MPI_T_source_get_info(0, NULL, &length, NULL, NULL, &order, &ticks, &most, NULL));
    CHECK(length > 1 && order == MPI_T_SOURCE_ORDERED && ticks == 1000000000);
    OK(MPI_T_source_get_timestamp(0, &first));
    OK(MPI_T_source_get_timestamp(0, &second));
    CHECK(second >= first && most >= second);
    GIVES(MPI_T_ERR_INVALID_INDEX, MPI_T_source_get_timestamp(1, &first));
    GIVES(MPI_T_ERR_INVALID_INDEX, MPI_T_event_get_info(number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    GIVES(MPI_T_ERR_INVALID_NAME, MPI_T_event_get_index("nothing", &number));
}

/* The hints of a registration and of its callbacks. */
static void hints(MPI_T_event_registration registration)
{
    MPI_Info info, used;
    char value[10];
    int length = sizeof(value), flag;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "a", "b"));
    OK(MPI_T_event_handle_set_info(registration, info));
    OK(MPI_T_event_callback_set_info(registration, MPI_T_CB_REQUIRE_NONE, info));
    OK(MPI_Info_free(&info));
    OK(MPI_T_event_handle_get_info(registration, &used));
    OK(MPI_Info_get_string(used, "a", &length, value, &flag));
    CHECK(flag && strcmp(value, "b") == 0);
    OK(MPI_Info_free(&used));
    OK(MPI_T_event_callback_get_info(registration, MPI_T_CB_REQUIRE_NONE, &used));
    OK(MPI_Info_free(&used));
    GIVES(MPI_T_ERR_INVALID, MPI_T_event_callback_get_info(registration, MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, &used));
    GIVES(MPI_T_ERR_INVALID, MPI_T_event_register_callback(registration, 99, MPI_INFO_NULL, NULL, unexpected));
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Count data = 1;
    struct seen seen = {0}, second = {0};
    OK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided));
    list();
    OK(MPI_T_event_handle_alloc(index_of("message_unexpected"), NULL, MPI_INFO_NULL, &seen.self));
    OK(MPI_T_event_handle_alloc(index_of("message_unexpected"), NULL, MPI_INFO_NULL, &second.self));
    OK(MPI_T_event_register_callback(seen.self, MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL, &seen, unexpected));
    OK(MPI_T_event_set_dropped_handler(seen.self, dropped));
    begin(&argc, &argv);
    MPI_T_event_registration before = seen.self;
    /* The first collective makes what later ones need, by messages that may come early. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    seen.events = 0;

    /* One at a time, at the end of the call. */
    OK(MPI_Send(&data, 1, MPI_COUNT, 0, 11, MPI_COMM_SELF));
    CHECK(seen.events == 1 && seen.last_tag == 11 && seen.level == MPI_T_CB_REQUIRE_THREAD_SAFE);
    OK(MPI_T_event_register_callback(seen.self, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, &seen, unexpected));
    hints(seen.self);
    OK(MPI_Send(&data, 1, MPI_COUNT, 0, 12, MPI_COMM_SELF));
    CHECK(seen.events == 2 && seen.last_tag == 12 && seen.level == MPI_T_CB_REQUIRE_NONE);
    int tag;
    GIVES(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_read(seen.kept, 1, &tag));
    OK(MPI_Recv(&data, 1, MPI_COUNT, 0, 12, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_Recv(&data, 1, MPI_COUNT, 0, 11, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(seen.events == 2 && seen.dropped == 0);

    /* A registration may be freed in its own callback; its callback for that comes after. */
    OK(MPI_T_event_register_callback(second.self, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, &second, once));
    for (int i = 0; i < 2; i++)
        OK(MPI_Send(&data, 1, MPI_COUNT, 0, 13, MPI_COMM_SELF));
    CHECK(second.events == 1 && second.freed == 1 && seen.events == 4);
    for (int i = 0; i < 2; i++)
        OK(MPI_Recv(&data, 1, MPI_COUNT, 0, 13, MPI_COMM_SELF, MPI_STATUS_IGNORE));

    /* All in one call: what the log does not hold is dropped and told. The first may come during the barrier, and where the sender
     * is not given a core for a while, they come in several portions, of which the log holds more: then once more. */
    MPI_Count at_once = size == 1;
    for (int attempt = 0; !at_once && attempt < 50; attempt++) {
        memset(&seen, 0, sizeof(seen));
        seen.self = before;
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (size == 2 && rank == 0) {
            for (int i = 0; i < MANY; i++)
                OK(MPI_Send(&data, 1, MPI_COUNT, 1, i, MPI_COMM_WORLD));
            OK(MPI_Send(NULL, 0, MPI_COUNT, 1, 1 << 20, MPI_COMM_WORLD));
        } else if (size == 2) {
            nap_ms(200);
            OK(MPI_Recv(NULL, 0, MPI_COUNT, 0, 1 << 20, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(seen.events >= 4096 && seen.events + seen.dropped >= MANY && seen.events + seen.dropped <= MANY + EMPTY_MAX);
            at_once = seen.events == 4096 && seen.last_tag == 4095;
            for (int i = 0; i < MANY; i++)
                OK(MPI_Recv(&data, 1, MPI_COUNT, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        /* As long as the messages that are counted. */
        OK(MPI_Bcast(&at_once, 1, MPI_COUNT, 1, MPI_COMM_WORLD));
    }
    CHECK(at_once);

    /* Without a callback nothing is told, nor after the registration is freed. */
    int told = seen.events;
    OK(MPI_T_event_register_callback(seen.self, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, NULL, NULL));
    OK(MPI_T_event_register_callback(seen.self, MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL, NULL, NULL));
    OK(MPI_Send(&data, 1, MPI_COUNT, 0, 14, MPI_COMM_SELF));
    OK(MPI_Recv(&data, 1, MPI_COUNT, 0, 14, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(seen.events == told);
    OK(MPI_T_event_register_callback(seen.self, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, &seen, unexpected));
    OK(MPI_T_event_handle_free(seen.self, &seen, freed));
    CHECK(seen.freed == 1);
    GIVES(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_handle_free(seen.self, &seen, freed));
    OK(MPI_Send(&data, 1, MPI_COUNT, 0, 15, MPI_COMM_SELF));
    OK(MPI_Recv(&data, 1, MPI_COUNT, 0, 15, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(seen.events == told);
    OK(MPI_T_finalize());
    return end();
}
