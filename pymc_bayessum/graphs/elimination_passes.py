"""The compiled passes of variable elimination: what :mod:`.elimination` describes, in loops.

Tables are flat, the axis of the site eliminated fastest and later sites slower, so a message lies
in the table of its step in few long runs and no transposition is ever needed.

Numbers. A message is a sum over the eliminated side, so the logarithms of its entries spread by at
most the sum, over the edges that cross to its separator, of the ranges of their couplings. While
that bound stays below :data:`LINEAR_RANGE` no entry can underflow and the sums run in plain
arithmetic; beyond it (couplings of 50 and more) the same plan runs on logarithms. In the backward
pass tables hold probabilities, where underflow is harmless.

Tangents. The marginals are analytic in the parameters, so one run of the same code in complex
arithmetic at ``theta + i eps d`` gives the product of the Hessian with ``d`` to machine precision
(Squire and Trapp, 1998).

Calls. Log Z, marginals and tangents are C functions under a symbol: compiled code that calls them
refers to the symbol and need not contain, optimise and cache a copy of all passes.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import llvmlite.binding
import numba
import numpy as np
from numba import carray, njit, types

from pymc_bayessum.graphs.listing_passes import LISTED, listed_log_partition, listed_marginals

__all__ = ["call_native", "draw", "native_symbol", "prepare"]

#: Largest spread of log factors within a table for which plain arithmetic is used.
LINEAR_RANGE = 500.0
#: Step of the complex tangent; its product with exp(-LINEAR_RANGE) is still a normal number.
_TANGENT_STEP = 1e-40
#: A finite logarithm that stands for minus infinity.
_FORBIDDEN = -1e9
#: Raised whenever arguments of the C functions change: compiled callers are cached on disk.
NATIVE_VERSION = 5

# For functions never called from Python: without wrappers and checks they compile in less time.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_inner = njit(cache=True, error_model="numpy", **_INNER)


class _Steps(NamedTuple):
    """A packed plan taken apart; :func:`.elimination._pack` says what is in it."""

    sites: np.ndarray
    separator_at: np.ndarray
    separators: np.ndarray
    local_at: np.ndarray
    local: np.ndarray
    factor_at: np.ndarray
    factors: np.ndarray
    run_at: np.ndarray
    runs: np.ndarray
    message_at: np.ndarray
    cross_at: np.ndarray
    cross: np.ndarray


class _Work(NamedTuple):
    """Memory of one pass: tables being built, all messages, and the scale of each."""

    table: np.ndarray
    scratch: np.ndarray
    messages: np.ndarray
    scales: np.ndarray


@_inner
def _unpack(plan):
    """Split a packed plan into its twelve arrays."""
    return _Steps(
        plan[16 : plan[4]],
        plan[plan[4] : plan[5]],
        plan[plan[5] : plan[6]],
        plan[plan[6] : plan[7]],
        plan[plan[7] : plan[8]],
        plan[plan[8] : plan[9]],
        plan[plan[9] : plan[10]],
        plan[plan[10] : plan[11]],
        plan[plan[11] : plan[12]],
        plan[plan[12] : plan[13]],
        plan[plan[13] : plan[14]],
        plan[plan[14] : plan[15]],
    )


@_inner
def _advance(count, runs, first, n_runs, offset):
    """Move a factor's offset on by one step of its slower runs."""
    run = n_runs - 2
    while run >= 0:
        stride = runs[first + 2 * run + 1]
        count[run] += 1
        offset += stride
        if count[run] < runs[first + 2 * run]:
            break
        offset -= stride * count[run]
        count[run] = 0
        run -= 1
    return offset


@_inner
def _lay(work, size, factor, runs, first, last):
    """Fill a table with a factor, repeated along the runs the factor lacks."""
    n_runs = (last - first) // 2
    inner = runs[last - 2]
    count = np.zeros(n_runs, np.int64)
    offset = 0
    for place in range(0, size, inner):
        part = factor[offset : offset + inner]
        target = work[place : place + inner]
        for k in range(inner):
            target[k] = part[k]
        offset = _advance(count, runs, first, n_runs, offset)


@_inner
def _spread(work, size, factor, runs, first, last, logs):
    """Multiply (on logarithms: add) a factor into a table; the last run always has stride one."""
    n_runs = (last - first) // 2
    inner = runs[last - 2]
    count = np.zeros(n_runs, np.int64)
    offset = 0
    for place in range(0, size, inner):
        part = factor[offset : offset + inner]
        target = work[place : place + inner]
        if logs:
            for k in range(inner):
                target[k] += part[k]
        else:
            for k in range(inner):
                target[k] *= part[k]
        offset = _advance(count, runs, first, n_runs, offset)


@_inner
def _gather(work, size, target, runs, first, last):
    """Sum a table onto the axes of a factor: the transpose of ``_spread``."""
    n_runs = (last - first) // 2
    inner = runs[last - 2]
    count = np.zeros(n_runs, np.int64)
    offset = 0
    for place in range(0, size, inner):
        part = work[place : place + inner]
        onto = target[offset : offset + inner]
        for k in range(inner):
            onto[k] += part[k]
        offset = _advance(count, runs, first, n_runs, offset)


@_inner
def _spread_of(values, of_states):
    """Range of the logarithms of a field or a coupling; not finite where all is forbidden.

    A forbidden state is an exact zero in every sum and, unlike a forbidden pair, leaves the ratios
    of the messages that reach its site as they are: it does not count.
    """
    low = np.inf
    high = -np.inf
    for value in values:
        if not of_states or value.real != -np.inf:
            low = min(low, value.real)
        high = max(high, value.real)
    return high - low if high > -np.inf else np.inf


@_inner
def _needs_logs(h, J, steps):
    """Whether some table could spread beyond what plain arithmetic holds."""
    n_edges = J.shape[0]
    ranges = np.empty(n_edges)
    for row in range(n_edges):
        ranges[row] = _spread_of(J[row].ravel(), False)
    bounds = np.zeros(len(steps.sites))
    for step in range(len(steps.sites)):
        table = _spread_of(h[steps.sites[step]], True)
        for k in range(steps.local_at[step], steps.local_at[step + 1], 3):
            table += ranges[steps.local[k]]
        for k in range(steps.factor_at[step] + 1, steps.factor_at[step + 1]):
            table += bounds[steps.factors[k]]
        if not table <= LINEAR_RANGE:  # also true for NaN
            return True
        for k in range(steps.cross_at[step], steps.cross_at[step + 1]):
            bounds[step] += ranges[steps.cross[k]]
    return False


@_inner
def _potentials(h, J, logs):
    """Tables of field and coupling factors, each divided by its largest entry, and the shift."""
    site, pair = h.copy(), J.copy()
    shift = 0.0
    for table in range(h.shape[0] + J.shape[0]):
        row = table - h.shape[0]
        flat = site[table] if row < 0 else pair[row].ravel()
        top = flat[0].real
        for value in flat:
            top = max(top, value.real)
        if not np.isfinite(top):
            top = 0.0
        shift += top
        for k in range(len(flat)):
            flat[k] = flat[k] - top if logs else np.exp(flat[k] - top)
    return site, pair, shift


@_inner
def _local_factor(target, site, pair, local, first, last, logs):
    """Product of a site's field and its edges to later sites; returns its size."""
    n_states = len(site)
    size = n_states
    for state in range(n_states):
        target[state] = site[state]
    for k in range(first, last, 3):
        coupling = pair[local[k]] if local[k + 1] else pair[local[k]].T
        for other in range(n_states - 1, -1, -1):
            for rest in range(0, size, n_states):
                for state in range(n_states):
                    value = coupling[other, state]
                    old = target[rest + state]
                    target[other * size + rest + state] = old + value if logs else old * value
        size *= n_states
    return size


@_inner
def _table(step, steps, site, pair, work, logs):
    """Product of all factors of a step, in ``work.table``; returns its size and the local one."""
    n_states = site.shape[1]
    message_at = steps.message_at
    size = (message_at[step + 1] - message_at[step]) * n_states
    first, last = steps.local_at[step], steps.local_at[step + 1]
    local_size = n_states ** (1 + (last - first) // 3)
    whole = local_size == size
    target = work.table if whole else work.scratch
    _local_factor(target, site[steps.sites[step]], pair, steps.local, first, last, logs)
    for k in range(steps.factor_at[step], steps.factor_at[step + 1]):
        source = steps.factors[k]
        low, high = steps.run_at[k], steps.run_at[k + 1]
        if source >= 0:
            message = work.messages[message_at[source] : message_at[source + 1]]
            _spread(work.table, size, message, steps.runs, low, high, logs)
        elif not whole:
            _lay(work.table, size, work.scratch, steps.runs, low, high)
    return size, local_size


@_inner
def _log_sum(values, start, n_states):
    """Log-sum-exp over consecutive entries, -inf when all are."""
    top = values[start].real
    for state in range(1, n_states):
        top = max(top, values[start + state].real)
    if top == -np.inf:
        return values[start]
    total = np.exp(values[start] - top)
    for state in range(1, n_states):
        total += np.exp(values[start + state] - top)
    return np.log(total) + top


@_inner
def _forward(h, J, logs, steps):
    """Sum out every site; returns factors, the filled memory and log Z."""
    n_states = h.shape[1]
    work = _memory(h, steps)
    site, pair, shift = _potentials(h, J, logs)
    table, scales = work.table, work.scales
    total = scales[0] * 0.0 + shift
    for step in range(len(steps.sites)):
        size, _ = _table(step, steps, site, pair, work, logs)
        message = work.messages[steps.message_at[step] : steps.message_at[step + 1]]
        top = -np.inf
        for rest in range(size // n_states):
            if logs:
                message[rest] = _log_sum(table, rest * n_states, n_states)
            else:
                value = table[rest * n_states]
                for state in range(1, n_states):
                    value += table[rest * n_states + state]
                message[rest] = value
            top = max(top, message[rest].real)
        scales[step] = top
        if len(message) == 1:
            scales[step] = message[0]
        elif logs and top == -np.inf:
            scales[step] = 0.0
        for rest in range(len(message)):
            if logs:
                message[rest] -= scales[step]
            else:
                message[rest] /= scales[step]
        total += scales[step] if logs else np.log(scales[step])
    return site, pair, work, total


@_inner
def _memory(h, steps):
    """Memory for one pass."""
    n_states = h.shape[1]
    message_at = steps.message_at
    largest = 0
    local_largest = 0
    for step in range(len(steps.sites)):
        size = (message_at[step + 1] - message_at[step]) * n_states
        local_size = n_states ** (1 + (steps.local_at[step + 1] - steps.local_at[step]) // 3)
        largest = max(largest, size)
        if local_size < size:
            local_largest = max(local_largest, local_size)
    # The total starts from the scales, so these must not be whatever the memory held before.
    return _Work(
        np.empty(largest, h.dtype),
        np.empty(local_largest, h.dtype),
        np.empty(message_at[-1], h.dtype),
        np.zeros(len(steps.sites), h.dtype),
    )


@_inner
def log_partition(h, J, plan):
    """Log Z by one forward pass."""
    steps = _unpack(plan)
    return _forward(h, J, _needs_logs(h, J, steps), steps)[3]


@_inner
def marginals(h, J, plan):
    """Log Z, site and edge marginals by a forward and a backward pass."""
    steps = _unpack(plan)
    logs = _needs_logs(h, J, steps)
    site, pair, memory, total = _forward(h, J, logs, steps)
    work, scratch, messages, scales = memory
    message_at, factor_at, run_at, runs = (
        steps.message_at, steps.factor_at, steps.run_at, steps.runs,
    )  # fmt: skip
    n_states = h.shape[1]
    outside = np.empty_like(messages)
    site_marginals, pair_marginals = np.zeros_like(h), np.zeros_like(J)
    for step in range(len(steps.sites) - 1, -1, -1):
        size, local_size = _table(step, steps, site, pair, memory, logs)
        n_rest = size // n_states
        if n_rest == 1:
            outside[message_at[step]] = 0.0 if logs else 1.0
        around = outside[message_at[step] : message_at[step + 1]]
        for rest in range(n_rest):
            start = rest * n_states
            if logs:
                weight = around[rest] - scales[step]
                for state in range(n_states):
                    value = work[start + state] + weight
                    # The guard keeps exp(-inf + 0i) from becoming NaN.
                    work[start + state] = np.exp(value) if value.real > -740.0 else 0.0
            else:
                weight = around[rest] / scales[step]
                for state in range(n_states):
                    work[start + state] *= weight
        for k in range(factor_at[step] + 1, factor_at[step + 1]):
            low, high = message_at[steps.factors[k]], message_at[steps.factors[k] + 1]
            onto = outside[low:high]
            onto[:] = 0.0
            _gather(work, size, onto, runs, run_at[k], run_at[k + 1])
            for rest in range(high - low):
                message = messages[low + rest]
                if onto[rest].real == 0.0:
                    onto[rest] = -np.inf if logs else 0.0
                elif logs:
                    onto[rest] = np.log(onto[rest]) - message
                else:
                    onto[rest] /= message
        block = work
        if local_size < size:
            k = factor_at[step]
            scratch[:local_size] = 0.0
            _gather(work, size, scratch, runs, run_at[k], run_at[k + 1])
            block = scratch
        for k in range(steps.local_at[step + 1] - 3, steps.local_at[step] - 1, -3):
            onto_pair = pair_marginals[steps.local[k]]
            if not steps.local[k + 1]:
                onto_pair = onto_pair.T
            inner = local_size // n_states
            for rest in range(0, inner, n_states):
                for state in range(n_states):
                    folded = block[rest + state]
                    onto_pair[0, state] += folded
                    for other in range(1, n_states):
                        value = block[other * inner + rest + state]
                        onto_pair[other, state] += value
                        folded += value
                    block[rest + state] = folded
            local_size = inner
        for state in range(n_states):
            site_marginals[steps.sites[step], state] = block[state]
    return total, site_marginals, pair_marginals


@_inner
def _marginals(h, J, plan):
    """Log Z and marginals, in the way the plan was packed for."""
    if plan[4] == LISTED:
        return listed_marginals(h, J, plan)
    return marginals(h, J, plan)


@_inner
def _copy(values, onto):
    """Write one array into another; assigned as a whole, each shape would be compiled at length."""
    source, target = values.ravel(), onto.ravel()
    for k in range(len(source)):
        target[k] = source[k]


@_inner
def _longest(values):
    """Largest entry, whatever its sign."""
    longest = 0.0
    for value in values.ravel():
        longest = max(longest, abs(value))
    return longest


@_inner
def _stepped(values, steps, length):
    """Values with an imaginary step.

    Infinities have no complex exponential: what is forbidden becomes as good as that.
    """
    stepped = np.empty(values.shape, np.complex128)
    flat, real, imaginary = stepped.ravel(), values.ravel(), steps.ravel()
    for k in range(len(flat)):
        flat[k] = complex(max(real[k], _FORBIDDEN), length * imaginary[k])
    return stepped


@_inner
def _imaginary(values, back, onto):
    """Write the imaginary parts, in units of the step."""
    source, target = values.ravel(), onto.ravel()
    for k in range(len(source)):
        target[k] = source[k].imag * back


@_inner
def marginals_tangent(h, J, h_step, J_step, plan, sites, pairs):
    """Write the derivative of the marginals along (h_step, J_step), by a complex step."""
    longest = max(_longest(h_step), _longest(J_step))
    length = _TANGENT_STEP / longest if longest > 0.0 else 0.0
    fields, couplings = _stepped(h, h_step, length), _stepped(J, J_step, length)
    _, site_marginals, pair_marginals = _marginals(fields, couplings, plan)
    _imaginary(site_marginals, longest / _TANGENT_STEP, sites)
    _imaginary(pair_marginals, longest / _TANGENT_STEP, pairs)


@njit(cache=True)
def prepare(h, J, plan):
    """Logarithms of field factors, coupling factors and messages."""
    steps = _unpack(plan)
    logs = _needs_logs(h, J, steps)
    site, pair, work, _ = _forward(h, J, logs, steps)
    messages = work.messages
    if not logs:
        site, pair, messages = np.log(site), np.log(pair), np.log(messages)
    return site, pair, messages


@njit(cache=True)
def draw(site, pair, messages, uniforms, plan):
    """Exact draws, one for each row of ``uniforms``: sites in reverse order of elimination."""
    steps = _unpack(plan)
    local, separators = steps.local, steps.separators
    n_states = site.shape[1]
    draws = np.zeros(uniforms.shape, np.int64)
    weights = np.empty(n_states)
    for row in range(len(draws)):
        x = draws[row]
        for step in range(len(steps.sites) - 1, -1, -1):
            here = steps.sites[step]
            weights[:] = site[here]
            for k in range(steps.local_at[step], steps.local_at[step + 1], 3):
                other = x[local[k + 2]]
                for state in range(n_states):
                    if local[k + 1]:
                        weights[state] += pair[local[k], other, state]
                    else:
                        weights[state] += pair[local[k], state, other]
            for k in range(steps.factor_at[step] + 1, steps.factor_at[step + 1]):
                source = steps.factors[k]
                place = 0
                for axis in range(steps.separator_at[source], steps.separator_at[source + 1] - 1):
                    place = place * n_states + x[separators[axis]]
                place = steps.message_at[source] + place * n_states
                for state in range(n_states):
                    weights[state] += messages[place + state]
            top = weights.max()
            total = 0.0
            for state in range(n_states):
                weights[state] = np.exp(weights[state] - top)
                total += weights[state]
            left = uniforms[row, here] * total
            state = 0
            while state < n_states - 1 and left >= weights[state]:
                left -= weights[state]
                state += 1
            x[here] = state
    return draws


@_inner
def _views(h, J, plan):
    """Arrays behind the pointers to fields, couplings and plan."""
    head = carray(plan, 4, np.int64)
    fields = carray(h, (head[1], head[2]), np.float64)
    couplings = carray(J, (head[3], head[2], head[2]), np.float64)
    return fields, couplings, carray(plan, head[0], np.int64)


def _log_partition_entry(h, J, plan, value):
    fields, couplings, steps = _views(h, J, plan)
    if steps[4] == LISTED:
        total = listed_log_partition(fields, couplings, steps)
    else:
        total = log_partition(fields, couplings, steps)
    carray(value, 1, np.float64)[0] = total


def _marginals_entry(h, J, plan, value, sites, pairs):
    fields, couplings, steps = _views(h, J, plan)
    total, site_marginals, pair_marginals = _marginals(fields, couplings, steps)
    onto_sites, onto_pairs, _ = _views(sites, pairs, plan)
    carray(value, 1, np.float64)[0] = total
    _copy(site_marginals, onto_sites)
    _copy(pair_marginals, onto_pairs)


def _tangent_entry(h, J, h_step, J_step, plan, sites, pairs):
    fields, couplings, steps = _views(h, J, plan)
    field_step, coupling_step, _ = _views(h_step, J_step, plan)
    onto_sites, onto_pairs, _ = _views(sites, pairs, plan)
    marginals_tangent(fields, couplings, field_step, coupling_step, steps, onto_sites, onto_pairs)


_ENTRIES: dict[str, tuple[Callable[..., None], int]] = {
    "log_partition": (_log_partition_entry, 4),
    "marginals": (_marginals_entry, 6),
    "tangent": (_tangent_entry, 7),
}


@lru_cache(maxsize=8)
def _compiled(name: str) -> tuple[Callable[..., None], types.ExternalFunction]:
    """Compile a C function (once a machine, then cached) and make its symbol known."""
    entry, n_arguments = _ENTRIES[name]
    signature = types.void(*[types.voidptr] * n_arguments)
    compiled = numba.cfunc(signature, cache=True)(entry)
    symbol = f"pymc_bayessum_{name}_{NATIVE_VERSION}"
    llvmlite.binding.add_symbol(symbol, compiled.address)
    return compiled.ctypes, types.ExternalFunction(symbol, signature)


def call_native(name: str, *arrays: np.ndarray) -> None:
    """Call one of the C functions on contiguous arrays; it fills the last ones."""
    _compiled(name)[0](*[array.ctypes.data for array in arrays])


def native_symbol(name: str) -> Any:
    """Return a C function as something numba code can call with ``array.ctypes``."""
    return _compiled(name)[1]
