"""Kernels made of kernels, written as sums of products and simplified."""

from dataclasses import replace
from functools import reduce

from pymc_bayessum.kernels import (
    ExpHamming,
    First,
    Kernel,
    Matern,
    Polynomial,
    Product,
    Pullback,
    Scaled,
    Second,
    SquaredExponential,
    Sum,
    Tensor,
)

__all__ = ["expand", "sides"]


def expand(kernel: Kernel) -> list[tuple[float, Kernel]]:
    """Write a kernel as a sum of scaled kernels, each simplified as far as products allow.

    Sums are multiplied out, factors of one kind merged (see :func:`multiply`).

    Examples
    --------
    >>> from pymc_bayessum.embeddings.algebra import expand
    >>> from pymc_bayessum.kernels import ExpHamming
    >>> expand(2.0 * (ExpHamming(0.25) * ExpHamming(0.5)))
    [(2.0, ExpHamming(decay=0.75))]
    """
    if isinstance(kernel, Scaled):
        return [(kernel.scale * scale, part) for scale, part in expand(kernel.base)]
    if isinstance(kernel, Sum):
        return expand(kernel.first) + expand(kernel.second)
    if isinstance(kernel, (Product, Tensor)):
        join = multiply if isinstance(kernel, Product) else Tensor
        return [
            (a * b, join(x, y)) for a, x in expand(kernel.first) for b, y in expand(kernel.second)
        ]
    if isinstance(kernel, (First, Second, Pullback)):
        return [(scale, replace(kernel, base=part)) for scale, part in expand(kernel.base)]
    return [(1.0, kernel)]


def _factors(kernel: Kernel) -> list[Kernel]:
    if isinstance(kernel, Product):
        return _factors(kernel.first) + _factors(kernel.second)
    return [kernel]


def multiply(first: Kernel, second: Kernel) -> Kernel:
    """Product of two kernels without sums or scales, with like factors merged.

    Exponential Hamming, squared-exponential, Matern 1/2 and polynomial kernels have products of
    their own kind; kernels on the two parts of a pair make a tensor product.
    """
    merged: list[Kernel] = []
    for factor in _factors(first) + _factors(second):
        for i, other in enumerate(merged):
            joint = _merge(other, factor)
            if joint is not None:
                merged[i] = joint
                break
        else:
            merged.append(factor)
    return reduce(Product, merged)


def _merge(a: Kernel, b: Kernel) -> Kernel | None:
    match a, b:
        case ExpHamming(), ExpHamming():
            return ExpHamming(a.decay + b.decay)
        case SquaredExponential(), SquaredExponential():
            return SquaredExponential((a.lengthscale**-2 + b.lengthscale**-2) ** -0.5)
        case Polynomial(), Polynomial():
            return Polynomial(a.degree + b.degree)
        case Matern(nu=0.5), Matern(nu=0.5) if a.transform == b.transform:
            return replace(a, lengthscale=1.0 / (1.0 / a.lengthscale + 1.0 / b.lengthscale))
        case Pullback(), Pullback() if a.mapping == b.mapping:
            return Pullback(multiply(a.base, b.base), a.mapping)
    left, right = sides(a), sides(b)
    if left is None or right is None:
        return None
    first, second = (
        multiply(x, y) if x and y else x or y for x, y in zip(left, right, strict=True)
    )
    match first, second:
        case Kernel(), Kernel():
            return Tensor(first, second)
        case Kernel(), None:
            return First(first)
        case None, Kernel():
            return Second(second)
    return None


def sides(kernel: Kernel) -> tuple[Kernel | None, Kernel | None] | None:
    """Kernels on the two parts of a pair, where ``None`` stands for the constant one."""
    match kernel:
        case First():
            return kernel.base, None
        case Second():
            return None, kernel.base
        case Tensor():
            return kernel.first, kernel.second
    return None
