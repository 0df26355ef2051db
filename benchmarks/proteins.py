"""Proteins: Potts models of simulated sequences with sparse contacts, fits beside each other.

Run ``python benchmarks/proteins.py`` (50 sites of 21 states, half a million couplings; some ten
minutes on two quiet cores) or ``--quick`` (12 sites of 6 states, below a minute). ``--only`` picks
fits by name. ``--peer adabmDCA`` runs that command (``pip install adabmDCA`` into an environment of
its own) for ``--peer-seconds`` on the same sequences, and reads the parameters that it found.

``Pearson`` compares the connected statistics of pairs, those of data with those of chains of the
fitted model; ``contacts`` is the share of true contacts among as many best scores (Frobenius norm
in the zero-sum gauge, average product correction); ``held out`` is the mean log-likelihood of as
many sequences that no fit saw, by an annealed log Z with its error.
"""

import argparse
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import pymc_bayessum as pbs
from pymc_bayessum.graphs.chain_climbing import pearson
from pymc_bayessum.graphs.conditional_sums import conditional_sums, counts
from pymc_bayessum.graphs.fitted import FittedPotts
from pymc_bayessum.graphs.samplers import GraphChain, sample_gibbs
from pymc_bayessum.graphs.sequences import ALPHABET
from pymc_bayessum.graphs.statistics import PottsLayout

console = Console(width=120)


class Problem(NamedTuple):
    """Sequences, and the model that they are drawn from."""

    truth: FittedPotts
    contacts: np.ndarray
    seen: np.ndarray
    held_out: np.ndarray

    @property
    def layout(self) -> PottsLayout:
        """The model's shapes."""
        return self.truth.layout


def problem(n_sites: int, n_states: int, n_rows: int, seed: int = 0) -> Problem:
    """Random couplings of sd one on three contacts for every two sites, none between others."""
    rng = np.random.default_rng(seed)
    layout = PottsLayout(n_sites, n_states, pbs.graphs.complete(n_sites), "full", "full")
    far = np.flatnonzero(np.abs(np.diff(layout.edges, axis=1)[:, 0]) > 2)
    contacts = np.zeros(layout.n_edges, dtype=bool)
    contacts[rng.choice(far, 3 * n_sites // 2, replace=False)] = True
    J = contacts[:, None, None] * rng.normal(size=layout.coupling_shape)
    h = 0.7 * rng.normal(size=layout.field_shape)
    rows = sample_gibbs(layout, h, J, 2 * n_rows, 100, rng)
    return Problem(
        FittedPotts(layout, h, J, layout.flatten(h, J)), contacts, rows[:n_rows], rows[n_rows:]
    )


def model_pearson(task: Problem, fit: FittedPotts, rng: np.random.Generator) -> float:
    """Correlation with the data of what chains from the data say after 300 sweeps."""
    layout, edges = task.layout, task.layout.edges
    chain = GraphChain(layout, fit.h, fit.J, "gibbs")
    states = chain.advance(task.seen[:1000], 300, rng)
    sites, pairs = np.zeros(layout.field_shape), np.zeros(layout.coupling_shape)
    looks = 40  # so many that their noise is small beside that of the data
    share = np.full(len(states), 1.0 / (looks * len(states)))
    for _ in range(looks):
        states = chain.advance(states, 5, rng)
        sums = conditional_sums(states, share, fit.h, fit.J, edges)
        sites, pairs = sites + sums.sites, pairs + 0.5 * sums.pairs
    share = np.full(len(task.seen), 1.0 / len(task.seen))
    data = counts(task.seen, share, edges, layout.n_states)
    return pearson(layout, data, (sites, pairs))


def independent(task: Problem) -> FittedPotts:
    """Sites on their own, with half a count for every state."""
    layout, rows = task.layout, task.seen
    seen, _ = counts(rows, np.ones(len(rows)), layout.edges[:0], layout.n_states)
    h = np.log((seen + 0.5) / (seen + 0.5).sum(axis=1, keepdims=True))
    J = np.zeros(layout.coupling_shape)
    return FittedPotts(layout, h, J, layout.flatten(h, J))


def peer(task: Problem, command: str, seconds: float) -> FittedPotts:
    """Parameters of adabmDCA after so many seconds, with its defaults but for Gibbs moves."""
    layout = task.layout
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.fasta"
        letters = ["".join(ALPHABET[a] for a in row) for row in task.seen]
        data.write_text("".join(f">{k}\n{each}\n" for k, each in enumerate(letters)))
        options = ["-d", str(data), "-o", folder, f"--alphabet={ALPHABET[: layout.n_states]}"]
        options += ["--no_reweighting", "--sampler", "gibbs", "--no-progress"]
        options += ["--checkpoint-interval", "5"]
        with subprocess.Popen([command, "train", *options], stdout=subprocess.DEVNULL) as process:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.terminate()  # an interrupt is ignored in a shell's background
                process.wait(60)
        lines = (Path(folder) / "params.dat").read_text().split("\n")
    edge = {tuple(pair): e for e, pair in enumerate(layout.edges.tolist())}
    h, J = np.zeros(layout.field_shape), np.zeros(layout.coupling_shape)
    for kind, *words in (line.split() for line in lines if line):
        if kind == "h":
            h[int(words[0]), ALPHABET.index(words[1])] = float(words[2])
        else:
            a, b = (ALPHABET.index(letter) for letter in words[2:4])
            J[edge[int(words[0]), int(words[1])], a, b] = float(words[4])
    return FittedPotts(layout, h, J, layout.flatten(h, J))


def fits(task: Problem, arguments: Any) -> Iterator[tuple[str, Callable[[], FittedPotts]]]:
    """Names of fits, and what makes them."""
    rows, edges, n_states = task.seen, task.layout.edges, task.layout.n_states

    def pseudo(sd: float) -> FittedPotts:
        return pbs.pseudo_likelihood(rows, edges, n_states=n_states, prior_sd=(1.0, sd))

    def full(sd: float, **options: Any) -> FittedPotts:
        fit = pbs.fit_potts(
            *(rows, edges),
            n_states=n_states,
            prior_sd=(1.0, sd),
            method="stochastic",
            max_rounds=arguments.rounds,
            rng=1,
            progressbar=False,
            **options,
        )
        console.print(
            f"  rounds {len(fit.history)}, slope left {fit.mode_error:.3f} sd, "
            f"converged {fit.converged}, own Pearson {fit.pearson:.3f}"
        )
        return fit

    yield "truth", lambda: task.truth
    yield "independent", lambda: independent(task)
    for sd in (1.0, 0.2):
        yield f"pseudo, sd {sd}", lambda sd=sd: pseudo(sd)  # type: ignore[misc] # a loop's value
        yield f"full, sd {sd}", lambda sd=sd: full(sd)  # type: ignore[misc] # a loop's value
    yield "full, group", lambda: full(1.0, group_rate=30.0)
    if arguments.peer:
        yield "adabmDCA", lambda: peer(task, arguments.peer, arguments.peer_seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="part of the names of fits, e.g. 'pseudo'")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--peer", help="the command adabmDCA, from whatever environment")
    parser.add_argument("--peer-seconds", type=float, default=300.0)
    arguments = parser.parse_args()
    size = (12, 6, 1000) if arguments.quick else (50, 21, 3000)
    task = problem(*size)
    table = Table(title="{} sites, {} states, {} sequences".format(*size))
    for column in ("fit", "seconds", "peak GB so far", "Pearson", "contacts", "held out", "log Z"):
        table.add_column(column, justify="left" if column == "fit" else "right")
    n_contacts = int(task.contacts.sum())
    for name, make in fits(task, arguments):
        if arguments.only not in name:
            continue
        console.print(name)
        began = time.perf_counter()
        fit = make()
        seconds = time.perf_counter() - began
        best = np.argsort(-fit.contact_scores())[:n_contacts]
        constant = fit.log_constant(n_evals=20_000, rng=2)
        table.add_row(
            name,
            f"{seconds:.1f}",
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f}",
            f"{model_pearson(task, fit, np.random.default_rng(3)):.3f}",
            f"{task.contacts[best].mean():.2f}",
            f"{fit.log_likelihood(task.held_out, constant).mean():.2f}",
            f"{constant.value:.2f} ± {constant.sd:.2f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
