"""Draws around a posterior against exact elimination."""

import numpy as np

from pymc_bayessum import graphs
from pymc_bayessum.graphs.anchors import anchored_rule
from pymc_bayessum.graphs.elimination import elimination_plan
from pymc_bayessum.normalizers import Asked
from pymc_bayessum.normalizers.anchored.reference import AnchoredReference


def test_states_around_the_posterior_for_graphs_without_elimination():
    edges = graphs.grid(4, 4)
    rule = anchored_rule(0.1, 0.35, edges, ising=True, n=2000, rng=0)
    layout = rule.layout
    rng = np.random.default_rng(3)
    thetas = rng.normal([0.1, 0.35], 0.03, size=(60, 2))
    asked = Asked([], [[theta] for theta in thetas], [], {}, np.random.default_rng(5))
    reference = AnchoredReference(rule, asked)
    plan = elimination_plan(edges, 16, 2)
    exact, found, noise, sds = [], [], [], []
    for theta in thetas:
        value = reference([], [theta])
        exact.append(plan.log_partition(*layout.expand(*layout.unflatten(theta))))
        found.append(value.log_z)
        noise.append(value.noise)
        sds.append(value.sd)
    # What varies over the draws must be right; the constant is that of the rule.
    error = np.array(found) - exact
    assert error.std() < 5e-3
    assert abs(error.mean()) < 0.05
    assert max(sds) < 0.03
    assert np.std(noise) < 8e-3


def test_more_states_where_many_rows_make_the_posterior_narrow():
    """Slopes of log Z times the rows leave errors of posterior means, which stay small."""
    edges, n_rows = graphs.grid(4, 4), 40
    rule = anchored_rule(0.0, 0.35, edges, ising=True, n=500, rng=0)
    layout = rule.layout
    plan = elimination_plan(edges, 16, 2)

    def exact(theta):
        return plan.log_partition(*layout.expand(*layout.unflatten(theta)))

    coupling = np.array([0.0, 1e-3])
    centre = np.array([0.0, 0.35])
    ends = exact(centre - coupling) + exact(centre + coupling) - 2.0 * exact(centre)
    sd = 1.0 / np.sqrt(n_rows * ends / 1e-6)
    thetas = centre + np.array([0.0, 1.0]) * np.random.default_rng(3).normal(0.0, sd, size=(60, 1))
    sizes = {}
    for rows, spread in ((1, np.sqrt(n_rows)), (n_rows, 1.0)):
        near = centre + spread * (thetas - centre)
        asked = Asked([], [[theta] for theta in near], [], {}, np.random.default_rng(5))
        reference = AnchoredReference(rule, asked)
        sizes[rows] = int(reference.description.split()[0])
        error = [rows * float(reference([], [theta]).log_z - exact(theta)) for theta in near]
        # Along one parameter the spread of this error is the shift of the mean in sds.
        assert np.std(error) < 0.03
    assert sizes[n_rows] > sizes[1] == 16_000
