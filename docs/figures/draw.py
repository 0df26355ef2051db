"""Draw the pictures of the landing page and of calibration: ``python docs/figures/draw.py``.

The rootogram is drawn by ``benchmarks/headline.py --figure docs/figures/syllables.png``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pymc as pm
from scipy import stats

import pymc_bayessum as pbs

HERE = Path(__file__).parent
DARK, LIGHT = "#00204c", "#d2b84f"


def blank(n=1):
    """Make axes without frames, in the shape that the landing page shows."""
    figure, axes = plt.subplots(1, n, figsize=(4.8, 3.0), dpi=130, squeeze=False)
    for axis in axes[0]:
        axis.axis("off")
    return figure, axes[0]


def save(figure, name):
    """Write a picture beside this file."""
    figure.tight_layout(pad=0.4)
    figure.savefig(HERE / f"{name}.png")


def items():
    """Draw posterior modes of the interactions of six simulated items, those near zero thin."""
    omega = np.zeros((6, 6))
    omega[np.arange(5), np.arange(1, 6)] = 0.4
    omega += omega.T
    table = np.tile([0.0, 0.4, 0.2, -0.6], (6, 1))
    answers = pm.draw(pbs.OrdinalMRF.dist(table, omega), 400, random_seed=1)
    with pm.Model() as model:
        tau = pm.Normal("threshold", 0.0, 2.0, shape=(6, 3))
        edge = pm.Normal("edge", 0.0, 0.5, shape=15)
        full = pm.math.concatenate([np.zeros((6, 1)), tau], axis=1)
        pbs.OrdinalMRF("x", full, edge, observed=answers)
        found = pm.find_MAP(model=model, progressbar=False)["edge"]
    graph = nx.Graph()
    for i, j, weight in zip(*np.triu_indices(6, 1), found, strict=True):
        graph.add_edge(i, j, weight=abs(weight))
    figure, (axis,) = blank()
    place = nx.circular_layout(graph)
    widths = [12.0 * graph.edges[pair]["weight"] for pair in graph.edges]
    nx.draw_networkx_edges(graph, place, ax=axis, width=widths, edge_color="#7c7b78")
    nx.draw_networkx_nodes(graph, place, ax=axis, node_color=DARK, node_size=420)
    names = {i: f"item {i}" for i in graph}
    nx.draw_networkx_labels(graph, place, names, ax=axis, font_color="white", font_size=6)
    save(figure, "items")


def image():
    """Draw three labels on 64 x 64 sites, and what a noisy camera sees of them."""
    dist = pbs.Potts.dist([0.0, 0.0, 0.0], 0.9, edges=pbs.graphs.grid(64, 64), n_sites=4096)
    labels = pm.draw(dist, random_seed=1).reshape(64, 64)
    noisy = labels + np.random.default_rng(1).normal(0, 0.7, labels.shape)
    figure, axes = blank(2)
    axes[0].imshow(noisy, cmap="cividis")
    axes[1].imshow(labels, cmap="cividis")
    save(figure, "image")


def network():
    """Draw the marriages of Florence; who has more of them is larger."""
    graph = nx.florentine_families_graph()
    figure, (axis,) = blank()
    place = nx.kamada_kawai_layout(graph)
    sizes = [60 + 60 * degree for _, degree in graph.degree]
    nx.draw_networkx_edges(graph, place, ax=axis, edge_color="#7c7b78", width=1.5)
    nx.draw_networkx_nodes(graph, place, ax=axis, node_color=LIGHT, node_size=sizes)
    nx.draw_networkx_labels(graph, place, ax=axis, font_size=7)
    axis.margins(0.16)
    save(figure, "network")


def ranks():
    """Draw how often simulated truths fall into each tenth of their posteriors."""
    path = HERE.parents[1] / "benchmarks" / "results" / "calibration_ranks.csv"
    names = path.read_text().splitlines()[0].split(",")
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    low, high = stats.binom(len(table), 0.1).ppf([0.005, 0.995])
    figure, axes = plt.subplots(1, len(names), figsize=(8.0, 2.4), dpi=130, sharey=True)
    for axis, name, column in zip(axes, names, table.T, strict=True):
        axis.axhspan(low, high, color=LIGHT, alpha=0.35, lw=0)
        axis.hist(column, bins=10, range=(0.0, 1.0), color=DARK, rwidth=0.9)
        axis.set(title=name, xlabel="rank of the truth")
    axes[0].set_ylabel(f"of {len(table)}")
    save(figure, "ranks")


if __name__ == "__main__":
    ranks()
    network()
    image()
    items()
