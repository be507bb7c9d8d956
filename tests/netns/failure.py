#!/usr/bin/env python3
# timeout: 200
"""One of three hosts' ranks is killed: the others see every operation that needs it fail with an error that names it and its host, go
on among themselves, and finalize without it, where the launcher lets them."""

import re
import time

import netns
from common import build, expect, finish

SILENCE_MS = 1500
# What the survivors do besides, and what a busy machine may take for it.
MARGIN_S = 40

netns.enter()
world = netns.World(3)
survivors = build("survivors", "udp")
# Otherwise Hydra ends the job with the first rank that ends badly.
hydra, *options = world.hydra(1)
for progress, when in [("auto", []), ("thread", []), ("auto", ["late"])]:
    command = [hydra, "-disable-auto-cleanup", *options, survivors, "kill", *when]
    began = time.monotonic()
    extra = {**world.variables(), "WHIMBREL_PEER_TIMEOUT": str(SILENCE_MS), "WHIMBREL_PROGRESS": progress}
    status, text = world.run(command, extra, 2 * SILENCE_MS / 1000 + MARGIN_S)
    said = sorted(re.findall(r"^rank \d has gone on and finalized$", text, re.M))
    named = len(re.findall(r"^rank [02]: .*rank 1 of MPI_COMM_WORLD .* on host node2 and has not answered", text, re.M))
    good = named == (0 if when else 2) and said == [f"rank {rank} has gone on and finalized" for rank in (0, 2)] and status is not None
    expect(f"progress {progress}{', at the end' if when else ''}: two go on and finalize without the third ({time.monotonic() - began:.1f} s)", good, f"{text}\nstatus {status}")
# Two ranks of one host end between MPI_Finalize's barrier and the last meeting, when all others have sent to one of them; and when nothing is under way,
# several times: what comes of that depends on who finds out first.
hydra, *options = world.hydra(2)
for name in ["departed"] + ["departed_idle"] * 4:
    began = time.monotonic()
    extra = {**world.variables(), "WHIMBREL_PEER_TIMEOUT": str(SILENCE_MS), "WHIMBREL_REPORT": "on"}
    status, text = world.run([hydra, "-disable-auto-cleanup", *options, build(name, "udp"), 2], extra, 2 * SILENCE_MS / 1000 + MARGIN_S)
    said = sorted(re.findall(r"^rank \d has finalized$", text, re.M))
    good = said == [f"rank {rank} has finalized" for rank in range(2, 6)] and status is not None
    expect(f"{name}: four finalize without two ({time.monotonic() - began:.1f} s)", good, f"{text}\nstatus {status}")
finish()
