/* What is local and works without MPI_Init: versions, addresses, memory, timers, status fields, the ABI's own functions.
 * ranks: 1
 * launcher: none
 */
#include "check.h"
#include <stdint.h>

int main(void) {
    int major, minor, length, flag, value;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];

    OK(MPI_Get_version(&major, &minor));
    CHECK(major == 5 && minor == 0);
    OK(MPI_Abi_get_version(&major, &minor));
    CHECK(major == 1 && minor == 0);
    OK(MPI_Get_library_version(text, &length));
    CHECK(strncmp(text, "Whimbrel ", 9) == 0 && length == (int) strlen(text));
    OK(MPI_Pcontrol(1));
    OK(MPI_Pcontrol(2, "with", "more"));

    MPI_Info hardware;
    OK(MPI_Get_hw_resource_info(&hardware));
    length = sizeof text;
    OK(MPI_Info_get_string(hardware, "mpi_shared_memory", &length, text, &flag));
    CHECK(flag && strcmp(text, "true") == 0);
    OK(MPI_Info_free(&hardware));

    int array[4];
    MPI_Aint first, last;
    OK(MPI_Get_address(&array[0], &first));
    OK(MPI_Get_address(&array[3], &last));
    CHECK(MPI_Aint_diff(last, first) == 3 * (MPI_Aint) sizeof(int));
    CHECK(MPI_Aint_add(first, 12) == last);
    CHECK((void *) first == (void *) array);

    char *memory;
    OK(MPI_Alloc_mem(1000, MPI_INFO_NULL, &memory));
    memset(memory, 1, 1000);
    OK(MPI_Free_mem(memory));
    OK(MPI_Alloc_mem(0, MPI_INFO_NULL, &memory));
    OK(MPI_Free_mem(memory));
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_minimum_memory_alignment", "8192"));
    OK(MPI_Alloc_mem(10, info, &memory));
    CHECK((uintptr_t) memory % 8192 == 0);
    OK(MPI_Free_mem(memory));
    OK(MPI_Info_free(&info));

    double before = MPI_Wtime(), after = MPI_Wtime();
    CHECK(before >= 0 && after >= before && MPI_Wtick() > 0 && MPI_Wtick() < 1e-3);

    MPI_Status status;
    memset(&status, 0, sizeof status);
    OK(MPI_Status_set_source(&status, 3));
    OK(MPI_Status_set_tag(&status, 4));
    OK(MPI_Status_set_error(&status, MPI_ERR_TAG));
    CHECK(status.MPI_SOURCE == 3 && status.MPI_TAG == 4 && status.MPI_ERROR == MPI_ERR_TAG);
    OK(MPI_Status_get_source(&status, &value));
    CHECK(value == 3);
    OK(MPI_Status_get_tag(&status, &value));
    CHECK(value == 4);
    OK(MPI_Status_get_error(&status, &value));
    CHECK(value == MPI_ERR_TAG);
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(!flag);
    OK(MPI_Status_set_cancelled(&status, 1));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag);

    OK(MPI_Abi_get_info(&info));
    length = sizeof text;
    OK(MPI_Info_get_string(info, "mpi_count_size", &length, text, &flag));
    CHECK(flag && strcmp(text, "8") == 0);
    OK(MPI_Info_free(&info));
    OK(MPI_Abi_get_fortran_info(&info));
    CHECK(info == MPI_INFO_NULL);
    int truth = -1, falsehood = 0, known = 5, unknown = 5;
    OK(MPI_Abi_get_fortran_booleans(4, &known, &unknown, &flag));
    CHECK(!flag);
    OK(MPI_Abi_set_fortran_booleans(4, &truth, &falsehood));
    OK(MPI_Abi_get_fortran_booleans(4, &known, &unknown, &flag));
    CHECK(flag && known == -1 && unknown == 0);
    OK(MPI_Abi_get_fortran_booleans(8, &known, &unknown, &flag));
    CHECK(!flag);

    CHECK(MPI_Comm_toint(MPI_COMM_WORLD) == 0x101 && MPI_Comm_fromint(0x102) == MPI_COMM_SELF);
    CHECK(MPI_Type_toint(MPI_INT) == 0x209 && MPI_Op_toint(MPI_SUM) == 0x21 && MPI_Request_fromint(0x180) == MPI_REQUEST_NULL);
    return 0;
}
