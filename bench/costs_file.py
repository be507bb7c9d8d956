"""Files of a machine's costs that say what is not so. Run as a program: `costs_file.py FROM TO eager` (or `others`) says that messages that go with their header (or
all others) take ten times as long as the rest."""

import sys
from pathlib import Path

SIZES = [0, *(1 << at for at in range(23))]


def changed(text: str, machine: str | None = None, slow: str | None = None) -> str:
    """The file for another machine; or with curves by which messages that go with their header (`eager`), or all `others`, take ten times as long as the rest."""
    first, here, *curves, _checksum = text.splitlines()
    lines = [first, f"machine {machine}" if machine else here]
    for curve in curves:
        kind, protocol, *ps = curve.split()
        if slow:
            us = 10 if (protocol == "eager") == (slow == "eager") else 1
            ps = [str(1000 * us * (1000 + size)) for size in SIZES]
        lines.append(" ".join([kind, protocol, *ps]))
    written = "\n".join(lines) + "\n"
    checksum = 0xCBF29CE484222325
    for byte in written.encode():
        checksum = (checksum ^ byte) * 0x100000001B3 % 2**64
    return f"{written}checksum {checksum:016x}\n"


if __name__ == "__main__":
    source, to, which = sys.argv[1:]
    Path(to).write_text(changed(Path(source).read_text(), slow=which))
