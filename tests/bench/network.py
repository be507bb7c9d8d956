#!/usr/bin/env python3
# timeout: 300
"""`whimbrel bench startup|memory|striping|loss` measure over the network and write what they found; no figure is judged."""

import json
import math
import os
import subprocess
from pathlib import Path

scratch, root = Path(os.environ["SCRATCH"]), Path(os.environ["ROOT"])
environment = {**os.environ, "XDG_CACHE_HOME": str(scratch / "cache")}


def bench(*arguments):
    # Hosts of our own are made by a script of the sources, which is looked for here and above.
    command = ["whimbrel", "bench", *arguments]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def positive(row, *names):
    for name in names:
        assert isinstance(row[name], (int, float)) and math.isfinite(row[name]) and row[name] > 0, (name, row)


results, plots = scratch / "results.json", scratch / "plots"
words = f"startup memory striping loss --quick --rounds 1 --no-peers --jobs 4,8 --sizes 16K --json {results} --plots {plots}"
result = bench(*words.split())
assert result.returncode == 0, result.stdout + result.stderr
experiments = {document["experiment"]: document for document in json.loads(results.read_text())}
assert list(experiments) == ["startup", "memory", "striping", "loss"], list(experiments)
for name, document in experiments.items():
    assert not document["failures"], (name, document["failures"])

startup, memory = experiments["startup"], experiments["memory"]
assert [row["ranks"] for row in startup["rows"]] == [4, 8], startup["rows"]
for row in startup["rows"]:
    positive(row, "alltoall_us", "us_per_peer", "again_us_per_peer", "init_us", "descriptors")
# Datagrams need no socket of their own for each peer.
assert len({row["descriptors"] for row in startup["rows"]}) == 1, startup["rows"]
assert memory["samples"] == startup["samples"], "one set of runs serves both"
for row in memory["rows"]:
    positive(row, "private_before_bytes", "private_bytes", "private_bytes_max")
    peers = [point["peers"] for point in row["points"]]
    assert peers[0] == 1 and peers[-1] == row["ranks"] - 1 and peers == sorted(peers), row
assert memory["rows"][0]["job_bytes_per_peer"] is None and memory["rows"][1]["job_bytes_per_peer"] is not None

striping = experiments["striping"]
sockets = [row for row in striping["rows"] if row["over"] == "sockets"]
assert [row["sockets"] for row in sockets] == [1, 2, 3, 4], sockets
rails = [row for row in striping["rows"] if row["over"] == "rails"]
loss = experiments["loss"]
# The default of each size of the experiment.
charts = {"startup-fig5", "memory-fig6", "striping-fig2"}
if rails:
    assert [row["rails"] for row in rails] == [1, 2] and [row["loss_percent"] for row in loss["rows"]] == [0, 1]
    charts |= {"striping-rails", "loss"}
else:
    assert "rails skipped: " in result.stdout and "\nskipped: " in result.stdout and not loss["rows"], result.stdout
for row in sockets + rails:
    positive(row, "mb_s")
for row in loss["rows"]:
    positive(row, "goodput_mb_s", "of_lossless_percent", "latency_median_us", "latency_mean_us", "latency_longest_us")
for chart in charts:
    assert (plots / f"{chart}.svg").read_text().endswith("</svg>\n"), chart
for words in ("ranks  library", "1 socket", "before KiB"):
    assert words in result.stdout, words

# A job that takes too long is told, and larger ones are not tried.
late = bench("startup", "--no-peers", "--rounds", "1", "--jobs", "64,128", "--limit", "1", "--json", str(results))
(document,) = json.loads(results.read_text())
assert late.returncode == 1 and not document["rows"] and len(document["failures"]) == 1, late.stdout + late.stderr
assert "64 ranks: did not end within 1 s" in late.stderr, late.stderr

# Outside of the sources and without their script: said, and no failure.
empty = scratch / "empty"
empty.mkdir()
if not any((folder / "bench/network/hosts.py").exists() for folder in [*empty.parents, *Path(os.environ["WHIMBREL_TEST_PREFIX"]).resolve().parents]):
    alone = subprocess.run(["whimbrel", "bench", "loss", "--no-peers", "--quick"], cwd=empty, env=environment, capture_output=True, text=True)
    assert alone.returncode == 0 and "skipped: no bench/network/hosts.py" in alone.stdout, alone.stdout + alone.stderr
