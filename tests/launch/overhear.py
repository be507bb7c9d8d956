"""Stands between a rank and its PMI-2 process manager: `overhear.py LOG VALUE PROGRAM…` starts PROGRAM, writes to LOG what rank 0 leaves as the job's key,
one value a line, and puts VALUE in its place where that is not empty."""

import os
import re
import socket
import subprocess
import sys
import threading

KEY = re.compile(rb"cmd=kvs-put;key=(whimbrel-key-0-\d+);value=([^;]*);")


def exactly(manager, count):
    taken = b""
    while len(taken) < count:
        more = manager.recv(count - len(taken))
        if not more:
            raise SystemExit
        taken += more
    return taken


def outgoing(rank, manager, log, value):
    # The greeting is a line of PMI-1; behind it each message has its length, in six characters, before it.
    line = b""
    while not line.endswith(b"\n"):
        line += exactly(rank, 1)
    manager.sendall(line)
    while True:
        message = exactly(rank, int(exactly(rank, 6)))
        if found := KEY.fullmatch(message):
            with open(log, "ab") as file:
                file.write(found[2] + b"\n")
            if value:
                message = b"cmd=kvs-put;key=%s;value=%s;" % (found[1], value)
        manager.sendall(b"%6d%s" % (len(message), message))


def incoming(manager, rank):
    while more := manager.recv(65536):
        rank.sendall(more)


def main():
    log, value, program = sys.argv[1], sys.argv[2].encode(), sys.argv[3:]
    manager = socket.socket(fileno=int(os.environ["PMI_FD"]))
    here, there = socket.socketpair()
    variables = {**os.environ, "PMI_FD": str(there.fileno())}
    child = subprocess.Popen(program, env=variables, pass_fds=[there.fileno()])
    there.close()
    for work in [(outgoing, here, manager, log, value), (incoming, manager, here)]:
        threading.Thread(target=work[0], args=work[1:], daemon=True).start()
    status = child.wait()
    os._exit(status if status >= 0 else 128 - status)


main()
