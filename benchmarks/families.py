"""Exponential families and random networks: how near the posterior is, and what it costs.

Tables: small networks against the list of all graphs; Florentine families against the exchange
algorithm; simulated networks of growing size; a degenerate model. Run
``python benchmarks/families.py`` (half an hour) or ``python benchmarks/families.py --quick``;
``--only`` picks tables by their letters: small, Florentine, growing, degenerate.
"""

import argparse
import itertools
import logging
import time
import warnings

import networkx as nx
import numpy as np
import pymc as pm
from exchange import exchange
from scipy.special import logsumexp, softmax

import pymc_bayessum as pbs
from pymc_bayessum.networks.family import network_family

EDGES, TRIANGLES, GWESP = pbs.ergm.edges(), pbs.ergm.triangles(), pbs.ergm.gwesp(0.5)
PRIOR_SD = 2.0


def model_of(terms, observed, **kwargs):
    """Build a model with normal priors, and tell the seconds it took."""
    began = time.perf_counter()
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, PRIOR_SD, shape=len(terms))
        pbs.ERGM("y", theta, terms=terms, observed=observed, **kwargs)
    return model, time.perf_counter() - began


def sampled(model, draws):
    began = time.perf_counter()
    options = {"chains": 2, "cores": 1, "random_seed": 1, "progressbar": False}
    idata = pm.sample(draws, tune=500, model=model, **options)
    return idata, time.perf_counter() - began


def listed(n_nodes, second, normalizer):
    """Total variation of the posterior on a grid, and the seconds to set up."""
    graph = nx.gnp_random_graph(n_nodes, 0.4, seed=3)
    terms = [EDGES, second]
    model, seconds = model_of(terms, graph, normalizer=normalizer)
    rows, times = network_family(terms, n_nodes).listing
    ties = nx.to_numpy_array(graph)
    seen = np.array([term.count(ties) for term in terms])
    axes = np.linspace(-7.0, 5.0, 41), np.linspace(-5.0, 5.0, 41)
    grid = np.array(list(itertools.product(*axes)))
    exact = grid @ seen - logsumexp(grid @ rows.T + np.log(times), axis=1)
    exact -= (grid**2).sum(axis=1) / (2.0 * PRIOR_SD**2)
    logp = model.compile_logp()
    found = [logp({"theta": point}) for point in grid]
    return np.abs(softmax(found) - softmax(exact)).sum() / 2.0, seconds


def small_networks(quick):
    print("\nAll graphs on six and seven nodes: total variation of the posterior")
    print(f"{'nodes':>5} {'terms':>22} {'normaliser':>10} {'TV':>8} {'set-up s':>9}")
    for n_nodes, second in itertools.product((6,) if quick else (6, 7), (TRIANGLES, GWESP)):
        for normalizer in ("exact", "anchored"):
            distance, seconds = listed(n_nodes, second, normalizer)
            name = f"edges + {second.name}"
            print(f"{n_nodes:>5} {name:>22} {normalizer:>10} {distance:>8.4f} {seconds:>9.1f}")


def florentine(quick):
    print("\nFlorentine marriages: posterior against the exchange algorithm")
    graph = nx.florentine_families_graph()
    rich = np.array([float(name in {"Medici", "Strozzi", "Barbadori"}) for name in graph])
    cases = [
        ("edges + gwesp", [EDGES, GWESP]),
        ("edges + nodecov", [EDGES, pbs.ergm.nodecov(rich)]),
    ]
    if not quick:
        cases.append(("edges + triangles", [EDGES, TRIANGLES]))
    print(f"{'terms':>18} {'set-up s':>9} {'NUTS s':>7} {'mean off, sds':>14} {'sd off, %':>10}")
    for name, terms in cases:
        model, seconds = model_of(terms, graph)
        idata, nuts = sampled(model, 1000 if quick else 4000)
        ours = idata.posterior["theta"].values.reshape(-1, len(terms))
        family = network_family(terms, 15, networks=nx.to_numpy_array(graph)[None].astype(int))
        options = {"n": 400, "steps": 1000} if quick else {"n": 3000, "steps": 3000}
        theirs = exchange(family, ours.mean(axis=0), np.cov(ours.T), PRIOR_SD, **options)
        theirs = theirs[:, len(theirs[0]) // 10 :].reshape(-1, len(terms))
        off = (ours.mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)
        ratio = 100.0 * (ours.std(axis=0) / theirs.std(axis=0) - 1.0)
        print(
            f"{name:>18} {seconds:>9.1f} {nuts:>7.1f} {np.array2string(off, precision=2):>14} "
            f"{np.array2string(ratio, precision=0):>10}"
        )


def growing(quick):
    print("\nSimulated networks, edges + gwesp(0.5) + nodematch: truth in posterior sds")
    print(f"{'nodes':>5} {'ties':>5} {'seed':>4} {'set-up s':>9} {'NUTS s':>7}  off, in sds")
    sizes = (30,) if quick else (50, 100, 200)
    for n_nodes, seed in itertools.product(sizes, range(1 if quick else 20)):
        groups = np.arange(n_nodes) % 2
        terms = [EDGES, GWESP, pbs.ergm.nodematch(groups)]
        truth = np.array([-np.log(n_nodes) + 0.2, 0.6, 0.8])
        network = pm.draw(pbs.ERGM.dist(truth, terms=terms, n_nodes=n_nodes), random_seed=seed)
        model, seconds = model_of(terms, network)
        idata, nuts = sampled(model, 500)
        draws = idata.posterior["theta"].values.reshape(-1, 3)
        off = (draws.mean(axis=0) - truth) / draws.std(axis=0)
        shown = np.array2string(off, precision=1)
        print(
            f"{n_nodes:>5} {network.sum() // 2:>5} {seed:>4} {seconds:>9.1f} {nuts:>7.1f}  {shown}"
        )


def degenerate(quick):
    print("\nEdges + triangles on 34 nodes and 78 ties")
    club = nx.Graph(nx.karate_club_graph().edges)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model, seconds = model_of([EDGES, TRIANGLES], club)
    print(f"warned when built ({seconds:.1f} s): {'degenerate' in str(told[-1].message)}")
    idata, _ = sampled(model, 200)
    check = pbs.check_normalizer(idata, model, progressbar=False)
    print(f"verdict: {check['normalizer'].attrs['verdict']}")


TABLES = {"S": small_networks, "F": florentine, "G": growing, "D": degenerate}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small cases, within a minute")
    parser.add_argument("--only", default="", help="letters of the tables to print, such as SF")
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    for letter, table in TABLES.items():
        if letter in (arguments.only or "SFGD"):
            table(arguments.quick)


if __name__ == "__main__":
    main()
