"""A place for compiled code where the installation is read-only and there is no home.

Numba keeps compiled functions beside their source or in the user's cache, and refuses to compile
functions that ask for that where neither can be written. Then a folder that ends with the process
does: everything works, and is compiled anew the next time.
"""

from tempfile import TemporaryDirectory

from numba import config
from numba.core.caching import FunctionCache

__all__ = ["provide_cache"]

_folders: list[TemporaryDirectory] = []


def provide_cache() -> None:
    """Give Numba a folder of this process where it has no other."""
    try:
        FunctionCache(provide_cache)
    except RuntimeError:  # no locator available
        _folders.append(TemporaryDirectory(prefix="pymc_bayessum_"))
        vars(config)["CACHE_DIR"] = _folders[-1].name


provide_cache()
