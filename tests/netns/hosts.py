#!/usr/bin/env python3
# timeout: 600
"""Collectives of ranks that are spread over hosts in several ways: as many after each other on each host, by turns, one host with a single rank; each
chosen algorithm, each that is for several hosts forced, and the collectives that are the first on their communicator begun without waiting for them."""

import netns
from common import build, expect, finish

HOSTS = 3
BY_HOST = ",".join(f"{name}=hosts" for name in ("barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "reduce_scatter"))

netns.enter()
world = netns.World(HOSTS)
random, first = build("coll_random", "programs-c"), build("first", "netns")


def hydra(counts):
    """The words that start so many ranks on each host in turn."""
    words = world.hydra(1)
    at = words.index("-hosts")
    words[at + 1] = ",".join(f"node{host}:{count}" for host, count in counts)
    return [*words[:-1], sum(count for _, count in counts)]


LAYOUTS = {
    "2, 2, 2": [(1, 2), (2, 2), (3, 2)],
    "3, 1, 2": [(1, 3), (2, 1), (3, 2)],
    "by turns": [(1, 1), (2, 1), (3, 1), (1, 1), (2, 1), (3, 1)],
    "4 and 1": [(1, 4), (3, 1)],
}
for name, counts in LAYOUTS.items():
    for what, program, extra in [
        ("as chosen", random, {}),
        ("by host", random, {"WHIMBREL_ALGORITHMS": BY_HOST}),
        ("begun at once", first, {"WHIMBREL_ALGORITHMS": BY_HOST}),
    ]:
        status, text = world.run([*hydra(counts), program], {**world.variables(), **extra})
        expect(f"collectives {what}, hosts with {name} ranks", status == 0, text)
status, text = world.run([*hydra(LAYOUTS["2, 2, 2"]), random], {**world.variables(), "WHIMBREL_ALGORITHMS": "bcast=magic"})
expect("an algorithm that does not exist is told by name", status != 0 and "WHIMBREL_ALGORITHMS" in text and "scatter_ring" in text, text)
finish()
