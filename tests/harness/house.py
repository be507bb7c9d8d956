#!/usr/bin/env python3
"""What the house measures, by crate: lines of Rust, functions longer than 80 lines, unsafe blocks, and those outside of the modules that are made for them
(`sys` modules, the entry points of libraries). With `--list`, where these functions and blocks are. Tests are left out."""

import re
import sys
from pathlib import Path

CRATES = Path(__file__).resolve().parents[2] / "crates"
LINES_MAX = 80
FENCE = re.compile(r"(^|/)(sys|[a-z0-9]+_sys|x86)(/|\.rs$)|^abi/src/|^vipl/src/entry\.rs$")
TESTS = re.compile(r"(^|/)(\w*tests|\w*models|hostile)(/|\.rs$)")


def code(path):
    """The lines of a file without its tests, comments and texts."""
    text = re.split(r"\n#\[cfg\((?:all\()?test.*\)\]\s*mod \w+ \{", path.read_text())[0]
    text = re.sub(r'(?s)b?r#"(.*?)"#|b?"(?:\\.|[^"\\])*"', lambda found: '""' + "\n" * found[0].count("\n"), text)
    return re.sub(r"//.*", "", text).splitlines()


def functions(lines):
    """Name, first line and length of each function."""
    for at, line in enumerate(lines):
        if found := re.match(r"(\s*)(?:pub(?:\([^)]*\))? )?(?:default |const |async |unsafe |extern \"\" )*fn (\w+)", line):
            opened = next((number for number in range(at, len(lines)) if lines[number].rstrip().endswith(("{", ";", "}"))), at)
            if not lines[opened].rstrip().endswith("{"):
                continue
            # The formatter puts the brace that ends it under its first letter.
            end = next(number for number in range(opened, len(lines)) if lines[number].rstrip() == found[1] + "}")
            yield found[2], at + 1, end - at + 1


rows, listed = [], []
for room in sorted(path.name for path in CRATES.iterdir() if (path / "src").is_dir()):
    count = dict.fromkeys(("lines", "long", "unsafe", "outside"), 0)
    for path in sorted((CRATES / room / "src").rglob("*.rs")):
        name = str(path.relative_to(CRATES))
        count["lines"] += len(path.read_text().splitlines())
        if TESTS.search(name):
            continue
        lines = code(path)
        for function, first, length in functions(lines):
            if length > LINES_MAX:
                count["long"] += 1
                listed.append(f"{name}:{first} {function} has {length} lines")
        blocks = [at + 1 for at, line in enumerate(lines) for _ in re.findall(r"\bunsafe \{", line)]
        count["unsafe"] += len(blocks)
        if not FENCE.search(name):
            count["outside"] += len(blocks)
            listed += [f"{name}:{at} unsafe" for at in blocks]
    rows.append((room, *count.values()))
rows.append(("all", *map(sum, list(zip(*rows))[1:])))
if "--list" in sys.argv[1:]:
    print("\n".join(listed))
print(f"{'crate':10} {'lines':>8} {'functions > 80':>15} {'unsafe blocks':>14} {'outside fence':>14}")
for row in rows:
    print("{:10} {:8} {:15} {:14} {:14}".format(*row))
