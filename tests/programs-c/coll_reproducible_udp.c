/* Reproducible reductions by datagrams, as between hosts.
 * ranks: 3 5
 * timeout: 180
 * env: WHIMBREL_REPRODUCIBLE=on WHIMBREL_FABRIC=udp
 */
#include "coll_reproducible.h"
