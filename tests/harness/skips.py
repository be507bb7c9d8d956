"""Which skips are allowed, and how tests report them."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

# A test that passes reports a part that it left out by a line of this form; cargo's tests append it to the file that
# WHIMBREL_TEST_SKIPS names.
INNER = re.compile(r"^skip  (.+?): (.+)$", re.M)


class Allowed:
    """The list in tests/skips: a line `TEST: REASON`, both shell patterns."""

    def __init__(self, path: Path):
        self.patterns = []
        for line in path.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                test, separator, reason = line.partition(": ")
                if not separator:
                    raise SystemExit(f"{path}: no reason in {line!r}")
                self.patterns.append((test, reason.strip()))

    def allows(self, test: str, reason: str) -> bool:
        return any(fnmatchcase(test, one) and fnmatchcase(reason, why) for one, why in self.patterns)
