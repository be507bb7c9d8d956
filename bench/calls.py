"""Measures the calls that programs make in loops, beside MPICH, Open MPI and Intel MPI: one row for each, the worst first.

Every round runs the same program with every library in turn. A figure is the best of all rounds' medians: what disturbs a run makes it
slower, never faster; one beside which others used more than 5 % of the processors three times does not count. The goal is 0.9 times the best of the others (0.7 for
one-sided calls; for files the time of 1.2 times their bandwidth); nothing here asserts a time.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import bench
import fair

# The programs, and the ratio to the best of the others that each is meant to reach.
GOALS = {"calls": 0.9, "one_sided": 0.7, "files": 1 / 1.2}
LIMIT_S = 600


@dataclass
class Runner:
    """How one library compiles and starts the program."""

    library: bench.Library
    start: list[str]

    @property
    def name(self) -> str:
        return self.library.name


def runners(prefix: Path, console: Console) -> list[Runner]:
    found = []
    for library in bench.find_libraries(prefix, console):
        start = [*library.launcher, *(library.bind if bench.CORES >= 2 else library.unbound), "-n", "2"]
        found.append(Runner(library, start))
    return found


def build(runner: Runner, source: str, console: Console) -> Path | None:
    folder = bench.BUILD / runner.name.replace(" ", "")
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / source
    command = [str(runner.library.compiler), "-O2", str(bench.PROGRAMS / f"{source}.c"), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, env=bench.environment(runner.library))
    if built.returncode != 0:
        console.print(f"[red]{runner.name} cannot build the program, going on without it:\n{built.stderr}")
        return None
    return program


def measure(runner: Runner, program: Path, budget_ms: float, rows: list[str], console: Console) -> dict[str, float]:
    """The median of each row, µs; none where others used too much of the processors."""
    wrapper = bench.BUILD / bench.MACHINE / fair.SOURCE.stem
    command = [*runner.start, str(wrapper), str(program), str(budget_ms), *rows]
    lines, _, trouble, foreign = bench.run(command, runner.library, LIMIT_S)
    if trouble:
        console.print(f"[red]{runner.name}: {trouble}")
    if foreign > fair.FOREIGN_MAX:
        console.print(f"[yellow]{runner.name}: not counted, others used {foreign:.0%} of the processors")
        return {}
    return {line["bench"]: line["median_us"] for line in lines}


def table(figures: dict[str, dict[str, float]], names: list[str], goal: float) -> Table:
    """`figures`: µs by row and library."""

    def ratio(row: str) -> float:
        peers = [value for name, value in figures[row].items() if name != bench.OURS]
        ours = figures[row].get(bench.OURS)
        return ours / max(min(peers), 1e-4) if peers and ours is not None else math.nan

    shown = Table(title=f"µs for each operation, best of the rounds; goal: ours at most {goal:.2g} x the best of the others")
    for name in ("call", *names, "ours / best"):
        shown.add_column(name, justify="left" if name == "call" else "right")
    met = 0
    for row in sorted(figures, key=lambda row: -ratio(row) if not math.isnan(ratio(row)) else math.inf):
        values = [f"{figures[row][name]:.4f}" if name in figures[row] else "-" for name in names]
        good = ratio(row) <= goal
        met += good
        shown.add_row(row, *values, f"{ratio(row):.2f}", style=None if good else "yellow")
    shown.caption = f"{met} of {len(figures)} rows meet the goal"
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/calls", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", choices=GOALS, default="calls", help="which calls (default: calls)")
    parser.add_argument("--prefix", type=Path, default=bench.ROOT / "build", help="of this library (default: build)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget-ms", type=float, default=20, help="time for each row and round (default: 20)")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="only rows whose names have WORD; may be repeated")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    console = Console(width=max(140, shutil.get_terminal_size().columns))
    machine = bench.BUILD / bench.MACHINE
    machine.mkdir(parents=True, exist_ok=True)
    fair.build_wrapper(machine)
    programs = {runner.name: (runner, program) for runner in runners(options.prefix.resolve(), console) if (program := build(runner, options.program, console))}
    figures: dict[str, dict[str, float]] = defaultdict(dict)
    order = list(programs)
    for number in range(options.rounds):
        for name in order[number % len(order) :] + order[: number % len(order)]:
            for row, value in measure(*programs[name], options.budget_ms, options.only, console).items():
                figures[row][name] = min(value, figures[row].get(name, math.inf))
    console.print(table(figures, order, GOALS[options.program]))
    if options.json:
        options.json.write_text(json.dumps({"cores": os.cpu_count(), "figures": figures}, indent=1, ensure_ascii=False) + "\n")
    return 0 if figures else 1


if __name__ == "__main__":
    sys.exit(main())
