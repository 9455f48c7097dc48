"""What rounded weights do to a model's scores, measured: on the user's own tokens, beside the exact model.

The next file to read is ../../lenses/logit_lens.py.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.generation.checks import check_ids
from unembed.generation.weights.copies import derived_bytes
from unembed.model.kv_cache import KvCache
from unembed.model.transformer import Transformer
from unembed.results import Result, Table

COLUMNS = ("position", "id", "kl_nats", "worst_logit_difference", "greedy_id", "exact_greedy_id")


@torch.no_grad()
def rounding_error(exact: Transformer, other: Transformer, ids: Sequence[int]) -> Result:
    """How far two models of one spec are apart on a text, `other` reading it token by token as when it writes.

    The table `positions` has a row for each token: KL(exact || other) of the next-token distributions in nats, the largest
    difference of two logits (after each row's mean is taken away, for a constant changes nothing), and both greedy choices.
    Values: `n_positions`, `worst_logit_difference`, `kl_nats` (the mean), `worst_kl_nats`, `greedy_agreement` (a share), and
    `derived_bytes`, what `other` holds beside the exact weights. At most the context's length is read.
    Raises: InputError as generation does.
    """
    seen = check_ids(ids, exact.spec.embedding.vocab_size)[: exact.spec.context_length]
    tensor = torch.tensor([seen], device=exact.embed.table.device)
    # where old keys change as a text grows, one forward over the whole text tells nothing of its beginnings
    own = (exact(tensor)[0] if exact.can_cache else _stepped(exact, tensor)).double().cpu()
    made = _stepped(other, tensor).double().cpu()
    kl = _kl(own, made)
    apart = (_centred(own) - _centred(made)).abs().amax(-1)
    greedy, exact_greedy = made.argmax(-1), own.argmax(-1)
    columns: dict[str, Any] = dict(
        zip(
            COLUMNS,
            (list(range(len(seen))), seen, kl.tolist(), apart.tolist(), greedy.tolist(), exact_greedy.tolist()),
            strict=True,
        )
    )
    values = {
        "n_positions": len(seen),
        "worst_logit_difference": float(apart.max()),
        "kl_nats": float(kl.mean()),
        "worst_kl_nats": float(kl.max()),
        "greedy_agreement": float((greedy == exact_greedy).double().mean()),
        "derived_bytes": derived_bytes(other),
    }
    units = {"kl_nats": "nats", "worst_logit_difference": "nats"}
    return Result(name="rounding", values=values, tables={"positions": Table(columns=columns, units=units)})


def _stepped(model: Transformer, ids: Tensor) -> Float[Tensor, "pos vocab"]:
    """The logits after each token, the tokens being read one at a time."""
    if not model.can_cache:
        return torch.cat([model(ids[:, : end + 1])[0, -1:] for end in range(ids.shape[1])])
    table = model.embed.table
    cache = KvCache(model.spec, batch=1, capacity=ids.shape[1], dtype=table.dtype, device=table.device)
    return torch.cat([model(ids[:, at : at + 1], cache=cache)[0] for at in range(ids.shape[1])])


def _kl(own: Float[Tensor, "pos vocab"], other: Float[Tensor, "pos vocab"]) -> Float[Tensor, " pos"]:
    logp, logq = own.log_softmax(-1), other.log_softmax(-1)
    return (logp.exp() * (logp - logq)).sum(-1).clamp(min=0.0)


def _centred(logits: Float[Tensor, "pos vocab"]) -> Float[Tensor, "pos vocab"]:
    return logits - logits.mean(-1, keepdim=True)
