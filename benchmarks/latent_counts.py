"""Latent counts without a cut-off, and sums that find their own nodes.

Two tables. The first holds value and gradient of an N-mixture at many sites beside what is done
without the package, a sum over 0, ..., K with ``pt.logsumexp``, in the same process, in turns:
time, and error against a sum to K = 10 000. The second holds forty laws known up to their
constant, of which the last twenty-one were written down when the sums had been made: error of log Z
by nodes that are found, of the reference that a check would hold it against, and of a sum cut off
at K, all against listing.

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
from pymc_bayessum.counts.n_mixture_rows import MOST_EVALUATIONS
from pymc_bayessum.normalizers.protocol import Asked

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from laws import LAWS, MORE_LAWS, listed

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
    print(f"N-mixture, {n_sites} sites, value and gradient; {MOST_EVALUATIONS} evaluations at most")
    print("means  visits  located ms  K=500 ms  times faster  error located  error K=500")
    rng = np.random.default_rng(0)
    for visits in (3,) if quick else (1, 3, 10):
        for mean in (20.0, 100.0) if quick else (20.0, 100.0, 2000.0):
            n = rng.poisson(mean, n_sites)
            y = rng.binomial(n[:, None], 0.4, (n_sites, visits))
            functions = [n_mixture(y), n_mixture(y, CUT_OFF)]
            point = np.array([np.log(mean), 0.0, np.log(0.4 / 0.6)])
            truth = exact(y, mean, 0.4)
            errors = [abs(float(f(point)[0]) - truth) for f in functions]
            ours, theirs = best_times(functions, point, n_repeats)
            print(
                f"{mean:5g}  {visits:6d}  {1e3 * ours:10.2f}  {1e3 * theirs:8.2f}  "
                f"{theirs / ours:12.1f}  {errors[0]:13.1e}  {errors[1]:11.1e}"
            )


def table_of_laws(quick):
    print(f"\n{'law':32s} error by found nodes  of its reference  of a sum cut at {CUT_OFF}")
    laws = [*LAWS.items(), *MORE_LAWS.items()]
    for name, law in laws[:: 6 if quick else 1]:
        masses = listed(law)
        best = int(np.argmax(masses))
        log_mass = pm.logp(
            pbs.Unnormalized.dist(law.log_f, *law.theta, support=law.support), law.low + best
        )
        [found] = pbs.find_normalizers(log_mass)
        log_z, value, *theta = pytensor.function(
            [], [found.log_z, log_mass, *found.theta], mode="FAST_COMPILE"
        )()
        error = masses[best] - value
        asked = Asked(found.theta, [], [], {"mode": "FAST_COMPILE"}, np.random.default_rng(0))
        reference = found.normalizer.reference(asked)([], theta).log_z
        cut = np.abs(np.arange(law.low, law.high + 1)) <= CUT_OFF
        missing = -np.logaddexp.reduce(masses[cut]) if cut.any() else np.inf
        left = abs(error + reference - log_z)
        print(f"{name:32s} {abs(error):20.1e}  {left:16.1e}  {missing:15.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases, within a minute")
    quick = parser.parse_args().quick
    print(f"mode {pytensor.config.mode}\n")
    table_of_sites(quick)
    table_of_laws(quick)


if __name__ == "__main__":
    main()
