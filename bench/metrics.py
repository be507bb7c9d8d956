"""What is measured: units, direction, and the goals that the figures are read against."""

import math
from collections.abc import Callable
from dataclasses import dataclass


NAMES = [
    "bcast",
    "reduce",
    "allreduce",
    "gather",
    "allgather",
    "scatter",
    "alltoall",
    "reduce_scatter_block",
    "barrier",
    "scan",
    "alltoallv",
    "neighbor_alltoall",
    "ibarrier",
    "ireduce",
    "iallreduce",
]
OTHERS = [
    "gatherv",
    "scatterv",
    "allgatherv",
    "reduce_scatter",
    "exscan",
    "neighbor_allgather",
    "ibcast",
    "igather",
    "iallgather",
    "iscatter",
    "ialltoall",
    "ialltoallv",
    "iscan",
    "ineighbor_alltoall",
]
UNSIZED = {"barrier", "ibarrier"}
"""Collectives that are measured, those that are when they are asked for, and those that have no length."""


def _time(us: float, _bytes: int) -> float:
    return us


def _million_per_s(us: float, _bytes: int) -> float:
    return 1 / us


def _mb_per_s(us: float, bytes_: int) -> float:
    return bytes_ / us


def _mb_per_s_both_ways(us: float, bytes_: int) -> float:
    return 2 * bytes_ / us


@dataclass
class Metric:
    title: str
    unit: str
    higher_is_better: bool = False
    from_us: Callable[[float, int], float] = _time
    sized: bool = True


DERIVED_TYPES = {
    "vector_8": "every second double",
    "vector_64": "every second block of 8 doubles",
    "vector_512": "every second block of 64 doubles",
    "vector_8192": "every second block of 1024 doubles",
    "indexed_8": "single doubles at irregular places",
    "indexed_48": "irregular blocks of 4 to 7 doubles",
    "indexed_1536": "irregular blocks of 128 to 255 doubles",
    "struct": "structures of int, double[3], double[3], char[6], float",
    "face_32": "4 innermost layers of a 64 x n x 64 array",
    "face_2048": "4 middle layers of an n x 64 x 64 array",
}
"""The patterns of `types.c`; the number is the usual length of a block in bytes."""

METRICS = {
    "latency": Metric("One-way latency", "µs"),
    "latency_in_cache_line": Metric("One-way latency over the cache-line transfer timed just before", "lines"),
    "latency_in_cache_line_each_way": Metric("The same over the transfer with a line for each way", "lines"),
    "rate": Metric("Message rate, windows of 64", "million messages/s", True, _million_per_s),
    "bandwidth": Metric("Bandwidth, one way", "MB/s", True, _mb_per_s),
    "bidirectional": Metric("Bandwidth, both ways at once", "MB/s", True, _mb_per_s_both_ways),
    "pairs": Metric("Ping-pongs of all pairs at once, one way", "µs"),
    "ring": Metric("Sendrecv of all ranks around a ring", "µs"),
    "barrier": Metric("Barrier", "µs", sized=False),
    "allreduce": Metric("Allreduce of doubles", "µs"),
    "startup": Metric("mpiexec -n 64 hello, whole job", "s", sized=False),
    "memory": Metric("Private memory of the largest of 64 ranks", "MiB", sized=False),
    "blocked": Metric("Core used by a rank blocked in MPI_Recv for a second", "%", sized=False),
}
for _kind, _what in (("own", "each on a communicator of its own"), ("common", "on one communicator")):
    for _threads in (1, 2, 4):
        METRICS[f"threads_{_kind}_{_threads}"] = Metric(f"Message rate of {_threads} threads a rank, {_what}", "million messages/s", True)
for _name, _what in DERIVED_TYPES.items():
    METRICS[f"types_{_name}"] = Metric(f"Exchange of {_what}, both ways", "MB/s", True, _mb_per_s_both_ways)
for _name, _what in DERIVED_TYPES.items():
    METRICS[f"types_oneway_{_name}"] = Metric(f"Ping-pong of {_what}", "MB/s", True, _mb_per_s)


@dataclass
class Goal:
    bench: str
    covers_row: Callable[[int, int], bool]
    """Takes ranks and bytes."""
    limit: float
    of_ratio: bool = True
    """Of our figure to the better peer's; otherwise of our figure itself."""
    at_least: bool = False
    unit: str = ""

    def covers(self, bench: str, ranks: int, bytes_: int) -> bool:
        return bench == self.bench and self.covers_row(ranks, bytes_)


GOALS = [
    Goal("latency", lambda _ranks, bytes_: bytes_ == 8, 0.8),
    Goal("latency_in_cache_line", lambda _ranks, bytes_: bytes_ == 8, 1.5, of_ratio=False, unit="lines"),
    Goal("latency_in_cache_line_each_way", lambda _ranks, bytes_: bytes_ == 8, 1.5, of_ratio=False, unit="lines"),
    Goal("rate", lambda _ranks, bytes_: bytes_ == 8, 1.5, at_least=True),
    Goal("bandwidth", lambda _ranks, bytes_: bytes_ >= 65536, 1.0, at_least=True),
    *(Goal(name, lambda ranks, _bytes: ranks >= 4, 0.8) for name in ("pairs", "ring")),
    Goal("barrier", lambda ranks, _bytes: ranks >= 4, 0.6),
    Goal("allreduce", lambda ranks, bytes_: ranks >= 4 and bytes_ == 8, 0.6),
    Goal("startup", lambda _ranks, _bytes: True, 1 / 3),
    Goal("memory", lambda _ranks, _bytes: True, 8, of_ratio=False, unit="MiB"),
    *(Goal(f"types_{name}", lambda _ranks, _bytes: True, 1.5, at_least=True) for name in DERIVED_TYPES),
    Goal("blocked", lambda _ranks, _bytes: True, 1, of_ratio=False, unit="%"),
]


def size_label(bytes_: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ >= factor and bytes_ % factor == 0:
            return f"{bytes_ // factor} {unit}"
    return f"{bytes_} B"


def numbers(text: str) -> list[int]:
    """Numbers between commas, with K and M for KiB and MiB."""
    units = {"K": 1 << 10, "M": 1 << 20}
    return [int(word[:-1]) * units[word[-1]] if word[-1] in units else int(word) for word in text.upper().split(",")]


def mean(ratios: list[float]) -> float:
    """Geometric, of those that are numbers."""
    known = [math.log(one) for one in ratios if not math.isnan(one)]
    return math.exp(sum(known) / len(known)) if known else math.nan
