"""Read-only installations, odd paths, flags of the interpreter, two processes, files to trust."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "pymc_bayessum"

SMOKE = """
import sys, warnings
warnings.filterwarnings("error")
warnings.filterwarnings("ignore", message="Importing 'IfElse'")
import numpy as np
import pymc as pm
import pymc_bayessum as pbs

assert pbs.__file__.startswith(sys.argv[1]), pbs.__file__
logp = float(pm.logp(pbs.CMP.dist(mu=3.0, nu=1.0), 2).eval(mode="FAST_COMPILE"))
print(abs(logp - (2 * np.log(3.0) - 3.0 - np.log(2.0))) < 1e-9)
try:
    pbs.poisson_rule(-1.0, n=3)
except ValueError:
    print("refused")
"""


def test_nothing_loads_pickles():
    loaders = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").split(".")[0]}
            elif isinstance(node, ast.Call):
                names = {"pickle"} & {keyword.arg for keyword in node.keywords}
                names |= {k.arg for k in node.keywords if k.arg == "allow_pickle"}
                names |= {"read_pickle"} & {getattr(node.func, "attr", None)}
            else:
                continue
            assert not names & (loaders | {"allow_pickle", "read_pickle"}), path


def test_two_processes_at_once_from_a_read_only_installation(tmp_path):
    home = tmp_path / "a path with spaces"
    shutil.copytree(PACKAGE, home / "pymc_bayessum", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [home / "pymc_bayessum", *(home / "pymc_bayessum").rglob("*/")]:
        (folder / "__pycache__").touch()  # not even root writes into a file as if it were a folder
    environment = os.environ | {
        "HOME": "/dev/null",
        "XDG_CACHE_HOME": "/dev/null",
        "PYTHONPATH": str(home),
        "PYTENSOR_FLAGS": f"base_compiledir={tmp_path / 'pytensor'},cxx=",
    }
    environment.pop("NUMBA_CACHE_DIR", None)
    running = [
        subprocess.Popen(
            [sys.executable, *flags, "-c", SMOKE, str(home)],
            env=environment,
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for flags in (["-O"], ["-X", "dev"])
    ]
    for process in running:
        said, wrong = process.communicate()
        assert said.split() == [b"True", b"refused"], wrong.decode()[-2000:]


@pytest.mark.parametrize("content", [b"", b"not netCDF at all", b"\x89HDF\r\n\x1a\n broken"])
def test_files_that_are_no_netcdf(tmp_path, capsys, content):
    from pymc_bayessum.__main__ import main

    path = tmp_path / "a file.nc"
    path.write_bytes(content)
    assert main(["check", str(path)]) == 2
    assert "is not a netCDF file that can be read" in capsys.readouterr().err
