"""A trainer's state as named tensors, and back: what must be saved so that a run goes on as if it had never stopped.

Data order, schedule and dropout are functions of seed and step, so parameters, moments and a few numbers are all there
is. The next file to read is native.py, which puts it on disk.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from unembed.checkpoints.run.shards import spread
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
            parameter.copy_(spread(weights[name], parameter))


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], *, where: str
) -> None:
    """Puts saved moments and step counts back; none at all are the state before the first step.

    Raises: CheckpointError when a tensor belongs to no parameter, has another shape than it, or a parameter lacks what
    others of its kind have: it would begin again from zero moments without a word. An optimizer that treats groups
    differently says what each keeps under `keeps`.
    """
    parameters = {clean(name): parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    entries: dict[str, set[str]] = {name: set() for name in parameters}
    for name, value in tensors.items():
        owner, _, entry = name.rpartition(".")
        if owner not in parameters:
            raise CheckpointError(f"{where}: optimizer tensor {name!r} belongs to no parameter of the model")
        if value.ndim and value.shape != parameters[owner].shape:
            raise CheckpointError(
                f"{where}: optimizer tensor {name!r} has shape {list(value.shape)}, its parameter "
                f"{list(parameters[owner].shape)}"
            )
        entries[owner].add(entry)
    keeps = {id(one): set(group.get("keeps", ())) for group in optimizer.param_groups for one in group["params"]}
    every = set().union(*entries.values())
    wanted = {name: (keeps.get(id(one)) or every) if every else every for name, one in parameters.items()}
    if partial := [name for name, found in entries.items() if found != wanted[name]]:
        raise CheckpointError(
            f"{where}: {len(partial)} parameters lack some of the optimizer's tensors {sorted(every)}: {partial[:4]}"
        )
    optimizer.state.clear()
    for name, value in tensors.items():
        owner, _, entry = name.rpartition(".")
        # a copy, where the parameter is: PyTorch steps both by one kernel
        optimizer.state[parameters[owner]][entry] = spread(value, parameters[owner]).to(
            parameters[owner].device, copy=True
        )


def clean(name: str) -> str:
    """A parameter's name without what compiling or wrapping put before it."""
    return name.replace("_orig_mod.", "").removeprefix("module.")
