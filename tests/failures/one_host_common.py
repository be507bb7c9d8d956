"""A rank of one host ends: what one_host.py and one_host_srun.py ask of the others."""

import re
import time

from common import build, expect, run

SILENCE_S, START_S = 2, 5
# What a busy machine may take besides.
MARGIN_S = 30
WHERE = ["receive", "any", "send", "test", "probe", "allreduce", "barrier", "persistent", "finalize"]
LIMITS = {"WHIMBREL_PEER_TIMEOUT": f"{SILENCE_S}s", "WHIMBREL_START_TIMEOUT": f"{START_S}s"}

program = build("one_host", "failures")


def go(name, launch, where, how, stated_s, extra):
    began = time.monotonic()
    status, text = run([*launch, program, where, how], {**LIMITS, **(extra or {})})
    took_s = time.monotonic() - began
    # It is a limit, not a duration: the margin is for a machine that does other things.
    expect(f"{name}, {where}, {how}: over within {stated_s} s ({took_s:.1f} s)", status is not None and took_s < stated_s + MARGIN_S, f"{text}\nstatus {status}")
    return text


def go_on(name, launch, where, how, extra=None):
    """A rank ends in or before the call `where`; the others find that out, and finalize."""
    # Seen twice, each half of the silence; and as long again to finalize.
    text = go(name, launch, where, how, 4 * SILENCE_S + 2, extra)
    expect(f"{name}, {where}, {how}: the others have finalized", sorted(re.findall(r"^rank (\d) has finalized$", text, re.M)) == ["0", "2"], text)


def meet(name, launch, where, how, extra=None):
    """A rank ends before all have met."""
    text = go(name, launch, where, how, START_S, extra)
    told = [line for line in text.splitlines() if "WHIMBREL_START_TIMEOUT" in line]
    expect(f"{name}, {where}, {how}: a line says which limit has passed", told, text)
