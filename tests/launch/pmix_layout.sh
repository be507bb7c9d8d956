#!/bin/bash
# The sizes, places and numbers that crates/launch/src/pmix_sys.rs has written down are those of PMIx's own header.
set -euo pipefail
flags=$(pkg-config --cflags pmix 2>/dev/null) || { echo "make test-nightly runs it: there is no pmix.h here (Debian: libpmix-dev)"; exit 77; }
cat > "$SCRATCH/layout.c" <<'C'
#include <pmix.h>
#include <stddef.h>
#define SAME(a, b) _Static_assert((a) == (b), #a)
SAME(sizeof(pmix_proc_t), 260);
SAME(offsetof(pmix_proc_t, rank), 256);
SAME(sizeof(pmix_value_t), 32);
SAME(offsetof(pmix_value_t, type), 0);
SAME(sizeof(((pmix_value_t *)0)->type), 2);
SAME(offsetof(pmix_value_t, data), 8);
SAME(sizeof(pmix_info_t), 552);
SAME(offsetof(pmix_info_t, flags), 512);
SAME(sizeof(((pmix_info_t *)0)->flags), 4);
SAME(offsetof(pmix_info_t, value), 520);
SAME(offsetof(pmix_byte_object_t, bytes), 0);
SAME(offsetof(pmix_byte_object_t, size), 8);
SAME(sizeof(pmix_scope_t), 1);
SAME(PMIX_GLOBAL, 3);
SAME(PMIX_SUCCESS, 0);
SAME((pmix_rank_t)PMIX_RANK_WILDCARD, UINT32_MAX - 1);
SAME(PMIX_BOOL, 1);
SAME(PMIX_STRING, 3);
SAME(PMIX_SIZE, 4);
SAME(PMIX_INT, 6);
SAME(PMIX_INT32, 9);
SAME(PMIX_INT64, 10);
SAME(PMIX_UINT, 11);
SAME(PMIX_UINT16, 13);
SAME(PMIX_UINT32, 14);
SAME(PMIX_UINT64, 15);
SAME(PMIX_BYTE_OBJECT, 27);
SAME(PMIX_PROC_RANK, 40);
C
cat >> "$SCRATCH/layout.c" <<'C'
#include <string.h>
int main(void) {
    return strcmp(PMIX_JOB_SIZE, "pmix.job.size") || strcmp(PMIX_UNIV_SIZE, "pmix.univ.size") || strcmp(PMIX_APPNUM, "pmix.appnum") ||
           strcmp(PMIX_LOCAL_PEERS, "pmix.lpeers") || strcmp(PMIX_COLLECT_DATA, "pmix.collect") || strcmp(PMIX_TIMEOUT, "pmix.timeout");
}
C
# shellcheck disable=SC2086 # a list of words
cc $flags "$SCRATCH/layout.c" -o "$SCRATCH/layout"
"$SCRATCH/layout"
