#!/usr/bin/env python3
# timeout: 120
"""`whimbrel bench usage-table|registration-cache|pinning|buffer-reuse` need no MPI library, and say what is measured and what is the model; no time is judged."""

import json
import math
import os
import subprocess
from pathlib import Path

scratch = Path(os.environ["SCRATCH"])
names = ["usage-table", "registration-cache", "pinning", "buffer-reuse"]
# Where no library is found, those that want one end with an error.
options = "--quick --rounds 1 --ours /nowhere --no-peers --json results.json --plots plots".split()
result = subprocess.run(["whimbrel", "bench", *names, *options], cwd=scratch, capture_output=True, text=True)
assert result.returncode == 0, result.stdout + result.stderr
documents = {document["experiment"]: document for document in json.loads((scratch / "results.json").read_text())}
assert list(documents) == names, list(documents)

searches = documents["usage-table"]["rows"]
assert {row["structure"] for row in searches} == {"open addressing", "2^20 buckets", "balanced tree"}, searches
for row in searches:
    assert all(math.isfinite(row[time]) and row[time] > 0 for time in ("search_ns", "load_ns")), row
    # A million buffers fit into 32 MiB.
    assert row["structure"] != "open addressing" or row["bytes"] <= 32 << 20, row

cached = documents["registration-cache"]["rows"]
searches = {row["search"]: row["hits"] for row in cached if row.get("section")}
assert searches["by interval"] == 16 and searches["by first page, as in paper 001"] == 1, searches
assert all(row["model"] for row in cached if "figure" in row)

pinning = documents["pinning"]["rows"]
table = [row for row in pinning if row.get("table") == "1"]
assert len(table) == 4 and all(0 < row["lost_percent"] < 20 and row["overlap_back_percent"] > 90 for row in table), table
measured = [row for row in pinning if row.get("measured")]
assert all(not row["model"] and row["lock_ns"] > 0 for row in measured), measured
assert measured or "mlock of " in result.stdout, result.stdout
own = [row for row in pinning if row.get("pinning") == "measured here"]
assert len(own) == (2 if len(measured) > 1 else 0) and all(row["model"] and row["lost_percent"] >= 0 for row in own), own

reuse = documents["buffer-reuse"]["rows"]
messages = [row for row in reuse if row.get("figure") == "1, 4"]
assert messages and all(row["model"] and row["once_percent"] > -1 and 0 <= row["hot_percent"] < row["possible_percent"] for row in messages), messages
for row in reuse:
    if row.get("figure") == "6" and row["collective"] == "scatter" and row["adapter"].startswith("ConnectX"):
        assert (row["percent"] < 1) == (row["first_message_bytes"] > row["eager_bytes_max"]), row
applications = [row for row in reuse if row.get("table") == "3" and row["times"] == 1]
assert len(applications) == 4 and all(abs(row["plain_percent"] - row["paper_percent"]) < 0.005 for row in applications), applications

charts = ["usage-table-fig3", "registration-cache-fig5-6", "pinning-fig7", "buffer-reuse-fig1-4-5", "buffer-reuse-fig6", "buffer-reuse-changes"]
for chart in charts:
    assert (scratch / "plots" / f"{chart}.svg").read_text().endswith("</svg>\n"), chart
