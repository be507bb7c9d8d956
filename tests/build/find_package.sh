#!/bin/sh
# CMake's find_package(MPI) finds the prefix by MPI_HOME, for C and C++, and the program runs; also from a folder with a space.
# timeout: 120
set -eu
cat > CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(user C CXX)
find_package(MPI REQUIRED COMPONENTS C CXX)
message(STATUS "MPI_VERSION=${MPI_C_VERSION} LIBRARIES=${MPI_C_LIBRARIES} EXEC=${MPIEXEC_EXECUTABLE}")
add_executable(user_c user.c)
target_link_libraries(user_c MPI::MPI_C)
add_executable(user_cxx user.cc)
target_link_libraries(user_cxx MPI::MPI_CXX)
CMAKE
printf '#include <mpi.h>\nint main(void) { int v, s; return MPI_Get_version(&v, &s) || v != 5; }\n' > user.c
cp user.c user.cc
rm -rf 'a prefix'
cp -a "$WHIMBREL_TEST_PREFIX" 'a prefix'
for prefix in "$WHIMBREL_TEST_PREFIX" "$PWD/a prefix"; do
    rm -rf out
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin cmake -S . -B out -DMPI_HOME="$prefix" > log 2>&1 || { cat log; exit 1; }
    grep "MPI_VERSION=5.0 LIBRARIES=$prefix/lib/libmpi_abi.so" log || { cat log; exit 1; }
    grep -q "EXEC=$prefix/bin/mpiexec" log || { cat log; exit 1; }
    cmake --build out > log 2>&1 || { cat log; exit 1; }
    out/user_c
    out/user_cxx
    ldd out/user_c | grep -q "$prefix/lib/libmpi_abi.so.1"
done
