#!/usr/bin/env python3
# timeout: 600
# long: the packages of Slurm are heavy
"""The job's key under Slurm, in a credential of munge. Slurm and munge run on this machine alone, in a mount namespace of their own, so that munge has its
usual place there."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import slurm_cluster
from common import ROOT, SCRATCH, build, expect, finish, lines, ranks, run, skip

PLACE = Path("/run/munge")

if reason := slurm_cluster.missing():
    skip(reason)
if "--inside" not in sys.argv:
    PLACE.mkdir(exist_ok=True)
    inside = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, "--inside"]
    if subprocess.run([*inside[:4], "mount", "-t", "tmpfs", "none", PLACE], capture_output=True, check=False).returncode != 0:
        skip("needs a mount namespace of its own")
    os.execvp(inside[0], inside)
subprocess.run(["mount", "-t", "tmpfs", "none", PLACE], check=True)

host = socket.gethostname().split(".")[0]
cluster = slurm_cluster.Cluster([(host, "127.0.0.1", ())], munge=PLACE / "munge.socket.2")
conf = cluster.variables
where = build("where")
log = SCRATCH / "overheard"
PROCESSES = ["srun", "--mpi=pmi2", "--overcommit", "--kill-on-bad-exit=1", "-n", "3"]


def play(mode, value="", before=""):
    """Exit status and output of three ranks, and the values that rank 0 has left as the key. `before`: shell code with which each rank begins."""
    log.unlink(missing_ok=True)
    overhear = f"exec '{sys.executable}' '{ROOT}/tests/launch/overhear.py' '{log}' '{value}' '{where}'"
    plain = f"exec '{where}'"
    script = f'if [ "$SLURM_PROCID" = 0 ]; then {overhear}; else {plain}; fi'
    begin = SCRATCH / "begin.sh"
    begin.write_text(f"{before}\n{script}\n")
    status, text = run([*PROCESSES, "sh", str(begin)], {**conf, "WHIMBREL_KEY_MUNGE": mode})
    return status, text, log.read_text().split() if log.exists() else []


def content(values):
    return bytes.fromhex("".join(value[1:] for value in values))


def hidden(which):
    """Shell code that takes munge's place away from the ranks for which `which` is true."""
    gone = f"exec unshare --mount --propagation private sh -c 'mount -t tmpfs none {PLACE} && . \"$0\"' \"$0\""
    return f'if [ -z "$HIDDEN" ] && [ {which} ]; then export HIDDEN=1; {gone}; fi'


def credential(user, text):
    """What munge makes of `text` for `user`."""
    command = ["setpriv", f"--reuid={user}", "--clear-groups", "munge", "--string", text]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main():
    for mode in ["auto", "on"]:
        status, text, values = play(mode)
        good = status == 0 and lines(text) == ranks(3) and content(values).startswith(b"MUNGE:") and b"\0" not in content(values)
        expect(f"{mode}: the key goes in a credential", good, f"{text}\n{values}")
    status, text, values = play("off")
    expect("off: the key goes as it is", status == 0 and lines(text) == ranks(3) and len(content(values)) == 32, f"{text}\n{values}")

    status, text, values = play("auto", before=hidden("1 = 1"))
    expect("auto, munge does not answer: the key goes as it is", status == 0 and lines(text) == ranks(3) and len(content(values)) == 32, f"{text}\n{values}")
    status, text, values = play("on", before=hidden("1 = 1"))
    expect("on, munge does not answer: one clear line", status not in (0, None) and "munge does not encode the job's key" in text, text)
    status, text, values = play("auto", before=hidden('"$SLURM_PROCID" = 2'))
    expect("munge does not answer on another rank: one clear line",
           status not in (0, None) and "munge does not decode the job's key, which rank 0 has encoded" in text, text)

    good = content(play("on")[2])
    damaged = good[:40] + (b"A" if good[40:41] != b"A" else b"B") + good[41:]
    status, text, _ = play("auto", f"e{damaged.hex()}")
    expect("a damaged credential is refused", status not in (0, None) and "munge does not decode" in text, text)
    status, text, _ = play("auto", f"e{credential(65534, 'k' * 32).encode().hex()}")
    expect("another user's credential is refused", status not in (0, None) and "user 65534 has left the job's key, not user 0" in text, text)
    restricted = subprocess.run(["munge", "--restrict-uid=65534", "--string", "k" * 32], capture_output=True, text=True, check=True).stdout.strip()
    status, text, _ = play("auto", f"e{restricted.encode().hex()}")
    expect("a credential for another user is refused", status not in (0, None) and "munge does not decode" in text, text)
    status, text, _ = play("on", f"e{(b'k' * 32).hex()}")
    expect("on: a key without a credential is refused", status not in (0, None) and "without munge" in text, text)
    finish()


main()
