"""A trainer's state as named tensors, and back: what must be saved so that a run goes on as if it had never stopped.

Data order, schedule and dropout are functions of seed and step, so parameters, moments and a few numbers are all there
is. The next file to read is run_folder.py, which puts it on disk.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from unembed.errors import CheckpointError


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter by its clean name, a shared one once."""
    return {clean(name): parameter.detach() for name, parameter in model.named_parameters()}


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Every tensor of the optimizer's state as `<parameter>.<entry>`, such as `embed.table.exp_avg`."""
    found: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        for entry, value in optimizer.state.get(parameter, {}).items():
            found[f"{clean(name)}.{entry}"] = value
    return found


def restore_model(model: nn.Module, weights: Mapping[str, Tensor], *, where: str) -> None:
    """Copies saved weights into the parameters. Raises: CheckpointError unless names and shapes agree exactly."""
    parameters = {clean(name): parameter for name, parameter in model.named_parameters()}
    missing, surplus = sorted(set(parameters) - set(weights)), sorted(set(weights) - set(parameters))
    if missing or surplus:
        raise CheckpointError(
            f"{where}: {len(missing)} parameters are missing from the file {missing[:4]}, and {len(surplus)} tensors "
            f"have no place in the model {surplus[:4]}. Is run.json of the same run?"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise CheckpointError(
                    f"{where}: {name} has shape {list(weights[name].shape)}, the model needs {list(parameter.shape)}"
                )
            parameter.copy_(weights[name])


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], *, where: str
) -> None:
    """Puts saved moments and step counts back. Raises: CheckpointError when a tensor belongs to no parameter."""
    parameters = {clean(name): parameter for name, parameter in model.named_parameters()}
    optimizer.state.clear()
    for name, value in tensors.items():
        owner, _, entry = name.rpartition(".")
        if owner not in parameters:
            raise CheckpointError(f"{where}: optimizer tensor {name!r} belongs to no parameter of the model")
        optimizer.state[parameters[owner]][entry] = value.clone()


def clean(name: str) -> str:
    """A parameter's name without what compiling or wrapping put before it."""
    return name.replace("_orig_mod.", "").removeprefix("module.")
