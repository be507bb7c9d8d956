#!/usr/bin/env python3
"""`whimbrel bench` carries its programs, measures every experiment, and writes what it found; no figure is judged.

timeout: 300
"""

import json
import os
import subprocess
from pathlib import Path

scratch = Path(os.environ["SCRATCH"])
environment = {**os.environ, "XDG_CACHE_HOME": str(scratch / "cache")}


def bench(*arguments):
    command = ["whimbrel", "bench", *arguments]
    return subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True)


words = "overlap exchange crossing patterns --quick --rounds 1 --no-peers --sizes 64K --shorten 1000 --json results.json --plots plots"
result = bench(*words.split())
assert result.returncode == 0, result.stdout + result.stderr
experiments = {document["experiment"]: document for document in json.loads((scratch / "results.json").read_text())}
assert list(experiments) == ["overlap", "exchange", "crossing", "patterns"], list(experiments)
for name, document in experiments.items():
    assert not document["failures"], document["failures"]
    measured = {sample["library"] for sample in document["samples"]}
    assert measured == set(document["libraries"]), (name, measured)

scenarios = {(row["side"], row["first"]) for row in experiments["overlap"]["rows"]}
assert len(scenarios) == 4, scenarios
assert all(0 <= row["overlap"] <= 1 for row in experiments["overlap"]["rows"])
lines = [sample["line"] for sample in experiments["patterns"]["samples"]]
assert {line["name"] for line in lines if line["bench"] == "pattern"} == {"CG.B", "BT.A", "LU.A", "RADIX"}
for plot in ("overlap-fig13", "progress-fig14", "exchange-fig16-cpu", "patterns-fig17"):
    assert (scratch / "plots" / f"{plot}.svg").read_text().endswith("</svg>\n"), plot

refused = bench("overlap", "--ours", str(scratch / "nowhere"))
assert refused.returncode == 2 and "has no bin/mpicc" in refused.stderr, refused.stderr
