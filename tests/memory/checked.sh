#!/bin/bash
# Programs built with AddressSanitizer, and programs under valgrind: no leak and no wrong access that is the library's.
# timeout: 900
# WHIMBREL_TEST_SCALE=2 takes all C programs that run by themselves; 1 takes some of each kind.
set -uo pipefail
scale=${WHIMBREL_TEST_SCALE:-1}
programs=$ROOT/tests/programs-c
suppressions=$WHIMBREL_TEST_PREFIX/share/whimbrel/valgrind.supp
[ -e "$suppressions" ] || { echo "missing: $suppressions"; exit 1; }
[ -e "$(cc -print-file-name=libasan.so)" ] || { echo "the compiler has no AddressSanitizer"; exit 77; }
command -v valgrind > /dev/null || { echo "needs valgrind"; exit 77; }
failed=0
fail() { echo "FAIL $1"; tail -n 40 "$2"; failed=1; }

cat > hello.c <<'C'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, size, length, sum;
    char name[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(name, &length);
    if (argc > 1 && strcmp(argv[1], "late") == 0 && rank == size - 1)
        sleep(3); /* The others ask what keeps it. */
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d on %s\n", rank, size, name);
    MPI_Finalize();
    if (argc > 1 && strcmp(argv[1], "wrong") == 0) {
        sum += ((volatile char *) malloc(16))[16]; /* A wrong access and a leak, which must be found. */
        return 0;
    }
    return sum != size * (size - 1) / 2;
}
C

# --- AddressSanitizer

export ASAN_OPTIONS=detect_leaks=1:exitcode=66:detect_stack_use_after_return=0
sanitized() { mpicc -g -O1 -fsanitize=address -fno-omit-frame-pointer -w -I "$programs" "$1" -o "$2" -lm; }
sanitized hello.c hello_sanitized || exit 1
for ranks in 1 2 4; do
    mpiexec -n $ranks ./hello_sanitized > log 2>&1 || fail "hello [$ranks] with AddressSanitizer" log
done
if mpiexec -n 1 ./hello_sanitized wrong > log 2>&1; then echo "AddressSanitizer does not look"; exit 1; fi

# Programs whose own lines ask for an ordinary run. Those that cannot be: their limits on memory, or on how much it grows, leave the sanitizer no room.
left_out='(coll_|file_)?memory_limit|comm_many|p2p_unexpected|memory_shortage|memory_shortage_at_start|large_counts|ring_undumpable|shared_memory_64|cooperative_forbidden_writes|p2p_forbidden|ring_crowd|thread_crowd|win_memory'
some='attributes|coll_later|coll_vector|comm_contexts|comm_idup|datatypes|errors|info|mistakes|p2p_modes|p2p_persistent|p2p_probe|pack|partitioned|session|tool'
count=0
for path in "$programs"/*.c; do
    name=$(basename "$path" .c)
    [[ $name =~ ^($left_out)$ ]] && continue
    [ "$scale" -ge 2 ] || [[ $name =~ ^($some)$ ]] || continue
    head -n 40 "$path" | grep -Eq '^ \* (status|env|launcher|skip|output|cflags):' && continue
    ranks=$(sed -n 's/^ \* ranks: *//p' "$path" | head -n 1)
    [ -n "$ranks" ] || continue
    # Two ranks where the program can have two, else the first number that it names.
    case " $ranks " in *" 2 "*) ranks=2 ;; *) ranks=${ranks%% *} ;; esac
    sanitized "$path" "sanitized_$name" || { failed=1; continue; }
    timeout 120 mpiexec -n "$ranks" "./sanitized_$name" > log 2>&1
    status=$?
    if [ $status -ne 0 ] || grep -q 'Sanitizer' log; then fail "$name [$ranks] with AddressSanitizer: status $status" log; else echo "ok   $name [$ranks] with AddressSanitizer"; fi
    rm -f "sanitized_$name"
    count=$((count + 1))
done

# --- valgrind

check() { # name, ranks, options of valgrind, program
    timeout 240 mpiexec -n "$2" valgrind --quiet --leak-check=full --error-exitcode=9 $3 $4 > log 2>&1
    local status=$?
    [ $status -eq 0 ] && echo "ok   $1 [$2] under valgrind" || fail "$1 [$2] under valgrind: status $status" log
}
mpicc -g hello.c -o hello || exit 1
# Hello needs no suppressions.
for ranks in 1 2; do check hello $ranks '' ./hello; done
check 'hello, one late' 2 '' './hello late'
if mpiexec -n 1 valgrind --quiet --leak-check=full --error-exitcode=9 ./hello wrong > log 2>&1; then echo "valgrind does not look"; exit 1; fi
more='attributes'
[ "$scale" -ge 2 ] && more='attributes datatypes session p2p_modes p2p_persistent coll_later comm_idup pack'
for name in $more; do
    mpicc -g -w -I "$programs" "$programs/$name.c" -o "$name" -lm || exit 1
    ranks=$(sed -n 's/^ \* ranks: *//p' "$programs/$name.c" | head -n 1)
    case " $ranks " in *" 2 "*) ranks=2 ;; *) ranks=${ranks%% *} ;; esac
    check "$name" "$ranks" "--suppressions=$suppressions" "./$name"
done
echo "$count programs with AddressSanitizer"
exit $failed
