"""Latent counts without a cut-off, and sums that find their own nodes.

Two tables. The first holds value and gradient of an N-mixture at many sites beside what is done
without the package, a sum over 0, ..., K with ``pt.logsumexp``, in the same process, in turns:
time, and error against a sum to K = 10 000. The second holds twenty laws known up to their
constant: error of log Z by nodes that are found, and of a sum cut off at K, against listing.

Run ``python benchmarks/latent_counts.py [--quick]``.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy import stats

import pymc_bayessum as pbs
from pymc_bayessum.normalizers.located import N_EVALUATIONS

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from laws import LAWS, listed

CUT_OFF = 500


def n_mixture(y, cut_off=None):
    """Compile value and gradient in log mean, slope and logit of detection."""
    x = np.linspace(-1.0, 1.0, len(y))
    with pm.Model() as model:
        slopes = pm.Flat("slopes", shape=2)
        mean = pm.math.exp(slopes[0] + slopes[1] * x)
        p = pm.math.sigmoid(pm.Flat("logit_p"))
        if cut_off is None:
            pbs.LatentCount(
                "y",
                latent=pm.Poisson.dist(mean),
                given=lambda n: pm.Binomial.dist(n, p),
                observed=y,
            )
        else:
            n = np.arange(cut_off + 1)
            of_count = pm.logp(pm.Poisson.dist(mean[:, None]), n)
            of_data = pm.logp(pm.Binomial.dist(n, p), pt.as_tensor(y)[..., None]).sum(axis=1)
            pm.Potential("y", pt.logsumexp(of_count + of_data, axis=-1).sum())
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    return function


def exact(y, mean, p, top=10_000):
    n = np.arange(top + 1)
    total = 0.0
    for row in y:
        logs = stats.poisson.logpmf(n, mean) + stats.binom.logpmf(row[:, None], n, p).sum(axis=0)
        total += np.logaddexp.reduce(logs)
    return total


def best_times(functions, point, n_repeats):
    """Return the shortest time of each, in turns."""
    best = [np.inf] * len(functions)
    for _ in range(n_repeats):
        for k, function in enumerate(functions):
            start = time.perf_counter()
            function(point)
            best[k] = min(best[k], time.perf_counter() - start)
    return best


def table_of_sites(quick):
    n_sites, n_repeats = 1000, 30 if quick else 200
    print(
        f"N-mixture, {n_sites} sites, value and gradient; at most {N_EVALUATIONS} evaluations each"
    )
    print("means  visits  located ms  K=500 ms  times faster  error located  error K=500")
    rng = np.random.default_rng(0)
    for visits in (3,) if quick else (1, 3, 10):
        functions, shape = None, (n_sites, visits)
        for mean in (20.0, 2000.0):
            n = rng.poisson(mean, n_sites)
            y = rng.binomial(n[:, None], 0.4, shape)
            functions = [n_mixture(y), n_mixture(y, CUT_OFF)]
            point = np.array([np.log(mean), 0.0, np.log(0.4 / 0.6)])
            few = slice(0, 50)
            truth = exact(y[few], mean, 0.4)
            small = [n_mixture(y[few]), n_mixture(y[few], CUT_OFF)] if not quick else functions
            values = [float(f(point)[0]) for f in small]
            if quick:
                truth = exact(y, mean, 0.4)
            ours, theirs = best_times(functions, point, n_repeats)
            errors = [abs(value - truth) for value in values]
            print(
                f"{mean:5g}  {visits:6d}  {1e3 * ours:10.2f}  {1e3 * theirs:8.2f}  "
                f"{theirs / ours:12.1f}  {errors[0]:13.1e}  {errors[1]:11.1e}"
            )


def table_of_laws(quick):
    print(f"\n{'law':32s} error by found nodes   error of a sum cut at {CUT_OFF}")
    mode = {"mode": "FAST_COMPILE"}
    for name in list(LAWS)[:: 3 if quick else 1]:
        law = LAWS[name]
        masses = listed(law)
        best = int(np.argmax(masses))
        variable = pbs.Unnormalized.dist(law.log_f, *law.theta, support=law.support)
        found = pm.logp(variable, law.low + best).eval(**mode)
        x = np.arange(law.low, law.high + 1)
        cut = np.abs(x) <= CUT_OFF
        missing = -np.logaddexp.reduce(masses[cut])
        print(f"{name:32s} {abs(found - masses[best]):20.1e}   {missing:25.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases, within a minute")
    quick = parser.parse_args().quick
    print(f"mode {pytensor.config.mode}\n")
    table_of_sites(quick)
    table_of_laws(quick)


if __name__ == "__main__":
    main()
