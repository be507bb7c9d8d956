"""Which output is a crash or a failed check, whatever the exit status says. As a program: looks at its standard input, prints the
line if there is one, and exits with status 1 then."""

import re
import sys

# What no C program may print, whatever exit status its header expects: a failed check (check.h), a signal that only an error
# raises, a panic, and what sanitizers and the C library report. SIGKILL and SIGSTOP are sent by tests on purpose.
CRASHES = [
    r"^\S+\.\w+:\d+: failed: ",
    r"^\S+\.\w+:\d+: .* gave (?!MPI_SUCCESS)",
    r"signal \d+ \(SIG(?:SEGV|BUS|ILL|FPE|ABRT|TRAP|SYS)\)",
    r"^Segmentation fault|^Bus error|^Aborted\b|^Illegal instruction",
    r"thread '.*' (?:\(\d+\) )?panicked at",
    r"(?:ERROR|WARNING): \w+Sanitizer",
    r"\*\*\* .*(?:stack smashing|buffer overflow) detected|^(?:free|double free|malloc|corrupted|munmap_chunk)\b.*(?:invalid|corrupt|!prev)",
]
CRASH = re.compile("|".join(f"(?:{one})" for one in CRASHES), re.M)


def crash(text: str, wanted: str = "") -> str:
    """The first line of `text` that says that a program crashed or that one of its checks failed, but for lines that have the regular
    expression `wanted`; empty if there is none."""
    for found in CRASH.finditer(text):
        start = text.rfind("\n", 0, found.start()) + 1
        line = text[start:].splitlines()[0]
        if not wanted or not re.search(wanted, line):
            return line
    return ""


if __name__ == "__main__":
    line = crash(sys.stdin.read())
    print(line)
    sys.exit(1 if line else 0)
