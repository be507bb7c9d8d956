/* Odd ranks live in a sandbox that forbids process_vm_readv and writev, and all are closed to each other's eyes (not
 * dumpable, without privileges): long messages find another way by themselves.
 * ranks: 2 4
 * args: 99
 * timeout: 120
 */
#include "p2p_random.c"
#include "forbid.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((constructor)) static void shut_in(void)
{
    const char *own = getenv("WHIMBREL_RANK");
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    if (own != NULL && atoi(own) % 2 == 1)
        forbid(SYS_process_vm_readv, SYS_process_vm_writev, EPERM);
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    CHECK(syscall(SYS_capset, &header, none) == 0);
}
