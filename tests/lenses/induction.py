"""A model of two layers made by hand that does induction and nothing else: what its heads look at is known.

The stream has three stretches: which token stands here, at which position, and which token stood before. Head 0 of layer 0
looks at the position before and copies its token into the third stretch; head 0 of layer 1 looks where the third stretch
holds its own token, which is right after that token's earlier places, and copies the token there as its guess. The other heads
have no weights and look everywhere alike.
"""

import torch

from unembed.model.check import from_plain
from unembed.model.transformer import Transformer

N_TOKENS, N_POSITIONS, STRENGTH = 8, 24, 60.0


def induction_model() -> Transformer:
    """The model, in float64; its vocabulary has eight tokens, its context 24 positions."""
    d_model, d_head = 2 * N_TOKENS + N_POSITIONS, N_POSITIONS
    norm = {"type": "rms_norm", "eps": 1e-9, "gain": "none"}
    attention = {"n_heads": 2, "n_kv_heads": 2, "d_head": d_head, "score_scale": 1.0, "score_softcap": None}
    attention |= {"position": None, "sees": {"type": "causal", "window": None}, "biases": [], "qk_norm": None}
    mlp = {"type": "plain", "d_mlp": 1, "activation": "relu", "has_bias": False}
    block = {"attention": attention, "mlp": mlp, "norm": norm, "residual": {"type": "serial", "norm_at": "pre"}}
    embedding = {"vocab_size": N_TOKENS, "d_model": d_model, "scale": None, "n_token_types": None, "norm": None}
    embedding |= {"position": {"type": "learned", "n_rows": N_POSITIONS, "offset": 0}, "token_dropout": None}
    head = {"type": "untied", "transform": None, "has_bias": False, "scale": None, "softcap": None}
    spec = {"context_length": N_POSITIONS, "embedding": embedding, "blocks": [block, block], "head": head}
    model = Transformer(from_plain({**spec, "final_norm": None})).double()
    token, position = torch.eye(d_model)[:N_TOKENS], torch.eye(d_model)[N_TOKENS : N_TOKENS + N_POSITIONS]
    before = torch.eye(d_model)[N_TOKENS + N_POSITIONS :]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.table.copy_(token)
        model.embed.pos_table.copy_(position)
        model.head.table.copy_(token)
        first, second = (block.attn for block in model.blocks)
        # row r of a head reads what entry r of its q, k or v is
        first.q_proj.weight[: N_POSITIONS - 1] = STRENGTH * position[1:]
        first.k_proj.weight[:N_POSITIONS] = position
        first.v_proj.weight[:N_TOKENS] = token
        first.o_proj.weight[:, :N_TOKENS] = before.T
        second.q_proj.weight[:N_TOKENS] = STRENGTH * token
        # the first position has only itself to look at and takes its own token for the one before: no key for anybody
        second.k_proj.weight[:N_TOKENS] = before - position[0]
        second.v_proj.weight[:N_TOKENS] = token
        second.o_proj.weight[:, :N_TOKENS] = 3 * token.T
    return model
