#!/usr/bin/env python3
# timeout: 120
"""tests/run itself: which crashes and skips fail a test, on a tree of small tests of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT, SCRATCH = Path(os.environ["ROOT"]), Path(os.environ["SCRATCH"])
TESTS = {
    # name, what it says, whether it passes: a word in the verdict's line
    "a_check.c": ('/* ranks: 2\n * status: nonzero\n * output: wanted */\n#include "check.h"\n'
                  'int main(void) { puts("wanted"); fflush(stdout); CHECK(1 == 2); return 0; }\n', "FAIL"),
    "b_signal.c": ("/* ranks: 1\n * status: nonzero */\n#include <signal.h>\nint main(void) { return raise(SIGSEGV); }\n", "FAIL"),
    "c_status.c": ("/* ranks: 1\n * status: nonzero */\nint main(void) { return 3; }\n", "ok"),
    "d_killed.c": ("/* ranks: 1\n * status: nonzero */\n#include <signal.h>\nint main(void) { return raise(SIGKILL); }\n", "ok"),
    "d_wanted.c": ("/* ranks: 1\n * status: nonzero\n * crash: SIGSEGV */\n#include <signal.h>\nint main(void) { return raise(SIGSEGV); }\n", "ok"),
    "e_inner.sh": ("#!/bin/sh\necho 'skip  half of it: no such thing here'\n", "FAIL"),
    "f_allowed.sh": ("#!/bin/sh\necho 'skip  half of it: allowed, since it rains'\n", "ok"),
    "g_whole.sh": ("#!/bin/sh\necho 'no such thing here'\nexit 77\n", "FAIL"),
    "h_long.sh": ("#!/bin/sh\n# long: minutes\nexit 1\n", "skip"),
    "i_variants.sh": ('#!/bin/sh\n# variants: one two\n[ "$1" = one ]\n', "FAIL"),
    "j_call.c": ("/* ranks: 1 */\n#include <mpi.h>\nint main(void) { return MPI_Init(0, 0) || MPI_Finalize(); }\n", "ok"),
}

tree = SCRATCH / "tree"
shutil.rmtree(tree, ignore_errors=True)
(tree / "tests/mine").mkdir(parents=True)
shutil.copy(ROOT / "tests/run", tree / "tests/run")
shutil.copytree(ROOT / "tests/harness", tree / "tests/harness", ignore=shutil.ignore_patterns("rules.py", "__pycache__"))
(tree / "tests/skips").write_text("# as in the real one\n*: make test-nightly runs it*\nmine/*: allowed, since *\n")
for name in ("build", "abi", "docs"):
    (tree / name).symlink_to(ROOT / name)
for name, (text, _) in TESTS.items():
    path = tree / "tests/mine" / name
    path.write_text(text.replace("check.h", str(ROOT / "tests/programs-c/check.h")))
    path.chmod(0o755)
environment = {name: value for name, value in os.environ.items() if name != "WHIMBREL_TEST_SCALE"}
done = subprocess.run([tree / "tests/run", "--calls", "mine/"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
wrong = []
for name, (_, verdict) in TESTS.items():
    said = [line.split()[0] for line in done.stdout.splitlines() if line.startswith(("ok  ", "FAIL", "skip")) and f" mine/{name}" in line]
    if verdict not in said or (verdict == "ok" and "FAIL" in said):
        wrong.append(f"{name}: {verdict} was wanted, not {said}")
for line in ["7 passed, 5 failed, 4 skipped", "C tests call 2 of "]:
    if line not in done.stdout:
        wrong.append(f"{line!r} was not printed")
if done.returncode != 1:
    wrong.append(f"exit status {done.returncode}")
if wrong:
    print(done.stdout, *wrong, sep="\n")
    sys.exit(1)
