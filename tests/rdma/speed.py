#!/usr/bin/env python3
# timeout: 600
# long: prints figures, and asserts none
"""What messages over datagrams of a soft RoCE device take, beside perftest on the same device: printed, not asserted."""

import re

import guest

guest.need([("ib_send_lat", "perftest"), ("ib_send_bw", "perftest")])
speed = guest.compile_program(guest.HERE / "speed.c")
perftest = "-d rxe0 -x 1 -c UD -F"


def pair(tool, options):
    return f"({tool} {perftest} {options} >/dev/null & sleep 0.5; {tool} {perftest} {options} 10.99.0.1; wait)"


print("over verbs:", guest.run(f"mpiexec -n 2 {speed}").strip())
print("over UDP:  ", guest.run(f"mpiexec -n 2 {speed}", WHIMBREL_FABRIC="udp", WHIMBREL_NET="dum0").strip())
latency = guest.run(pair("ib_send_lat", "-s 8 -n 2000"))
bandwidth = guest.run(pair("ib_send_bw", "-s 4096 -n 5000"))
typical = re.search(r"^ *8 +2000 +\S+ +\S+ +(\S+)", latency, re.M)
average = re.search(r"^ *4096 +5000 +\S+ +(\S+)", bandwidth, re.M)
assert typical and average, latency + bandwidth
print(f"perftest:   8 bytes one way {typical[1]} us (ib_send_lat, typical), datagrams of 4096 bytes {average[1]} MiB/s (ib_send_bw)")
