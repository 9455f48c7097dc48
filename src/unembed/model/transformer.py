"""The whole model: ids -> hidden states -> scores. One class for every family; the spec says which function it is.

`hidden` runs the embedding and the blocks, `unembed` the final norm and the head, `forward` one after the other. What
holds for all layers of a forward (positions, masks, rotary tables) is worked out here, once for each distinct rule.
The next file to read is init.py, which gives every parameter its first value.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unembed.errors import ShapeError, SpecError
from unembed.model.attention import AttentionPath
from unembed.model.block import BlockModule
from unembed.model.check import check
from unembed.model.embed import Embed
from unembed.model.head import Head
from unembed.model.kv_cache import KvCache
from unembed.model.masks import Keys, visibility
from unembed.model.norms import make_norm
from unembed.model.positions.learned import check_length
from unembed.model.positions.rotary import Tables, rotary_tables
from unembed.model.spec import Attention, DynamicScaling, Learned, Rotary, TransformerSpec
from unembed.model.taps import Tap, begin, no_tap


class Transformer(nn.Module):
    """A transformer language model, causal or masked; its parameters get their values from init.py or a file.

    The model has no training mode: dropout is an argument of the call, 0 unless a training loop says otherwise.
    `tokenizer` is what made the ids, `start_ids` what a text without a prompt begins with, `load_report` what loading
    decided, each when whoever loaded the model knows it; the model itself asks for none of them.
    """

    tokenizer: Any = None
    start_ids: tuple[int, ...] | None = None
    load_report: Any = None
    special_ids: Any = (
        None  # bos_token_id, eos_token_id (one or several), pad_token_id, where a file's config names them
    )

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        self.spec = check(spec)
        d_model = spec.embedding.d_model
        self.embed = Embed(spec.embedding)
        self.blocks = nn.ModuleList(BlockModule(block, d_model) for block in spec.blocks)
        self.final_norm = None if spec.final_norm is None else make_norm(spec.final_norm, d_model)
        # most models have one attention rule for all layers, Gemma has two: each is worked out once per forward
        self._rules = list(dict.fromkeys(block.attention for block in spec.blocks))
        self._rule_of_layer = [self._rules.index(block.attention) for block in spec.blocks]
        self.head = Head(spec.head, spec.embedding.vocab_size, d_model)

    def forward(
        self,
        ids: Int[Tensor, "batch pos"],
        *,
        mask: Bool[Tensor, "batch pos"] | None = None,
        token_types: Int[Tensor, "batch pos"] | None = None,
        cache: KvCache | None = None,
        tap: Tap = no_tap,
        attention: AttentionPath = "fused",
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch pos vocab"]:
        """Logits for every position, in nats before normalisation.

        `mask` is True at real tokens and False at padding, on either side. Raises: ShapeError as `hidden` does.
        """
        resid = self.hidden(
            ids, mask=mask, token_types=token_types, cache=cache, tap=tap, attention=attention, dropout=dropout
        )
        return self.unembed(resid, tap=tap)

    def hidden(
        self,
        ids: Int[Tensor, "batch pos"],
        *,
        mask: Bool[Tensor, "batch pos"] | None = None,
        token_types: Int[Tensor, "batch pos"] | None = None,
        cache: KvCache | None = None,
        tap: Tap = no_tap,
        attention: AttentionPath = "fused",
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch pos d_model"]:
        """The residual stream after the last block, before the final norm.

        With a cache, `ids` are the tokens after those it holds. Raises: ShapeError when ids have no row in the
        table, or when learned positions end before the sequence does.
        """
        if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise ShapeError(f"model: ids are {_kind(ids)}, expected a tensor of whole numbers, [batch, pos]")
        if ids.ndim != 2 or (mask is not None and mask.shape != ids.shape):
            shape = "" if mask is None else f", mask of shape {list(mask.shape)}"
            raise ShapeError(
                f"model: ids of shape {list(ids.shape)}{shape}; both must be [batch, pos]. One text is ids[None]"
            )
        begin(tap, self.spec, attention)
        positions, n_tokens = self._positions(ids, mask, cache)
        keys = self._keys(len(ids), positions, mask, cache)
        resid: Tensor = self.embed(ids, positions, mask, token_types, tap, self.head.factor)
        resid = F.dropout(resid, dropout) if dropout > 0 else resid
        views = [visibility(rule, keys, resid.dtype) for rule in self._rules]
        tables = [_tables(rule, positions, n_tokens, resid.dtype) for rule in self._rules]
        for layer, (block, rule) in enumerate(zip(self.blocks, self._rule_of_layer, strict=True)):
            layer_cache = None if cache is None else cache.layer(layer)
            resid = block(resid, views[rule], tables[rule], layer_cache, tap.inside(layer), attention, dropout)
        if cache is not None:
            cache.advance(ids.shape[1])
        return resid

    def normed(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The final norm of a residual stream, or the stream itself when the model has none."""
        return resid if self.final_norm is None else self.final_norm(resid)

    def unembed(
        self, resid: Float[Tensor, "batch pos d_model"], *, tap: Tap = no_tap
    ) -> Float[Tensor, "batch pos vocab"]:
        """Scores every vocabulary entry at every position, in nats before normalisation: final norm, then head.

        It takes any residual stream of this model, which is what the logit lens lives on. Raises: ShapeError.
        """
        if not isinstance(resid, Tensor) or resid.ndim != 3 or not resid.is_floating_point():
            raise ShapeError(
                f"unembed: the stream is {_kind(resid)}, expected a tensor of numbers, [batch, pos, d_model]"
            )
        if resid.shape[-1] != self.spec.embedding.d_model:
            raise ShapeError(
                f"unembed: the stream is {resid.shape[-1]} wide, the table {self.spec.embedding.d_model}. "
                "Was it taken from another model?"
            )
        begin(tap, self.spec, None)
        logits: Tensor = self.head(tap("final_norm", self.normed(resid)), self.embed.table, tap)
        return logits

    @property
    def can_cache(self) -> bool:
        """False where old keys change as a text grows, so none can be kept.

        Dynamic rotary scaling changes their angles; token dropout scales all vectors by the share of masks so far.
        """
        is_dynamic = any(isinstance(_scaling(block.attention), DynamicScaling) for block in self.spec.blocks)
        return not is_dynamic and self.spec.embedding.token_dropout is None

    def unembed_table(self) -> Float[Tensor, "vocab d_model"]:
        """The matrix that un-embeds: the embedding's own when tied, the head's otherwise."""
        return self.embed.table if self.head.table is None else self.head.table

    def _positions(
        self, ids: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"] | None, cache: KvCache | None
    ) -> tuple[Int[Tensor, "#batch pos"], Int[Tensor, "#batch"]]:
        """Each token's position among the real tokens of its sequence, and how many of those there are by now."""
        n_new, n_before = ids.shape[1], 0 if cache is None else cache.length
        is_padded = mask is not None or (cache is not None and cache.has_padding)
        if not is_padded:
            positions = torch.arange(n_before, n_before + n_new, device=ids.device)[None]
            n_tokens = torch.full((1,), n_before + n_new, device=ids.device)
        else:
            real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
            before = real.new_zeros(ids.shape[0], dtype=torch.long) if cache is None else cache.n_real()
            counted = before[:, None] + real.cumsum(-1)
            positions, n_tokens = (counted - 1).clamp(min=0), counted[:, -1]
        learned = self.spec.embedding.position
        if isinstance(learned, Learned):
            # only padding can make the longest sequence shorter than the batch is wide; then it has to be looked up
            longest = n_before + n_new
            if is_padded and longest > learned.room:
                longest = int(n_tokens.max())
            check_length(learned, longest)
        return positions, n_tokens

    def _keys(
        self,
        n_sequences: int,
        positions: Int[Tensor, "#batch pos"],
        mask: Bool[Tensor, "batch pos"] | None,
        cache: KvCache | None,
    ) -> Keys:
        """Where this forward's keys stand: its own tokens, after those that the cache holds."""
        if cache is None:
            return Keys(positions, positions, mask)
        if not self.can_cache:
            raise SpecError(
                "cache: dynamic rotary scaling and token dropout change old keys as a text grows, so cached keys would be "
                "wrong; run without a cache"
            )
        cache.check_fits(self.spec, self.embed.table)
        cache.begin(positions.expand(n_sequences, -1), mask)
        end = cache.length + positions.shape[1]
        is_real = cache.is_real[:, :end] if cache.has_padding else None
        return Keys(positions, cache.positions[:, :end] if cache.has_padding else cache.positions[:1, :end], is_real)


def _kind(value: object) -> str:
    """What somebody gave where a tensor of another kind belongs."""
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else repr(value)[:60]


def _scaling(attention: Attention) -> object:
    return attention.position.scaling if isinstance(attention.position, Rotary) else None


def _tables(
    attention: Attention, positions: Int[Tensor, "#batch pos"], n_tokens: Int[Tensor, "#batch"], dtype: torch.dtype
) -> Tables | None:
    if not isinstance(attention.position, Rotary):
        return None
    return rotary_tables(attention.position, attention.d_head, positions, n_tokens, dtype)
