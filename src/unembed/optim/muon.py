"""Muon: a matrix is moved along its momentum with all singular values made equal; everything else stays with AdamW.

    momentum   m <- beta m + (1 - beta) g,   u = (1 - beta) g + beta m   (Nesterov)
    direction  o ~ U V^T of u = U S V^T, by five Newton-Schulz steps
    weight     w <- w (1 - rate decay) - rate sqrt(max(1, rows / columns)) o,   rate = matrix_rate * the schedule's

Only the matrices inside blocks take part: a row of a token table is looked up alone, so a table's singular values mean
nothing for a rare token, and gains and biases are vectors. Tables and vectors are AdamW's.
Source: Keller Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks", and its reference code.

Newton-Schulz runs in the matrices' own float32: bfloat16, which torch's own Muon casts to, is a hundred times slower on
processors without its instructions. Matrices of one shape, transposed to lie, are stacked into one batched product. The
next file to read is schedules.py.
"""

from typing import Any

import msgspec
import torch
from jaxtyping import Float
from torch import Tensor, nn

from unembed.optim.adamw import GroupSizes, adamw_groups, parameter_groups, sizes
from unembed.optim.base import LightOptimizer

MUON_STATE = ("momentum",)
# Source: Keller Jordan's Muon, `zeropower_via_newtonschulz5`: the steepest quintic at 0 that keeps singular values of
# [0, 1] near 1; they end between about 0.7 and 1.2, which is near enough.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
N_STEPS = 5
# Added to the Frobenius norm, so that a gradient of zero gives an update of zero.
NORM_EPS = 1e-7


class MuonConfig(msgspec.Struct, tag="muon", tag_field="type", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Muon's numbers for matrices, AdamW's for the rest.

    `matrix_learning_rate` is the matrices' rate where the schedule stands at its peak; the schedule's own is AdamW's.
    """

    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    matrix_learning_rate: float
    momentum: float


class Muon(LightOptimizer):
    """The group of matrices by Muon, the others by AdamW; see the module's docstring for the formula."""

    def update(self, group: dict[str, Any], parameters: list[nn.Parameter]) -> None:
        """Moves one group."""
        if "momentum" not in group:
            self.update_adamw(group, parameters)
            return
        rate = group["lr"] * group["factor"]
        for shape, alike in _by_shape(parameters).items():
            direction = orthogonalised(torch.stack([self._wanted(p, group["momentum"]) for p in alike]))
            for parameter, moved in zip(alike, direction.unbind(), strict=True):
                rows, columns = parameter.shape
                parameter.mul_(1 - rate * group["weight_decay"])
                # stacked lying, so one that stands comes back transposed
                own = moved if tuple(parameter.shape) == shape else moved.mT
                parameter.add_(own, alpha=-rate * max(1.0, rows / columns) ** 0.5)

    def _wanted(self, parameter: nn.Parameter, beta: float) -> Tensor:
        """Puts the gradient into the momentum, and gives the step that momentum and gradient want, lying."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["momentum"].lerp_(parameter.grad, 1 - beta)
        wanted: Tensor = torch.lerp(parameter.grad, state["momentum"], beta)
        return wanted if _is_lying(parameter) else wanted.t()


def make_muon(model: nn.Module, config: MuonConfig, peak: float) -> tuple[Muon, GroupSizes]:
    """Builds the optimizer over a model's parameters; `peak` is the schedule's."""
    decayed, undecayed = parameter_groups(model.named_parameters())
    matrices = [(name, p) for name, p in decayed if takes_part(name, p)]
    rest = [(name, p) for name, p in decayed if not takes_part(name, p)]
    group = {
        "params": [p for _, p in matrices],
        "weight_decay": config.weight_decay,
        "momentum": config.momentum,
        "keeps": MUON_STATE,
        "factor": config.matrix_learning_rate / peak,
    }
    return Muon([group, *adamw_groups(rest, undecayed, config)]), sizes(decayed, undecayed)


def takes_part(name: str, parameter: nn.Parameter) -> bool:
    """True for the matrices inside blocks; tables, the head's own matrix and vectors are AdamW's."""
    return parameter.ndim == 2 and "blocks." in name


def orthogonalised(
    stack: Float[Tensor, "matrices rows columns"], n_steps: int = N_STEPS
) -> Float[Tensor, "matrices rows columns"]:
    """Gives about U V^T of each U S V^T: X <- a X + (b A + c A^2) X with A = X X^T, X / |X| at first. Rows <= columns.

    Where a matrix lies at least twice as wide as high, the steps are done on A alone, which is small: X_k = Q_k X_0, and
    Q_k+1 = P Q_k, A_k+1 = P A_k P with P = a I + b A_k + c A_k^2. The same numbers but for rounding.
    Local axes: matrices, rows, columns.
    """
    a, b, c = COEFFICIENTS
    x: Tensor = stack / (torch.linalg.matrix_norm(stack, keepdim=True) + NORM_EPS)
    rows, columns = x.shape[-2:]
    if columns < 2 * rows:
        for _ in range(n_steps):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return x
    gram = x @ x.mT
    unit = a * torch.eye(rows, dtype=x.dtype, device=x.device)
    product: Tensor | None = None
    for number in range(n_steps):
        p = torch.baddbmm(gram, gram, gram, beta=b, alpha=c) + unit
        product = p if product is None else p @ product
        if number < n_steps - 1:
            gram = p @ gram @ p
    assert product is not None
    return torch.bmm(product, x)


def _is_lying(parameter: nn.Parameter) -> bool:
    return parameter.shape[0] <= parameter.shape[1]


def _by_shape(parameters: list[nn.Parameter]) -> dict[tuple[int, int], list[nn.Parameter]]:
    """Those that can be stacked: of one shape when lying."""
    found: dict[tuple[int, int], list[nn.Parameter]] = {}
    for parameter in parameters:
        low, high = sorted(parameter.shape)
        found.setdefault((low, high), []).append(parameter)
    return found
