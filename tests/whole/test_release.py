"""What is released: it builds, installs where nothing of it was, runs, and says one version."""

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import pymc_bayessum as pbs

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SMOKE = """
from importlib.metadata import entry_points, version
from pathlib import Path
import sys
import pymc as pm
import pymc_bayessum as pbs
assert Path(pbs.__file__).is_relative_to(sys.prefix), pbs.__file__
assert Path(pbs.__file__).with_name("py.typed").is_file()
assert pbs.__version__ == version("pymc-bayessum"), version("pymc-bayessum")
assert all(len(pbs.datasets.load(name)) for name in pbs.datasets.names())
assert abs(pbs.poisson_rule(3.0, n=40).expectation(range(40)).mean - 3.0) < 1e-6
with pm.Model() as model:
    pbs.CMP("y", mu=pm.HalfNormal("mu"), nu=1.0, observed=[1, 2])
assert list(model.named_vars) == ["mu", "y"]
[command] = entry_points(group="console_scripts", name="pymc-bayessum")
command.load()(["--version"])
"""


def run(*words, cwd):
    done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind, source, into):
    """Build by the hook that pip calls, with the build tool that is already here."""
    hook = f"import hatchling.build as b, sys; print(b.build_{kind}(sys.argv[1]))"
    return into / run(sys.executable, "-c", hook, into, cwd=source).split()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel of the sources, and the wheel of the sources that the sdist holds."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    sdist = build("sdist", ROOT, folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    again = folder / "again"
    again.mkdir()
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    return build("wheel", ROOT, folder), build("wheel", unpacked, again)


def test_the_sdist_holds_all_that_the_wheel_needs(built):
    of_the_tree, of_the_sdist = (
        {item.filename: item.CRC for item in zipfile.ZipFile(wheel).infolist()} for wheel in built
    )
    assert of_the_tree == of_the_sdist
    assert "pymc_bayessum/py.typed" in of_the_tree
    assert not any(name.startswith(("tests/", "docs/", "benchmarks/")) for name in of_the_tree)


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """An environment in which nothing of this project was, and the wheel is."""
    place = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", place, cwd=place)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run(*pip, "--no-index", "--no-deps", built[1], cwd=place)
    # What it depends on is borrowed; a .pth file in a folder added by another is not read, so
    # that the sources under test, installed editable, stay out.
    [site] = place.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"])
    return place


def test_it_runs_where_it_was_installed(installed, tmp_path):
    assert (installed / "bin" / "pymc-bayessum").is_file()
    told = run(installed / "bin" / "python", "-I", "-c", SMOKE, cwd=tmp_path)
    assert told == f"pymc_bayessum {pbs.__version__}\n"


def test_version_stands_in_one_place():
    assert PROJECT["dynamic"] == ["version"]
    assert f"## {pbs.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    for name in ("CITATION.cff", "conda/meta.yaml", "docs/conf.py", "pyproject.toml"):
        assert pbs.__version__ not in (ROOT / name).read_text(), name


def test_conda_asks_for_what_pip_asks_for():
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    section = recipe.split("  run:\n")[1].split("\n\n")[0]
    asked = {line.strip(" -").replace(" ", "") for line in section.splitlines()}
    wanted = {item.replace("[h5py]", "") for item in PROJECT["dependencies"]}
    assert asked == wanted | {"h5py", f"python{PROJECT['requires-python']}"}


def test_workflows_call_the_make_targets():
    flows = {p.stem: p.read_text() for p in (ROOT / ".github" / "workflows").glob("*.yml")}
    assert "run: make test" in flows["tests"]
    assert "run: make docs" in flows["docs"]
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert re.findall(r'"(3\.\d+)"', flows["tests"]) == versions == ["3.12", "3.13", "3.14"]


def test_an_ignored_type_says_why():
    for path in (ROOT / "pymc_bayessum").rglob("*.py"):
        for line in path.read_text().splitlines():
            if "type: ignore" in line:
                assert re.search(r"type: ignore\[[a-z-]+\]  # \w+", line), f"{path.name}: {line}"
