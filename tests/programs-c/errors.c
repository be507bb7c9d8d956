/* Error classes and codes of the program, and strings, before MPI_Init.
 * ranks: 1
 * launcher: none
 */
#include "check.h"

int main(void) {
    char text[MPI_MAX_ERROR_STRING];
    int class, code, found, length;
    MPI_Errhandler handler = MPI_ERRORS_RETURN;

    OK(MPI_Error_class(MPI_ERR_TRUNCATE, &found));
    CHECK(found == MPI_ERR_TRUNCATE);
    OK(MPI_Error_string(MPI_ERR_TRUNCATE, text, &length));
    CHECK(strncmp(text, "MPI_ERR_TRUNCATE", 16) == 0 && length == (int) strlen(text));

    OK(MPI_Add_error_class(&class));
    OK(MPI_Add_error_code(class, &code));
    CHECK(class > MPI_ERR_LASTCODE && code > class);
    OK(MPI_Add_error_string(code, "no more tea"));
    OK(MPI_Error_class(code, &found));
    CHECK(found == class);
    OK(MPI_Error_string(code, text, &length));
    CHECK(strcmp(text, "no more tea") == 0 && length == 11);
    OK(MPI_Error_string(class, text, &length));
    CHECK(length == 0 && text[0] == '\0');
    OK(MPI_Remove_error_string(code));
    OK(MPI_Remove_error_code(code));
    OK(MPI_Remove_error_class(class));

    CHECK(MPI_Errhandler_toint(MPI_ERRORS_RETURN) == 0x143);
    OK(MPI_Errhandler_free(&handler));
    CHECK(handler == MPI_ERRHANDLER_NULL);
    return 0;
}
