/* Messages of derived types: `exchange`, where both ranks send and receive at once, or `oneway`, a ping-pong.
 *
 * A message is one element of a type whose data is BYTES long, rounded down to whole structures; sender and receiver use the same type.
 * The number in a pattern's name is the usual length of its blocks in bytes. Times are per exchange, or per way of a ping-pong.
 */
#include "measure.h"
#include <stddef.h>

enum { TAG = 5 };

struct pattern {
    const char *name;
    MPI_Datatype (*make)(int bytes);
};

struct state {
    char *outgoing, *incoming;
    MPI_Datatype type;
};

static MPI_Datatype vector_of(int bytes, int doubles)
{
    MPI_Datatype type;
    MPI_Type_vector(bytes / (8 * doubles), doubles, 2 * doubles, MPI_DOUBLE, &type);
    return type;
}

static MPI_Datatype vector_1(int bytes) { return vector_of(bytes, 1); }
static MPI_Datatype vector_8(int bytes) { return vector_of(bytes, 8); }
static MPI_Datatype vector_64(int bytes) { return vector_of(bytes, 64); }
static MPI_Datatype vector_1024(int bytes) { return vector_of(bytes, 1024); }

/* Blocks of `least` to 2 * `least` - 1 doubles with gaps of the same kind, in no order that a stride could tell. */
static MPI_Datatype indexed_of(int bytes, int least)
{
    int left = bytes / 8, place = 0, blocks = 0, *lengths = malloc(sizeof(int) * left), *places = malloc(sizeof(int) * left);
    unsigned seed = 12345;
    while (left > 0) {
        seed = seed * 1103515245u + 12345u;
        int length = least + (int)(seed >> 16) % least, gap = least + (int)(seed >> 8 & 0xff) % least;
        lengths[blocks] = length < left ? length : left;
        places[blocks] = place;
        left -= lengths[blocks];
        place += length + gap;
        blocks++;
    }
    MPI_Datatype type;
    MPI_Type_indexed(blocks, lengths, places, MPI_DOUBLE, &type);
    free(lengths);
    free(places);
    return type;
}

static MPI_Datatype indexed_4(int bytes) { return indexed_of(bytes, 4); }
static MPI_Datatype indexed_128(int bytes) { return indexed_of(bytes, 128); }

/* Single doubles at irregular places: what a sparse halo sends. */
static MPI_Datatype indexed_block_1(int bytes)
{
    int count = bytes / 8, place = 0, *places = malloc(sizeof(int) * count);
    unsigned seed = 54321;
    for (int i = 0; i < count; i++) {
        seed = seed * 1103515245u + 12345u;
        places[i] = place;
        place += 2 + (int)(seed >> 16) % 4;
    }
    MPI_Datatype type;
    MPI_Type_create_indexed_block(count, 1, places, MPI_DOUBLE, &type);
    free(places);
    return type;
}

struct particle {
    int id;
    double place[3], speed[3];
    char kind[6];
    float weight;
};

/* An array of structures with padding. */
static MPI_Datatype structure(int bytes)
{
    int lengths[] = {1, 3, 3, 6, 1};
    MPI_Aint places[] = {offsetof(struct particle, id), offsetof(struct particle, place), offsetof(struct particle, speed),
                         offsetof(struct particle, kind), offsetof(struct particle, weight)};
    MPI_Datatype members[] = {MPI_INT, MPI_DOUBLE, MPI_DOUBLE, MPI_CHAR, MPI_FLOAT}, one, padded, type;
    int size;
    MPI_Type_create_struct(5, lengths, places, members, &one);
    MPI_Type_create_resized(one, 0, sizeof(struct particle), &padded);
    MPI_Type_size(padded, &size);
    MPI_Type_contiguous(bytes / size, padded, &type);
    MPI_Type_free(&one);
    MPI_Type_free(&padded);
    return type;
}

/* A halo of a three-dimensional array: 4 layers of the innermost dimension, or of the middle one, of 64 x n x 64 doubles. */
static MPI_Datatype face(int bytes, int inner)
{
    int other = bytes / (8 * 64 * 4);
    int sizes[] = {64, other, 64}, parts[] = {64, other, 64}, starts[] = {0, 0, 0};
    MPI_Datatype type;
    if (inner) {
        parts[2] = 4;
        starts[2] = 2;
    } else {
        sizes[0] = parts[0] = other;
        sizes[1] = 64;
        parts[1] = 4;
        starts[1] = 2;
    }
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
    return type;
}

static MPI_Datatype face_inner(int bytes) { return face(bytes, 1); }
static MPI_Datatype face_middle(int bytes) { return face(bytes, 0); }

static const struct pattern PATTERNS[] = {
    {"vector_8", vector_1},
    {"vector_64", vector_8},
    {"vector_512", vector_64},
    {"vector_8192", vector_1024},
    {"indexed_8", indexed_block_1},
    {"indexed_48", indexed_4},
    {"indexed_1536", indexed_128},
    {"struct", structure},
    {"face_32", face_inner},
    {"face_2048", face_middle},
};

static void exchange(void *opaque, int count)
{
    struct state *state = opaque;
    int peer = 1 - world_rank();

    for (int i = 0; i < count; i++)
        MPI_Sendrecv(state->outgoing, 1, state->type, peer, TAG, state->incoming, 1, state->type, peer, TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
}

static void ping_pong(void *opaque, int count)
{
    struct state *state = opaque;
    int rank = world_rank(), peer = 1 - rank;

    for (int i = 0; i < count; i++) {
        if (rank == 0)
            MPI_Send(state->outgoing, 1, state->type, peer, TAG, MPI_COMM_WORLD);
        MPI_Recv(state->incoming, 1, state->type, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(state->outgoing, 1, state->type, peer, TAG, MPI_COMM_WORLD);
    }
}

/* What came, packed, must be what the peer sent; what lies between must be as before. */
static void check_exchange(struct state *state, size_t extent, int size)
{
    unsigned peer = 1u - (unsigned)world_rank();
    char *expected = buffer_of(extent), *packed = buffer_of((size_t)size);
    int position = 0;

    fill(state->outgoing, extent, (unsigned)world_rank());
    memset(state->incoming, 0x55, extent);
    exchange(state, 1);
    fill(expected, extent, peer);
    MPI_Pack(expected, 1, state->type, packed, size, &position, MPI_COMM_WORLD);
    memset(expected, 0x55, extent);
    position = 0;
    MPI_Unpack(packed, size, &position, expected, 1, state->type, MPI_COMM_WORLD);
    if (memcmp(expected, state->incoming, extent) != 0)
        fail("a message arrived with wrong contents");
    free(expected);
    free(packed);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    need_two_ranks();
    if (argc < 4)
        fail("usage: types exchange|oneway BUDGET_MS BYTES... [PATTERN]");
    int one_way = strcmp(argv[1], "oneway") == 0;
    double budget_s = budget_argument(argc - 1, argv + 1);
    const char *only = argv[argc - 1];
    int named = only[0] < '0' || only[0] > '9';

    /* The name of a pattern after the sizes leaves out all others. */
    for (size_t i = 0; i < sizeof PATTERNS / sizeof *PATTERNS; i++) {
        const struct pattern *pattern = &PATTERNS[i];
        if (named && strcmp(only, pattern->name) != 0)
            continue;
        for (int arg = 3; arg < argc - named; arg++) {
            int bytes = atoi(argv[arg]), size;
            struct state state;
            MPI_Aint lb, extent;
            char name[64];

            state.type = pattern->make(bytes);
            MPI_Type_commit(&state.type);
            MPI_Type_get_extent(state.type, &lb, &extent);
            MPI_Type_size(state.type, &size);
            state.outgoing = buffer_of((size_t)extent);
            state.incoming = buffer_of((size_t)extent);
            snprintf(name, sizeof name, "types_%s%s", one_way ? "oneway_" : "", pattern->name);
            struct timing timing = measure(one_way ? ping_pong : exchange, &state, budget_s);
            check_exchange(&state, (size_t)extent, size);
            report(name, bytes, 1, timing, one_way ? 2 : 1);
            free(state.outgoing);
            free(state.incoming);
            MPI_Type_free(&state.type);
        }
    }
    MPI_Finalize();
    return 0;
}
