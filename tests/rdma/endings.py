#!/usr/bin/env python3
# timeout: 300
"""How jobs over verbs end: a rank that is killed ends the job as over any fabric; a link that goes down makes its peers fail after the time that is stated, and
a device that is missing is named. Over iWARP the same, where TCP would wait for a silent peer for a quarter of an hour."""

import guest

guest.need()
waits = guest.compile_program(guest.HERE / "waits.c")

status, output = guest.outcome(f"mpiexec -n 2 {waits} kill", seconds=100)
print(output)
assert status == 137 and "rank 1" in output and "SIGKILL" in output, f"exit status {status}"

down = f"(sleep 3; ip -n Na link set va down) & {guest.hydra(1, f'{waits} talk')}"
status, output = guest.outcome(down, devices="two", seconds=100, WHIMBREL_PEER_TIMEOUT="2000")
print(output)
assert status != 0 and "has not answered on any network for 2000 ms" in output, f"exit status {status}"

siw = {"WHIMBREL_VERBS": "rc", "WHIMBREL_NET": "siw0"}
status, output = guest.outcome(f"mpiexec -n 2 {waits} kill", seconds=100, **siw)
print(output)
assert status == 137 and "rank 1" in output and "SIGKILL" in output, f"exit status {status}"

down = f"(sleep 3; ip -n Na link set va down) & {guest.hydra(1, f'{waits} talk')}"
status, output = guest.outcome(down, devices="two_iwarp", seconds=100, WHIMBREL_VERBS="rc", WHIMBREL_PEER_TIMEOUT="2000")
print(output)
assert status != 0 and "for 2000 ms (nothing comes from it)" in output, f"exit status {status}"

# What passes between addresses of one host passes `lo`. Before the first connection, and in the middle of messages.
drop = "nft 'add table inet t; add chain inet t in { type filter hook input priority 0; }; add rule inet t in ip daddr 10.99.0.1 tcp dport > 0 drop'"
for silence, words in (f"{drop};", "a request for a connection is not answered"), (f"(sleep 3; {drop}) &", "nothing comes from it"):
    status, output = guest.outcome(f"{silence} mpiexec -n 2 {waits} talk", seconds=100, WHIMBREL_PEER_TIMEOUT="2000", **siw)
    print(output)
    assert status != 0 and "it does not answer siw0 port 1" in output and f"for 2000 ms ({words})" in output, f"exit status {status}"

status, output = guest.outcome(f"mpiexec -n 2 {waits} talk", seconds=100, WHIMBREL_NET="eth7")
print(output)
assert status != 0 and "WHIMBREL_FABRIC=verbs: siw0 port 1: iWARP" in output and "; rxe0 port 1: RoCE v2" in output, f"exit status {status}"
assert output.count("which WHIMBREL_NET leaves out") == 2
