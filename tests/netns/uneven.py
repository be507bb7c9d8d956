#!/usr/bin/env python3
# timeout: 300
"""Hosts that are not alike: one of two rails and one of a single one, which use every pair of their addresses; links of different
lengths of datagrams, of which the longest that gets through is found. `uneven.py rails|lengths` does one of them."""

import re
import sys

import netns
from common import build, expect, finish

LONG_MTU = 9000

netns.enter()
world = netns.World(2, rails=2, wire="bridge", mtu=LONG_MTU)
exchange = build("exchange", "netns")
MIB = int(32 * max(1, netns.scale()))
# Each datagram is a frame of its own, so that frames can be counted.
for number in (1, 2):
    world._inside(number, *(f"ethtool -K rail{rail} tx off sg off tso off gso off gro off >/dev/null" for rail in world.rails))


def sent(number, rail):
    """Bytes and frames that a host has sent on a rail."""
    read = f"cat /sys/class/net/rail{rail}/statistics/tx_bytes /sys/class/net/rail{rail}/statistics/tx_packets"
    status, text = world.run([*world.on(number), "sh", "-c", read])
    assert status == 0, text
    return [int(word) for word in text.split()]


def run(what, ours, cut=None):
    """Exchanges; by host and rail, bytes and bytes a frame."""
    before = {(number, rail): sent(number, rail) for number in (1, 2) for rail in world.rails}
    job = world.start([*world.hydra(1), exchange, MIB], ours)
    said = job.stdout.readline()
    if cut and "a quarter" in said:
        netns.shell(f"ip link set {cut} down")
    status, text = netns.finish(job, 60 + MIB)
    if cut:
        netns.shell(f"ip link set {cut} up")
    expect(f"{what}: {MIB} MiB each way arrive", status == 0 and re.search(r"seconds=", text), said + text)
    after = {at: sent(*at) for at in before}
    moved = {at: [now - then for now, then in zip(after[at], before[at])] for at in before}
    return {at: (total, total / max(frames, 1)) for at, (total, frames) in moved.items()}


def rails():
    """The second rail of host 1 joins the network of the first; host 2 has but one."""
    second = "10.10.0.11"
    world._inside(2, "ip link set rail1 down", f"ip neigh add {second} lladdr {netns.address(1, 1)} dev rail0")
    world._inside(1, f"ip addr flush dev rail1", f"ip addr add {second}/24 dev rail1", f"ip rule add from {second} table 11",
                  "ip route add 10.10.0.0/24 dev rail1 table 11", f"ip neigh add 10.10.0.2 lladdr {netns.address(0, 2)} dev rail1")
    netns.shell("ip link set r1h1 master rail0")
    ours = {**world.variables([0])}
    shares = run("two rails and one", ours)
    total = sum(shares[1, rail][0] for rail in world.rails)
    share = shares[1, 1][0] / total
    # Both go through the same processors, which bound them before any wire does: their shares are what the scheduler makes of them.
    expect(f"the second rail of the host with two carries {share:.0%}", 0.1 < share < 0.9, str(shares))
    run("two rails and one, of which one is cut", ours, cut="r1h1")
    netns.shell("ip link set r1h1 master rail1")
    world._inside(1, f"ip rule del from {second} table 11", "ip addr flush dev rail1", "ip addr add 10.11.0.1/24 dev rail1",
                  f"ip neigh replace 10.11.0.2 lladdr {netns.address(1, 2)} dev rail1")
    world._inside(2, "ip link set rail1 up", f"ip neigh replace 10.11.0.1 lladdr {netns.address(1, 1)} dev rail1")
    world._await_carrier()


def lengths():
    def each_frame(what, wanted, bound):
        found = run(what, ours)
        lengths = {at: round(length) for at, (total, length) in found.items() if total > 1 << 20}
        expect(f"{what}: bytes a frame by host and rail {lengths} ({wanted})", lengths and all(bound(length) for length in lengths.values()), str(found))

    ours = world.variables([1])
    # The first transfers begin before the answer to the long probe is there.
    each_frame("both ends long", "above 2500", lambda length: length > 2500)
    world._inside(2, "ip link set rail1 mtu 1500")
    each_frame("one end short", "at most 1514", lambda length: length <= 1514)
    world._inside(2, f"ip link set rail1 mtu {LONG_MTU}")
    netns.shell("ip link set r1h2 mtu 1500")
    each_frame("both ends long, something between short", "at most 1514", lambda length: length <= 1514)
    netns.shell(f"ip link set r1h2 mtu {LONG_MTU}")
    for number in (1, 2):
        world._inside(number, "ip link set rail0 mtu 1500")
    ours = world.variables()
    each_frame("a long rail and a short one", "at most 1514", lambda length: length <= 1514)
    for number in (1, 2):
        world._inside(number, f"ip link set rail0 mtu {LONG_MTU}")


chosen = sys.argv[1:] or ["lengths", "rails"]
if "lengths" in chosen:
    lengths()
if "rails" in chosen:
    rails()
finish()
