"""Cholesky factors of large matrices, and their inverses, in the memory of the matrix.

numpy's own functions need several matrices more. Blocks of columns, or rows, are worked on in turn: what lies before a
block is a product with what is done already.
"""

from __future__ import annotations

import numpy as np

_BLOCK = 512  # rows


def factor_in_place(matrix: np.ndarray) -> None:
    """Turn a symmetric matrix (n, n), of which the lower triangle is read, into its lower Cholesky factor.

    Raises:
        numpy.linalg.LinAlgError: it is not positive definite; what is left of it is no matrix to go on with.
    """
    for first in range(0, len(matrix), _BLOCK):
        last = min(first + _BLOCK, len(matrix))
        here = slice(first, last)
        matrix[first:, here] -= matrix[first:, :first] @ matrix[here, :first].T
        corner = np.linalg.cholesky(matrix[here, here])
        if not np.isfinite(corner).all():
            raise np.linalg.LinAlgError("the matrix has values that are no finite numbers")
        matrix[here, here] = corner
        matrix[last:, here] = np.linalg.solve(corner, matrix[last:, here].T).T
        matrix[here, last:] = 0


def invert_in_place(matrix: np.ndarray) -> None:
    """Turn a lower triangular matrix (n, n), zero above its diagonal, into its inverse."""
    for first in range(0, len(matrix), _BLOCK):
        here = slice(first, min(first + _BLOCK, len(matrix)))
        corner = np.tril(np.linalg.inv(matrix[here, here]))
        matrix[here, :first] = -corner @ (matrix[here, :first] @ matrix[:first, :first])
        matrix[here, here] = corner
