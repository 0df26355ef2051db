"""Property tests draw the same examples in every run; HYPOTHESIS_PROFILE=explore draws new ones."""

import gc
import os
from ctypes import c_void_p, cast

import numba  # noqa: F401 (asks llvmlite for the times that are not taken below)
import pytensor
import pytest
from hypothesis import settings
from llvmlite.binding import ffi
from llvmlite.binding.executionengine import ExecutionEngine

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# PyTensor folds constants and links FAST_COMPILE with the C++ compiler where there is one, a second
# for each operation: minutes of a first run. Tests of the C backend ask for it.
COMPILER = pytensor.config.cxx
pytensor.config.cxx = ""


_add_module, _find_module = ExecutionEngine.add_module, ExecutionEngine._find_module_ptr


def add_module(self, module):
    """Keep the place of a module as well."""
    _add_module(self, module)
    self.__dict__.setdefault("places", {})[cast(module._ptr, c_void_p).value] = module


def find_module(self, pointer):
    """Find a module by its place; llvmlite looks at all of them, one after the other."""
    module = self.__dict__.get("places", {}).get(cast(pointer, c_void_p).value)
    return module if module in self._modules else _find_module(self, pointer)


# A worker compiles or loads thousands of modules, and each is looked for twice.
ExecutionEngine.add_module, ExecutionEngine._find_module_ptr = add_module, find_module


# Numba times every call of LLVM for whoever asks; nobody does, and it is a twentieth of the time.
ffi.lib._lock._cblist.clear()


def pytest_configure(config):
    """Say what a marker of ours means."""
    config.addinivalue_line("markers", "c_backend: PyTensor's C code, compiled by the C++ compiler")


def pytest_collection_modifyitems(items):
    """Start notebooks first: a minute each, they would keep one worker waiting for the other."""
    items.sort(key=lambda item: "test_notebooks" not in item.nodeid)


def pytest_collection_finish():
    """Look for garbage less often: in the heap of a worker it took an eighth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def _c_backend(request, monkeypatch):
    """Give the compiler to those who ask for it; processes that a test starts ask their flags."""
    asked = request.node.get_closest_marker("c_backend") is not None
    if not asked:
        flags = [os.environ.get("PYTENSOR_FLAGS", ""), "cxx="]
        monkeypatch.setenv("PYTENSOR_FLAGS", ",".join(filter(None, flags)))
    with pytensor.config.change_flags(cxx=COMPILER if asked else ""):
        yield


@pytest.fixture
def plain():
    """Evaluate graphs in Python, where what Numba would make of them is not the question."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield
