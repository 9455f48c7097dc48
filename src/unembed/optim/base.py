"""What our optimizers have in common: torch's own class, without what makes it slow to start.

torch's optimizers import its compiler when they are made, which takes 1.6 s, as long as torch itself; a run that compiles
nothing should not wait for it. So the three methods that do it are said again here, plainly. Everything else is torch's:
groups, state, hooks, `state_dict`, and thereby distributed checkpoints and schedulers. The next file to read is adamw.py.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

# What AdamW keeps for each parameter, by torch's names.
ADAMW_STATE = ("step", "exp_avg", "exp_avg_sq")


class LightOptimizer(torch.optim.Optimizer):
    """Groups of parameters, each a list of leaves that no other group has; a group names its own numbers."""

    def __init__(self, groups: Iterable[dict[str, Any]]) -> None:
        # a group without parameters would be one without a meaning: a model without vectors has one group
        super().__init__([{"lr": 0.0, **group} for group in groups if group["params"]], {})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Takes a group as it is. Raises: ValueError when one of its parameters has a group already."""
        params = list(param_group["params"])
        held = {id(one) for group in self.param_groups for one in group["params"]}
        if held & {id(one) for one in params} or len({id(one) for one in params}) < len(params):
            raise ValueError("a parameter appears in more than one place of the optimizer's groups")
        self.param_groups.append({**param_group, "params": params})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets every gradient, or fills it with zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none or parameter.grad is None:
                    parameter.grad = None
                else:
                    parameter.grad.detach_().zero_()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Moves every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.update(group, [one for one in group["params"] if one.grad is not None])
        return loss

    def update(self, group: dict[str, Any], parameters: list[nn.Parameter]) -> None:
        """Moves the parameters of one group by their gradients."""
        raise NotImplementedError

    def update_adamw(self, group: dict[str, Any], parameters: list[nn.Parameter]) -> None:
        """AdamW's step by torch's fused kernel: one pass over each tensor instead of a dozen, with the same formula."""
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        states = [self.state[parameter] for parameter in parameters]
        adamw(
            [*parameters],
            [_gradient(parameter) for parameter in parameters],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
