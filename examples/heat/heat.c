/* Heat diffusion on a plate, in two dimensions, on a grid of ranks.
 *
 * The plate loses heat at its cold edge, is heated by discs held at fixed temperatures, and is divided by walls that
 * let no heat through. Each rank owns a block of cells with a frame of one ghost cell. A step starts the exchange of the
 * frame with four neighbours, computes the cells that need no ghost, waits, and computes the rest, so that the exchange
 * hides behind the computation. The result does not depend on the number of ranks, to the last bit.
 *
 * Explicit scheme: T' = T + RATE * sum over open faces of (T_neighbour - T); stable for RATE <= 0.25.
 */
#include <getopt.h>
#include <math.h>
#include <mpi.h>
#include <png.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RATE 0.24

enum { LEFT, RIGHT, UP, DOWN, SIDES };
enum { TAG_HALO = 1, TAG_BLOCK = 2 };
enum { FREE, FIXED, WALL };

struct options {
    int width, height; /* cells */
    int steps, report_every;
    const char *picture; /* NULL: none */
};

/* Part of the plate that a rank owns: cells [x0, x0 + width) by [y0, y0 + height). */
struct extent {
    int x0, y0, width, height;
};

struct block {
    struct extent extent;
    int stride; /* cells of a row, ghosts included */
    double *now, *next;
    unsigned char *kind;       /* FREE, FIXED or WALL, ghosts included */
    int neighbour[SIDES];      /* rank, or MPI_PROC_NULL at the edge of the plate */
    double *column_out[2], *column_in[2]; /* columns packed into rows: LEFT and RIGHT */
};

/* --- the plate ------------------------------------------------------------------------------------------------- */

/* Kind and starting temperature (degrees) of a cell; outside the plate all is FIXED at 0. */
static unsigned char plate(const struct options *options, int x, int y, double *temperature)
{
    static const struct {
        double x, y, radius, temperature;
    } discs[] = {
        {0.20, 0.30, 0.060, 100}, {0.55, 0.72, 0.045, 85}, {0.82, 0.25, 0.050, 95},
        {0.38, 0.60, 0.035, -15}, {0.70, 0.50, 0.030, 60}, {0.12, 0.80, 0.040, 75},
    };
    static const struct {
        double x0, y0, x1, y1;
    } walls[] = {
        {0.32, 0.10, 0.335, 0.62}, {0.47, 0.38, 0.485, 0.95}, {0.47, 0.38, 0.62, 0.40},
        {0.62, 0.10, 0.635, 0.42}, {0.75, 0.62, 0.95, 0.64}, {0.18, 0.62, 0.335, 0.64},
    };

    *temperature = 0;
    if (x < 0 || y < 0 || x >= options->width || y >= options->height)
        return FIXED;
    double across = (x + 0.5) / options->width, down = (y + 0.5) / options->height;
    double aspect = (double)options->height / options->width;
    for (size_t i = 0; i < sizeof discs / sizeof *discs; i++) {
        double dx = across - discs[i].x, dy = (down - discs[i].y) * aspect;
        if (dx * dx + dy * dy < discs[i].radius * discs[i].radius) {
            *temperature = discs[i].temperature;
            return FIXED;
        }
    }
    for (size_t i = 0; i < sizeof walls / sizeof *walls; i++)
        if (across >= walls[i].x0 && across < walls[i].x1 && down >= walls[i].y0 && down < walls[i].y1)
            return WALL;
    return FREE;
}

/* --- who owns what --------------------------------------------------------------------------------------------- */

/* Factors ranks into columns times rows with the least cells on the cuts. */
static void choose_grid(int ranks, const struct options *options, int *columns, int *rows)
{
    double least = INFINITY;
    *columns = 1;
    *rows = ranks;
    for (int c = 1; c <= ranks; c++) {
        double cut = (double)(c - 1) * options->height + (double)(ranks / c - 1) * options->width;
        if (ranks % c == 0 && cut < least) {
            least = cut;
            *columns = c;
            *rows = ranks / c;
        }
    }
}

static int share_start(int cells, int parts, int part)
{
    return (int)((long)cells * part / parts);
}

static struct extent extent_of(int rank, int columns, int rows, const struct options *options)
{
    int column = rank % columns, row = rank / columns;
    int x0 = share_start(options->width, columns, column), y0 = share_start(options->height, rows, row);
    return (struct extent){x0, y0, share_start(options->width, columns, column + 1) - x0,
                           share_start(options->height, rows, row + 1) - y0};
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL) {
        fprintf(stderr, "heat: no memory for %zu bytes\n", count * size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static size_t at(const struct block *block, int x, int y)
{
    return (size_t)(y + 1) * (size_t)block->stride + (size_t)(x + 1);
}

static struct block make_block(int rank, int columns, int rows, const struct options *options)
{
    struct block block = {.extent = extent_of(rank, columns, rows, options)};
    int column = rank % columns, row = rank / columns;
    struct extent extent = block.extent;

    block.stride = extent.width + 2;
    size_t cells = (size_t)block.stride * (size_t)(extent.height + 2);
    block.now = allocate(cells, sizeof *block.now);
    block.next = allocate(cells, sizeof *block.next);
    block.kind = allocate(cells, 1);
    for (int side = LEFT; side <= RIGHT; side++) {
        block.column_out[side] = allocate((size_t)extent.height, sizeof(double));
        block.column_in[side] = allocate((size_t)extent.height, sizeof(double));
    }
    block.neighbour[LEFT] = column > 0 ? rank - 1 : MPI_PROC_NULL;
    block.neighbour[RIGHT] = column < columns - 1 ? rank + 1 : MPI_PROC_NULL;
    block.neighbour[UP] = row > 0 ? rank - columns : MPI_PROC_NULL;
    block.neighbour[DOWN] = row < rows - 1 ? rank + columns : MPI_PROC_NULL;
    for (int y = -1; y <= extent.height; y++)
        for (int x = -1; x <= extent.width; x++) {
            size_t cell = at(&block, x, y);
            block.kind[cell] = plate(options, extent.x0 + x, extent.y0 + y, &block.now[cell]);
            block.next[cell] = block.now[cell];
        }
    return block;
}

static void free_block(struct block *block)
{
    free(block->now);
    free(block->next);
    free(block->kind);
    for (int side = LEFT; side <= RIGHT; side++) {
        free(block->column_out[side]);
        free(block->column_in[side]);
    }
}

/* --- one step -------------------------------------------------------------------------------------------------- */

static int start_exchange(struct block *block, MPI_Request requests[2 * SIDES])
{
    int width = block->extent.width, height = block->extent.height;
    for (int y = 0; y < height; y++) {
        block->column_out[LEFT][y] = block->now[at(block, 0, y)];
        block->column_out[RIGHT][y] = block->now[at(block, width - 1, y)];
    }
    double *incoming[SIDES] = {block->column_in[LEFT], block->column_in[RIGHT], &block->now[at(block, 0, -1)],
                               &block->now[at(block, 0, height)]};
    double *outgoing[SIDES] = {block->column_out[LEFT], block->column_out[RIGHT], &block->now[at(block, 0, 0)],
                               &block->now[at(block, 0, height - 1)]};
    int count[SIDES] = {height, height, width, width}, posted = 0;

    for (int side = 0; side < SIDES; side++)
        MPI_Irecv(incoming[side], count[side], MPI_DOUBLE, block->neighbour[side], TAG_HALO, MPI_COMM_WORLD,
                  &requests[posted++]);
    for (int side = 0; side < SIDES; side++)
        MPI_Isend(outgoing[side], count[side], MPI_DOUBLE, block->neighbour[side], TAG_HALO, MPI_COMM_WORLD,
                  &requests[posted++]);
    return posted;
}

static void finish_exchange(struct block *block, int posted, MPI_Request requests[2 * SIDES])
{
    MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE);
    for (int y = 0; y < block->extent.height; y++) {
        if (block->neighbour[LEFT] != MPI_PROC_NULL)
            block->now[at(block, -1, y)] = block->column_in[LEFT][y];
        if (block->neighbour[RIGHT] != MPI_PROC_NULL)
            block->now[at(block, block->extent.width, y)] = block->column_in[RIGHT][y];
    }
}

/* Computes the cells [x0, x1) by [y0, y1) of the block; the sum of the squares of their changes. */
static double compute(struct block *block, int x0, int x1, int y0, int y1)
{
    const double *now = block->now;
    const unsigned char *kind = block->kind;
    int stride = block->stride;
    double squares = 0;

    for (int y = y0; y < y1; y++) {
        size_t cell = at(block, x0, y);
        for (int x = x0; x < x1; x++, cell++) {
            double here = now[cell], change;
            change = kind[cell - 1] == WALL ? 0 : now[cell - 1] - here;
            change += kind[cell + 1] == WALL ? 0 : now[cell + 1] - here;
            change += kind[cell - stride] == WALL ? 0 : now[cell - stride] - here;
            change += kind[cell + stride] == WALL ? 0 : now[cell + stride] - here;
            change = kind[cell] == FREE ? RATE * change : 0;
            block->next[cell] = here + change;
            squares += change * change;
        }
    }
    return squares;
}

static double step(struct block *block)
{
    MPI_Request requests[2 * SIDES];
    int width = block->extent.width, height = block->extent.height;
    int right = width > 1 ? width - 1 : 1, bottom = height > 1 ? height - 1 : 1;

    int posted = start_exchange(block, requests);
    double squares = compute(block, 1, width - 1, 1, height - 1);
    finish_exchange(block, posted, requests);
    squares += compute(block, 0, width, 0, 1);
    squares += compute(block, 0, width, bottom, height);
    squares += compute(block, 0, 1, 1, bottom);
    squares += compute(block, right, width, 1, bottom);
    double *swap = block->now;
    block->now = block->next;
    block->next = swap;
    return squares;
}

/* --- the result ------------------------------------------------------------------------------------------------ */

/* The whole field on rank 0, row by row; NULL elsewhere. */
static double *gather(struct block *block, int rank, int ranks, int columns, int rows, const struct options *options)
{
    struct extent mine = block->extent;
    size_t cells = (size_t)mine.width * (size_t)mine.height;
    double *packed = allocate(cells + 1, sizeof *packed), *field = NULL;

    for (int y = 0; y < mine.height; y++)
        memcpy(packed + (size_t)y * (size_t)mine.width, &block->now[at(block, 0, y)], (size_t)mine.width * sizeof *packed);
    if (rank != 0) {
        MPI_Send(packed, (int)cells, MPI_DOUBLE, 0, TAG_BLOCK, MPI_COMM_WORLD);
        free(packed);
        return NULL;
    }
    field = allocate((size_t)options->width * (size_t)options->height, sizeof *field);
    for (int source = 0; source < ranks; source++) {
        struct extent theirs = extent_of(source, columns, rows, options);
        double *from = packed;
        if (source != 0) {
            cells = (size_t)theirs.width * (size_t)theirs.height;
            from = allocate(cells + 1, sizeof *from);
            MPI_Recv(from, (int)cells, MPI_DOUBLE, source, TAG_BLOCK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        for (int y = 0; y < theirs.height; y++)
            memcpy(&field[(size_t)(theirs.y0 + y) * (size_t)options->width + (size_t)theirs.x0],
                   from + (size_t)y * (size_t)theirs.width, (size_t)theirs.width * sizeof *field);
        free(from);
    }
    return field;
}

/* FNV-1a over the bytes of the field: equal fields, equal sums. */
static uint64_t checksum(const double *field, size_t cells)
{
    const unsigned char *bytes = (const unsigned char *)field;
    uint64_t sum = 0xcbf29ce484222325;
    for (size_t i = 0; i < cells * sizeof *field; i++)
        sum = (sum ^ bytes[i]) * 0x100000001b3;
    return sum;
}

/* Perceptually even colours from dark to light, at fractions of the temperature range. */
static void colour_of(double fraction, unsigned char rgb[3])
{
    static const unsigned char ramp[][3] = {{0, 0, 4},      {31, 12, 72},   {85, 15, 109},  {136, 34, 106}, {186, 54, 85},
                                            {227, 89, 51},  {249, 140, 10}, {249, 201, 50}, {252, 255, 164}};
    enum { LAST = sizeof ramp / sizeof *ramp - 1 };
    double place = fmin(fmax(fraction, 0), 1) * LAST;
    int low = place >= LAST ? LAST - 1 : (int)place;
    for (int i = 0; i < 3; i++)
        rgb[i] = (unsigned char)(ramp[low][i] + (place - low) * (ramp[low + 1][i] - ramp[low][i]) + 0.5);
}

/* One pixel a cell, isotherms every 10 degrees, walls grey. */
static int write_picture(const double *field, const struct options *options)
{
    int width = options->width, height = options->height;
    png_image image = {.version = PNG_IMAGE_VERSION, .width = (png_uint_32)width, .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB};
    unsigned char *pixels = allocate((size_t)width * (size_t)height, 3);
    double low = INFINITY, high = -INFINITY, unused;

    for (long cell = 0; cell < (long)width * height; cell++) {
        low = fmin(low, field[cell]);
        high = fmax(high, field[cell]);
    }
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            long cell = (long)y * width + x;
            unsigned char *pixel = pixels + 3 * cell;
            double level = floor(field[cell] / 10);
            int wall = plate(options, x, y, &unused) == WALL;
            int line = 0;
            if (x + 1 < width && plate(options, x + 1, y, &unused) != WALL)
                line |= level != floor(field[cell + 1] / 10);
            if (y + 1 < height && plate(options, x, y + 1, &unused) != WALL)
                line |= level != floor(field[cell + width] / 10);
            colour_of((field[cell] - low) / (high - low), pixel);
            if (wall)
                memset(pixel, 120, 3);
            else if (line)
                for (int i = 0; i < 3; i++)
                    pixel[i] = (unsigned char)(pixel[i] + (255 - pixel[i]) / 3);
        }
    int written = png_image_write_to_file(&image, options->picture, 0, pixels, 0, NULL);
    if (!written)
        fprintf(stderr, "heat: cannot write %s: %s\n", options->picture, image.message);
    free(pixels);
    return written;
}

/* --- the program ----------------------------------------------------------------------------------------------- */

static void usage(const char *name)
{
    fprintf(stderr, "usage: %s [--size WxH] [--steps N] [--every N] [--output FILE.png | --no-picture]\n", name);
}

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {{"size", required_argument, NULL, 's'},  {"steps", required_argument, NULL, 'n'},
                                          {"every", required_argument, NULL, 'e'}, {"output", required_argument, NULL, 'o'},
                                          {"no-picture", no_argument, NULL, 'q'},  {NULL, 0, NULL, 0}};
    *options = (struct options){600, 400, 7500, 1500, "heat.png"};
    for (int option; (option = getopt_long(argc, argv, "s:n:e:o:q", known, NULL)) != -1;) {
        if (option == 's' && sscanf(optarg, "%dx%d", &options->width, &options->height) != 2)
            return 0;
        else if (option == 'n')
            options->steps = atoi(optarg);
        else if (option == 'e')
            options->report_every = atoi(optarg);
        else if (option == 'o')
            options->picture = optarg;
        else if (option == 'q')
            options->picture = NULL;
        else if (option == '?')
            return 0;
    }
    return optind == argc && options->width >= 8 && options->height >= 8 && options->width <= 20000 &&
           options->height <= 20000 && options->steps >= 1 && options->report_every >= 1;
}

int main(int argc, char **argv)
{
    struct options options;
    int rank, ranks, columns, rows, failed = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (!parse(argc, argv, &options)) {
        if (rank == 0)
            usage(argv[0]);
        MPI_Finalize();
        return 2;
    }
    choose_grid(ranks, &options, &columns, &rows);
    if (columns > options.width || rows > options.height) {
        if (rank == 0)
            fprintf(stderr, "heat: %d ranks are too many for %dx%d cells\n", ranks, options.width, options.height);
        MPI_Finalize();
        return 2;
    }
    if (rank == 0)
        printf("plate of %d x %d cells on %d ranks (%d x %d), %d steps\n", options.width, options.height, ranks, columns,
               rows, options.steps);

    struct block block = make_block(rank, columns, rows, &options);
    double start = MPI_Wtime(), cells = (double)options.width * options.height;
    for (int done = 1; done <= options.steps; done++) {
        double squares = step(&block), total;
        if (done % options.report_every == 0 || done == options.steps) {
            MPI_Allreduce(&squares, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            if (rank == 0) {
                printf("step %6d  residual %.6e  %.2f s\n", done, sqrt(total / cells), MPI_Wtime() - start);
                fflush(stdout);
            }
        }
    }
    double mine = MPI_Wtime() - start, slowest;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);

    double *field = gather(&block, rank, ranks, columns, rows, &options);
    if (rank == 0) {
        double sum = 0;
        for (long cell = 0; cell < (long)cells; cell++)
            sum += field[cell];
        printf("%.2f s, %.0f million cells/s, mean temperature %.6f, field %016llx\n", slowest,
               cells * options.steps / slowest / 1e6, sum / cells, (unsigned long long)checksum(field, (size_t)cells));
        if (options.picture != NULL) {
            failed = !write_picture(field, &options);
            if (!failed)
                printf("picture: %s\n", options.picture);
        }
        free(field);
    }
    free_block(&block);
    MPI_Finalize();
    return failed;
}
