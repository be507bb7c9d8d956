#!/usr/bin/env python3
"""The house's arrows: a transport's name stands in the room that has it and in the one file that opens transports; and no room uses one above or
beside it."""

import os
import re
import sys
import tomllib
from pathlib import Path

CRATES = Path(os.environ.get("ROOT", Path(__file__).resolve().parents[2])) / "crates"
# Rooms that must not know how bytes move. `vipl` is built on shared memory itself; commands name what their users choose.
ABOVE = ["abi", "engine", "launch", "mpi", "proto", "sim", "trace"]
OPENS = "engine/src/open.rs"
NAMES = re.compile(r"\b(shm|Shm|udp|Udp|verbs|Verbs)\b")
# The table of docs/design.md.
USES = {
    "abi": {"mpi"},
    "mpi": {"engine", "params", "trace"},
    "engine": {"proto", "fabric", "launch", "memory", "trace", "params"},
    "proto": set(),
    "sim": {"memory", "proto"},
    "fabric": {"proto", "memory", "trace", "params"},
    "launch": {"params", "memory"},
    "heap": {"memory"},
    "memory": {"params"},
    "trace": {"params"},
    "params": set(),
    "vipl": {"fabric", "memory"},
    "cli": {"engine", "launch", "memory", "mpi", "params", "proto", "sim"},
}


def dependencies(room):
    table = tomllib.loads((CRATES / room / "Cargo.toml").read_text()).get("dependencies", {})
    return {one.get("package", name).removeprefix("whimbrel-") if isinstance(one, dict) else name for name, one in table.items()}


wrong = []
for room in ABOVE:
    for path in sorted((CRATES / room / "src").rglob("*.rs")):
        file = str(path.relative_to(CRATES))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if file != OPENS and (found := NAMES.search(line.split("//")[0])):
                wrong.append(f"{file}:{number} names {found[0]}: {line.strip()}")
for room, allowed in USES.items():
    used = dependencies(room) & USES.keys()
    if not used <= allowed:
        wrong.append(f"{room} uses {', '.join(sorted(used - allowed))}")
if wrong:
    sys.exit("\n".join(wrong))
