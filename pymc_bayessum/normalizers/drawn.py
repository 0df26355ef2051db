"""Random states that are drawn by Python, whatever the backend: graphs, networks, any family."""

from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.normalizers.load_for_jax import load_for_jax

__all__ = ["StatesRV", "apply_rv", "one_set"]


class StatesRV(RandomVariable):
    """Random states of a model whose parameters, and batches of them, are its inputs."""

    dtype = "int64"
    state_shape: tuple[int, ...]

    def draw_states(self, rng: np.random.Generator, n: int, *parameters: np.ndarray) -> np.ndarray:
        """Draw n states (n, ...) of one set of parameters."""
        raise NotImplementedError

    def batch_shape(self, *parameters: Any) -> tuple[int, ...]:
        """Shape of the batch of models that arrays of parameters make."""
        ndims = zip(parameters, self.ndims_params, strict=True)
        return np.broadcast_shapes(*(part.shape[: part.ndim - core] for part, core in ndims))

    def rng_fn(self, rng: np.random.Generator, *inputs: Any) -> np.ndarray:
        """Draw all states of one set of parameters together."""
        *given, size = inputs
        parameters = [np.asarray(part, dtype=float) for part in given]
        batch = self.batch_shape(*parameters)
        size = batch if size is None else tuple(int(length) for length in size)
        lead = (1,) * (len(size) - len(batch)) + batch
        sets = [
            np.broadcast_to(part, lead + part.shape[part.ndim - core :])
            for part, core in zip(parameters, self.ndims_params, strict=True)
        ]
        draws = np.empty((*size, *self.state_shape), dtype=np.int64)
        for index in np.ndindex(lead):
            # A dimension along which parameters do not vary holds repeated draws.
            place = tuple(
                slice(None) if length == 1 else k for k, length in zip(index, lead, strict=True)
            )
            part = draws[place]
            n = part.size // int(np.prod(self.state_shape))
            states = self.draw_states(rng, n, *(values[index] for values in sets))
            draws[place] = states.reshape(part.shape)
        return draws


@numba_core_rv_funcify.register(StatesRV)
def _numba_draw(op: StatesRV, node: Any) -> Any:
    state_type = numba.types.Array(numba.int64, len(op.state_shape), "C")

    def draw(rng: np.random.Generator, parameters: Any) -> np.ndarray:
        return op.rng_fn(rng, *parameters, ())

    @numba_njit
    def random(rng, *parameters):
        with numba.objmode(state=state_type):
            state = draw(rng, parameters)
        return state

    return random, None


load_for_jax(f"{__package__}.drawn_jax")


def apply_rv(*parameters: Any, op: StatesRV, rng: Any = None, size: Any = None) -> TensorVariable:
    """Apply a random variable whose model and normaliser are resolved, as PyMC asks for it."""
    rng = pt.random.shared_rng(seed=None) if rng is None else rng
    return op(*parameters, rng=rng, size=size, return_next_rng=True)[1]


def one_set(value: Any, n_core: int) -> Any:
    """Drop leading axes of length one, which PyMC gives to parameters of a sized variable."""
    while value.type.ndim > n_core and value.type.broadcastable[0]:
        value = pt.squeeze(value, axis=0)
    return value
