#!/usr/bin/env python3
# timeout: 600
"""`whimbrel bench rdma` without a device is the model alone and needs no MPI; over the stand-in for a device it measures every figure. What is measured and what
is the model is said of each; no time is judged."""

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rdma"))
import standin_library

scratch = Path(os.environ["SCRATCH"])
MEASURED = "measured on standin0 port 1"


def bench(words, **environment):
    """The rows and what was printed."""
    settings = {**os.environ, "XDG_CACHE_HOME": str(scratch / "cache"), **environment}
    command = ["whimbrel", "bench", "rdma", "--no-peers", "--json", "results.json", "--plots", "plots", *words]
    result = subprocess.run(command, cwd=scratch, env=settings, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    (document,) = json.loads((scratch / "results.json").read_text())
    assert document["experiment"] == "rdma" and not document["failures"], document["failures"]
    assert all(row["model"] == (row["source"] == "model") for row in document["rows"])
    return document["rows"], result.stdout


def drawn(*names):
    for name in names:
        text = (scratch / "plots" / f"rdma-{name}.svg").read_text()
        assert text.endswith("</svg>\n") and ("(model)" if name.startswith("model") else MEASURED) in text, name


def figures(rows):
    return {(row["paper"], row["figure"]) for row in rows if "figure" in row}


fabrics = subprocess.run(["whimbrel", "info", "--fabrics"], capture_output=True, text=True, check=True).stdout
if " port " not in fabrics:
    rows, text = bench("--quick --rounds 1 --ours /nowhere".split())
    assert "No RDMA port can be used here" in text and "measured on" not in text, text
    expected = {("001", "5, 7"), ("001", "6, 8"), ("001", "9"), ("003", "2"), ("003", "3"), ("003", "4"), ("003", "5"), ("002", "13")}
    assert figures(rows) == expected, figures(rows)
    thresholds = [row for row in rows if "threshold" in row]
    assert len({row["adapter"] for row in thresholds}) == 3 and len(thresholds) == 21, thresholds
    for row in thresholds:
        found, best = row["found"], row["best"]
        assert found is None and best is None or 0.9 <= found / best <= 1.1, row
    drawn("model-001-fig5-9", "model-003-fig2", "model-003-fig3-4", "model-003-fig5", "model-002-fig13")

device = standin_library.need()
folder = str(device.folder)
words = f"--quick --rounds 1 --sizes 8,64K --jobs 2,4 --shorten 1000 --limit 120 --set LD_LIBRARY_PATH={folder}".split()
rows, text = bench(words, LD_LIBRARY_PATH=folder)
measured = [row for row in rows if row["source"] == MEASURED]
assert len(measured) + sum(row["model"] for row in rows) == len(rows), {row["source"] for row in rows}
ways = {row["series"] for row in measured if row.get("figure") in ("5, 7", "6, 8", "9")}
assert ways == {"RC in pieces", "RC, write, no cache", "RC, write"}, ways
for row in measured:
    if "series" in row or "pattern" in row:
        assert row.get("value", row.get("ms")) > 0, row
assert {row["library"] for row in measured if row["paper"] == "002"} == {"RC", "RC, write"}
assert {row["pattern"] for row in measured if "pattern" in row} == {"ABINIT", "SMG"}
counted = {(row["library"], row["ranks"]): row for row in measured if row.get("counted")}
assert counted["UD", 2]["registered_bytes"] == counted["UD", 4]["registered_bytes"] > 0, counted
assert [counted["RC", ranks]["queue_pairs"] for ranks in (2, 4)] == [2, 4], counted
drawn("measured-001-fig5-9", "measured-003-fig3-4", "measured-003-startup-fig5", "measured-003-memory-fig6", "measured-003-fig7-8", "measured-003-footprint")
drawn("measured-002-overlap-fig13", "model-003-fig2")
