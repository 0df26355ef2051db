r"""Counts seen by chance, the pair of distributions that most latent counts have.

A Poisson, negative binomial or CMP count N of which each visit sees a binomial part,

.. math:: p(N = n) \prod_t \mathrm{Bin}(y_t \mid n, p_t) = \mathrm{const} \cdot e^{g(n)}, \qquad
          g(n) = c\,n + b(n; s) + \sum_t \log\frac{n!}{(n - y_t)!},

depends on its parameters through two numbers a row: :math:`c = \log\lambda + \sum_t \log(1 - p_t)`
and the shape s of the count's distribution. So the sum over n, and its derivatives in these two,
come from one compiled pass (:mod:`.n_mixture_rows`), and the constant from one look at the
user's own distributions, at the smallest n that the data allow.
"""

from collections.abc import Sequence
from inspect import getfile
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.tensor.random.basic import NegBinomialRV, PoissonRV

from pymc_bayessum.compiled_cache import version_of
from pymc_bayessum.counts.cmp import CMPRV
from pymc_bayessum.counts.n_mixture_rows import CMP, NEGATIVE_BINOMIAL, POISSON, sum_rows
from pymc_bayessum.normalizers import log_factorial, panels
from pymc_bayessum.normalizers.located import LocatedSum, panel_tables

__all__ = ["Counts", "NMixtureSum", "counts_of"]

#: Sizes beyond which PyMC takes a negative binomial to be Poisson.
_POISSON_FROM = 1e10


class Counts(NamedTuple):
    """The distribution of a count, as far as the sum asks: what is added to c, and s."""

    kind: int
    log_rate: Any
    shape: Any


def counts_of(latent: Any) -> Counts | None:
    """Return what is summed over if the compiled pass knows it, else None.

    Examples
    --------
    >>> import pymc as pm
    >>> counts_of(pm.Poisson.dist(3.0)).kind, counts_of(pm.Geometric.dist(0.5))
    (0, None)
    """
    op = latent.owner.op
    if isinstance(op, PoissonRV):
        [mean] = op.dist_params(latent.owner)
        return Counts(POISSON, pt.log(mean), pt.ones_like(mean))
    if isinstance(op, CMPRV) and op.rule is None:
        first, nu = op.dist_params(latent.owner)
        return Counts(CMP, op.masses(first, nu).eta, nu)
    if isinstance(op, NegBinomialRV):
        size, p = map(pt.as_tensor_variable, op.dist_params(latent.owner))
        kept = pt.minimum(size, _POISSON_FROM)
        return Counts(NEGATIVE_BINOMIAL, pt.log1p(-p) + pt.log(size / kept), kept)
    return None


class NMixtureSum(Op):
    """Log of the sum over n of exp(g(n) - g(low)), and its derivatives in c and s.

    Inputs are c and s, a number a row, and the data of shape (rows, visits), zero where there was
    no visit; ``low`` is the largest datum of a row.
    """

    __props__ = ("kind",)

    def __init__(self, kind: int) -> None:
        self.kind = kind
        super().__init__()

    def make_node(self, c: Any, s: Any, y: Any, *tables: Any) -> Apply:  # type: ignore[override]  # an Op names its inputs
        """Take tensors and, for those who compile it, the panels."""
        inputs = [pt.cast(pt.as_tensor_variable(v), "float64") for v in (c, s, y)]
        tables = tables or tuple(map(pt.constant, panel_tables()))
        row = pt.TensorType("float64", (inputs[2].type.shape[0],))
        return Apply(self, [*inputs, *tables], [row(), row(), row()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the number of rows."""
        return [(shapes[2][0],)] * 3

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Run the compiled loops."""
        c, s, y, *tables = inputs
        for storage, row in zip(
            output_storage, sum_rows(self.kind, c, s, np.ascontiguousarray(y), *tables), strict=True
        ):
            storage[0] = row

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Connect c and s: data and panels carry no gradient."""
        return [[k < 2] * 3 for k in range(len(node.inputs))]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Multiply by the derivatives; theirs come from the sum written out."""
        c, s, y, *tables = inputs
        by_value, *by_scores = cotangents
        by_c: Any = pt.zeros_like(c)
        by_s: Any = pt.zeros_like(s)
        if not isinstance(by_value.type, DisconnectedType):
            by_c, by_s = by_value * outputs[1], by_value * outputs[2]
        asked = [not isinstance(g.type, DisconnectedType) for g in by_scores]
        if any(asked):
            kept = list(compress(by_scores, asked))
            scores = compress(self.written_out(c, s, y)[1:], asked)
            total: Any = sum(pt.sum(g * score) for g, score in zip(kept, scores, strict=True))
            more: Any = pytensor.grad(
                total, [c, s], consider_constant=kept, disconnected_inputs="ignore"
            )
            by_c, by_s = by_c + more[0], by_s + more[1]
        return [by_c, by_s, *(disconnected_type() for _ in (y, *tables))]

    def written_out(self, c: Any, s: Any, y: Any) -> list[Any]:
        """Return the outputs as a graph that can be differentiated and put on any backend."""
        low = pt.max(y, axis=-1)

        def log_f(n: Any, c: Any, s: Any, y: Any) -> Any:
            log_n = pt.gammaln(n + 1.0)
            seen = pt.sum(log_n[..., None] - pt.gammaln(n[..., None] - y + 1.0), axis=-1)
            if self.kind == CMP:
                return c * n - s * log_n + seen
            if self.kind == NEGATIVE_BINOMIAL:
                return c * n + pt.gammaln(n + s) - log_n + seen
            return c * n - log_n + seen

        value = LocatedSum(log_f, lambda c, s, y: pt.max(y, axis=-1)).log_z(pt, c, s, y)
        value = value - log_f(low[None], c, s, y)[0]
        scores: Any = pytensor.grad(pt.sum(value), [c, s], disconnected_inputs="ignore")
        return [value, *scores]


VERSION = version_of(
    [*Path(__file__).parent.glob("n_mix*.py"), *map(Path, map(getfile, (log_factorial, panels)))]
)


@register_funcify_default_op_cache_key(NMixtureSum)
def _numba_sum(op, node, **kwargs):
    kind = op.kind

    @numba_njit
    def sums(c, s, y, nodes, weights, lengths):
        out = sum_rows(kind, c, s, y, nodes, weights, lengths)
        return out[0], out[1], out[2]

    return sums, VERSION
