/* Odd ranks live in a sandbox that forbids process_vm_readv and writev: nothing is lent, and long collectives go as without.
 * ranks: 2 3
 * env: WHIMBREL_COLLECTIVE_LENDING=always
 * timeout: 240
 */
#include "coll_lent.c"
#include "forbid.h"

__attribute__((constructor)) static void shut_in(void)
{
    const char *own = getenv("WHIMBREL_RANK");
    if (own != NULL && atoi(own) % 2 == 1)
        forbid(SYS_process_vm_readv, SYS_process_vm_writev, EPERM);
}
