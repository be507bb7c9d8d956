#!/usr/bin/env python3
# timeout: 900
"""One of four ranks on two hosts, or both of one host, ends in the middle of whatever all are doing: killed, stopped for a while,
by exit, by MPI_Abort, or by finalizing early. All others end in an error or finish, whatever their error handlers; none waits for
ever. WHIMBREL_TEST_SCALE: from 2 on each of them may be the one, from 4 on more than once, at other moments. `endings.py WORD…`
does those whose name has all words."""

import itertools
import re
import sys
import time

import netns
from common import SCRATCH, build, expect, finish

SILENCE_MS = 1500
# What is stated: waiting for a second makes a peer matter, its silence is borne once, and as long again passes where it is another that has to find out.
# Then a rank finalizes within twice the silence and a second.
FOUND_S = 3 * SILENCE_MS / 1000 + 2
FINALIZED_S = 2 * SILENCE_MS / 1000 + 1
# What a busy machine may take besides, in a rank, and to start and end the job.
MARGIN_S, JOB_MARGIN_S = 10, 40
RANKS = 4
PATTERNS = ["across", "beside", "ring", "allreduce", "barrier"]
CASES = [*itertools.product(PATTERNS, ["kill"], ["return"]), *itertools.product(["across", "ring", "allreduce"], ["stop"], ["return"]),
         ("ring", "exit", "return"), ("host", "kill", "return"), ("create", "kill", "stay"), ("ring", "kill", "stay"),
         ("allreduce", "kill", "stay"), ("barrier", "exit", "stay"), ("beside", "kill", "fatal"), ("allreduce", "exit", "fatal"),
         ("beside", "abort", "return"), ("eager", "finalize", "return"), ("allreduce", "kill", "return", "2-3")]

netns.enter()
world = netns.World(2)
endings = build("endings", "netns")
hydra, *options = world.hydra(RANKS // 2)
# Hydra ends all ranks of a host where one ends by a signal, and the job where it is not told otherwise.
unseen = ["sh", "-c", "trap '' USR1; \"$@\"; exit 0", "rank"]
scale, words = netns.scale(), sys.argv[1:]
for number, (pattern, ending, handler, *host) in enumerate(CASES):
    victims = host or (range(RANKS) if scale >= 2 else [(number + 1) % RANKS])
    for seed, victim in itertools.product(range(max(1, int(scale / 2))), victims):
        name = f"{pattern}, {ending}, rank {victim}, {handler}"
        if not all(word in name for word in words):
            continue
        for rank in range(RANKS):
            (SCRATCH / f"ended.{rank}").unlink(missing_ok=True)
        began = time.monotonic()
        extra = {**world.variables(), "WHIMBREL_PEER_TIMEOUT": str(SILENCE_MS)}
        command = [hydra, "-disable-auto-cleanup", *options, *unseen, endings, pattern, ending, victim, handler, seed]
        status, text = world.run(command, extra, JOB_MARGIN_S)
        ended = [*map(int, str(victim).split("-"))] if ending not in ("stop", "finalize") else []
        left = [rank for rank in range(RANKS) if rank not in ended]
        good = status is not None
        if handler != "fatal" and ending != "abort":
            good &= sorted(map(int, re.findall(r"^rank (\d): finalized after .* (?:well|early)$", text, re.M))) == left
        expect(f"{name}: the others end, too ({time.monotonic() - began:.1f} s)", good, f"{text}\nstatus {status}")
        # A rank that was stopped, or stays, does so for as long as it was told to.
        stopped_s, stays_s = 3 * SILENCE_MS / 1000 * (ending == "stop"), 4 * SILENCE_MS / 1000 * (handler == "stay")
        found_s = [float(after) for after in re.findall(r"^rank \d: class \d+ after ([0-9.]+) s$", text, re.M)]
        finalized_s = [float(after) for after in re.findall(r"^rank \d: finalized after ([0-9.]+) s", text, re.M)]
        limit_s = FOUND_S + stopped_s + MARGIN_S
        expect(f"{name}: errors come in the stated time ({max(found_s, default=0)} s)", all(after < limit_s for after in found_s), text)
        limit_s += stays_s + FINALIZED_S
        expect(f"{name}: ranks finalize in the stated time ({max(finalized_s, default=0)} s)", all(after < limit_s for after in finalized_s), text)
finish()
