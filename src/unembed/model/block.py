"""One block: how attention and MLP meet the residual stream. Here alone the topology is written down.

    pre                      post                     both (sandwich)          parallel
    x ──┬─ norm ─ attn ─┐    x ──┬─ attn ─┐           x ──┬─ norm ─ attn ─ norm ─┐   x ──┬─ norm ─ attn ─┐
        └───────────────+        └────────+─ norm         └──────────────────────+       ├─ norm' ─ mlp ─┤
    then the same with mlp   then the same with mlp   then the same with mlp             └───────────────+

`no_shortcut` is `pre` without the lower line. The next file to read is head.py.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from unembed.model.attention import AttentionModule, AttentionPath
from unembed.model.counts import norm_names
from unembed.model.kv_cache import LayerCache
from unembed.model.masks import Visibility
from unembed.model.mlp import MlpModule
from unembed.model.norms import make_norm
from unembed.model.positions.rotary import Tables
from unembed.model.spec import Block, NoShortcut, Parallel
from unembed.model.taps import Tap


class BlockModule(nn.Module):
    """Adds attention and MLP to the stream in the way that the spec's `residual` says."""

    def __init__(self, spec: Block, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        names = norm_names(spec)
        self.attn_norm = make_norm(spec.norm, d_model) if "attn_norm" in names else None
        self.attn = AttentionModule(spec.attention, d_model)
        self.attn_post_norm = make_norm(spec.norm, d_model) if "attn_post_norm" in names else None
        self.mlp_norm = make_norm(spec.norm, d_model) if "mlp_norm" in names else None
        self.mlp = MlpModule(spec.mlp, d_model)
        self.mlp_post_norm = make_norm(spec.norm, d_model) if "mlp_post_norm" in names else None
        self._is_sandwich = "attn_norm" in names and "attn_post_norm" in names

    def forward(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        visibility: Visibility,
        tables: Tables | None,
        cache: LayerCache | None,
        tap: Tap,
        path: AttentionPath,
        dropout: float,
    ) -> Float[Tensor, "batch pos d_model"]:
        """The stream after this block. `attn_out` and `mlp_out` are the very vectors that it takes up.

        Dropout zeroes shares of both, in training only.
        """
        resid = tap("resid_pre", resid)
        attn_in = tap("attn_in", resid if self.attn_norm is None else self.attn_norm(resid))
        attn = self.attn(attn_in, visibility, tables, cache, tap, path, dropout)
        attn_out = tap("attn_out", self._update(attn, self.attn_post_norm, dropout))
        if isinstance(self.spec.residual, Parallel):
            mlp_in = tap("mlp_in", attn_in if self.mlp_norm is None else self.mlp_norm(resid))
            mlp_out = tap("mlp_out", self._update(self.mlp(mlp_in, tap), None, dropout))
            return tap("resid_post", resid + attn_out + mlp_out)
        resid_mid = tap("resid_mid", self._meet(resid, attn_out, self.attn_post_norm))
        mlp_in = tap("mlp_in", resid_mid if self.mlp_norm is None else self.mlp_norm(resid_mid))
        mlp_out = tap("mlp_out", self._update(self.mlp(mlp_in, tap), self.mlp_post_norm, dropout))
        return tap("resid_post", self._meet(resid_mid, mlp_out, self.mlp_post_norm))

    def _update(
        self, raw: Float[Tensor, "batch pos d_model"], post_norm: nn.Module | None, dropout: float
    ) -> Float[Tensor, "batch pos d_model"]:
        """What a sublayer gives to the stream: its output, normalised first in a sandwich."""
        update: Tensor = post_norm(raw) if post_norm is not None and self._is_sandwich else raw
        return F.dropout(update, dropout) if dropout > 0 else update

    def _meet(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        update: Float[Tensor, "batch pos d_model"],
        post_norm: nn.Module | None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """Puts one sublayer's update onto the stream: serial and no-shortcut blocks."""
        if isinstance(self.spec.residual, NoShortcut):
            return update
        summed = resid + update
        if post_norm is None or self._is_sandwich:
            return summed
        out: Tensor = post_norm(summed)
        return out
