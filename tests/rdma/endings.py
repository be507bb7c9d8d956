#!/usr/bin/env python3
# timeout: 300
"""How jobs over verbs end: a rank that is killed ends the job as over any fabric; a link that goes down makes its peers fail after the time that is stated, and
a device that is missing is named."""

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

status, output = guest.outcome(f"mpiexec -n 2 {waits} talk", seconds=100, WHIMBREL_NET="eth7")
print(output)
assert status != 0 and "WHIMBREL_FABRIC=verbs: rxe0 port 1: RoCE v2" in output and "WHIMBREL_NET leaves out" in output, f"exit status {status}"
