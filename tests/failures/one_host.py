#!/usr/bin/env python3
# timeout: 900
"""A rank of one host ends under a launcher that lets the others go on: those that need it end in an error within the stated time, and finalize. One
that ends before all have met ends the others' MPI_Init."""

import os
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launch"))
from common import build, expect, finish, run, wheel  # noqa: E402

SILENCE_S, START_S = 2, 5
# What a busy machine may take besides.
MARGIN_S = 30
WHERE = ["receive", "any", "send", "test", "probe", "allreduce", "barrier", "persistent", "finalize"]

hydra = str(wheel("tests/abi/mpich") / "bin/mpiexec.hydra")
program = build("one_host", "failures")
# Hydra ends all ranks of a host where one ends by a signal.
unseen = ["sh", "-c", "trap '' USR1; \"$@\"; exit 0", "rank"]
extra = {"WHIMBREL_PEER_TIMEOUT": f"{SILENCE_S}s", "WHIMBREL_START_TIMEOUT": f"{START_S}s"}
words = sys.argv[1:]


def go(where, how, stated_s):
    began = time.monotonic()
    status, text = run([hydra, "-disable-auto-cleanup", "-n", "3", *unseen, program, where, how], extra)
    took_s = time.monotonic() - began
    # It is a limit, not a duration: the margin is for a machine that does other things.
    expect(f"{where}, {how}: over within {stated_s} s ({took_s:.1f} s)", status is not None and took_s < stated_s + MARGIN_S, f"{text}\nstatus {status}")
    return text


for number, where in enumerate(WHERE):
    if words and where not in words:
        continue
    how = ["kill", "exit", "well"][number % 3]
    # Seen twice, each half of the silence; and as long again to finalize.
    text = go(where, how, 4 * SILENCE_S + 2)
    expect(f"{where}, {how}: the others have finalized", sorted(re.findall(r"^rank (\d) has finalized$", text, re.M)) == ["0", "2"], text)
for where, how in [("before", "exit"), ("before", "kill"), ("within", "kill")]:
    if words and where not in words:
        continue
    text = go(where, how, START_S)
    told = [line for line in text.splitlines() if "WHIMBREL_START_TIMEOUT" in line]
    expect(f"{where}, {how}: a line says which limit has passed", told, text)
finish()
