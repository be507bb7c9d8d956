#!/usr/bin/env python3
"""Every function that docs/status.md calls not built gives MPI_ERR_UNSUPPORTED_OPERATION and its name, as MPI_X and PMPI_X."""

import ctypes
import os
import re
import sys
from pathlib import Path

MPI_COMM_WORLD, MPI_COMM_SELF, MPI_ERRORS_RETURN = (ctypes.c_void_p(value) for value in (0x101, 0x102, 0x143))
MPI_ERR_UNSUPPORTED_OPERATION = 55

status = (Path(os.environ["ROOT"]) / "docs" / "status.md").read_text()
names = [name for line in status.splitlines() if line.startswith("Not built") for name in re.findall(r"`(MPI_\w+)`", line)]
library = ctypes.CDLL(str(Path(os.environ["WHIMBREL_TEST_PREFIX"]) / "lib" / "libmpi_abi.so.1"))
if "MPI_Init" in names or "MPI_Comm_set_errhandler" in names:
    print("MPI_Init or MPI_Comm_set_errhandler is not built")
    sys.exit(77)

assert library.MPI_Init(None, None) == 0
for comm in (MPI_COMM_WORLD, MPI_COMM_SELF):
    assert library.MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN) == 0
for name in names:
    for symbol in (name, "P" + name):
        code = getattr(library, symbol)()
        text, found, length = ctypes.create_string_buffer(512), ctypes.c_int(), ctypes.c_int()
        assert library.MPI_Error_class(code, ctypes.byref(found)) == 0, symbol
        assert found.value == MPI_ERR_UNSUPPORTED_OPERATION, f"{symbol} gave {code}"
        assert library.MPI_Error_string(code, text, ctypes.byref(length)) == 0
        assert re.search(rf"\b{name}\b", text.value.decode()), f"{symbol}: {text.value}"
assert library.MPI_Finalize() == 0
print(len(names), "functions are not built")
