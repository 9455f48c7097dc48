"""Keys and values that were computed before, so that a new token costs one token's work.

Space is taken once, for a stated capacity. Each layer writes its new keys at the same place; the transformer moves the
place on once per forward, after the last layer, so that layers cannot disagree. The next file to read is block.py.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unembed.errors import ShapeError
from unembed.model.spec import TransformerSpec


class KvCache:
    """Room for `capacity` tokens of `batch` sequences in every layer. Meant for inference: what is stored has no gradient.

    `length` counts the slots that are filled; `positions` and `is_real` tell what stands in each of them, padding
    included, so that prompts of unequal length can share a batch.
    """

    def __init__(
        self, spec: TransformerSpec, *, batch: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        for name, size in (("batch", batch), ("capacity", capacity)):
            if type(size) is not int or size < 1:
                raise ShapeError(f"cache: {name} is {size!r}, expected a whole number, at least 1")
        self.capacity = capacity
        self.length = 0
        self.positions = torch.zeros(batch, capacity, dtype=torch.long, device=device)
        self.is_real = torch.zeros(batch, capacity, dtype=torch.bool, device=device)
        self.has_padding = False
        shapes = [(batch, b.attention.n_kv_heads, capacity, b.attention.d_head) for b in spec.blocks]
        self._made_for = (shapes, dtype, torch.device(device))
        self._keys = [torch.zeros(shape, dtype=dtype, device=device) for shape in shapes]
        self._values = [torch.zeros(shape, dtype=dtype, device=device) for shape in shapes]

    def n_real(self) -> Int[Tensor, " batch"]:
        """How many real tokens each sequence has so far: the position of its next one."""
        return self.is_real[:, : self.length].sum(-1)

    def check_fits(self, spec: TransformerSpec, table: Float[Tensor, "vocab d_model"]) -> None:
        """Raises: ShapeError when this cache was made for a model of other layers or heads, or of another dtype or device."""
        shapes, dtype, device = self._made_for
        heads = [(shape[1], shape[3]) for shape in shapes]
        wanted = [(block.attention.n_kv_heads, block.attention.d_head) for block in spec.blocks]
        if heads != wanted:
            raise ShapeError(
                f"cache: made for {len(heads)} layers with key heads [n_kv_heads, d_head] {_said(heads)}, the model has "
                f"{len(wanted)} with {_said(wanted)}; make it from this model's spec"
            )
        if dtype != table.dtype or device != table.device:
            raise ShapeError(
                f"cache: made for {dtype} on {device}, the model is {table.dtype} on {table.device}; make it for these"
            )

    def begin(self, positions: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"] | None) -> None:
        """Notes where the tokens of the coming forward stand. Raises: ShapeError when they do not fit."""
        n_new = positions.shape[1]
        if positions.shape[0] != self.positions.shape[0]:
            raise ShapeError(f"cache: made for {self.positions.shape[0]} sequences, got {positions.shape[0]}")
        if self.length + n_new > self.capacity:
            raise ShapeError(
                f"cache: holds {self.length} of {self.capacity} tokens and cannot take {n_new} more; "
                "make it with a larger capacity, or start again from the end of the text"
            )
        new = slice(self.length, self.length + n_new)
        self.positions[:, new] = positions
        self.is_real[:, new] = True if mask is None else mask
        self.has_padding = self.has_padding or (mask is not None and not bool(mask.all()))

    def layer(self, layer: int) -> "LayerCache":
        """One layer's part, for the coming forward."""
        return LayerCache(self._keys[layer], self._values[layer], self.length)

    def advance(self, n_new: int) -> None:
        """Moves on past the tokens of this forward; the transformer calls it once, after the last layer."""
        self.length += n_new

    def size_bytes(self) -> int:
        """The bytes taken by keys and values, all layers together."""
        return sum(t.numel() * t.element_size() for t in (*self._keys, *self._values))


def _said(heads: list[tuple[int, int]]) -> str:
    """The kinds of heads that the layers have, each once, three at most."""
    kinds = [list(kind) for kind in dict.fromkeys(heads)]
    return ", ".join(map(str, kinds[:3])) + (", ..." if len(kinds) > 3 else "")


class LayerCache:
    """One layer's part of the cache in one forward. It knows no layer number: to a compiler all layers look the same."""

    def __init__(
        self,
        keys: Float[Tensor, "batch kv_head key_pos d_head"],
        values: Float[Tensor, "batch kv_head key_pos d_head"],
        length: int,
    ) -> None:
        self._keys, self._values, self._length = keys, values, length

    def extend(
        self, k: Float[Tensor, "batch kv_head pos d_head"], v: Float[Tensor, "batch kv_head pos d_head"]
    ) -> tuple[Float[Tensor, "batch kv_head key_pos d_head"], Float[Tensor, "batch kv_head key_pos d_head"]]:
        """Writes new keys and values after those that are there, and gives all of them, old and new."""
        n_new = k.shape[2]
        self._keys.narrow(2, self._length, n_new).copy_(k.detach())
        self._values.narrow(2, self._length, n_new).copy_(v.detach())
        return self._keys.narrow(2, 0, self._length + n_new), self._values.narrow(2, 0, self._length + n_new)
