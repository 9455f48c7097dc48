"""Finds the two matrices of any module: the one that embeds, and the one that scores.

In this order: what the caller names; our own model's places; what a model of transformers says of itself; what a forward is
seen to use (use.py); the modules' shapes. Nothing is written, and no forward of a model that keeps its own word is run. The
next file to read is use.py.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from unembed.errors import InputError, did_you_mean
from unembed.model.transformer import Transformer
from unembed.tying.evidence import clean, is_sharded, unwrapped
from unembed.tying.use import Depends, Seen, watch


class Use(NamedTuple):
    """One of the two matrices under the name of its place; `module` holds it, where that is known."""

    name: str
    tensor: Tensor
    module: nn.Module | None = None


class Pair(NamedTuple):
    """The two matrices of a model and how they were found; `head` is None for a model that scores nothing.

    `computed` says of a head's matrix that no module holds whether it is made from the table in each forward.
    """

    root: nn.Module
    embed: Use
    head: Use | None
    found: str
    computed: Depends | None = None


@runtime_checkable
class TellsTables(Protocol):
    """What models of transformers say of themselves."""

    def get_input_embeddings(self) -> nn.Module | None:
        """The module that embeds."""
        ...

    def get_output_embeddings(self) -> nn.Module | None:
        """The module that scores."""
        ...


def find_tables(
    module: nn.Module,
    *,
    embed: str | Tensor | nn.Module | None = None,
    head: str | Tensor | nn.Module | None = None,
) -> Pair:
    """Finds the pair. Raises: InputError where no matrix embeds, or a given name is none of the model's."""
    root = unwrapped(module)
    if embed is not None:
        given = None if head is None else _given(root, head, "head")
        return Pair(root, _given(root, embed, "embed"), given, "as given")
    if head is not None:
        raise InputError("examine: head was given without embed; give both matrices, or none to have them found")
    if isinstance(root, Transformer):
        own = Use("head.table", root.head.table, root.head) if root.head.table is not None else None
        table = Use("embed.table", root.embed.table, root.embed)
        return Pair(root, table, own or Use("embed.table", root.embed.table, root.head), "the model's own places")
    if isinstance(root, TellsTables) and (found := _told(root)) is not None:
        return found
    return _seen(root) or _by_shape(root)


def _told(root: nn.Module) -> Pair | None:
    assert isinstance(root, TellsTables)
    try:
        source, target = root.get_input_embeddings(), root.get_output_embeddings()
    except (NotImplementedError, AttributeError):  # a class that has the methods and does not fill them
        return None
    table = None if source is None else use_of(root, source)
    if table is None:
        return None
    return Pair(root, table, None if target is None else use_of(root, target), "as the model says")


def _seen(root: nn.Module) -> Pair | None:
    """By use: a forward over two ids is watched. None where it cannot be run that way, or nothing embeds in it."""
    if any(is_sharded(parameter) for parameter in root.parameters()):
        return None  # other processes would have to run along
    seen = watch(root)
    if seen is None or (table := _named(root, seen.table)) is None:
        return None
    head = None if seen.scores is None else _named(root, seen.scores)
    if head is not None or seen.scores is None:
        return Pair(root, table, head or _head_by_shape(root, table), "by use")
    if not seen.depends.moves and (module := _head_by_shape(root, table)) is not None:
        return Pair(root, table, module, "by use, and by shape")
    return Pair(root, table, Use("a matrix made in the forward", seen.scores), "by use", seen.depends)


def _by_shape(root: nn.Module) -> Pair:
    lookups = [(name, one) for name, one in root.named_modules() if isinstance(one, nn.Embedding)]
    if not lookups:
        raise InputError(
            f"{type(root).__name__}: no matrix of it embeds: no forward over ids was seen to look rows up, and there is no "
            'nn.Embedding. Name the two matrices: examine(model, embed="wte.weight", head="lm_head.weight").'
        )
    name, module = max(lookups, key=lambda pair: pair[1].weight.numel())
    table = Use(clean(f"{name}.weight".lstrip(".")), module.weight, module)
    return Pair(root, table, _head_by_shape(root, table), "by shape")


def _head_by_shape(root: nn.Module, table: Use) -> Use | None:
    """The last module whose weight has the table's shape, turned or not, or its width and another number of rows."""
    exact, near = None, None
    rows, width = table.tensor.shape
    for name, module in root.named_modules():
        weight = weight_of(module)
        if weight is None or weight.ndim != 2 or isinstance(module, nn.Embedding):
            continue
        use = Use(clean(f"{name}.weight".lstrip(".")), weight, module)
        if tuple(weight.shape) in ((rows, width), (width, rows)):
            exact = use
        elif weight.shape[1] == width and isinstance(module, nn.Linear) and weight.shape[0] > width:
            near = use
    return exact or near


def weight_of(module: nn.Module) -> Tensor | None:
    """A module's `weight`, which quantised modules of PyTorch give by a call."""
    weight = getattr(module, "weight", None)
    if callable(weight) and not isinstance(weight, Tensor):
        weight = weight()
    return weight if isinstance(weight, Tensor) else None


def use_of(root: nn.Module, module: nn.Module) -> Use | None:
    """The matrix of a module under the module's name in the model."""
    inner = unwrapped(module)
    weight = weight_of(inner)
    if weight is None:
        return None
    name = next((name for name, one in root.named_modules() if one is module), type(module).__name__)
    return Use(clean(f"{name}.weight".lstrip(".")), weight, inner)


def all_names(root: nn.Module, tensor: Tensor) -> list[str]:
    """Every name under which the model holds this very tensor."""
    held = [*root.named_parameters(remove_duplicate=False), *root.named_buffers(remove_duplicate=False)]
    return [clean(name) for name, one in held if one is tensor]


def held_tensors(root: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, buffers and plain attributes that are tensors, each name once."""
    for path, module in root.named_modules():
        held = {**module._parameters, **module._buffers}
        plain = {key: value for key, value in vars(module).items() if isinstance(value, Tensor)}
        for key, value in {**held, **plain}.items():
            if value is not None:
                yield clean(f"{path}.{key}".lstrip(".")), value


def _named(root: nn.Module, tensor: Tensor) -> Use | None:
    """The tensor under its name; one that no module holds has none, unless it is a view of one that is held."""
    held = dict(held_tensors(root))
    for name, one in held.items():
        if one is tensor:
            return Use(name, one)
    base = tensor._base if tensor._is_view() else None
    for name, one in held.items():
        # a table is often used through a view that is made anew in each forward: the parameter is what is meant
        if base is not None and (one is base or one._base is base) and one.numel() == tensor.numel():
            return Use(name, one)
    return None


def _given(root: nn.Module, wanted: str | Tensor | nn.Module, which: str) -> Use:
    if isinstance(wanted, nn.Module):
        found = use_of(root, wanted)
        if found is None:
            raise InputError(
                f"examine: {which} is a {type(wanted).__name__}, which has no weight; give the matrix itself"
            )
        return found
    if isinstance(wanted, Tensor):
        names = all_names(root, wanted)
        return Use(names[0] if names else which, wanted)
    held = dict(held_tensors(root))
    modules = {clean(name): module for name, module in root.named_modules()}
    if wanted in held:
        return Use(wanted, held[wanted])
    if wanted in modules and (use := use_of(root, modules[wanted])) is not None:
        return use
    matrices = [name for name, one in held.items() if one.ndim == 2]
    raise InputError(
        f"examine: {which} is {wanted[:60]!r}, which is no matrix of the model. "
        + did_you_mean(wanted, matrices, f"There are {', '.join(matrices[:6])}.")
    )


__all__ = ["Pair", "Seen", "TellsTables", "Use", "all_names", "find_tables", "held_tensors", "use_of", "weight_of"]
