"""Times programs that others have written, whole, from their launch to their end, beside MPICH, Open MPI and Intel MPI on one host.

The programs are those that `tests/programs` fetches and builds (hypre, FFTW, HPCC, PETSc); what is missing is built first. MPICH and Intel MPI run the binary
that this library runs, which speaks the standard ABI, but for HPCC, which calls functions that MPI-3.0 removed; that, and all that Open MPI runs, is built with
the library's own `mpicc`. Every round runs every program with every library, in an order that rotates, each rank in a session of its own. A figure is the
shortest of all rounds; a run beside which others used more than 5 % of the processors is done again, up to three times, and else not counted. The goal is a
geometric mean of 0.95 times the best of the others, none above 1.02; nothing here asserts a time.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

import bench
import fair
from metrics import mean, numbers

GOAL, GOAL_EACH = 0.95, 1.02
RECIPES = bench.ROOT / "tests" / "programs"
LINK = bench.ROOT / ".cache" / "programs" / "prefix"
"""Names the library that programs are built with last; the tests' own is put back."""
GRIDS = {1: (1, 1, 1), 2: (2, 1, 1), 4: (2, 2, 1), 8: (2, 2, 2), 16: (4, 2, 2)}
"""Of ranks, for programs that have to be told."""


@dataclass
class Application:
    """A program and what it does; `recipe` builds it."""

    recipe: str
    binary: str
    arguments: list[str]
    cells: tuple[int, int, int] | None = None
    """Of a grid of ranks in three directions, told as `-P`: in all (`whole`) or, divided among the ranks, on each, as `-n`."""
    whole: bool = True
    removed: bool = False
    """It calls functions that MPI-3.0 removed, which the standard ABI does not have."""

    def command(self, work: Path, ranks: int) -> list[str]:
        shape = []
        if self.cells:
            grid = GRIDS[ranks]
            cells = [all_of // (1 if self.whole else one) for all_of, one in zip(self.cells, grid)]
            shape = ["-n", *map(str, cells), "-P", *map(str, grid)]
        return [str(work / self.binary), *shape, *self.arguments]


TUTORIALS = "arch-test/tests"
APPLICATIONS = {
    "hypre ij, PCG with AMG": Application("hypre", "src/test/ij", ["-solver", "1"], (64, 64, 64)),
    "hypre ij, small": Application("hypre", "src/test/ij", ["-solver", "1"], (40, 40, 40)),
    "hypre struct, PCG with SMG": Application("hypre", "src/test/struct", ["-solver", "10"], (80, 80, 80), whole=False),
    "hypre struct, SMG": Application("hypre", "src/test/struct", ["-solver", "0"], (72, 72, 72), whole=False),
    "FFTW mpi-bench": Application("fftw", "mpi/mpi-bench", [word for size in ("32x32x32", "64x64x64", "512x512", "128x128x64") for word in ("-s", f"ocf{size}")]),
    "HPCC": Application("hpcc", "hpcc", [], removed=True),
    "PETSc ksp ex2": Application("petsc", f"{TUTORIALS}/ksp/ksp/tutorials/ex2", ["-m", "300", "-n", "300"]),
    "PETSc snes ex19": Application("petsc", f"{TUTORIALS}/snes/tutorials/ex19", ["-da_refine", "5"]),
}


def build(recipe: str, library: bench.Library, console: Console) -> Path | None:
    """Where the programs of a recipe are, built with a library's own compiler; once."""
    link = os.readlink(LINK) if LINK.is_symlink() else None
    variables = {"BUILD_ONLY": "yes", "WHIMBREL_PREFIX": str(library.compiler.parent.parent)}
    roots = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [RECIPES / recipe / "run.sh"],
        env=bench.environment(library) | variables | roots,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if link:
        LINK.unlink()
        LINK.symlink_to(link)
    lines = done.stdout.splitlines() or [""]
    if done.returncode != 0 or not (work := Path(lines[-1])).is_dir():
        console.print(f"[red]{recipe} with {library.name}: {lines[-1]}")
        return None
    lacking = [one.binary for one in APPLICATIONS.values() if one.recipe == recipe and not (work / one.binary).exists()]
    if lacking:
        console.print(f"[red]{recipe} with {library.name}: {work} has no {', '.join(lacking)}; without {work} it is built anew")
        return None
    return work


def folder_for(name: str, ranks: int, work: Path) -> Path:
    """An empty folder to run in, with the input file that HPCC wants."""
    folder = bench.BUILD / "applications"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if APPLICATIONS[name].recipe == "hpcc":
        rows, columns = GRIDS[ranks][1] * GRIDS[ranks][2], GRIDS[ranks][0]
        lines = (work / "_hpccinf.txt").read_text().splitlines()
        for line, value in ((6, 1200), (11, rows), (12, columns)):
            lines[line - 1] = f"{value} {lines[line - 1].partition(' ')[2]}"
        (folder / "hpccinf.txt").write_text("\n".join(lines) + "\n")
    return folder


def table(figures: dict[tuple[str, int], dict[str, float]], libraries: list[str], console: Console) -> None:
    shown = Table(title="seconds from launch to end, the shortest of all rounds")
    for column in ("program", "ranks", *libraries, "ours / best of the others"):
        shown.add_column(column, justify="left" if column == "program" else "right")
    ratios = []
    for (name, ranks), times in figures.items():
        others = [seconds for library, seconds in times.items() if library != bench.OURS]
        ratio = times[bench.OURS] / min(others) if others and bench.OURS in times else math.nan
        ratios.append(ratio)
        cells = [f"{times[library]:.3f}" if library in times else "" for library in libraries]
        shown.add_row(name, str(ranks), *cells, f"[red]{ratio:.2f}" if ratio > GOAL_EACH else f"{ratio:.2f}")
    known = [one for one in ratios if not math.isnan(one)]
    console.print(shown)
    if known:
        above = sum(one > GOAL_EACH for one in known)
        console.print(f"geometric mean of {len(known)}: {mean(known):.2f} (goal: {GOAL}), {above} above {GOAL_EACH}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/applications", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=Path, default=bench.ROOT / "build", help="of this library (default: build)")
    parser.add_argument("--ranks", type=numbers, default=[2, 4, 8], help=f"between commas, of {', '.join(map(str, GRIDS))} (default: 2,4,8)")
    parser.add_argument("--only", default="", metavar="WORD", help="programs whose name has this")
    parser.add_argument("--without", type=lambda text: text.split(","), default=[], metavar="LIBRARY,...", help="leaves these out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit-s", type=float, default=60, help="most that a run may take (default: 60)")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    if unknown := set(options.ranks) - set(GRIDS):
        parser.error(f"no grid of {', '.join(map(str, unknown))} ranks: of {', '.join(map(str, GRIDS))}")
    console = Console(width=max(140, shutil.get_terminal_size().columns))
    wrapper = fair.build_wrapper(bench.BUILD / bench.MACHINE)
    libraries = [one for one in bench.find_libraries(options.prefix.resolve(), console) if one.name not in options.without]
    ours = next((one for one in libraries if one.name == bench.OURS), None)
    places: dict[tuple[str, str], Path | None] = {}
    figures: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for name, application in APPLICATIONS.items():
        if options.only not in name:
            continue
        for ranks in options.ranks:
            given_up: set[str] = set()
            for number in range(options.rounds):
                turn = number % len(libraries)
                for library in libraries[turn:] + libraries[:turn]:
                    native = library.name == "Open MPI" or application.removed or ours is None
                    builder = library if native else ours
                    key = (application.recipe, builder.name)
                    if key not in places:
                        places[key] = build(application.recipe, builder, console)
                    if (work := places[key]) is None or library.name in given_up:
                        continue
                    # The binary finds the library that runs it, not the one that it was linked with.
                    home = library.launcher[0].rpartition("/bin/")[0]
                    placed = replace(library, variables={**library.variables, "LD_LIBRARY_PATH": f"{home}/lib"})
                    placing = library.bind if ranks <= bench.CORES else library.unbound
                    command = [*library.launcher, *placing, "-n", str(ranks), str(wrapper), *application.command(work, ranks)]
                    _, elapsed_s, trouble, foreign = bench.run(command, placed, options.limit_s, folder_for(name, ranks, work))
                    if trouble:
                        given_up.add(library.name)
                        console.print(f"[red]{library.name}, {name} on {ranks} ranks: {trouble}")
                    elif foreign > fair.FOREIGN_MAX:
                        console.print(f"[yellow]{library.name}, {name} on {ranks} ranks: not counted, others used {foreign:.0%} of the processors")
                    else:
                        times = figures[name, ranks]
                        times[library.name] = min(elapsed_s, times.get(library.name, math.inf))
    table(figures, [library.name for library in libraries], console)
    if options.json:
        rows = [{"program": name, "ranks": ranks, "seconds": times} for (name, ranks), times in figures.items()]
        options.json.write_text(json.dumps({"cores": os.cpu_count(), "figures": rows}, indent=1) + "\n")
    return 0 if figures else 1


if __name__ == "__main__":
    sys.exit(main())
