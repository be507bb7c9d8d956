#!/usr/bin/env python3
# timeout: 600
"""Two hosts joined by two rails of limited rate: both together carry more than one, one that is cut is left for the other, and
where all are cut every operation ends in an error. WHIMBREL_TEST_SCALE times 64 MiB are exchanged. `rails.py
ratio|one_cut|all_cut` does one of them; RATE_MB_S is another rate, 0 for any."""

import os
import re
import statistics
import sys
import time

import netns
from common import SCRATCH, build, expect, finish

# Each way, of each rail; two of this rate leave the processors time.
RATE_MB_S = float(os.environ.get("RATE_MB_S", 40))
# What looking at the last of a silent peer may take; the machine may be busy.
MARGIN_S = 30
ROUNDS = 3

netns.enter()
world = netns.World(2, rails=2, wire="forward", seed=9)
wire, scale = world.wire, netns.scale()
exchange, pending = build("exchange", "netns"), build("pending", "netns")
ours = world.variables()


def measured(text):
    found = re.search(r"seconds=(\S+) each_way_mb_s=(\S+) stall_ms=(\S+)", text)
    return [float(number) for number in found.groups()] if found else None


def carried():
    """Bytes over each rail so far, both ways."""
    lines = [dict(word.split("=") for word in line.split()) for line in wire.tell("count")]
    return [sum(int(line["bytes"]) for line in lines if line.get("rail") == str(rail)) for rail in world.rails]


def ratio():
    """Both rails against the first alone, in turns."""
    mib, rates = 32 * max(1, int(scale)), {1: [], 2: []}
    for _ in range(ROUNDS if scale >= 2 else 1):
        for rails, found in rates.items():
            before = carried()
            status, text = world.run([*world.hydra(1), exchange, mib], world.variables(range(rails)), 120)
            figures = measured(text)
            expect(f"{mib} MiB each way over {rails} of the rails: {figures and figures[1]} MB/s each way", status == 0 and figures, text)
            found.append(figures[1] if figures else 0)
            now = carried()
            shares = [(now[rail] - before[rail]) / max(sum(now) - sum(before), 1) for rail in world.rails]
    one, two = statistics.median(rates[1]), statistics.median(rates[2])
    print(f"both rails: {two:.1f} MB/s each way, one: {one:.1f}; ratio {two / max(one, 1e-9):.2f} (goal 1.7)")
    expect(f"both are used: {shares[0]:.0%} and {shares[1]:.0%} of the bytes", min(shares) > 0.25, "")


def one_cut():
    """The first, then the second, after a quarter of the exchange."""
    mib = int(64 * scale)
    for rail in world.rails:
        before = wire.count()["cut"]
        job = world.start([*world.hydra(1), exchange, mib], ours)
        said = job.stdout.readline()
        if "a quarter" in said:
            wire.set(rail=rail, cut=1)
        status, text = netns.finish(job, 60 + mib)
        lost = wire.count()["cut"] - before
        wire.set(cut=0)
        figures = measured(text)
        stall = f", longest stall {figures[2]:.0f} ms of {figures[0]:.1f} s (goal: under 1000)" if figures else ""
        expect(f"rail {rail} cut during {mib} MiB each way: every byte arrives{stall}", status == 0 and figures and lost > 0, f"{said}{text}lost by the cut: {lost}")


def all_cut():
    # Within which a peer that answers on no rail is declared failed: 20 s where nothing else is said (docs/design.md).
    silence_s = 20 if scale >= 2 else 3
    job = world.start([*world.hydra(1), pending], {**ours, "WHIMBREL_PEER_TIMEOUT": str(silence_s * 1000)})
    said = job.stdout.readline()
    wire.set(cut=1)
    began = time.monotonic()
    status, text = netns.finish(job, silence_s + MARGIN_S)
    took = time.monotonic() - began
    wire.set(cut=0)
    found = re.findall(r"rank (\d): (.*): (done|error) after (\S+) s", text)
    wrong = [f"rank {rank}: {what}" for rank, what, how, _ in found if how != "error"]
    late = max([float(after) for *_, after in found] or [0])
    good = said == "posted\n" and len(found) == 8 + 6 + 1 + 1 and not wrong and text.count("through") == 2
    expect(f"all rails cut: {len(found)} operations end in an error, the last after {late:.1f} s of {silence_s} (job over after {took:.1f} s)", good,
           f"{said}{text}\nnot an error: {wrong}; status {status}")


chosen = sys.argv[1:] or ["ratio", "one_cut", "all_cut"]
wire.set(rate_mb_s=RATE_MB_S)
if "ratio" in chosen:
    ratio()
if "one_cut" in chosen:
    one_cut()
wire.set(rate_mb_s=0)
if "all_cut" in chosen:
    all_cut()
finish()
