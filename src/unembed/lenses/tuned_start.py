"""Where translators start: the least-squares map from each layer's stream to the final one, in closed form.

Training by gradient alone needs thousands of steps, since streams have a few directions that are a hundred times as long as
the rest. The map that comes nearest to the normalised final stream is known without a step, from sums over the text:

    A = (K + ridge a I) (C + ridge I)^-1,   b = mean(y) - A mean(x),   W = A / a - I

C is the covariance of the stream x, K that of y with x, y the final stream divided by its size (as the final norm will
divide it anyway), and a the typical 1 / size of x, so that with much ridge or little text W is 0: the logit lens. Each
position counts as 1 / size^2, or the few that carry huge numbers would be all that is fitted. What is left for the steps
is the difference between squares and probabilities, and they go through whitened coordinates, P = (S + ridge I)^-1/2, S the
covariance with every position counted alike: in them no direction is longer than another, and a position with huge numbers
(the first of a text often has some) is no longer than a few others. Before it: translators.py. The next file to read is
tuned_lens.py.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.errors import NotFiniteError

# Of the mean variance of the stream: less trusts small samples, more keeps to the logit lens.
RIDGE = 1e-3


class Start(NamedTuple):
    """First values for layers 0 to n_layers - 1, and the coordinates in which training goes on from them, in float32.

    Local axis: layer_in, the width of the stream that is read; it equals d_model.
    """

    weight: Float[Tensor, "layer d_model layer_in"]
    bias: Float[Tensor, "layer d_model"]
    whiten: Float[Tensor, "layer d_model layer_in"]
    mean: Float[Tensor, "layer d_model"]
    scale: Float[Tensor, " layer"]


class _Sums:
    """Weighted sums over positions of one layer, in float64; streams are moved by a first mean so that nothing cancels."""

    def __init__(self, width: int) -> None:
        self.total = 0.0
        self.inverse_sizes = 0.0
        self.count = 0
        self.x, self.y = (torch.zeros(width, dtype=torch.float64) for _ in range(2))
        self.xx, self.yx, self.plain_xx = (torch.zeros(width, width, dtype=torch.float64) for _ in range(3))
        self.plain_x = torch.zeros(width, dtype=torch.float64)
        self.shift: Tensor | None = None

    def add(self, x: Float[Tensor, "pos d_model"], y: Float[Tensor, "pos d_model"]) -> None:
        sizes = x.square().mean(-1).sqrt().clamp(min=1e-12)
        weights = sizes.square().reciprocal()
        if self.shift is None:
            self.shift = (x * weights[:, None]).sum(0) / weights.sum()
        moved = x - self.shift
        weighted = moved * weights[:, None]
        self.total += float(weights.double().sum())
        self.inverse_sizes += float(sizes.double().reciprocal().sum())
        self.count += len(x)
        self.x += weighted.double().sum(0)
        self.y += (y * weights[:, None]).double().sum(0)
        self.xx += (weighted.T @ moved).double()
        self.plain_x += moved.double().sum(0)
        self.plain_xx += (moved.T @ moved).double()
        self.yx += ((y * weights[:, None]).T @ moved).double()


@torch.no_grad()
def closed_form(
    batches: Iterable[Float[Tensor, "layer pos d_model"]], *, has_final_norm: bool, ridge: float = RIDGE
) -> Start:
    """Fits every layer but the last to the last one, over batches of states; they are read once and not kept.

    `has_final_norm` says whether the head divides the stream by its size; where it does not, the size is fitted too.
    Raises: NotFiniteError for streams that hold NaN or infinity.
    """
    sums: list[_Sums] = []
    for states in batches:
        wide = states.float()
        final = wide[-1]
        y = final / final.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-12) if has_final_norm else final
        sums = sums or [_Sums(wide.shape[-1]) for _ in range(len(wide) - 1)]
        for one, x in zip(sums, wide[:-1], strict=True):
            one.add(x.cpu(), y.cpu())
    if not all(bool(part.isfinite().all()) for one in sums for part in (one.x, one.y, one.xx, one.yx)):
        raise NotFiniteError(
            "tune-lens: the model's stream holds what is no finite number, so there is nothing to fit. `unembed verify` tells "
            "where its numbers break"
        )
    solved = [_solve(one, has_final_norm, ridge) for one in sums]
    return Start(*(torch.stack(part).float() for part in zip(*solved, strict=True)))


def _solve(sums: _Sums, has_final_norm: bool, ridge: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Weight, bias, whitening, mean and scale of one layer."""
    assert sums.shift is not None
    moved_mean, y_mean = sums.x / sums.total, sums.y / sums.total
    covariance = sums.xx / sums.total - moved_mean[:, None] * moved_mean
    cross = sums.yx / sums.total - y_mean[:, None] * moved_mean
    mean = sums.shift.double() + moved_mean
    plain_mean = sums.plain_x / sums.count
    plain = sums.plain_xx / sums.count - plain_mean[:, None] * plain_mean
    inverse_size = sums.inverse_sizes / sums.count
    alpha = inverse_size if has_final_norm else 1.0
    identity = torch.eye(len(covariance), dtype=torch.float64)
    strength = ridge * float(covariance.diagonal().mean())
    matrix = (cross + strength * alpha * identity) @ _power(covariance, strength, -1)
    whiten = _power(plain, strength, -0.5)
    bias = y_mean - matrix @ mean
    return matrix / alpha - identity, bias / alpha, whiten, mean, torch.tensor(1 / inverse_size, dtype=torch.float64)


def _power(covariance: Tensor, strength: float, exponent: float) -> Tensor:
    """(covariance + strength I) to a power."""
    values, vectors = torch.linalg.eigh(covariance)
    raised: Tensor = (values.clamp(min=0) + max(strength, 1e-12)).pow(exponent)
    powered: Tensor = (vectors * raised) @ vectors.T
    return powered
