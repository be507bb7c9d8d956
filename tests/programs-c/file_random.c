/* Random views of a file and random accesses against a model of its bytes: every rank draws the same program, does its part, and reckons all.
 * The seed is the first argument, or 1; a failure prints it.
 * ranks: 1 2 3 4 5 6
 * timeout: 120
 */
#include "world.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 16, VIEWS = 14, ROUNDS = 9, TILE_MAX = 4096, RANKS_MAX = 8, UNTOUCHED = 0xee };

static uint64_t seed, state;
static unsigned char model[FILE_MAX];
static long length;
static MPI_File file;
static char path[4096];

static long below(long limit) { return (long)(draw(&state) % (uint64_t)limit); }

/* What a failure says beside its place. */
#define HOLDS(condition, ...)                                                                                  \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: failed: %s: seed %llu, rank %d of %d: ", __FILE__, __LINE__, #condition,   \
                    (unsigned long long)seed, rank, size);                                                     \
            fprintf(stderr, __VA_ARGS__);                                                                      \
            fputc('\n', stderr);                                                                               \
            exit(99);                                                                                          \
        }                                                                                                      \
    } while (0)

/* A view of one rank, and where its individual pointer stands. */
typedef struct {
    int element, unit;       /* Bytes of an element and of an elementary datatype, which is several elements. */
    int blocks, at[8], of[8]; /* Of the filetype, in elementary datatypes. */
    int extent;              /* In elementary datatypes, too. */
    int turned;              /* The bytes of an element lie the other way round in the file. */
    long displacement, position;
    int tile, map[TILE_MAX]; /* Data bytes of a filetype, and where each lies in it. */
} View;

static View views[RANKS_MAX];
static long shared_position;

static const struct {
    MPI_Datatype type;
    int bytes;
} elements[] = {{MPI_BYTE, 1}, {MPI_SHORT, 2}, {MPI_INT, 4}, {MPI_DOUBLE, 8}};

/* A filetype of a few blocks of elementary datatypes, ascending; displacement and gaps of any length. */
static View drawn_view(int element, int in_unit, int turned)
{
    View v = {.element = element, .unit = element * in_unit, .turned = turned, .blocks = 1 + (int)below(6)};
    int end = (int)below(4), plain = !below(5);
    for (int i = 0; i < v.blocks; i++) {
        v.at[i] = end;
        v.of[i] = 1 + (int)below(below(3) ? 4 : 20);
        end += v.of[i] + (int)below(8);
    }
    v.extent = end + (int)below(5);
    if (plain)
        v.blocks = 1, v.at[0] = 0, v.extent = v.of[0];
    for (int i = 0; i < v.blocks; i++)
        for (int byte = 0; byte < v.of[i] * v.unit; byte++) {
            CHECK(v.tile < TILE_MAX);
            v.map[v.tile++] = v.at[i] * v.unit + byte;
        }
    v.displacement = below(300);
    return v;
}

/* The byte of the file under data byte `i`. */
static long place(const View *v, long i) { return v->displacement + i / v->tile * v->extent * v->unit + v->map[i % v->tile]; }

/* Data bytes of a view before byte `end` of the file, from data byte `from` on, at most `most`. */
static long before(const View *v, long from, long most, long end)
{
    long i = 0;
    while (i < most && place(v, from + i) < end)
        i++;
    return i;
}

/* Where data byte `i` of a buffer lies in the file: in a representation whose elements are turned, not where it would else. */
static long turned_place(const View *v, long i) { return place(v, v->turned ? i / v->element * v->element + v->element - 1 - i % v->element : i); }

static void set_view(const View *v, const char *representation, MPI_Info info)
{
    MPI_Datatype element = MPI_DATATYPE_NULL, unit, blocks, filetype;
    for (int i = 0; i < 4; i++)
        if (elements[i].bytes == v->element)
            element = elements[i].type;
    OK(MPI_Type_contiguous(v->unit / v->element, element, &unit));
    OK(MPI_Type_indexed(v->blocks, v->of, v->at, unit, &blocks));
    OK(MPI_Type_create_resized(blocks, 0, (MPI_Aint)v->extent * v->unit, &filetype));
    OK(MPI_Type_commit(&unit));
    OK(MPI_Type_commit(&filetype));
    OK(MPI_File_set_view(file, v->displacement, unit, filetype, representation, info));
    OK(MPI_Type_free(&unit));
    OK(MPI_Type_free(&blocks));
    OK(MPI_Type_free(&filetype));
}

/* Memory of `count` elements, `gap` elements apart from each other. */
static MPI_Datatype memory_type(const View *v, long count, int gap)
{
    MPI_Datatype element = MPI_DATATYPE_NULL, type;
    for (int i = 0; i < 4; i++)
        if (elements[i].bytes == v->element)
            element = elements[i].type;
    OK(MPI_Type_vector((int)count, 1, 1 + gap, element, &type));
    OK(MPI_Type_commit(&type));
    return type;
}

enum { ALONE, TOGETHER, LATER, LATER_TOGETHER, SPLIT, WAYS };
enum { POINTER, OFFSET, ORDERED, PLACES };

/* One access of this rank. */
static void move(int write, int way, int where, MPI_Offset offset, void *buffer, int count, MPI_Datatype type, MPI_Status *status)
{
    MPI_Request request = MPI_REQUEST_NULL;
#define EITHER(write_call, read_call) OK(write ? write_call : read_call)
    if (where == ORDERED && way == SPLIT) {
        EITHER(MPI_File_write_ordered_begin(file, buffer, count, type), MPI_File_read_ordered_begin(file, buffer, count, type));
        EITHER(MPI_File_write_ordered_end(file, buffer, status), MPI_File_read_ordered_end(file, buffer, status));
    } else if (where == ORDERED) {
        EITHER(MPI_File_write_ordered(file, buffer, count, type, status), MPI_File_read_ordered(file, buffer, count, type, status));
    } else if (way == SPLIT && where == POINTER) {
        EITHER(MPI_File_write_all_begin(file, buffer, count, type), MPI_File_read_all_begin(file, buffer, count, type));
        EITHER(MPI_File_write_all_end(file, buffer, status), MPI_File_read_all_end(file, buffer, status));
    } else if (way == SPLIT) {
        EITHER(MPI_File_write_at_all_begin(file, offset, buffer, count, type), MPI_File_read_at_all_begin(file, offset, buffer, count, type));
        EITHER(MPI_File_write_at_all_end(file, buffer, status), MPI_File_read_at_all_end(file, buffer, status));
    } else if (where == POINTER) {
        if (way == ALONE)
            EITHER(MPI_File_write(file, buffer, count, type, status), MPI_File_read(file, buffer, count, type, status));
        if (way == TOGETHER)
            EITHER(MPI_File_write_all(file, buffer, count, type, status), MPI_File_read_all(file, buffer, count, type, status));
        if (way == LATER)
            EITHER(MPI_File_iwrite(file, buffer, count, type, &request), MPI_File_iread(file, buffer, count, type, &request));
        if (way == LATER_TOGETHER)
            EITHER(MPI_File_iwrite_all(file, buffer, count, type, &request), MPI_File_iread_all(file, buffer, count, type, &request));
    } else {
        if (way == ALONE)
            EITHER(MPI_File_write_at(file, offset, buffer, count, type, status), MPI_File_read_at(file, offset, buffer, count, type, status));
        if (way == TOGETHER)
            EITHER(MPI_File_write_at_all(file, offset, buffer, count, type, status), MPI_File_read_at_all(file, offset, buffer, count, type, status));
        if (way == LATER)
            EITHER(MPI_File_iwrite_at(file, offset, buffer, count, type, &request), MPI_File_iread_at(file, offset, buffer, count, type, &request));
        if (way == LATER_TOGETHER)
            EITHER(MPI_File_iwrite_at_all(file, offset, buffer, count, type, &request), MPI_File_iread_at_all(file, offset, buffer, count, type, &request));
    }
    if (request != MPI_REQUEST_NULL)
        OK(MPI_Wait(&request, status));
}

/* The file as the system has it is the model. */
static void compare_file(int round)
{
    static unsigned char found[FILE_MAX];
    struct stat told;
    int descriptor = open(path, O_RDONLY);
    CHECK(descriptor >= 0 && fstat(descriptor, &told) == 0);
    HOLDS(told.st_size == length, "round %d: the file has %ld bytes, not %ld", round, (long)told.st_size, length);
    CHECK(pread(descriptor, found, length, 0) == length);
    for (long i = 0; i < length; i++)
        HOLDS(found[i] == model[i], "round %d: byte %ld is %d, not %d", round, i, found[i], model[i]);
    close(descriptor);
}

static void one_round(int number, int alike)
{
    static unsigned char buffer[2 * FILE_MAX];
    static int writer[FILE_MAX];
    long units[RANKS_MAX], offsets[RANKS_MAX];
    int write = (int)below(2), way = (int)below(WAYS), where = (int)below(alike ? PLACES : ORDERED), gap = (int)below(3);
    memset(writer, -1, sizeof writer);
    for (int r = 0; r < size; r++) {
        View *v = &views[r];
        long at = below(2) ? below(40) : below(1 + FILE_MAX / v->unit / 8), many = below(6) ? 1 + below(below(4) ? 60 : 700) : 0;
        if (where == ORDERED)
            at = r == 0 ? shared_position : offsets[r - 1] + units[r - 1];
        if (where == POINTER && below(2))
            at = v->position;
        while (many > 0 && place(v, (at + many) * v->unit - 1) >= FILE_MAX)
            many /= 2;
        /* No rank writes where another one does. */
        for (long i = at * v->unit; write && i < (at + many) * v->unit; i++)
            if (writer[place(v, i)] >= 0)
                many = (i - at * v->unit) / v->unit;
        for (long i = at * v->unit; write && i < (at + many) * v->unit; i++)
            writer[place(v, i)] = r;
        offsets[r] = at;
        units[r] = many;
    }
    View *mine = &views[rank];
    long count = units[rank] * mine->unit / mine->element, first = offsets[rank] * mine->unit, bytes = count * mine->element;
    /* Where the memory has gaps, it is one vector; else that many elements. */
    MPI_Datatype type = memory_type(mine, gap && count ? count : 1, gap);
    int times = gap && count ? 1 : (int)count, step = gap && count ? 1 + gap : 1;
    memset(buffer, UNTOUCHED, sizeof buffer);
    uint64_t content = draw(&state);
    for (int r = 0; r < size; r++) {
        View *v = &views[r];
        long from = offsets[r] * v->unit, of_rank = units[r] * v->unit;
        for (long i = 0; write && i < of_rank; i++) {
            unsigned char value = pattern((size_t)i, (unsigned)content + (unsigned)r * 77);
            if (r == rank)
                buffer[i / v->element * v->element * step + i % v->element] = value;
            model[turned_place(v, from + i)] = value;
            if (place(v, from + i) >= length)
                length = place(v, from + i) + 1;
        }
    }
    if (where == POINTER) {
        int whence = (int)below(3);
        long base = whence == 0 ? 0 : whence == 1 ? mine->position : -1;
        MPI_Offset end;
        if (whence == 2) {
            /* Nobody has written yet what this round will: the pointer tells where the end is. */
            OK(MPI_File_seek(file, 0, MPI_SEEK_END));
            OK(MPI_File_get_position(file, &end));
            struct stat told;
            CHECK(stat(path, &told) == 0);
            long data = before(mine, 0, 2 * FILE_MAX, told.st_size);
            HOLDS(end == (data + mine->unit - 1) / mine->unit, "round %d: the end is at %ld, not %ld", number, (long)end, data / mine->unit);
            base = (long)end;
        }
        OK(MPI_File_seek(file, offsets[rank] - base, whence == 0 ? MPI_SEEK_SET : whence == 1 ? MPI_SEEK_CUR : MPI_SEEK_END));
    }
    /* Whoever asks for the end has been told before others write. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_Status status;
    move(write, way, where, offsets[rank], buffer, times, type, &status);
    long moved = write ? bytes : before(mine, first, bytes, length);
    if (moved % mine->element == 0) {
        int told;
        MPI_Datatype element = memory_type(mine, 1, 0);
        OK(MPI_Get_elements(&status, element, &told));
        HOLDS(told == moved / mine->element, "round %d: %d elements, not %ld of %ld", number, told, moved / mine->element, count);
        OK(MPI_Type_free(&element));
    }
    if (!write) {
        long whole = moved / mine->element * mine->element;
        for (long i = 0; i < bytes; i++) {
            long at = i / mine->element * mine->element * step + i % mine->element;
            if (i < whole)
                HOLDS(buffer[at] == model[turned_place(mine, first + i)], "round %d, way %d, place %d: byte %ld of %ld that were read is %d, not %d", number, way,
                      where, i, bytes, buffer[at], model[turned_place(mine, first + i)]);
            else if (i >= whole + mine->element)
                HOLDS(buffer[at] == UNTOUCHED, "round %d: byte %ld was not there and is %d", number, i, buffer[at]);
        }
        for (long i = bytes * step; i < bytes * step + 64; i++)
            HOLDS(buffer[i] == UNTOUCHED, "round %d: byte %ld is behind the buffer", number, i);
    }
    for (int r = 0; r < size; r++) {
        View *v = &views[r];
        long asked = units[r] * v->unit, there = write ? asked : before(v, offsets[r] * v->unit, asked, length);
        if (where == POINTER)
            v->position = offsets[r] + there / v->unit;
        if (where == ORDERED)
            shared_position = offsets[r] + units[r];
    }
    MPI_Offset position;
    OK(MPI_File_get_position(file, &position));
    HOLDS(position == mine->position, "round %d: the pointer is at %ld, not %ld", number, (long)position, mine->position);
    OK(MPI_File_get_position_shared(file, &position));
    HOLDS(position == shared_position, "round %d: the shared pointer is at %ld, not %ld", number, (long)position, shared_position);
    OK(MPI_Type_free(&type));
    /* On one host all see what has been written; the standard asks for this. */
    if (write && !below(4))
        OK(MPI_File_sync(file));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == number % size)
        compare_file(number);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    int id = (int)getpid();
    begin(&argc, &argv);
    CHECK(size <= RANKS_MAX);
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    state = seed * 1000003 + (uint64_t)size;
    OK(MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD));
    snprintf(path, sizeof path, "%s/file_random.%d", folder, id);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    if (rank == 0)
        printf("seed %llu\n", (unsigned long long)seed);
    for (int number = 0; number < VIEWS; number++) {
        static const char *representations[] = {"native", "external32"};
        int one = 1, big_endian = *(char *)&one == 0, alike = !below(3), representation = (int)below(2), turned = representation == 1 && !big_endian;
        int element = elements[below(4)].bytes, in_unit = 1 + (int)below(3);
        MPI_Info info;
        char text[24];
        OK(MPI_Info_create(&info));
        snprintf(text, sizeof text, "%ld", below(size + 1));
        OK(MPI_Info_set(info, "cb_nodes", text));
        snprintf(text, sizeof text, "%ld", 1 + below(30000));
        OK(MPI_Info_set(info, "cb_buffer_size", text));
        OK(MPI_Info_set(info, "collective_buffering", below(5) ? "true" : "false"));
        OK(MPI_File_set_atomicity(file, !below(4)));
        for (int r = 0; r < size; r++)
            views[r] = alike && r > 0 ? views[0] : drawn_view(element, in_unit, turned);
        shared_position = 0;
        set_view(&views[rank], representations[representation], info);
        OK(MPI_Info_free(&info));
        for (int round = 0; round < ROUNDS; round++)
            one_round(number * ROUNDS + round, alike);
        if (!below(3)) {
            long wanted = below(FILE_MAX / 2);
            OK(MPI_File_set_size(file, wanted));
            memset(model + wanted, 0, FILE_MAX - wanted);
            length = wanted;
        }
        if (!below(4)) {
            long wanted = below(FILE_MAX / 2);
            OK(MPI_File_preallocate(file, wanted));
            length = wanted > length ? wanted : length;
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_File_close(&file));
    return end();
}
