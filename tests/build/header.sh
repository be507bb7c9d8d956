#!/bin/sh
# mpi.h compiles without a warning in every C and C++ standard, and every prototype links.
set -eu
cat > user.c <<'C'
#include <mpi.h>
#include <mpi.h>
#if MPI_VERSION != 5 || MPI_ABI_VERSION != 1 || MPI_UNDEFINED != -32766
#error "constants must work in the preprocessor"
#endif
extern MPI_Datatype type;
MPI_Datatype type = MPI_C_COMPLEX;
extern MPI_T_cb_safety safety;
MPI_T_cb_safety safety = MPI_T_CB_REQUIRE_NONE;
extern char status_bytes[sizeof(MPI_Status) == 32 ? 1 : -1];
C
warnings="-Wall -Wextra -pedantic -Werror -I$WHIMBREL_TEST_PREFIX/include"
for standard in c89 c99 c11 c17 c2x; do cc -std=$standard $warnings -Wstrict-prototypes -c user.c -o user.o; done
for standard in c++98 c++11 c++17 c++20; do c++ -x c++ -std=$standard $warnings -c user.c -o user.o; done

{
    echo '#include <mpi.h>'
    echo 'typedef void (*function)(void);'
    echo 'function volatile all[] = {'
    tail -n +2 "$ROOT/abi/functions.tsv" | cut -f 1 | sed 's/.*/(function) &, (function) P&,/'
    echo '}; int main(void) { return sizeof all / sizeof all[0] == 1328 ? 0 : 1; }'
} > all.c
mpicc -Wall -Wno-cast-function-type all.c -o all
./all
# The same object file links as C++, whose compiler would mangle prototypes outside of extern "C".
mpicxx -x c++ -fpermissive -w all.c -o all_cxx
./all_cxx
