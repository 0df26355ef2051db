"""The zero-field Ising model on a torus, whose constant has a closed form."""

import numpy as np


def torus_log_z(rows, columns, coupling):
    r"""Log Z of spins on a periodic lattice (Kaufman, "Crystal statistics II", 1949).

    .. math:: 2 Z = (2 \sinh 2K)^{mn/2} \Big[\prod_r 2\cosh\tfrac m2\gamma_{2r+1} + \prod_r 2\sinh
              \tfrac m2\gamma_{2r+1} + \prod_r 2\cosh\tfrac m2\gamma_{2r} + \prod_r 2\sinh\tfrac m2
              \gamma_{2r}\Big]

    with :math:`\cosh\gamma_l = \cosh 2K \coth 2K - \cos(l\pi/n)` and
    :math:`\gamma_0 = 2K + \log\tanh K`.
    """
    angles = np.pi * np.arange(2 * columns) / columns
    gamma = np.arccosh(np.cosh(2 * coupling) / np.tanh(2 * coupling) - np.cos(angles))
    gamma[0] = 2 * coupling + np.log(np.tanh(coupling))
    half = rows * np.abs(gamma) / 2
    cosh, sinh = half + np.log1p(np.exp(-2 * half)), half + np.log(-np.expm1(-2 * half))
    terms = np.array([cosh[1::2].sum(), sinh[1::2].sum(), cosh[::2].sum(), sinh[::2].sum()])
    signs = np.array([1.0, 1.0, 1.0, np.sign(gamma[0])])
    bracket = terms.max() + np.log(signs @ np.exp(terms - terms.max()))
    return rows * columns / 2 * np.log(2 * np.sinh(2 * coupling)) + bracket - np.log(2)
