"""What each block adds to the residual stream: how long the update is, and which way it points.

Attention and MLP apart, in the order in which a token meets them. An update along the stream makes it longer, one against it
takes something away, one across it writes something new; one along the final state is part of what the head reads. Before it:
attribution.py, which says the same of one score. The next file to read is agreement.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity

from unembed.lenses.asking import is_too_long, position_of, refuse_broken, text_of
from unembed.model.spec import Parallel
from unembed.model.taps import Recorder, tap_names
from unembed.model.transformer import Transformer
from unembed.results import Picture, Result, Table

NUMBERS = ("length", "stream_length", "cosine_to_stream", "cosine_to_final")
STEPS = ("resid_pre", "attn_out", "resid_mid", "mlp_out")


@torch.no_grad()
def stream(model: Transformer, ids: Sequence[int], *, position: int | None = None) -> Result:
    """Measures the updates of every block on one text: means over its positions, or those of one position.

    Table `stream`, a row an update: `layer` (a block, from 0), `part` (`attention`, `mlp`), `length` of the update,
    `stream_length` of what it meets, and its cosines to that (`cosine_to_stream`) and to the final state, the stream after the
    last block (`cosine_to_final`). Lengths are Euclidean; an update of no length has the cosine 0. Table `by_position`: the
    same for each position. In a sandwich the update is what its norm lets through; after a post norm the stream is
    normalised with it; without a shortcut it takes the stream's place.
    Values: `embedding_length` and `embedding_cosine_to_final` of what enters the first block, `final_length` of the final
    state. Raises: UsageError; InputError for a state that is no number.
    """
    place = None if position is None else position_of("stream", ids, position)
    recorder = Recorder([name for name in tap_names(model.spec) if name.rpartition(".")[2] in STEPS])
    batch = torch.tensor([list(ids)], device=model.embed.table.device)
    final = model.hidden(batch, tap=recorder)[0].double()
    refuse_broken("stream", final.abs(), "final states")
    seen = {name: value[0].double() for name, value in recorder.values.items()}
    first = seen.get("blocks.0.resid_pre", final)
    updates = [(layer, part, _numbers(*met, final)) for layer, part, met in _updates(model, seen)]
    chosen = slice(None) if place is None else slice(place, place + 1)
    columns: dict[str, Any] = {
        "layer": [layer for layer, _, _ in updates],
        "part": [part for _, part, _ in updates],
        **{name: [float(found[name][chosen].mean()) for _, _, found in updates] for name in NUMBERS},
    }
    return Result(
        name="stream",
        tables={"stream": Table(columns=columns), "by_position": _by_position(updates, model, ids)},
        values={
            "position": place,
            "embedding_length": float(first.norm(dim=-1)[chosen].mean()),
            "embedding_cosine_to_final": float(cosine_similarity(first, final, dim=-1)[chosen].mean()),
            "final_length": float(final.norm(dim=-1)[chosen].mean()),
        },
        notes=is_too_long(model, ids),
        pictures=tuple(
            Picture(key=key, kind="lines", table="stream", x="layer", y=column, color="part")
            for key, column in (("stream_length", "length"), ("stream_direction", "cosine_to_final"))
        ),
    )


def _updates(model: Transformer, seen: dict[str, Tensor]) -> Iterator[tuple[int, str, tuple[Tensor, Tensor]]]:
    """Each update with what it meets, in the order in which they are added; a parallel block adds both to one stream."""
    for layer, block in enumerate(model.spec.blocks):
        at = f"blocks.{layer}."
        before = seen[at + "resid_pre"]
        middle = before if isinstance(block.residual, Parallel) else seen[at + "resid_mid"]
        yield layer, "attention", (seen[at + "attn_out"], before)
        yield layer, "mlp", (seen[at + "mlp_out"], middle)


def _numbers(
    update: Float[Tensor, "pos d_model"], met: Float[Tensor, "pos d_model"], final: Float[Tensor, "pos d_model"]
) -> dict[str, Float[Tensor, " pos"]]:
    return {
        "length": update.norm(dim=-1),
        "stream_length": met.norm(dim=-1),
        "cosine_to_stream": cosine_similarity(update, met, dim=-1),
        "cosine_to_final": cosine_similarity(update, final, dim=-1),
    }


def _by_position(updates: list[tuple[int, str, dict[str, Tensor]]], model: Transformer, ids: Sequence[int]) -> Table:
    n = len(ids)
    texts = [text_of(model, one) for one in ids]
    return Table(
        columns={
            "layer": [layer for layer, _, _ in updates for _ in range(n)],
            "part": [part for _, part, _ in updates for _ in range(n)],
            "position": list(range(n)) * len(updates),
            "token": texts * len(updates),
            **{name: [x for _, _, found in updates for x in found[name].tolist()] for name in NUMBERS},
        }
    )
