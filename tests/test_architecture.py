"""The layout is the architecture: imports go one way, and privates stay at home."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pymc_bayessum"
MODULES = sorted(PACKAGE.rglob("*.py"))

#: From the ground up: a room may import its own floor's lower rooms and every floor below.
FLOORS = (
    ("arguments", "compiled_cache", "datasets", "executors", "interrupts", "progress", "threads"),
    ("measures",),
    ("kernels",),
    ("embeddings",),
    ("solve",),
    ("rules",),
    ("normalizers",),
    ("anchoring",),
    ("unnormalized", "exponential"),
    ("counts", "graphs", "networks"),
    ("diagnostics", "plots"),
    ("", "dims"),
    ("cli",),
    ("__main__",),
)
#: Named tuples call these public.
TUPLE_NAMES = {"_fields", "_replace", "_asdict"}
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
#: What may not be known below the floor named.
FOREIGN = {"pytensor": "normalizers", "pymc": "anchoring", "arviz": "diagnostics"}


def room_of(module):
    """The room a dotted name below the package lies in, the package itself being ''."""
    return module.removeprefix("pymc_bayessum").lstrip(".").split(".")[0]


def imported(tree):
    """Every module that is imported, and every name that is taken from one of ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name, node) for alias in node.names)


def name_of(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


def faults(source, room):
    """What a module in a room imports that it should not, in words."""
    found = []
    tree = ast.parse(source)
    ours = set()
    for module, name, node in imported(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.append(f"line {node.lineno}: relative import")
            continue
        top = module.split(".")[0]
        if top in FOREIGN and LEVEL[room] < LEVEL[FOREIGN[top]] and top != "pymc_bayessum":
            found.append(f"line {node.lineno}: {top} below {FOREIGN[top]}")
        if top != "pymc_bayessum":
            continue
        # `from pymc_bayessum import kernels` takes a room, not the roof.
        other = name if module == "pymc_bayessum" and name in LEVEL else room_of(module)
        if other != room and LEVEL[other] >= LEVEL[room]:
            found.append(f"line {node.lineno}: {room} imports {other or 'the package itself'}")
        if name is not None:
            ours.add(name)
            if name.startswith("_") and not name.startswith("__"):
                found.append(f"line {node.lineno}: takes {name} from {module}")
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
            and isinstance(node.value, ast.Name)
            and node.value.id in ours
            and node.attr not in TUPLE_NAMES
        ):
            found.append(f"line {node.lineno}: takes {node.value.id}.{node.attr}")
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down(path):
    found = faults(path.read_text(), room_of(name_of(path)))
    assert found == []


def private_names(tree):
    """Private attributes that a module sets or defines somewhere."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_no_attribute_with_a_leading_underscore_is_taken_from_another_module():
    trees = {path: ast.parse(path.read_text()) for path in MODULES}
    defined = {path: private_names(tree) for path, tree in trees.items()}
    taken = []
    for path, tree in trees.items():
        elsewhere = set().union(*(names for other, names in defined.items() if other != path))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in elsewhere - defined[path] - TUPLE_NAMES
                and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
            ):
                taken.append(f"{name_of(path)}:{node.lineno} {ast.unparse(node)}")
    assert taken == []


@pytest.mark.parametrize(
    ("source", "room", "fault"),
    [
        ("from pymc_bayessum.rules.rule import Rule", "measures", "measures imports rules"),
        ("from pymc_bayessum.graphs import potts", "counts", "counts imports graphs"),
        ("from pymc_bayessum import diagnostics", "counts", "counts imports diagnostics"),
        ("import pymc_bayessum as pbs", "rules", "rules imports the package itself"),
        ("from . import rule", "rules", "relative import"),
        ("import pytensor.tensor as pt", "rules", "pytensor below normalizers"),
        ("from pymc_bayessum.kernels.base import _private", "rules", "takes _private"),
        ("from pymc_bayessum.kernels import base\nbase._private", "rules", "takes base._private"),
    ],
)
def test_the_reader_sees_what_it_should(source, room, fault):
    assert any(fault in each for each in faults(source, room))


def test_every_room_is_on_a_floor():
    rooms = {room_of(name_of(path)) for path in MODULES}
    assert rooms <= set(LEVEL)
