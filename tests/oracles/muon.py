"""Muon in float64 NumPy, one matrix at a time, after the formulas of its author's post; nothing of ours is imported."""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def newton_schulz(matrix: Matrix, n_steps: int = 5) -> Matrix:
    """X <- 3.4445 X - 4.775 (X X^T) X + 2.0315 (X X^T)^2 X, from X / |X|; a standing matrix is laid down."""
    if matrix.shape[0] > matrix.shape[1]:
        return newton_schulz(matrix.T, n_steps).T
    x = matrix / (np.sqrt((matrix**2).sum()) + 1e-7)
    for _ in range(n_steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


def step(
    weight: Matrix, gradient: Matrix, momentum: Matrix, *, rate: float, beta: float, decay: float
) -> tuple[Matrix, Matrix]:
    """The new weight and the new momentum."""
    momentum = beta * momentum + (1 - beta) * gradient
    direction = newton_schulz((1 - beta) * gradient + beta * momentum)
    rows, columns = weight.shape
    return weight * (1 - rate * decay) - rate * max(1.0, rows / columns) ** 0.5 * direction, momentum
