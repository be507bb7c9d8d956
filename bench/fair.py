"""What makes a comparison fair on a machine that is not quiet: every rank in a session of its own, whoever starts it, and how much of the
cores others used meanwhile."""

import os
import resource
import subprocess
import time
from pathlib import Path

FOREIGN_MAX = 0.05
"""A run beside which others used more of the machine's processor time than this share is not counted."""
TRIES = 3
"""How often a run is repeated that does not count."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SOURCE = Path(__file__).resolve().parent / "programs" / "own_session.c"


def build_wrapper(folder: Path) -> Path:
    """The program that starts another in a session of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / "own_session"
    subprocess.run(["cc", "-O1", str(SOURCE), "-o", str(binary)], check=True)
    return binary


class Watch:
    """Measures, from its making to `foreign`, the share of all processors' time that others than this process and its children used,
    the hypervisor's other guests (steal) included. A child counts once it and its parents have been waited for."""

    def __init__(self) -> None:
        self.start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
        busy_s = (user + nice + system + irq + softirq + steal) / TICKS_PER_S
        own_s = sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
        return time.monotonic(), busy_s, own_s

    def foreign(self) -> float:
        """0 to 1. The kernel counts in ticks: of a run of a second on two cores, two per cent are four."""
        now_s, busy_s, own_s = (now - then for now, then in zip(self._now(), self.start))
        return max(0.0, busy_s - own_s) / max(now_s * (os.cpu_count() or 1), 1e-9)
