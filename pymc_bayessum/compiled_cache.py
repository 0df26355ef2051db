"""A place for compiled code where the installation is read-only, and a number for its sources.

Numba keeps compiled functions beside their source or in the user's cache, and refuses to compile
functions that ask for that where neither can be written. Then a folder that ends with the process
does: everything works, and is compiled anew the next time.

It renews what it kept of a function when the file of that function changes, not when those that it
calls do. Functions that call compiled code of other files are kept under a number of all of these.
"""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

from numba import config
from numba.core.caching import FunctionCache

__all__ = ["provide_cache", "version_of"]

_folders: list[TemporaryDirectory] = []


def provide_cache() -> None:
    """Give Numba a folder of this process where it has no other."""
    try:
        FunctionCache(provide_cache)
    except RuntimeError:  # no locator available
        _folders.append(TemporaryDirectory(prefix="pymc_bayessum_"))
        vars(config)["CACHE_DIR"] = _folders[-1].name


def version_of(files: Iterable[Path]) -> int:
    """Return a number that changes with the content of any of these files."""
    return crc32(b"".join(file.read_bytes() for file in sorted(files)))


provide_cache()
