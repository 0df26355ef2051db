"""Rows on several devices: the how-to's own lines, on two devices made of one machine's cores."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BEFORE = """
import numpy as np
import pymc as pm
import pymc_bayessum as pbs

rng = np.random.default_rng(0)
covariates = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
counts = rng.poisson(np.exp(covariates @ [1.0, 0.4, -0.2]))
"""
AFTER = """
from numpyro.infer.util import log_density

with pm.Model() as model:
    b, n = pm.Normal("beta", shape=3), pm.LogNormal("nu", 0.0, 0.5)
    pbs.CMP("y", mu=pm.math.exp((covariates * b).sum(axis=1)), nu=n, observed=counts)
assert [shard.data.shape for shard in data[0].addressable_shards] == [(20, 3), (20, 3)]
point = {"beta": np.array([0.9, 0.3, -0.1]), "nu": np.float64(1.3)}
value = lambda at: log_density(regression, (), {}, at)[0]
found, slope = jax.jit(jax.value_and_grad(value))(point)
whole = of_rows(covariates, counts, *point.values())[0]
np.testing.assert_allclose(log_likelihood(*data, *point.values()), whole, rtol=1e-12)
start = {"beta": point["beta"], "nu_log__": np.log(1.3)}
# PyMC's own function reads tables where rows share nu: 1e-9.
plain = {"jacobian": False, "mode": "FAST_COMPILE"}
np.testing.assert_allclose(found, model.compile_logp(**plain)(start), rtol=1e-9)
gradient = model.compile_dlogp(**plain)(start)
np.testing.assert_allclose(np.append(slope["beta"], slope["nu"] * 1.3), gradient, rtol=1e-7)
print("same on", jax.device_count())
"""


def test_rows_on_two_devices():
    pytest.importorskip("numpyro")
    page = (ROOT / "docs" / "howto" / "many_machines.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (snippet,) = [block for block in blocks if "shard_map" in block]
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_ENABLE_X64": "1"}
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + snippet + AFTER],
        env=os.environ | devices,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "same on 2\n", done.stderr
