#!/usr/bin/env python3
"""Files of a room import each other in one direction: what two of them share is a third file below both. Looks at the paths that begin with `crate` or
`super`, outside of tests."""

import os
import re
import sys
from pathlib import Path

CRATES = Path(os.environ.get("ROOT", Path(__file__).resolve().parents[2])) / "crates"
ROOMS = ["fabric", "proto"]


def trees(text, prefix=()):
    """The paths of a `use` tree."""
    text = text.strip()
    if group := re.fullmatch(r"([\w:]*?)(?:::)?\{(.*)\}", text, re.S):
        prefix += tuple(part for part in group[1].split("::") if part)
        depth, start, inside = 0, 0, group[2] + ","
        for at, sign in enumerate(inside):
            depth += (sign == "{") - (sign == "}")
            if sign == "," and depth == 0:
                if inside[start:at].strip():
                    yield from trees(inside[start:at], prefix)
                start = at + 1
    else:
        yield prefix + tuple(part for part in re.sub(r"\s+as\s+\w+", "", text).split("::") if part)


def imports(module, text, modules):
    """The modules of the room that `text`, which is `module`, names."""
    text = re.sub(r"//.*", "", re.split(r"#\[cfg\(.*test.*\)\]\s*mod \w+ \{", text)[0])
    paths = [path for use in re.findall(r"\buse\s+((?:crate|super)\b[^;]*);", text) for path in trees(use)]
    paths += [tuple(path.split("::")) for path in re.findall(r"\b(?:crate|super)(?:::\w+)+", re.sub(r"\buse\s[^;]*;", "", text))]
    for first, *rest in paths:
        base = () if first == "crate" else module[:-1]
        while rest and rest[0] == "super":
            base, rest = base[:-1], rest[1:]
        named = base + tuple(rest)
        found = next(named[:length] for length in range(len(named), -1, -1) if named[:length] in modules)
        # What a room's or a folder's own file gives out stands in the files below it.
        if found != module and found and module[: len(found)] != found:
            yield found


def circle(arrows):
    """Some files that import each other in a circle; nothing where there are none."""
    left = {module: set(targets) for module, targets in arrows.items()}
    while ends := [module for module, targets in left.items() if not targets & left.keys()]:
        for module in ends:
            del left[module]
    if not left:
        return []
    path = [next(iter(left))]
    while path.count(path[-1]) == 1:
        path.append(next(iter(left[path[-1]] & left.keys())))
    return path[path.index(path[-1]) :]


wrong = []
for room in ROOMS:
    root = CRATES / room / "src"
    parts = {path: path.relative_to(root).with_suffix("").parts for path in root.rglob("*.rs")}
    modules = {names[:-1] if names[-1] in ("mod", "lib") else names: path for path, names in parts.items()}
    tested = [module for module in modules if any(name.endswith(("tests", "models")) for name in module)]
    arrows = {module: set(imports(module, path.read_text(), modules)) for module, path in modules.items() if module not in tested}
    if found := circle(arrows):
        wrong.append(f"{room}: " + " -> ".join("/".join(module) or "lib" for module in found))
if wrong:
    sys.exit("\n".join(wrong))
