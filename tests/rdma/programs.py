#!/usr/bin/env python3
# timeout: 1800
"""Programs over a soft RoCE device, as datagrams and over connections: messages up to 64 MiB, derived types, collectives, and those of tests/programs-c."""

import os

import guest

EVERYWHERE = ["p2p_sizes", "p2p_order", "p2p_modes", "p2p_unexpected", "p2p_probe", "p2p_truncate", "datatypes", "coll_values", "coll_vector", "coll_two"]
SECONDS = 600
LONG = float(os.environ.get("WHIMBREL_TEST_SCALE") or 1) >= 2
MOST_BYTES = 64 << 20 if LONG else 1 << 20

guest.need()
messages = guest.compile_program(guest.HERE / "messages.c")
fabrics = guest.run("whimbrel info --fabrics")
print(fabrics)
assert "rxe0 port 1: usable: RoCE v2 on dum0, GID ::ffff:10.99.0.1" in fabrics, fabrics
assert "siw0 port 1: usable: iWARP on dum0, 10.99.0.1, for WHIMBREL_VERBS=rc alone: it has no datagrams" in fabrics, fabrics

programs = [guest.compile_program(guest.ROOT / "tests/programs-c" / f"{name}.c") for name in EVERYWHERE[: None if LONG else 3]]
WAYS = {"ud": {"WHIMBREL_VERBS": "ud"}, "rc": {"WHIMBREL_VERBS": "rc"}, "rc, writing": {"WHIMBREL_VERBS": "rc", "WHIMBREL_VERBS_RENDEZVOUS": "write"},
        "rc, in pieces": {"WHIMBREL_VERBS": "rc", "WHIMBREL_VERBS_RENDEZVOUS": "pieces"}, "hybrid": {"WHIMBREL_VERBS": "hybrid", "WHIMBREL_VERBS_PRICE": "16"}}
for over, settings in WAYS.items():
    for ranks in (2, 4):
        # A device counts what it sends: the test's traffic cannot have gone another way.
        sent = "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
        job = f"before=$({sent}); mpiexec -n {ranks} {messages} {MOST_BYTES} && echo packets $(($({sent}) - before))"
        output = guest.run(job, seconds=SECONDS, **settings)
        print(f"{over}: {output}", end="")
        assert f"{ranks} ranks: all is well" in output, output
        assert int(output.split("packets ")[1].split()[0]) > ranks * MOST_BYTES // 4096, output
    print(guest.run("set -e; " + "; ".join(f"echo {one.name}; mpiexec -n 2 {one}" for one in programs), seconds=SECONDS, **settings))
