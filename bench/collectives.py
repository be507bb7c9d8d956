"""Measures collectives beside MPICH, Open MPI and Intel MPI: loops of one call without barriers between, on one host.

For each number of ranks, collective and size every library runs once a round, in an order that rotates. A figure is the best of all rounds' medians:
what disturbs a run makes it slower, never faster; one beside which others used more than 5 % of the processors is done again, up to three times, and
else not counted. A library that does not end in time, or fails, has no figure there. The goal is a
geometric mean of 0.6 times the best of the others; nothing here asserts a time.
"""

import argparse
import json
import math
import os
import shutil
import sys
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

import bench
import fair
from calls import Runner, build
from metrics import NAMES, OTHERS, UNSIZED, mean, numbers, size_label

GOAL = 0.6
SIZES = [8 * 4**power for power in range(10)] + [4 << 20]
"""8 B to 2 MiB by powers of four, and 4 MiB."""

Cell = tuple[str, int, int]
"""Collective, ranks, bytes."""


def measure(runner: Runner, program: Path, options: argparse.Namespace, ranks: int, name: str, sizes: list[int]) -> tuple[dict[int, float], str]:
    """The median of each size, µs, and what went wrong (empty if nothing). None where others used too much of the processors."""
    wrapper = bench.BUILD / bench.MACHINE / fair.SOURCE.stem
    command = [*runner.start, "-n", str(ranks), str(wrapper), str(program), str(options.budget_ms), name, *map(str, sizes)]
    lines, _, trouble, foreign = bench.run(command, runner.library, options.limit_s)
    if foreign > fair.FOREIGN_MAX:
        return {}, f"not counted, others used {foreign:.0%} of the processors"
    return {line["bytes"]: line["median_us"] for line in lines}, trouble


def ratio(values: dict[str, float]) -> float:
    """Ours over the best of the others; not a number where either is missing."""
    peers = [value for name, value in values.items() if name != bench.OURS]
    return values[bench.OURS] / max(min(peers), 1e-4) if peers and bench.OURS in values else math.nan


def tables(figures: dict[Cell, dict[str, float]], libraries: list[str], console: Console) -> None:
    for ranks in sorted({cell[1] for cell in figures}):
        sizes = sorted({cell[2] for cell in figures if cell[1] == ranks and cell[0] not in UNSIZED})
        shown = Table(title=f"{ranks} ranks: µs a call, ours / best of the others, by bytes a rank")
        shown.add_column("collective")
        for size in sizes or [0]:
            shown.add_column(size_label(size), justify="right")
        for name in NAMES + OTHERS:
            cells = [figures.get((name, ranks, size)) for size in ([0] if name in UNSIZED else sizes)]
            if any(cells):
                shown.add_row(name, *(f"{cell.get(bench.OURS, math.nan):.2f} ({ratio(cell):.2f})" if cell else "" for cell in cells))
        here = [ratio(values) for cell, values in figures.items() if cell[1] == ranks]
        shown.caption = f"geometric mean {mean(here):.2f}, {sum(one > 1 for one in here)} of {len(here)} above 1"
        console.print(shown)
    everything = [ratio(values) for values in figures.values()]
    console.print(f"geometric mean of all {len(everything)} cells: {mean(everything):.2f} (goal: {GOAL}), of {', '.join(libraries)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/collectives", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=Path, default=bench.ROOT / "build", help="of this library (default: build)")
    parser.add_argument("--ranks", type=numbers, default=[2, 4, 8, 16], help="between commas (default: 2,4,8,16)")
    parser.add_argument("--sizes", type=numbers, default=SIZES, help="bytes a rank between commas, K and M are KiB and MiB (default: 8 to 4M)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=NAMES, metavar="NAME,...", help=f"only these collectives; also {', '.join(OTHERS)}")
    parser.add_argument("--without", type=lambda text: text.split(","), default=[], metavar="LIBRARY,...", help="leaves these out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget-ms", type=float, default=20, help="time for each cell and round (default: 20)")
    parser.add_argument("--limit-s", type=float, default=120, help="most that a library may take for all sizes of a collective (default: 120)")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    if unknown := set(options.only) - set(NAMES + OTHERS):
        parser.error(f"no collective {', '.join(unknown)}: of {', '.join(NAMES + OTHERS)}")
    console = Console(width=max(160, shutil.get_terminal_size().columns))
    fair.build_wrapper(bench.BUILD / bench.MACHINE)
    usable = []
    for library in bench.find_libraries(options.prefix.resolve(), console):
        if library.name not in options.without and (program := build(Runner(library, library.launcher), "collectives", console)):
            usable.append((library, program))
    if not usable:
        console.print("[red]no library can build the program")
        return 1
    figures: dict[Cell, dict[str, float]] = defaultdict(dict)
    for ranks in options.ranks:
        for name in options.only:
            for number in range(options.rounds):
                turn = number % len(usable)
                for library, program in usable[turn:] + usable[:turn]:
                    placing = library.bind if ranks <= bench.CORES else library.unbound
                    values, trouble = measure(Runner(library, [*library.launcher, *placing]), program, options, ranks, name, options.sizes)
                    if trouble:
                        console.print(f"[red]{library.name}, {name} on {ranks} ranks: {trouble}")
                    for size, value in values.items():
                        cell = figures[name, ranks, size]
                        cell[library.name] = min(value, cell.get(library.name, math.inf))
    tables(figures, [library.name for library, _ in usable], console)
    if options.json:
        rows = [{"collective": name, "ranks": ranks, "bytes": size, "us": values} for (name, ranks, size), values in figures.items()]
        options.json.write_text(json.dumps({"cores": os.cpu_count(), "figures": rows}, indent=1) + "\n")
    return 0 if figures else 1


if __name__ == "__main__":
    sys.exit(main())
