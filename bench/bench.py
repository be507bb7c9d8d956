"""Measures this library beside MPICH, Open MPI and Intel MPI, and beside what the machine itself allows.

Every round runs every benchmark with every library, in an order that rotates, so that a change of the machine's mood
meets all of them. A figure is the median over the rounds of each run's median, and the best of all batches. Nothing here
asserts a time: the goals are printed next to the figures and the reader judges.

Each rank of each library runs in a session of its own, so that all get the same share of cores where the kernel groups processes by
session. A run beside which others used more than 5 % of the processors is done again, up to three times, and else not counted.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import fair
import plots
from metrics import GOALS, METRICS, size_label

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAMS = HERE / "programs"
BUILD = ROOT / ".cache" / "bench-build"
PEERS = ROOT / ".cache" / "bench-venv"
RESULTS = HERE / "results"

OURS = "whimbrel"
MACHINE = "machine"
# Its programs, which use no library.
LIMITS = ("limits", "types_limits")
NO_LIBRARY = (*LIMITS, fair.SOURCE.stem)
RUN_LIMIT_S = 300
CORES = len(os.sched_getaffinity(0))

KIB, MIB = 1 << 10, 1 << 20
LATENCY_SIZES = [0, 1, 8, 64, 256, KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]
RATE_SIZES = [0, 8, 64, 256, KIB, 4 * KIB, 16 * KIB]
BANDWIDTH_SIZES = [64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB]
TYPES_SIZES = [64 * KIB, 256 * KIB, MIB, 4 * MIB]
NEIGHBORS_SIZES = [8, KIB, 8 * KIB, 64 * KIB, 256 * KIB, MIB]
ALLREDUCE_SIZES = [8, 64, KIB, 8 * KIB, 64 * KIB, 256 * KIB, MIB]
ALLREDUCE_SIZES_OVERSUBSCRIBED = [8, 4 * KIB]
"""Few: a peer that spins while it waits takes tens of milliseconds for each step when its ranks share cores."""
QUICK_SIZES = {0, 8, 4 * KIB, 64 * KIB, MIB, 4 * MIB}


@dataclass
class Library:
    name: str
    compiler: Path
    launcher: list[str]
    bind: list[str]
    """Launcher options for a job that fits the cores; peers need telling, so they get the better choice."""
    unbound: list[str]
    version: str = "?"
    variables: dict[str, str] = field(default_factory=dict)
    """What it needs in the environment."""

    def command(self, case: "Case", program: Path) -> list[str]:
        placing = self.bind if case.ranks <= CORES and not case.threaded else self.unbound
        return [*self.launcher, *placing, "-n", str(case.ranks), str(BUILD / MACHINE / "own_session"), str(program), *case.arguments]


@dataclass
class Case:
    """One run of one program: `name` selects it with --only."""

    name: str
    program: str
    ranks: int
    arguments: list[str]
    threaded: bool = False
    """Its ranks have several threads and must not be bound to one core each."""


@dataclass
class Figures:
    """Per round, the median and best value of one (metric, ranks, bytes) with one library."""

    medians: list[float] = field(default_factory=list)
    bests: list[float] = field(default_factory=list)
    foreign: list[float] = field(default_factory=list)
    """Share of the processors that others used meanwhile, 0 to 1."""

    def median(self) -> float:
        return statistics.median(self.medians)

    def spread(self) -> float:
        """Range of the rounds' medians over their median: the noise."""
        middle = self.median()
        return (max(self.medians) - min(self.medians)) / middle if middle else 0.0


Key = tuple[str, int, int]


def find_libraries(prefix: Path, console: Console) -> list[Library]:
    openmpi = ["--allow-run-as-root", "--oversubscribe"]
    candidates = [
        Library(OURS, prefix / "bin/mpicc", [str(prefix / "bin/mpiexec")], [], []),
        Library("MPICH", PEERS / "mpich/bin/mpicc", [str(PEERS / "mpich/bin/mpiexec")], ["-bind-to", "core"], []),
        Library(
            "Open MPI",
            PEERS / "openmpi/bin/mpicc",
            [str(PEERS / "openmpi/bin/mpiexec"), *openmpi],
            ["--bind-to", "core"],
            ["--bind-to", "none"],
        ),
        Library(
            "Intel MPI",
            PEERS / "impi/bin/mpicc",
            [str(PEERS / "impi/bin/mpiexec.hydra")],
            ["-genv", "I_MPI_PIN_DOMAIN", "core"],
            ["-genv", "I_MPI_PIN", "off"],
            variables={"I_MPI_ROOT": str(PEERS / "impi"), "LD_LIBRARY_PATH": str(PEERS / "impi/lib"), "I_MPI_FABRICS": "shm"},
        ),
    ]
    present = []
    for library in candidates:
        if library.compiler.exists() and Path(library.launcher[0]).exists():
            present.append(library)
        else:
            console.print(f"[yellow]{library.name} is not installed ({library.compiler}): going on without it")
    return present


def environment(library: Library | None = None) -> dict[str, str]:
    """The caller's, without what would lead one library's program to another's files, and with what the library needs."""
    unwanted = ("LD_LIBRARY_PATH", "LD_PRELOAD", "OPAL_PREFIX", "MPI_HOME", "I_MPI_ROOT")
    return {name: value for name, value in os.environ.items() if name not in unwanted} | (library.variables if library else {})


def stop(child: subprocess.Popen) -> str:
    """Ends a job, and gives what it has written; its launcher first gets the chance to take the ranks down."""
    child.terminate()
    try:
        output, _ = child.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
    return output


def run(
    command: list[str], library: Library | None = None, limit_s: float = RUN_LIMIT_S, folder: Path | None = None
) -> tuple[list[dict], float, str, float]:
    """Runs a job for at most `limit_s`, in `folder` if that is given: its JSON lines, wall time in seconds, what went wrong (empty if nothing), and the share of the
    processors, 0 to 1, that others used meanwhile. Done again where that was too much."""
    for _ in range(fair.TRIES):
        watch = fair.Watch()
        lines, elapsed_s, trouble = run_once(command, library, limit_s, folder)
        foreign = watch.foreign()
        if trouble or foreign <= fair.FOREIGN_MAX:
            break
    return lines, elapsed_s, trouble, foreign


def run_once(command: list[str], library: Library | None, limit_s: float, folder: Path | None = None) -> tuple[list[dict], float, str]:
    start = time.monotonic()
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(library),
        cwd=folder,
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return parse(stop(child)), time.monotonic() - start, f"did not end within {limit_s:g} s"
    except BaseException:
        stop(child)
        raise
    elapsed_s = time.monotonic() - start
    trouble = ""
    if child.returncode != 0:
        tail = (errors.strip() or output.strip() or "no output").splitlines()[-1]
        trouble = f"exit status {child.returncode}: {tail}"
    return parse(output), elapsed_s, trouble


def parse(output: str) -> list[dict]:
    """The whole JSON lines: a program that was ended may have left half of one."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]


def build(libraries: list[Library], console: Console) -> list[Library]:
    """Compiles each program with each library's own compiler; leaves out a library that cannot."""
    usable = []
    for library in libraries:
        folder = BUILD / library.name.replace(" ", "")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for source in PROGRAMS.glob("*.c"):
                if source.stem not in NO_LIBRARY:
                    command = [str(library.compiler), "-O2", "-pthread", str(source), "-o", str(folder / source.stem)]
                    subprocess.run(command, check=True, capture_output=True, text=True, env=environment(library))
            usable.append(library)
        except (subprocess.CalledProcessError, OSError) as error:
            reason = getattr(error, "stderr", None) or str(error)
            console.print(f"[red]{library.name} cannot build the programs, going on without it:\n{reason}")
    folder = BUILD / MACHINE
    folder.mkdir(parents=True, exist_ok=True)
    for name in LIMITS:
        subprocess.run(["cc", "-O2", "-pthread", str(PROGRAMS / f"{name}.c"), "-o", str(folder / name)], check=True)
    fair.build_wrapper(folder)
    return usable


def sizes(all_sizes: list[int], quick: bool) -> list[str]:
    return [str(size) for size in all_sizes if not quick or size in QUICK_SIZES]


def cases(quick: bool) -> list[Case]:
    budget = "40" if quick else "150"
    chosen = [
        Case("latency", "latency", 2, [budget, *sizes(LATENCY_SIZES, quick)]),
        Case("rate", "stream", 2, ["rate", budget, *sizes(RATE_SIZES, quick)]),
        Case("bandwidth", "stream", 2, ["bandwidth", budget, *sizes(BANDWIDTH_SIZES, quick)]),
        Case("bidirectional", "stream", 2, ["bidirectional", budget, *sizes(BANDWIDTH_SIZES, quick)]),
        Case("types", "types", 2, ["exchange", budget, *sizes(TYPES_SIZES, quick)]),
        Case("threads", "threads", 1, [budget], threaded=True),
        Case("threads", "threads", 2, [budget], threaded=True),
        Case("types-oneway", "types", 2, ["oneway", budget, *sizes(TYPES_SIZES, quick)]),
    ]
    for ranks in (4, 8, 16):
        for shape in ("pairs", "ring"):
            chosen.append(Case(shape, "neighbors", ranks, [shape, budget, *sizes(NEIGHBORS_SIZES, quick)]))
    for ranks in (2, 4, 8, 16):
        chosen.append(Case("barrier", "collectives", ranks, [budget, "barrier", "0"]))
        allreduce_sizes = ALLREDUCE_SIZES if ranks <= CORES else ALLREDUCE_SIZES_OVERSUBSCRIBED
        chosen.append(Case("allreduce", "collectives", ranks, [budget, "allreduce", *sizes(allreduce_sizes, quick)]))
    chosen += [
        Case("startup", "hello", 64, []),
        Case("memory", "hello", 64, ["memory"]),
        Case("blocked", "blocked", 2, []),
    ]
    return chosen


class Session:
    """All that was measured so far."""

    def __init__(self) -> None:
        self.figures: dict[Key, dict[str, Figures]] = defaultdict(lambda: defaultdict(Figures))
        self.windows: dict[int, int] = {}
        self.failures: list[str] = []
        self.dropped: list[str] = []
        """Runs that were not counted, because others used too much of the processors in each try."""

    def add(self, key: Key, library: str, median: float, best: float, foreign: float) -> None:
        figures = self.figures[key][library]
        figures.medians.append(median)
        figures.bests.append(best)
        figures.foreign.append(foreign)

    def counts(self, what: str, foreign: float) -> bool:
        if foreign > fair.FOREIGN_MAX:
            self.dropped.append(f"{what}: others used {foreign:.0%} of the processors")
        return foreign <= fair.FOREIGN_MAX

    def measure_machine(self, only_line: bool) -> dict[str, tuple[float, float]]:
        """The machine's own limits; the median and best one-way times of a cache line in µs, by kind."""
        lines, _, trouble, foreign = run([str(BUILD / MACHINE / "limits"), *(["line"] if only_line else [])])
        if trouble:
            self.failures.append(f"limits: {trouble}")
        line_us = {}
        if not self.counts("limits", foreign):
            return line_us
        for line in lines:
            name = line["bench"]
            is_line = name.startswith("cache_line")
            self.add((name, 2 if is_line else 1, line["bytes"]), MACHINE, line["median_us"], line["best_us"], foreign)
            if is_line:
                line_us[name] = line["median_us"], line["best_us"]
        return line_us

    def measure_types_limits(self) -> None:
        """What exchanges of derived types cost without a library."""
        lines, _, trouble, foreign = run([str(BUILD / MACHINE / "types_limits")])
        if trouble:
            self.failures.append(f"types_limits: {trouble}")
        if not self.counts("types_limits", foreign):
            return
        for line in lines:
            self.add((line["bench"], 2, line["bytes"]), MACHINE, line["median_us"], line["best_us"], foreign)

    def measure(self, case: Case, library: Library) -> None:
        line_us = self.measure_machine(only_line=True) if case.name == "latency" else {}
        program = BUILD / library.name.replace(" ", "") / case.program
        lines, elapsed_s, trouble, foreign = run(library.command(case, program), library)
        if trouble:
            self.failures.append(f"{library.name}, {case.name} on {case.ranks} ranks: {trouble}")
            return
        if not self.counts(f"{library.name}, {case.name} on {case.ranks} ranks", foreign):
            return
        if case.name == "startup":
            self.add(("startup", case.ranks, 0), library.name, elapsed_s, elapsed_s, foreign)
        for line in lines:
            name, ranks, bytes_ = line["bench"], line["ranks"], line.get("bytes", 0)
            if name == "memory":
                mib = line["private_kib_max"] / 1024
                self.add((name, ranks, 0), library.name, mib, mib, foreign)
            elif name == "blocked":
                self.add((name, ranks, 0), library.name, line["cpu_percent"], line["cpu_percent"], foreign)
            elif name == "threads":
                name = f"threads_{line['communicators']}_{line['threads']}"
                millions = line["messages_per_s"] / 1e6
                self.add((name, ranks, bytes_), library.name, millions, millions, foreign)
            else:
                convert = METRICS[name].from_us
                median, best = convert(line["median_us"], bytes_), convert(line["best_us"], bytes_)
                self.add((name, ranks, bytes_), library.name, median, best, foreign)
                if name == "bandwidth":
                    self.windows[bytes_] = line["window"]
            if name == "latency" and bytes_ <= 64:
                for limit, (median_us, best_us) in line_us.items():
                    key = (f"latency_in_{limit}", ranks, bytes_)
                    self.add(key, library.name, line["median_us"] / median_us, line["best_us"] / best_us, foreign)


def better_peer(key: Key, figures: dict[str, Figures]) -> tuple[float, float] | None:
    """Median and best value of the better peer, each judged by itself."""
    pick = max if METRICS[key[0]].higher_is_better else min
    peers = [value for name, value in figures.items() if name not in (OURS, MACHINE)]
    if not peers:
        return None
    return pick(peer.median() for peer in peers), pick(pick(peer.bests) for peer in peers)


def format_value(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def goal_cell(key: Key, ratio: float | None, value: float | None) -> str:
    """The goal for this row and whether it was met, by the medians."""
    for goal in GOALS:
        if goal.covers(*key):
            reached = ratio if goal.of_ratio else value
            text = ("≥ " if goal.at_least else "≤ ") + f"{goal.limit:.3g}" + ("" if goal.of_ratio else f" {goal.unit}")
            if reached is None:
                return text
            met = reached >= goal.limit if goal.at_least else reached <= goal.limit
            return f"[green]{text} ✓" if met else f"[red]{text} ✗"
    return ""


def print_table(session: Session, libraries: list[Library], console: Console) -> None:
    names = [library.name for library in libraries]
    for metric_name, metric in METRICS.items():
        keys = sorted(key for key in session.figures if key[0] == metric_name)
        keys = [key for key in keys if any(name in session.figures[key] for name in names)]
        if not keys:
            continue
        arrow = "higher is better" if metric.higher_is_better else "lower is better"
        table = Table(title=f"{metric.title}, {metric.unit} ({arrow})", title_justify="left")
        table.add_column("ranks", justify="right")
        table.add_column("size", justify="right")
        for name in names:
            table.add_column(f"{name}\nmedian", justify="right", style="bold" if name == OURS else "")
            table.add_column("\nbest", justify="right")
        table.add_column("ours ÷ peer\nmedian", justify="right")
        table.add_column("\nbest", justify="right")
        table.add_column("goal", justify="right")
        table.add_column("spread", justify="right")
        table.add_column("others", justify="right")
        for key in keys:
            figures = session.figures[key]
            row = [str(key[1]), size_label(key[2]) if metric.sized else ""]
            pick = max if metric.higher_is_better else min
            for name in names:
                if name in figures:
                    row += [format_value(figures[name].median()), format_value(pick(figures[name].bests))]
                else:
                    row += ["–", "–"]
            peer, ours = better_peer(key, figures), figures.get(OURS)
            ratio = None
            if peer and ours and peer[0] and peer[1]:
                ratio = ours.median() / peer[0]
                row += [f"{ratio:.2f}", f"{pick(ours.bests) / peer[1]:.2f}"]
            else:
                row += ["", ""]
            spread = max(figure.spread() for figure in figures.values())
            foreign = max(max(figure.foreign) for figure in figures.values())
            row += [goal_cell(key, ratio, ours.median() if ours else None), f"{spread:.0%}", f"{foreign:.1%}"]
            table.add_row(*row)
        console.print(table)


def print_machine(session: Session, console: Console) -> None:
    table = Table(title="What the machine allows, µs", title_justify="left")
    for column in ("limit", "size", "median", "best", "slowest round", "spread"):
        table.add_column(column, justify="left" if column == "limit" else "right")
    titles = {
        "cache_line": "one-way cache line, core to core",
        "cache_line_each_way": "the same, a line for each way",
        "memcpy": "memcpy, one core",
        "process_vm_readv": "process_vm_readv, one core",
    }
    for block in (8, 64, 512, 2048, 8192):
        titles[f"exchange_own_{block}"] = f"pack and unpack own blocks of {block} B, both cores"
        titles[f"exchange_ring_{block}"] = f"exchange of blocks of {block} B, bare ring"
    for (name, _, bytes_), libraries in sorted(session.figures.items()):
        if MACHINE in libraries:
            figures = libraries[MACHINE]
            values = [figures.median(), min(figures.bests), max(figures.medians)]
            table.add_row(titles[name], size_label(bytes_), *map(format_value, values), f"{figures.spread():.0%}")
    console.print(table)
    console.print("A line below 0.03 µs means that the hypervisor ran both cores as threads of one core.\n")


def machine_facts() -> dict[str, str]:
    model = "?"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    load = os.getloadavg()[0]
    return {
        "processor": model,
        "cores": str(CORES),
        "kernel": platform.release(),
        "load before": f"{load:.2f}",
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def write_results(session: Session, facts: dict[str, str], arguments: argparse.Namespace) -> Path:
    RESULTS.mkdir(exist_ok=True)
    rows = []
    for key, figures in sorted(session.figures.items()):
        metric = METRICS.get(key[0])
        rows.append(
            {
                "bench": key[0],
                "ranks": key[1],
                "bytes": key[2],
                "unit": metric.unit if metric else "µs",
                "window": session.windows.get(key[2]) if "b" == key[0][0] else None,
                "libraries": {
                    name: {
                        "median": value.median(),
                        "best": (max if metric and metric.higher_is_better else min)(value.bests),
                        "spread": value.spread(),
                        "round_medians": value.medians,
                        "round_bests": value.bests,
                        "round_foreign": value.foreign,
                    }
                    for name, value in figures.items()
                },
            }
        )
    path = RESULTS / "bench.json"
    document = {"machine": facts, "rounds": arguments.rounds, "quick": arguments.quick, "rows": rows,
                "failures": session.failures, "dropped": session.dropped}
    path.write_text(json.dumps(document, indent=1))
    return path


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__)
    names = sorted({case.name for case in cases(False)})
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"run only: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, help="rounds of every benchmark with every library (default 5, quick 2)")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and shorter runs")
    parser.add_argument("--ours", type=Path, default=ROOT / "build", help="prefix of this library (default build/)")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 5)
    return arguments


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(width=max(shutil.get_terminal_size((120, 40)).columns, 110))
    libraries = build(find_libraries(arguments.ours, console), console)
    chosen = [case for case in cases(arguments.quick) if not arguments.only or case.name in arguments.only]
    facts = machine_facts()
    console.print("  ".join(f"{name}: {value}" for name, value in facts.items()))

    session = Session()
    columns = [TextColumn("{task.description:42}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=arguments.rounds * len(chosen) * len(libraries))
        for round_ in range(arguments.rounds):
            if not console.is_terminal:
                console.print(f"round {round_ + 1} of {arguments.rounds}")
            session.measure_machine(only_line=False)
            if any(case.name == "types" for case in chosen):
                session.measure_types_limits()
            for position, case in enumerate(chosen):
                for turn in range(len(libraries)):
                    library = libraries[(turn + round_ + position) % len(libraries)]
                    description = f"round {round_ + 1}: {case.name}, {case.ranks} ranks, {library.name}"
                    progress.update(task, description=description)
                    session.measure(case, library)
                    progress.advance(task)

    print_machine(session, console)
    print_table(session, libraries, console)
    if session.windows:
        windows = ", ".join(f"{size_label(size)}: {window}" for size, window in sorted(session.windows.items()))
        console.print(f"Messages in a bandwidth window: {windows}; in a rate window: 64.")
    console.print("spread: range of the rounds' medians over their median, of the noisiest library in the row.")
    console.print(f"others: the most that others used of the processors during a run that is counted; above {fair.FOREIGN_MAX:.0%} it is not.")
    for dropped in session.dropped:
        console.print(f"[yellow]not counted: {dropped}", highlight=False)
    console.print(f"results: {write_results(session, facts, arguments)}")
    for path in plots.draw(session.figures, facts, OURS, RESULTS):
        console.print(f"plot: {path}")
    for failure in session.failures:
        console.print(f"[red]failed: {failure}", markup=True, highlight=False)
    return 1 if any(failure.startswith(OURS) for failure in session.failures) or not libraries else 0


if __name__ == "__main__":
    sys.exit(main())
