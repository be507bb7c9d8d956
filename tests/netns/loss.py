#!/usr/bin/env python3
# timeout: 3600
"""Two hosts of two ranks, and a network that loses, doubles, reorders and damages datagrams: programs and mpi4py's own tests get
right answers, and goodput falls no further than it has to. WHIMBREL_TEST_SCALE: 1 a few programs at the worst level, 2 all levels, and
mpi4py's tests at the two worst, 4 these at all, and all programs of tests/programs-c for two or four ranks. `loss.py goodput` measures alone
(`loss.py goodput 40` on a wire of 40 MB/s, 0 for any), `loss.py '5 %'` takes the levels
whose name has that."""

import json
import re
import statistics
import sys
import time

import netns
from common import ROOT, SAMPLES, SCRATCH, build, expect, finish, python

LEVELS = {
    "0.1 % lost": {"loss": 0.001},
    "1 % lost": {"loss": 0.01},
    "5 % lost": {"loss": 0.05},
    "1 % each doubled, reordered, damaged": {"duplicate": 0.01, "reorder": 0.01, "corrupt": 0.01},
}
HARSH = "1 % each lost, doubled, reordered, damaged"
WORST = ["5 % lost", HARSH]
MODULES = ["p2p_buf", "p2p_buf_matched", "p2p_buf_part", "p2p_obj", "p2p_obj_matched", "request", "status", "cco_buf", "cco_buf_inter", "cco_nb_buf",
           "cco_nb_vec", "cco_ngh_buf", "cco_ngh_obj", "cco_obj", "cco_obj_inter", "cco_pr_buf", "cco_pr_ngh_buf", "cco_pr_vec", "cco_vec", "cco_vec_inter"]
# Goodput that is wanted, of what there is without loss.
GOALS = {0.001: 0.9, 0.01: 0.8, 0.05: 0.5}
ROUNDS = 3
LIMIT_S = 300

netns.enter()
world = netns.World(2, wire="forward", seed=7)
wire, scale = world.wire, netns.scale()


def programs():
    return [program for program in netns.programs() if scale >= 4 or program.name in SAMPLES]


def correct():
    built = {program: build(program.name, "programs-c") for program in programs()}
    levels = {HARSH: {"loss": 0.01, **LEVELS["1 % each doubled, reordered, damaged"]}}
    if scale >= 2:
        levels = {level: settings for level, settings in {**LEVELS, **levels}.items() if chosen in level}
    for level, settings in levels.items():
        wire.calm()
        wire.set(**settings)
        before = wire.count()
        for program, binary in built.items():
            began = time.monotonic()
            status, text = world.run([*world.hydra(program.each), binary, *program.arguments], world.variables(), LIMIT_S)
            expect(f"{level}: {program.name} ({time.monotonic() - began:.1f} s)", status == 0, text)
        if scale >= 4 or scale >= 2 and level in WORST:
            mpi4py(level)
        happened = {name: count - before[name] for name, count in wire.count().items() if count > before[name]}
        wanted = {"loss": "lost", "duplicate": "duplicated", "reorder": "reordered", "corrupt": "damaged"}
        expect(f"{level}: accidents happened: {happened}", all(happened.get(wanted[name], 0) > 0 for name in settings), str(happened))
    wire.calm()


def mpi4py(level):
    interpreter = python()
    source = ROOT / ".cache/mpi4py/mpi4py-4.1.2/test"
    if not interpreter or not source.exists():
        print("skip  mpi4py's tests: tests/abi/mpi4py.sh has not built it yet")
        return
    for module in MODULES:
        command = f"cd {source} && exec {interpreter} main.py -f -i 'test_{module}(\\.|$)'"
        began = time.monotonic()
        status, text = world.run([*world.hydra(2), "sh", "-c", command], world.variables(), LIMIT_S)
        # The ranks share the lines.
        good = status == 0 and text.count("OK") == 4 and not re.search(r"Ran 0 tests", text)
        expect(f"{level}: mpi4py's test_{module}, {re.search(r'Ran [0-9]+ tests', text + 'Ran 0 tests')[0]} on each rank ({time.monotonic() - began:.1f} s)", good, text)


def goodput():
    """MB/s at each share of loss, in turns, with and without a limited rate."""
    stream = SCRATCH / "stream"
    compile_bench("stream", stream)
    for limit in [float(sys.argv[2])] if len(sys.argv) > 2 else [0, 40]:
        # A window of 64 messages takes less than a second.
        bytes = 256 << 10 if limit else 1 << 20
        found = {share: [] for share in [0, *GOALS]}
        for _ in range(ROUNDS):
            for share, figures in found.items():
                wire.calm()
                wire.set(loss=share, rate_mb_s=limit)
                status, text = world.run([*world.hydra(1), stream, "bandwidth", "800", bytes], world.variables(), 60)
                if status == 0:
                    figures.append(bytes / json.loads(text.splitlines()[-1])["median_us"])
                else:
                    expect(f"goodput at a loss of {share:.1%}: the run ends well", False, text)
        medians = {share: statistics.median(figures or [0]) for share, figures in found.items()}
        print(f"goodput, messages of {bytes >> 10} KiB, {f'wire of {limit:g} MB/s' if limit else 'wire as fast as it goes'}: lossless {medians[0]:.1f} MB/s")
        for share, goal in GOALS.items():
            ratio = medians[share] / max(medians[0], 1e-9)
            rates = f"{medians[share]:.1f} MB/s, all {' '.join(f'{one:.1f}' for one in found[share])}"
            expect(f"loss {share:.1%}: {ratio:.0%} of lossless goodput, goal {goal:.0%} ({rates})", ratio >= goal, f"lossless {found[0]}")
    wire.calm()


def compile_bench(name, to):
    import subprocess
    subprocess.run([netns.PREFIX / "bin/mpicc", "-O2", ROOT / f"bench/programs/{name}.c", "-o", to, "-lm"], check=True)


chosen = sys.argv[1] if len(sys.argv) > 1 else ""
if chosen != "goodput":
    correct()
if chosen == "goodput" or not chosen and scale >= 2:
    goodput()
finish()
