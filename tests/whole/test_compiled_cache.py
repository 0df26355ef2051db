"""Compiled code on disk is renewed when anything that it is built on changes."""

import sys
from importlib import import_module

from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

from pymc_bayessum.compiled_cache import version_of
from pymc_bayessum.counts.cmp_sums import ops

CALLER = """
from pathlib import Path
from numba import njit
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS
from pymc_bayessum.compiled_cache import version_of
from kept_callee import answer

def ask():
    return answer()

CACHED_SRC_FUNCTIONS[ask] = f"test_{version_of(Path(__file__).parent.glob('kept_*.py'))}"
ask = njit(cache=True)(ask)
"""


def test_a_function_is_renewed_with_those_it_calls(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kept_caller.py").write_text(CALLER)
    for number in (1, 22):
        source = f"from numba import njit\n\n@njit\ndef answer():\n    return {number}\n"
        (tmp_path / "kept_callee.py").write_text(source)
        for name in ("kept_caller", "kept_callee"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        assert import_module("kept_caller").ask() == number


def test_a_version_is_that_of_the_content(tmp_path):
    file = tmp_path / "sums.py"
    file.write_text("a = 1")
    first = version_of([file])
    assert version_of([file]) == first
    file.write_text("a = 2")
    assert version_of([file]) != first


def test_the_handler_of_jax_is_kept_under_the_version_of_the_sums():
    from pymc_bayessum.counts.cmp_sums import jax_ops

    handler = jax_ops._HANDLER._pyfunc
    assert CACHED_SRC_FUNCTIONS[handler] == str(ops.VERSION)
