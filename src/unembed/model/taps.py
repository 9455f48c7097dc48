"""Looking at any step of the computation, and changing it: a tap is an argument, never a hook.

A tap is called with a name and a tensor at each named step and returns the tensor that the computation goes on with.
Inside a block the names are local (`resid_mid`); block i is handed `tap.inside(i)`, so a full name reads
`blocks.3.resid_mid`. For `no_tap`, `inside` gives itself: all blocks then look the same to a compiler, and one compiled
graph serves them all. Nothing is attached to the model, so nothing can be left behind when a tap raises.

The next file to read is embed.py, where a token's way begins.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import torch
from torch import Tensor

from unembed.errors import TapError, did_you_mean
from unembed.model.spec import Block, GatedMlp, Learned, Parallel, Rotary, Sinusoidal, TransformerSpec

# The spec and attention path whose names a tap was last held against.
Checked = tuple[TransformerSpec, str | None] | None


class Tap(Protocol):
    """What a forward calls at each named step."""

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        """Takes the tensor of a step and returns the one to go on with (the same, to only look)."""
        ...

    def inside(self, layer: int, /) -> "Tap":
        """The tap that block `layer` is handed; it is called with local names."""
        ...


class NoTap:
    """Looks at nothing: what a forward uses unless it is given something else."""

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        """Returns the very tensor that came."""
        return value

    def inside(self, layer: int, /) -> "NoTap":
        """Itself, for every layer."""
        return self


no_tap: Final = NoTap()


def one_use(table: Tensor) -> Tensor:
    """The same numbers as a tensor of its own, for a tap: a gradient asked for there is that of this use alone.

    An alias, not a view: its gradient is passed on as it is, so where two uses meet the second can be added in place.
    """
    alias: Tensor = torch.ops.aten.alias(table)
    return alias


class Recorder:
    """Keeps the tensors of the named steps, or of all steps, in the order in which they came.

    `values` holds the live tensors, gradients attached; with `detach=True` it holds them without. Names may use `*` for
    one layer number: `blocks.*.resid_post`. A forward refuses names that it would never call (`begin`).
    """

    def __init__(self, names: Iterable[str] | None = None, *, detach: bool = False) -> None:
        self.values: dict[str, Tensor] = {}
        self.names = None if names is None else _listed(names)
        self._patterns = None if self.names is None else [_pattern(name) for name in self.names]
        self._detach = detach
        self.checked_for: Checked = None

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        """Keeps the value if its name is wanted, and passes it on unchanged."""
        if self._patterns is None or any(pattern.fullmatch(name) for pattern in self._patterns):
            self.values[name] = value.detach() if self._detach else value
        return value

    def inside(self, layer: int, /) -> Tap:
        """A view of this recorder that writes the layer's number before each name."""
        return _Inside(self, layer)


class Edit:
    """Replaces the tensors of the named steps by what a function makes of them.

    Names may use `*` for one layer number. Where several names match a step, the one without `*` wins, then the first.
    A forward refuses names that it would never call (`begin`).

    >>> import torch
    >>> zero = Edit({"blocks.0.attn_out": torch.zeros_like})
    >>> zero.inside(0)("attn_out", torch.ones(2)).tolist()
    [0.0, 0.0]
    """

    def __init__(self, edits: Mapping[str, Callable[[Tensor], Tensor]]) -> None:
        self.names = _listed(edits)
        if wrong := [name for name, edit in edits.items() if not callable(edit)]:
            raise TapError(
                f"tap {wrong[0]!r}: its edit is no function. Give one that takes the tensor and returns another."
            )
        self._edits = dict(edits)
        self._patterns = [(_pattern(name), edit) for name, edit in edits.items() if "*" in name]
        self.checked_for: Checked = None

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        """Applies the edit of that name, if there is one. Raises: TapError if it returns no tensor of the same shape."""
        edit = self._edits.get(name) or next((edit for one, edit in self._patterns if one.fullmatch(name)), None)
        if edit is None:
            return value
        changed = edit(value)
        if not isinstance(changed, Tensor):
            raise TapError(
                f"tap {name}: the edit returned {type(changed).__name__}, expected a tensor. Does it end in a return?"
            )
        if changed.shape != value.shape:
            raise TapError(
                f"tap {name}: the edit returned shape {list(changed.shape)}, but the step has {list(value.shape)}. "
                "Return a tensor of the same shape."
            )
        return changed

    def inside(self, layer: int, /) -> Tap:
        """A view of these edits for one layer."""
        return _Inside(self, layer)


class _Inside:
    """Writes `blocks.<layer>.` before each local name and passes the call on."""

    def __init__(self, outer: Tap, layer: int) -> None:
        self._outer, self._prefix = outer, f"blocks.{layer}."

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        return self._outer(self._prefix + name, value)

    def inside(self, layer: int, /) -> Tap:
        raise TapError(f"tap {self._prefix}: a block holds no blocks, so it has no layer {layer}")


def begin(tap: Tap, spec: TransformerSpec, attention: str | None) -> None:
    """What a forward calls first: names of a Recorder or an Edit that this model does not have are refused, once a model.

    Where only the head is called there is no attention path (None). Other taps are asked nothing.
    Raises: TapError, as `check_names`.
    """
    if isinstance(tap, Recorder | Edit) and tap.names is not None:
        # the very objects, not equal ones: comparing two specs costs more than the check that it would spare
        known = tap.checked_for
        if known is not None and known[0] is spec and attention in (None, known[1]):
            return
        check_names(spec, tap.names, attention=attention or "explicit")
        tap.checked_for = (spec, attention)


def tap_names(spec: TransformerSpec, *, attention: str = "explicit") -> list[str]:
    """Lists every name that a forward of this model calls a tap with, in the order of the calls.

    The fused attention path computes scores and pattern inside one kernel, so it has no `attn_scores`, `attn_pattern`.
    """
    names = ["embed.table", "embed"]
    if isinstance(spec.embedding.position, Learned | Sinusoidal):
        names.append("pos_embed")
    for index, block in enumerate(spec.blocks):
        names += [f"blocks.{index}.{name}" for name in _block_names(block, attention)]
    return [*names, "final_norm", "unembed.table", "logits"]


def names_matching(spec: TransformerSpec, name: str, *, attention: str = "explicit") -> list[str]:
    """The names of this model that one name stands for: itself, or with `*` for a layer's number, those of many layers."""
    pattern = _pattern(name)
    return [one for one in tap_names(spec, attention=attention) if pattern.fullmatch(one)]


def check_names(spec: TransformerSpec, names: Iterable[str], *, attention: str = "explicit") -> None:
    """Refuses names that no forward would call. Raises: TapError saying why the name does not exist here."""
    known = tap_names(spec, attention=attention)
    for name in names:
        if any(_pattern(name).fullmatch(one) for one in known):
            continue
        local = name.rsplit(".", 1)[-1]
        if local in ("attn_scores", "attn_pattern") and attention != "explicit":
            reason = "the fused attention path has no such step; run with attention='explicit'"
        elif local == "resid_mid" and any(isinstance(block.residual, Parallel) for block in spec.blocks):
            reason = "parallel blocks add attention and MLP at once and have no resid_mid"
        else:
            asked = [re.sub(r"^blocks\.\d+\.", "blocks.*.", one) for one in known] if "*" in name else known
            hint = did_you_mean(name, dict.fromkeys(asked), "", n=2, cutoff=0.6)
            reason = f"this model has, among others: {', '.join(known[:4])}, ..., {known[-1]}. {hint}".rstrip()
        raise TapError(f"tap {name!r}: {reason}")


def _block_names(block: Block, attention: str) -> list[str]:
    rotates = isinstance(block.attention.position, Rotary)
    names = ["resid_pre", "attn_in", "q", "k", "v", *(["q_rot", "k_rot"] if rotates else [])]
    names += ["attn_scores", "attn_pattern"] if attention == "explicit" else []
    names += ["z", "attn_out"]
    if not isinstance(block.residual, Parallel):
        names.append("resid_mid")
    names += ["mlp_in", "mlp_pre", *(["mlp_up"] if isinstance(block.mlp, GatedMlp) else []), "mlp_act", "mlp_out"]
    return [*names, "resid_post"]


def _listed(names: Iterable[str]) -> list[str]:
    """The names as a list. Raises: TapError for a text, whose letters would be taken for names, and for what is no text."""
    if isinstance(names, str):
        raise TapError(f"taps: got the text {names!r}, expected a list of names. Write [{names!r}]")
    listed = list(names)
    if wrong := [name for name in listed if not isinstance(name, str)]:
        raise TapError(f"taps: {wrong[0]!r} is no name; names are texts such as 'blocks.0.resid_post'")
    return listed


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\*", r"\d+"))
