"""Attention: each position gathers values from the positions it may see, weighted by how well query and key match.

Two paths compute the same function. The explicit one is the formula, step by step, and every step has a tap; the fused
one hands q, k and v to torch's kernel, which keeps neither scores nor pattern. A soft cap on the scores exists in the
explicit path only, so such layers always take it. The next file to read is kv_cache.py.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from unembed.model.kv_cache import LayerCache
from unembed.model.linear import Projection
from unembed.model.masks import Visibility
from unembed.model.norms import make_norm
from unembed.model.positions.rotary import Tables, rotate
from unembed.model.spec import Attention, Rotary
from unembed.model.taps import Tap

AttentionPath = Literal["fused", "explicit"]


class AttentionModule(nn.Module):
    """z = softmax(score_scale * q k^T + bias, over the visible keys) v, then o_proj over all heads side by side.

    With n_kv_heads < n_heads, key and value head j serves query heads j * g ... (j + 1) * g - 1, g = n_heads / n_kv_heads.
    """

    def __init__(self, spec: Attention, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        width, kv_width = spec.n_heads * spec.d_head, spec.n_kv_heads * spec.d_head
        self.q_proj = Projection(d_model, width, has_bias="q" in spec.biases)
        self.k_proj = Projection(d_model, kv_width, has_bias="k" in spec.biases)
        self.v_proj = Projection(d_model, kv_width, has_bias="v" in spec.biases)
        self.o_proj = Projection(width, d_model, has_bias="o" in spec.biases)
        self.q_norm = None if spec.qk_norm is None else make_norm(spec.qk_norm, spec.d_head)
        self.k_norm = None if spec.qk_norm is None else make_norm(spec.qk_norm, spec.d_head)

    def forward(
        self,
        attn_in: Float[Tensor, "batch pos d_model"],
        visibility: Visibility,
        tables: Tables | None,
        cache: LayerCache | None,
        tap: Tap,
        path: AttentionPath,
        dropout: float,
    ) -> Float[Tensor, "batch pos d_model"]:
        """All heads, mixed back to the width of the stream. Dropout, a share of the pattern, is 0 outside training."""
        q, k, v = self._heads(attn_in, tables, tap)
        # heads before positions: from here on each head is a little attention of its own
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if cache is not None:
            k, v = cache.extend(k, v)
        if path == "explicit" or self.spec.score_softcap is not None:
            z = self._explicit(q, k, v, visibility, tap, dropout, names_steps=path == "explicit")
        else:
            z = self._fused(q, k, v, visibility, dropout)
        if visibility.has_view is not None:
            z = z.masked_fill(~visibility.has_view, 0.0)
        z = tap("z", z.transpose(1, 2))
        out: Tensor = self.o_proj(z.flatten(-2))
        return out

    def _heads(
        self, attn_in: Float[Tensor, "batch pos d_model"], tables: Tables | None, tap: Tap
    ) -> tuple[
        Float[Tensor, "batch pos head d_head"],
        Float[Tensor, "batch pos kv_head d_head"],
        Float[Tensor, "batch pos kv_head d_head"],
    ]:
        """Projects, splits into heads, normalises q and k if the spec says so, and turns them by their positions."""
        d_head = self.spec.d_head
        batch_and_pos, n_kv = attn_in.shape[:-1], self.spec.n_kv_heads
        q, k, v = self._projected(attn_in)
        q = q.view(*batch_and_pos, self.spec.n_heads, d_head)
        k, v = k.view(*batch_and_pos, n_kv, d_head), v.view(*batch_and_pos, n_kv, d_head)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = tap("q", q), tap("k", k), tap("v", v)
        if isinstance(self.spec.position, Rotary) and tables is not None:
            q = tap("q_rot", rotate(self.spec.position, q, tables))
            k = tap("k_rot", rotate(self.spec.position, k, tables))
        return q, k, v

    def _projected(self, attn_in: Float[Tensor, "batch pos d_model"]) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of each position, all heads side by side."""
        return self.q_proj(attn_in), self.k_proj(attn_in), self.v_proj(attn_in)

    def _fused(
        self,
        q: Float[Tensor, "batch head pos d_head"],
        k: Float[Tensor, "batch kv_head key_pos d_head"],
        v: Float[Tensor, "batch kv_head key_pos d_head"],
        visibility: Visibility,
        dropout: float,
    ) -> Float[Tensor, "batch head pos d_head"]:
        mask: Tensor | None = visibility.visible
        if visibility.bias is not None:
            mask = visibility.bias if mask is None else visibility.bias.masked_fill(~mask, float("-inf"))
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=dropout,
            is_causal=visibility.is_causal,
            scale=self.spec.score_scale,
            enable_gqa=self.spec.n_kv_heads != self.spec.n_heads,
        )

    def _explicit(
        self,
        q: Float[Tensor, "batch head pos d_head"],
        k: Float[Tensor, "batch kv_head key_pos d_head"],
        v: Float[Tensor, "batch kv_head key_pos d_head"],
        visibility: Visibility,
        tap: Tap,
        dropout: float,
        *,
        names_steps: bool,
    ) -> Float[Tensor, "batch head pos d_head"]:
        group = self.spec.n_heads // self.spec.n_kv_heads
        if group > 1:
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = q @ k.transpose(-1, -2) * self.spec.score_scale
        if (cap := self.spec.score_softcap) is not None:
            scores = cap * torch.tanh(scores / cap)
        if visibility.bias is not None:
            scores = scores + visibility.bias
        hidden = ~visibility.visible if visibility.visible is not None else None
        if visibility.is_causal:
            n = scores.shape[-1]
            hidden = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu(1)
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        scores = tap("attn_scores", scores) if names_steps else scores
        # float32 at least: half-precision sums lose whole tokens past a few hundred keys
        wide = torch.float32 if scores.dtype in (torch.float16, torch.bfloat16) else scores.dtype
        pattern = scores.softmax(dim=-1, dtype=wide).to(q.dtype)
        pattern = tap("attn_pattern", pattern) if names_steps else pattern
        return F.dropout(pattern, dropout, training=dropout > 0) @ v
