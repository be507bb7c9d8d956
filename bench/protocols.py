"""Measures whether messages between two ranks go the fastest way there is, beside each protocol forced in turn.

What decides is measured once and kept in a file of the user's cache directory. Five states of it are compared: none is looked for (off: the
defaults), none is there yet (cold), one of this machine (warm), one of another machine, which is not read (foreign), and one that says of this
machine what is not so: that the way which was the fastest here takes ten times as long as the others (wrong). All are run one after another for each size,
so that a change of the machine's mood meets all of them. A ratio is the median over the rounds. The goal is 1.05 times the best protocol that was
forced; nothing here asserts a time.
"""

import argparse
import dataclasses
import math
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

import bench
import fair
from costs_file import SIZES, changed
from metrics import size_label

GOAL = 1.05
SHORT = {"WHIMBREL_COSTS": "off", "WHIMBREL_EAGER_MAX": "0"}
FORCED = {
    # Longer ones than 128 KiB cannot be; while both sides wait, up to 512 KiB are by default.
    "eager": {"WHIMBREL_COSTS": "off"},
    "read": {**SHORT, "WHIMBREL_SPECULATION": "off", "WHIMBREL_COOPERATIVE_MIN": "1073741824"},
    "both copy": {**SHORT, "WHIMBREL_SPECULATION": "off", "WHIMBREL_COOPERATIVE_MIN": "65536"},
    "announced": {**SHORT, "WHIMBREL_SPECULATION": "always"},
    "pipelined": {**SHORT, "WHIMBREL_SINGLE_COPY": "off"},
}
STATES = ["off", "cold", "warm", "foreign", "wrong"]


def measured(prefix: Path, folder: Path) -> Path | None:
    """A file of this machine's costs, measured now."""
    library = bench.Library("", Path(), [], [], [], variables={"XDG_CACHE_HOME": str(folder), "WHIMBREL_COSTS": "measure"})
    bench.run([str(prefix / "bin/whimbrel"), "info", "--costs"], library)
    return next((path for path in (folder / "whimbrel").glob("costs-*") if path.suffix == ""), None)


def settings(state: str, kept: Path | None, folder: Path) -> dict[str, str]:
    """What a program finds in `folder` and its environment in one state of the file."""
    if state == "off":
        return {"WHIMBREL_COSTS": "off"}
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "whimbrel").mkdir(parents=True)
    if kept and state != "cold":
        text = kept.read_text()
        slow = "eager" if state == "wrong" else None
        machine = "elsewhere" if state == "foreign" else None
        (folder / "whimbrel" / kept.name).write_text(changed(text, machine, slow) if slow or machine else text)
    return {"XDG_CACHE_HOME": str(folder)}


def ratio(rounds: list[dict[str, float]], state: str) -> float:
    """The median of what one state took beside the best protocol of the same round."""
    best = [min((us for name, us in one.items() if name in FORCED), default=math.nan) for one in rounds]
    ratios = [one[state] / least for one, least in zip(rounds, best, strict=True) if state in one]
    return statistics.median(ratios) if ratios else math.nan


def table(figures: dict[int, list[dict[str, float]]]) -> Table:
    """`figures`: of each size and round, µs of each protocol and state."""
    shown = Table(title=f"one way, least of the rounds' medians, µs; goal: at most {GOAL} x the best of those forced")
    for name in ("size", *FORCED, *(f"{state} / best" for state in STATES)):
        shown.add_column(name, justify="right")
    met = cells = 0
    for size, rounds in figures.items():
        least = [min((one[name] for one in rounds if name in one), default=math.nan) for name in FORCED]
        ratios = [ratio(rounds, state) for state in STATES]
        met += sum(one <= GOAL for one in ratios)
        cells += len(ratios)
        cell = [f"{one:.2f}" if one <= GOAL else f"[yellow]{one:.2f}" for one in ratios]
        shown.add_row(size_label(size), *(f"{us:.3f}" for us in least), *cell)
    shown.caption = f"{met} of {cells} meet the goal"
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/protocols", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=Path, default=bench.ROOT / "build", help="of this library (default: build)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget-ms", type=float, default=60, help="time for each size, protocol and round (default: 60)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES")
    options = parser.parse_args()
    console = Console(width=max(140, shutil.get_terminal_size().columns))
    ours = next(library for library in bench.find_libraries(options.prefix.resolve(), console) if library.name == bench.OURS)
    if not bench.build([ours], console):
        return 1
    start = [*ours.launcher, "-n", "2", str(bench.BUILD / bench.MACHINE / fair.SOURCE.stem), str(bench.BUILD / ours.name / "latency")]
    figures: dict[int, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        kept = measured(options.prefix.resolve(), Path(scratch) / "kept")
        if kept is None:
            console.print("[yellow]this machine's costs could not be measured: warm, foreign and wrong are as cold")
        names = [*FORCED, *STATES]
        for number in range(options.rounds):
            for size in options.sizes:
                one: dict[str, float] = {}
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    variables = FORCED.get(name) or settings(name, kept, Path(scratch) / "cache")
                    library = dataclasses.replace(ours, variables=variables)
                    lines, _, trouble, _ = bench.run([*start, str(options.budget_ms), str(size)], library)
                    if trouble:
                        console.print(f"[red]{name}, {size} B: {trouble}")
                    one |= {name: line["median_us"] for line in lines}
                figures[size].append(one)
    console.print(table(figures))
    return 0 if figures else 1


if __name__ == "__main__":
    sys.exit(main())
