"""Hidden labels: how well images are recovered, what it costs, and one sweep beside plain NumPy.

Tables: hidden lattices with three labels, all parameters unknown, against the labels they were made
from; one update of 512 x 512 labels with the coupling fixed, beside a chequerboard sweep in NumPy
in the same run (a published R package makes 100 iterations of 500 x 500 pixels in 12 to 13 s). Run
``python benchmarks/hidden_labels.py`` (some minutes) or ``python benchmarks/hidden_labels.py
--quick``.
"""

import argparse
import logging
import time

import numpy as np
import pymc as pm
from pymc.distributions.transforms import ordered

import pymc_bayessum as pbs

MEANS, NOISE, COUPLING = np.array([0.0, 1.0, 2.0]), 0.8, 1.0


def simulated(side, coupling, means, noise, seed):
    """Labels of a lattice and an image of them."""
    edges = pbs.graphs.grid(side, side)
    truth = pbs.Potts.dist(None, coupling, edges, n_states=len(means), sweeps=500)
    labels = pm.draw(truth, random_seed=seed)
    return edges, labels, np.random.default_rng(seed).normal(means[labels], noise)


def recovered(side, draws, seed=1):
    """Sample everything there is to know of a hidden image, and print how near it is."""
    edges, labels, image = simulated(side, COUPLING, MEANS, NOISE, seed)
    began = time.perf_counter()
    with pm.Model() as model:
        J = pm.HalfNormal("J", 0.5)
        start = np.quantile(image, [0.2, 0.5, 0.8])
        m = pm.Normal("m", 1.0, 2.0, shape=3, transform=ordered, initval=start)
        s = pm.HalfNormal("s", 1.0)
        z = pbs.Potts("z", J=J, edges=edges, n_states=3)
        pm.Normal("y", m[z], s, observed=image)
    curve = pbs.find_normalizers(model)[0].rule
    set_up = time.perf_counter() - began
    began = time.perf_counter()
    idata = pm.sample(
        draws,
        tune=draws,
        chains=2,
        cores=2,
        random_seed=seed,
        model=model,
        progressbar=False,
        compute_convergence_checks=False,
    )
    sampling = time.perf_counter() - began
    posterior = idata.posterior
    found = pbs.label_probabilities(idata, "z", labels=3).argmax("label").to_numpy()
    plain = np.abs(image[:, None] - MEANS).argmin(axis=1)
    off = [
        float((posterior[name].mean() - truth) / posterior[name].std())
        for name, truth in (("J", COUPLING), ("s", NOISE))
    ]
    means = posterior["m"].mean(("chain", "draw")).to_numpy()
    mean, sd = float(posterior["J"].mean()), float(posterior["J"].std())
    print(
        f"{side:>4} {len(curve.knots):>5} {set_up:>7.1f} {2 * draws:>6} "
        f"{sampling:>8.1f} {mean:>7.4f} {sd:>7.4f} {off[0]:>5.1f} {off[1]:>5.1f}  "
        f"{np.array2string(means, precision=2):<18} "
        f"{(found == labels).mean():>7.3f} {(plain == labels).mean():>7.3f}"
    )


def chequerboard(image, labels, means, coupling, rng):
    """One sweep of two labels in plain NumPy: all white sites at once, then all black ones."""
    padded = np.pad(labels, 1, constant_values=-1)
    field = (image - means[0]) ** 2 / 2 - (image - means[1]) ** 2 / 2
    colour = np.indices(labels.shape).sum(axis=0) % 2
    inside = padded[1:-1, 1:-1]
    for now in (0, 1):
        around = [padded[2:, 1:-1], padded[:-2, 1:-1], padded[1:-1, 2:], padded[1:-1, :-2]]
        ones = sum((part == 1).astype(int) for part in around)
        zeros = sum((part == 0).astype(int) for part in around)
        odds = field + coupling * (ones - zeros)
        drawn = rng.random(labels.shape) < 1.0 / (1.0 + np.exp(-odds))
        inside[colour == now] = drawn[colour == now]
    return inside.copy()


def one_sweep(side=512, times=15):
    """Time one update of all labels, alternating with the peer."""
    means, coupling = np.array([0.0, 1.5]), 0.8
    edges = pbs.graphs.grid(side, side)
    truth = (np.indices((side, side)).sum(axis=0) > side).astype(int)
    rng = np.random.default_rng(0)
    image = rng.normal(means[truth])
    with pm.Model() as model:
        m = pm.Normal("m", means, 0.5)
        z = pbs.Potts("z", J=coupling, edges=edges, n_states=2)
        pm.Normal("y", m[z], 1.0, observed=image.ravel())
        moves = {
            "LabelStep, Gibbs": pbs.LabelStep(z, moves="gibbs", sweeps=1),
            "LabelStep, Swendsen-Wang and Gibbs": pbs.LabelStep(z, sweeps=1),
        }
    points = {name: model.initial_point() | {"m": means} for name in moves}
    labels = np.zeros((side, side), dtype=int)
    seconds = {name: [] for name in (*moves, "NumPy, chequerboard")}
    for _ in range(times):
        for name, step in moves.items():
            began = time.perf_counter()
            points[name], _ = step.step(points[name])
            seconds[name].append(time.perf_counter() - began)
        began = time.perf_counter()
        labels = chequerboard(image, labels, means, coupling, rng)
        seconds["NumPy, chequerboard"].append(time.perf_counter() - began)
    labelled = {name: point["z"].reshape(side, side) for name, point in points.items()}
    labelled["NumPy, chequerboard"] = labels
    print(
        f"\nOne update of {side} x {side} labels, two of them, coupling fixed; fastest of {times}"
    )
    print(f"{'':<36} {'ms':>6} {'labels right':>13}")
    for name, all_of_them in seconds.items():
        print(
            f"{name:<36} {1e3 * min(all_of_them):>6.1f} {(labelled[name] == truth).mean():>13.3f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small cases, within a minute")
    quick = parser.parse_args().quick
    logging.getLogger("pymc").setLevel(logging.ERROR)
    print(f"Three labels of means {MEANS}, noise {NOISE}, coupling {COUPLING}; all unknown")
    print(
        "side knots  set-up  draws sampling       J      sd   sds off J, s  means"
        "               right  by value"
    )
    for side, draws in ((32, 300),) if quick else ((64, 1000), (128, 500), (256, 500)):
        recovered(side, draws)
    one_sweep(times=5 if quick else 15)


if __name__ == "__main__":
    main()
