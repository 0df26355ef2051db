"""Property tests draw the same examples in every run; HYPOTHESIS_PROFILE=explore draws new ones."""

import gc
import os

import pytensor
import pytest
from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# PyTensor folds constants and links FAST_COMPILE with the C++ compiler where there is one, a second
# for each operation: minutes of a first run. Tests of the C backend ask for it.
COMPILER = pytensor.config.cxx
pytensor.config.cxx = ""


def pytest_configure(config):
    """Say what a marker of ours means."""
    config.addinivalue_line("markers", "c_backend: PyTensor's C code, compiled by the C++ compiler")


def pytest_collection_modifyitems(items):
    """Run notebooks one after another in one worker, early enough not to be waited for.

    Not first: what their process would compile beside the workers it then finds compiled.
    """
    notebooks = [item for item in items if "test_notebooks" in item.nodeid]
    others = [item for item in items if "test_notebooks" not in item.nodeid]
    some = len(others) // 8
    items[:] = others[:some] + notebooks + others[some:]


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
    # Its code is run once: to optimise it would take the compiler a fifth longer.
    with pytensor.config.change_flags(cxx=COMPILER if asked else "", gcc__cxxflags="-O0"):
        yield


@pytest.fixture
def plain():
    """Evaluate graphs in Python, where what Numba would make of them is not the question."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield
