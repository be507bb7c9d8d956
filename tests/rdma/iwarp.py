#!/usr/bin/env python3
# timeout: 1800
"""Programs over connections of a soft iWARP device, which the system's connection manager makes: messages, derived types, collectives, and those of
tests/programs-c; on two hosts, too, between which packets are lost. Datagrams, which it has not, are refused with words, and so is a device without an
address of its own."""

import os
import re

import guest

EVERYWHERE = ["p2p_sizes", "p2p_order", "p2p_modes", "p2p_unexpected", "p2p_probe", "p2p_truncate", "datatypes", "coll_values", "coll_vector", "coll_two"]
SECONDS = 600
LONG = float(os.environ.get("WHIMBREL_TEST_SCALE") or 1) >= 2
MOST_BYTES = 64 << 20 if LONG else 1 << 20
SIW = {"WHIMBREL_VERBS": "rc", "WHIMBREL_NET": "siw0"}

guest.need()
messages = guest.compile_program(guest.HERE / "messages.c")
meets = guest.compile_program(guest.HERE / "meets.c")
programs = [guest.compile_program(guest.ROOT / "tests/programs-c" / f"{name}.c") for name in EVERYWHERE[: None if LONG else 3]]

# Segments of TCP that the host has sent: those of the launcher are few.
segments = "awk '/^Tcp:/ { line++; if (line == 2) print $12 }' /proc/net/snmp"
for ranks in (2, 4):
    output = guest.run(f"before=$({segments}); mpiexec -n {ranks} {messages} {MOST_BYTES} && echo segments $(($({segments}) - before))", seconds=SECONDS, **SIW)
    print(output, end="")
    assert f"{ranks} ranks: all is well" in output, output
    # Of 64 KiB each, at most.
    assert int(output.split("segments ")[1].split()[0]) > ranks * MOST_BYTES >> 16, output
print(guest.run("set -e; " + "; ".join(f"echo {one.name}; mpiexec -n 2 {one}" for one in programs), seconds=SECONDS, **SIW))

# Calls that cross.
jobs = 40 if LONG else 8
output = guest.run(f"set -e; for i in $(seq {jobs}); do for ranks in 2 4 7; do mpiexec -n $ranks {meets}; done; done", seconds=SECONDS, **SIW)
assert [output.count(f"{ranks} ranks have met") for ranks in (2, 4, 7)] == [jobs] * 3, output
print(f"{jobs} jobs each of 2, 4 and 7 ranks have met")

drop = "; ".join(
    f"ip netns exec N{one} nft 'add table inet t; add chain inet t in {{ type filter hook input priority 0; }}; "
    f"add rule inet t in iifname v{one} numgen random mod 100 < 2 counter drop'"
    for one in "ab"
)
ranks = [guest.hydra(2, meets), guest.hydra(2, f"{messages} 65536")]
output = guest.run(f"set -e; {ranks[0]}; {drop}; {ranks[1]}; ip netns exec Na nft list ruleset", devices="two_iwarp", seconds=SECONDS, WHIMBREL_VERBS="rc")
lost = sum(int(count) for count in re.findall(r"counter packets (\d+)", output))
assert "4 ranks have met" in output and "4 ranks: all is well" in output and lost > 10, output
print(f"two hosts: {lost} packets lost on the way to one of them, none of the messages")

status, output = guest.outcome(f"mpiexec -n 2 {messages} 1", WHIMBREL_NET="siw0")
print(output)
assert status != 0 and re.search("WHIMBREL_FABRIC=verbs: .*siw0 port 1: iWARP on dum0, 10.99.0.1, for WHIMBREL_VERBS=rc alone", output), f"exit status {status}"

status, output = guest.outcome(f"rdma link del siw0; rdma link add siw0 type siw netdev dum0; whimbrel info --fabrics; mpiexec -n 2 {messages} 1", **SIW)
print(output)
assert status != 0 and "siw0 port 1: not usable: no IP address of this host leads to it (10.99.0.1 belongs to rxe0)" in output, f"exit status {status}"
