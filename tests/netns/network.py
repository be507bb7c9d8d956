#!/usr/bin/env python3
# timeout: 120
"""The test hosts themselves: nothing but the wire joins them, what the forwarder is told happens to datagrams on it, and
nothing stays when their process is killed."""

import os
import signal
import subprocess
import sys
import time

import netns
from common import expect, finish, run

netns.enter()

RECEIVE = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", 7000)); s.settimeout(0.5)
s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
print("ready", flush=True)
numbers, wrong, bytes, first, last = [], 0, 0, None, 0
s.settimeout(2)
while True:
    try: d = s.recv(65536)
    except TimeoutError: break
    s.settimeout(0.5)
    last = time.monotonic(); first = first or last
    bytes += len(d)
    body = d[4:]
    if body != b"x" * len(body) or not body: wrong += 1
    else: numbers.append(int.from_bytes(d[:4], "little"))
back = sum(b < a for a, b in zip(numbers, numbers[1:]))
print(len(numbers) + wrong, len(set(numbers)), wrong, back, bytes / max(last - (first or 0), 1e-9) / 1e6)
"""
# By groups that the kernel cuts (UDP_SEGMENT).
SEND = """
import socket, sys, time
count, gap_s = int(sys.argv[1]), float(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[3], 7000)); s.setsockopt(17, 103, 1200)
for first in range(0, count, 20):
    s.send(b"".join(i.to_bytes(4, "little") + b"x" * 1196 for i in range(first, first + 20)))
    if gap_s: time.sleep(gap_s)
"""


def flow(world, count, gap_s=0.0, rail=0):
    """Arrived, different, wrong, and out of order; MB/s."""
    receiver = world.start([*world.on(2), sys.executable, "-c", RECEIVE])
    receiver.stdout.readline()
    world.run([*world.on(1), sys.executable, "-c", SEND, count, gap_s, f"10.{10 + rail}.0.2"])
    _, text = netns.finish(receiver, 60)
    *counts, rate = text.split()
    return [int(count) for count in counts], float(rate)


world = netns.World(2, rails=2, wire="forward")
for name in world.names:
    number = world.names.index(name) + 1
    _, text = world.run([*world.on(number), "sh", "-c", "hostname; ls /dev/shm; ls /sys/class/net; touch /dev/shm/mine; ps -A | wc -l"])
    words = text.split()
    alone = words[0] == name and "mine" not in words and words[1:-1] == ["lo", "mgmt", "rail0", "rail1"] and int(words[-1]) < 10
    expect(f"{name} has a name, interfaces, shared memory and processes of its own", alone, text)

COUNT = 20_000
GAP_S = 0.0005
wire = world.wire
(came, different, wrong, back), rate = flow(world, COUNT, GAP_S)
expect(f"a calm wire loses nothing ({rate:.0f} MB/s)", (came, different, wrong, back) == (COUNT, COUNT, 0, 0), str((came, different, wrong, back)))


def about(found, share):
    return share * COUNT * 0.7 < found < share * COUNT * 1.3


for setting in ["loss", "duplicate", "reorder", "corrupt"]:
    before = wire.count()
    wire.set(**{setting: 0.05})
    counts, _ = flow(world, COUNT, GAP_S)
    came, different, wrong, back = counts
    wire.calm()
    counted = {name: value - before[name] for name, value in wire.count().items()}
    seen = {"loss": COUNT - came, "duplicate": came - different, "reorder": back, "corrupt": wrong + (COUNT - different - wrong)}[setting]
    others = counted["overrun"] + counted["refused"] + counted["overflowed"]
    expect(f"{setting} of 5 % is what a socket sees: {seen} of {COUNT}", about(seen, 0.05) and others == 0, f"{counts} {counted}")

wire.set(rate_mb_s=2)
before = wire.count()["overflowed"]
counts, rate = flow(world, COUNT)
dropped = wire.count()["overflowed"] - before
expect(f"a rate of 2 MB/s drops what its queue does not hold: {dropped} of {COUNT}; {rate:.1f} MB/s came", dropped > 0 and counts[0] + dropped == COUNT, f"{counts}")
wire.calm()
wire.set(rail=0, cut=1)
counts, _ = flow(world, 1000, GAP_S)
expect("nothing passes a rail that is cut", counts[0] == 0, str(counts))
counts, _ = flow(world, 1000, GAP_S, rail=1)
expect("the other rail goes on", counts[0] == 1000, str(counts))
wire.set(cut=0)
counts, _ = flow(world, 1000, GAP_S)
expect("a restored rail is as before", counts[0] == 1000, str(counts))
try:
    wire.set(loss=2)
    expect("a setting that is none is refused", False, "")
except RuntimeError as error:
    expect("a setting that is none is refused", "out of range" in str(error), str(error))

# A world within this one, killed without a word.
program = f"import sys; sys.path.insert(0, {str(netns.ROOT / 'tests/netns')!r}); import netns, time; netns.enter(); w = netns.World(2, wire='forward'); " \
          "w.start([*w.on(1), 'sleep', '98765']); print('up', flush=True); time.sleep(60)"
script = netns.SCRATCH / "inner.py"
script.write_text(program)
inner = netns.SCRATCH / "inner"
inner.mkdir(exist_ok=True)
environment = {name: value for name, value in os.environ.items() if name != netns.INSIDE}
child = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env={**environment, "SCRATCH": str(inner)})
said = child.stdout.readline()
_, before = run(["ps", "-A", "-o", "args"])
child.send_signal(signal.SIGKILL)
child.wait()
deadline = time.monotonic() + 5
while "sleep 98765" in (after := run(["ps", "-A", "-o", "args"])[1]) and time.monotonic() < deadline:
    time.sleep(0.05)
expect("a world that is killed leaves no process", said == "up\n" and "sleep 98765" in before and "98765" not in after and "release/forward" in after, before + after)
world.close()
finish()
