"""What tests on the stand-in share: a libibverbs.so.1 of our own (tests/rdma/standin), a device between processes of this host that needs no hardware and no
guest.

    device = standin_library.need()
    output = device.run(["mpiexec", "-n", "2", program], WHIMBREL_VERBS="rc")
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("ROOT", HERE.parents[1]))
PREFIX = Path(os.environ.get("WHIMBREL_TEST_PREFIX", ROOT / "build"))
SCRATCH = Path(os.environ.get("SCRATCH", ROOT / ".cache/tests/standin"))
SKIPPED = 77


class Device:
    def __init__(self, folder):
        self.folder = folder
        self.counts_file = folder / "counts"

    def outcome(self, words, seconds=300, **environment):
        """Exit status of a command over the device, and what it printed."""
        path = ":".join(filter(None, [str(self.folder), os.environ.get("LD_LIBRARY_PATH")]))
        settings = {"LD_LIBRARY_PATH": path, "WHIMBREL_FABRIC": "verbs", "STANDIN_COUNTS": str(self.counts_file), **environment}
        self.counts_file.unlink(missing_ok=True)
        done = subprocess.run(
            [str(word) for word in words], env={**os.environ, "PATH": f"{PREFIX}/bin:{os.environ['PATH']}", **settings},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds, check=False,
        )
        return done.returncode, done.stdout

    def run(self, words, seconds=300, **environment):
        """What a command prints over the device; it must end well."""
        status, output = self.outcome(words, seconds, **environment)
        assert status == 0, f"{words}: exit status {status}\n{output}"
        return output

    def counts(self):
        """What each process of the last command has counted, those that ended by themselves."""
        lines = self.counts_file.read_text().splitlines() if self.counts_file.exists() else []
        return [{name: int(value) for name, value in (pair.split("=") for pair in line.split())} for line in lines]


def need():
    """Builds the stand-in; ends the test as skipped where it cannot be used."""
    folder = SCRATCH / "standin"
    built = subprocess.run([HERE / "standin/build", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if built.returncode == SKIPPED:
        print(built.stdout.strip().splitlines()[-1])
        sys.exit(SKIPPED)
    assert built.returncode == 0, built.stdout
    return Device(folder)


def compile_program(path, *flags):
    binary = SCRATCH / Path(path).stem
    subprocess.run([PREFIX / "bin/mpicc", "-O1", "-Wall", "-Wextra", "-Werror", *flags, path, "-o", binary, "-lm"], check=True)
    return binary
