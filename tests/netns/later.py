#!/usr/bin/env python3
# timeout: 300
"""Ways that are not there, or not known, when they are needed: a second link that has never been tried, one that comes up on both
hosts during the run, and one that comes up after the first has gone. `later.py untried|both|after` does one of them."""

import re
import sys
import time

import netns
from common import build, expect, finish

# A job that finds no other way in that time fails.
SILENCE_MS = 8000

netns.enter()
world = netns.World(2, rails=2, wire="forward", seed=5)
wire = world.wire
exchange, trickle = build("exchange", "netns"), build("trickle", "netns")
ours = {**world.variables(), "WHIMBREL_PEER_TIMEOUT": str(SILENCE_MS)}


def set_link(number, up):
    """The second link of a host. What the tests say of neighbours goes with a link that goes down."""
    other = 3 - number
    after = [f"ip neigh replace 10.11.0.{other} lladdr {netns.address(1, other)} dev rail1"] if up else []
    world._inside(number, f"ip link set rail1 {'up' if up else 'down'}", *after)


def over(rail):
    lines = [dict(word.split("=") for word in line.split()) for line in wire.tell("count")]
    return sum(int(line["bytes"]) for line in lines if line.get("rail") == str(rail))


def result(what, job, began, wanted=r"seconds=|longest_ms="):
    status, text = netns.finish(job, 60)
    longest = re.search(r"(?:stall|longest)_ms=(\S+)", text)
    detail = f" (longest wait {float(longest[1]):.0f} ms)" if longest else ""
    expect(f"{what}{detail}", began and status == 0 and re.search(wanted, text), f"{began}\n{text}\nstatus {status}")


def untried():
    """So little has been sent that only one pair of addresses was ever used."""
    for rail in world.rails:
        job = world.start([*world.hydra(1), trickle, 4], ours)
        began = "begun" in job.stdout.readline()
        wire.set(rail=rail, cut=1)
        result(f"rail {rail} cut when little has been sent: the other is found", job, began)
        wire.set(cut=0)


def both():
    """The second link comes up on both hosts, one after the other, is used, and carries all when the first is cut."""
    for number in (1, 2):
        set_link(number, False)
    wire.set(rate_mb_s=40)
    job = world.start([*world.hydra(1), exchange, 400], ours)
    time.sleep(1)
    set_link(2, True)
    time.sleep(1.5)
    set_link(1, True)
    began = "a quarter" in job.stdout.readline()
    time.sleep(2)
    before = over(1)
    wire.set(rail=0, cut=1)
    result("a link that came up on both hosts carries all when the other is cut", job, began)
    wire.set(cut=0, rate_mb_s=0)
    expect(f"it was used before: {before >> 20} MiB", before > 10 << 20, str(before))


def after():
    """One host's second link comes up when nothing else is left; the other host's is there from the start."""
    set_link(1, False)
    job = world.start([*world.hydra(1), trickle, 8], ours)
    began = "begun" in job.stdout.readline()
    wire.set(rail=0, cut=1)
    time.sleep(3)
    set_link(1, True)
    result("a link that comes up after the only one was cut is found", job, began)
    wire.set(cut=0)


chosen = sys.argv[1:] or ["untried", "both", "after"]
for name in chosen:
    {"untried": untried, "both": both, "after": after}[name]()
finish()
