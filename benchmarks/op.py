"""The signed log-sum Op: time, memory and compile time beside numpy.exp and pt.logsumexp.

Value and gradient of log sum_j w_j exp(a_ij) for n rows and N nodes, on each backend:

matrix       a is given, and the gradient is wanted for each of its entries
rows         a_ij = x_j log(lam_i) - nu_i log(x_j!), gradient for the vectors log(lam) and nu
shift        the same, with the closed-form shift nu_i * lam_i^(1 / nu_i) in place of the maximum
shared nu    the same, with one nu for all rows

Read the ratios: seconds are this machine's.  "arrays" is the memory a call needs at its peak, in
units of one n x N array (for ``matrix`` the gradient itself is one).  Compile times are for the
whole function in a new process: cold with empty caches, warm with what the first run left.

Run ``python benchmarks/op.py`` (some minutes) or ``python benchmarks/op.py --quick``.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SIZES = ((5000, 32), (45_000, 32), (50_000, 128))
MODES = {"numba": "NUMBA", "jax": "JAX", "c": "CVM"}
STATUS = Path("/proc/self/status")


def compile_cases(mode, quick):
    """Compile each case and return it with the seconds that took, the first call included."""
    import pytensor
    import pytensor.tensor as pt

    from pymc_bayessum.normalizers.logsum import SignedLogSum

    a, x, w = pt.matrix("a"), pt.vector("x"), pt.vector("w")
    log_lam, nu, one_nu = pt.vector("log_lam"), pt.vector("nu"), pt.scalar("one_nu")
    log_factorial = pt.vector("log_factorial")

    def signed_log_sum(a, weights, *shift):
        inputs = [a, pt.log(pt.abs(weights)), pt.sign(weights)]
        return SignedLogSum(shifted=bool(shift))(*inputs, *shift)

    def terms(nu_column):
        return x * log_lam[:, None] - nu_column * log_factorial

    shift = nu * pt.exp(log_lam / nu)
    graphs = {
        "pt.logsumexp": (pt.logsumexp(a, axis=-1), [a]),
        "matrix": (signed_log_sum(a, w), [a]),
        "rows, pt.logsumexp": (pt.logsumexp(terms(nu[:, None]), axis=-1), [log_lam, nu]),
        "rows": (signed_log_sum(terms(nu[:, None]), w), [log_lam, nu]),
        "rows, shift": (signed_log_sum(terms(nu[:, None]), w, shift), [log_lam, nu]),
        "shared nu, shift": (
            signed_log_sum(terms(one_nu), w, one_nu * pt.exp(log_lam / one_nu)),
            [log_lam, one_nu],
        ),
    }
    if quick:
        graphs = {name: graphs[name] for name in ("pt.logsumexp", "matrix", "rows, shift")}
    functions = {}
    for name, (value, wrt) in graphs.items():
        start = time.perf_counter()
        inputs = [*wrt] if name == "pt.logsumexp" else [*wrt, w]
        inputs += [x, log_factorial] if wrt[0] is log_lam else []
        if name == "rows, pt.logsumexp":
            inputs.remove(w)
        function = pytensor.function(
            inputs, [value, *pytensor.grad(pt.sum(value), wrt)], mode=mode, trust_input=True
        )
        arguments = example(inputs, 20, 8)
        function(*arguments)
        functions[name] = (function, [v.name for v in inputs], time.perf_counter() - start)
    return functions


def example(inputs, n, n_nodes):
    """Arguments for inputs known by name."""
    from scipy.special import gammaln

    rng = np.random.default_rng(0)
    nodes = np.arange(n_nodes, dtype=float)
    values = {
        "a": rng.normal(0.0, 5.0, size=(n, n_nodes)),
        "w": np.where(nodes % 7 == 5, -0.01, 1.0),
        "x": nodes,
        "log_factorial": gammaln(nodes + 1),
        "log_lam": rng.normal(1.0, 0.3, size=n),
        "nu": rng.uniform(0.8, 1.2, size=n),
        "one_nu": np.asarray(1.0),
    }
    return [values[getattr(v, "name", v)] for v in inputs]


def best_of(calls, seconds):
    """Return the shortest time of each call, taken in turns so that both see the same machine."""
    for call in calls:
        call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        stamps = [time.perf_counter()]
        for call in calls:
            call()
            stamps.append(time.perf_counter())
        times.append(np.diff(stamps))
    return np.min(times, axis=0).tolist()


def peak_bytes(call):
    """Return by how much a call raises resident memory at its peak (Linux only)."""
    if not STATUS.exists():
        return float("nan")
    call()
    # Memory that was freed but kept would hide what the next call allocates.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = status_bytes("VmRSS")
    call()
    return status_bytes("VmHWM") - before


def status_bytes(field):
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def measure(backend, sizes, seconds, quick):
    """Time everything in this process; return one record for each case and size."""
    functions = compile_cases(MODES[backend], quick)
    records = []
    for n, n_nodes in sizes:
        (matrix,) = example(["a"], n, n_nodes)
        out = np.empty_like(matrix)

        def bare(matrix=matrix, out=out):
            np.exp(matrix, out=out)

        for name, (function, names, compile_seconds) in functions.items():
            arguments = example(names, n, n_nodes)

            def call(function=function, arguments=arguments):
                # JAX returns before it is done; asking for the arrays waits.
                return [np.asarray(result) for result in function(*arguments)]

            own, exp = best_of((call, bare), seconds)
            records.append(
                {
                    "case": name,
                    "size": [n, n_nodes],
                    "seconds": own,
                    "exp": exp,
                    "arrays": peak_bytes(call) / matrix.nbytes,
                    "compile": compile_seconds,
                }
            )
    return records


def in_new_process(cache, *job):
    """Run `measure` with its caches in a folder of their own."""
    environment = os.environ | {
        "PYTENSOR_FLAGS": f"base_compiledir={cache}",
        "NUMBA_CACHE_DIR": str(Path(cache) / "numba"),
        "JAX_COMPILATION_CACHE_DIR": str(Path(cache) / "jax"),
        "OMP_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    }
    command = [sys.executable, __file__, "--job", json.dumps(job)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def show(backend, cold, warm):
    peers = {
        tuple(r["size"]): {q["case"]: q["seconds"] for q in warm if q["size"] == r["size"]}
        for r in warm
    }
    first = {r["case"]: r["compile"] for r in cold}
    for record in warm:
        n, n_nodes = record["size"]
        times = peers[n, n_nodes]
        peer = (
            times.get("rows, pt.logsumexp")
            if "nu" in record["case"] or "rows" in record["case"]
            else None
        )
        peer = peer or times["pt.logsumexp"]
        print(
            f"{backend:>7} {n:>6} x {n_nodes:<4} {record['case']:<19}"
            f"{1e3 * record['seconds']:>9.2f}{record['seconds'] / record['exp']:>8.2f}"
            f"{record['seconds'] / peer:>10.2f}{record['arrays']:>8.2f}"
            f"{first[record['case']]:>8.1f}{record['compile']:>7.1f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one size, numba only")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(measure(*json.loads(arguments.job))))
        return
    sizes = SIZES[:1] if arguments.quick else SIZES
    backends = ["numba"] if arguments.quick else list(MODES)
    seconds = 0.2 if arguments.quick else 1.0
    print(
        f"{'backend':>7} {'n x N':>13} {'case':<19}{'ms':>9}{'/ exp':>8}{'/ lse':>10}"
        f"{'arrays':>8}{'cold s':>8}{'warm s':>7}"
    )
    for backend in backends:
        with tempfile.TemporaryDirectory() as cache:
            cold = in_new_process(cache, backend, sizes[:1], 0.0, arguments.quick)
            warm = in_new_process(cache, backend, sizes, seconds, arguments.quick)
            show(backend, cold, warm)


if __name__ == "__main__":
    main()
