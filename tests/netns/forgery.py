#!/usr/bin/env python3
# timeout: 600
"""Somebody on the network, who sees every datagram and knows no key, sends noise, damaged, cut, spliced, old and foreign ones to a
running job: the result is right. 50,000 of them, a million with WHIMBREL_TEST_SCALE=2. Beside it the same flood goes to a socket on the
same hosts that nobody reads, so that what the forger itself and the kernel take is not put down to the job."""

import re
import statistics
import subprocess
import sys

import netns
from common import build, expect, finish

PER_S = 50_000

netns.enter()
world = netns.World(2, wire="forward", seed=11)
wire = world.wire
exchange = build("exchange", "netns")
scale = netns.scale()
wanted = 1_000_000 if scale >= 2 else 50_000
PIECE_KIB, WINDOW = 32, 8
SINK_PORT = 9
SINK = f"import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', {SINK_PORT})); print('ready', flush=True); input()"


def seconds(text):
    found = re.search(r"seconds=(\S+)", text)
    return float(found[1]) if found else None


def job(mib, forge, port=""):
    """Status, what was printed, and how many forged datagrams had come by the end."""
    running = world.start([*world.hydra(1), exchange, mib, PIECE_KIB, WINDOW], world.variables())
    if forge:
        wire.tell(f"forge {forge} {PER_S} {port}")
    status, text = netns.finish(running, 300)
    came = int(wire.tell("forged")[0].split("=")[1])
    wire.tell(f"forge 0 1")
    return status, text, came


status, text, _ = job(64, 0)
expect("the job without forgeries", status == 0 and seconds(text), text)
rate = 64 / (seconds(text) or 1)
# As long as the forgeries take, and half as long again, since it gets slower.
mib = max(16, int(rate * wanted / PER_S * (1.0 if scale >= 2 else 1.5)))
status, text, _ = job(mib, 0)
expect(f"{mib} MiB each way without forgeries: {seconds(text)} s", status == 0, text)
alone = seconds(text) or 1
sinks = [world.start([*world.on(number), sys.executable, "-c", SINK], stdin=subprocess.PIPE) for number in (1, 2)]
for sink in sinks:
    sink.stdout.readline()
sent, rounds, controls, floods = 0, 0, [], []
while sent < wanted and rounds < 10:
    status, text, beside = job(mib, wanted - sent, SINK_PORT)
    expect(f"{mib} MiB each way with {beside} forged datagrams to somebody else: {seconds(text)} s", status == 0, text)
    controls.append(seconds(text) or 0)
    status, text, came = job(mib, wanted - sent)
    sent += came
    rounds += 1
    expect(f"{mib} MiB each way with {came} forged datagrams: {seconds(text)} s", status == 0, text)
    floods.append(seconds(text) or 0)
    if status != 0:
        break
for sink in sinks:
    sink.communicate("")
control, flood = statistics.median(controls), statistics.median(floods)
print(f"alone {alone:.2f} s; beside the flood {control:.2f} s, {control / alone:.2f} times as long; under it {flood:.2f} s, {flood / max(control, 1e-9):.2f} times as long again")
expect(f"{sent} forged datagrams came while the job ran", sent >= wanted, "")
finish()
