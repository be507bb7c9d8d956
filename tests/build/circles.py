#!/usr/bin/env python3
"""Files of a room import each other in one direction: what two of them share is a third file below both. Looks at the paths that begin with `crate` or
`super`, outside of tests, and follows what a folder's own file gives out (`pub use`) to the file that has it."""

import os
import re
import sys
from pathlib import Path

CRATES = Path(os.environ.get("ROOT", Path(__file__).resolve().parents[2])) / "crates"
ROOMS = ["engine", "fabric", "memory", "mpi", "proto"]
# Circles that are left, and why. No others may be made, and one that is gone leaves the list.
ALLOWED = {
    "engine": [
        # What an engine knows of costs is a part of it, and what is decided by them asks the whole engine: its peers, its limits.
        "costs state",
    ],
    "mpi": [
        # A process' state (`world`) names all that is opened and closed with it; communicators, requests and collectives need that state, start each other
        # (a request of a collective, a communicator made by one), and tell calls that do not match.
        "buffered call collective comm dynamic dynamic/spawn exchange group later lines link mismatch p2p pair partitioned request request/object request/task "
        "request/wait session spread tool tool/cvar tool/pvar turn turn/lend turn/stream world",
        # A layout keeps the program that it is compiled to, the recipe of its making and its size in a file of another machine; each is made from layouts.
        "datatype/external datatype/layout datatype/program datatype/recipe",
    ],
}


def trees(text, prefix=()):
    """The paths of a `use` tree, each with the name that it gives them."""
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
        path, *name = re.split(r"\s+as\s+", text)
        path = prefix + tuple(part for part in path.split("::") if part and part != "self" or not prefix and part)
        yield path, name[0] if name else path[-1]


def absolute(module, path):
    """`path` from the room's root on, as it stands in `module`."""
    first, *rest = path
    if first not in ("crate", "super", "self"):
        return module + path
    base = {"crate": (), "super": module[:-1], "self": module}[first]
    while rest and rest[0] == "super":
        base, rest = base[:-1], rest[1:]
    return base + tuple(rest)


class Room:
    def __init__(self, name):
        root = CRATES / name / "src"
        parts = {path: path.relative_to(root).with_suffix("").parts for path in root.rglob("*.rs")}
        files = {names[:-1] if names[-1] in ("mod", "lib") else names: path for path, names in parts.items()}
        files = {module: path for module, path in files.items() if not any(part.endswith(("tests", "models")) for part in module)}
        self.texts = {module: re.sub(r"//.*", "", re.split(r"#\[cfg\(.*test.*\)\]\s*mod \w+ \{", path.read_text())[0]) for module, path in files.items()}
        self.given_out = {}
        for module, text in self.texts.items():
            for use in re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]*);", text):
                for path, name in trees(use):
                    self.given_out[module, name] = absolute(module, path)

    def has(self, named):
        """The file that has what is `named`; nothing where that is another crate's."""
        for length in range(len(named), -1, -1):
            module, rest = named[:length], named[length:]
            if module in self.texts:
                target = self.given_out.get((module, rest[0])) if rest else None
                if target is None or target == named:
                    return module
                return self.has(target + rest[1:]) if any(target[:first] in self.texts for first in range(1, len(target) + 1)) else None
        return None

    def imports(self, module):
        """The files that `module` names. What is in a folder's own file lies below the files of that folder."""
        text = re.sub(r"\bpub(?:\([^)]*\))?\s+use\s[^;]*;", "", self.texts[module])
        paths = [path for use in re.findall(r"\buse\s+([^;]*);", text) for path, _ in trees(use)]
        text = re.sub(r"\buse\s[^;]*;", "", text)
        below = [part[-1] for part in self.texts if part[:-1] == module and part]
        starts = "|".join(["crate", "super", *below])
        paths += [tuple(path.split("::")) for path in re.findall(rf"(?<![\w:])(?:{starts})(?:::\w+)+", text)]
        for path in paths:
            if path and path[0] in ("crate", "super", "self", *below):
                found = self.has(absolute(module, path))
                if found and found != module and module[: len(found)] != found:
                    yield found


def circles(arrows):
    """The sets of files that reach each other (Tarjan's strongly connected components)."""
    number, low, stack, found = {}, {}, [], []

    def visit(one):
        number[one] = low[one] = len(number)
        stack.append(one)
        for other in arrows[one]:
            if other not in number:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], number[other])
        if low[one] == number[one]:
            at = stack.index(one)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for one in arrows:
        if one not in number:
            visit(one)
    return found


wrong = []
for name in ROOMS:
    room = Room(name)
    found = [{"/".join(module) for module in circle} for circle in circles({module: set(room.imports(module)) for module in room.texts})]
    allowed = [set(files.split()) for files in ALLOWED.get(name, [])]
    wrong += [f"{name}: a circle of {' '.join(sorted(circle))}" for circle in found if not any(circle <= known for known in allowed)]
    wrong += [f"{name}: no circle any more, and still on the list: {' '.join(sorted(known))}" for known in allowed if known not in found]
if wrong:
    sys.exit("\n".join(wrong))
