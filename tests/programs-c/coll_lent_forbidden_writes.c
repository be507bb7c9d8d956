/* A sandbox of one rank forbids process_vm_writev alone: what members read is lent, what they write is not.
 * ranks: 2 4
 * env: WHIMBREL_COLLECTIVE_LENDING=always
 * timeout: 240
 */
#include "coll_lent.c"
#include "forbid.h"

__attribute__((constructor)) static void shut_in(void)
{
    const char *own = getenv("WHIMBREL_RANK");
    if (own != NULL && atoi(own) == 1)
        forbid(SYS_process_vm_writev, SYS_process_vm_writev, EPERM);
}
