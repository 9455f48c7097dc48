"""What `unembed sample` can do to write faster: other weights, guesses, and what is said of both.

The next file to read is ../generation/weights/packing.py.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from unembed.cli.render import say, words
from unembed.errors import InputError
from unembed.visible import counted

if TYPE_CHECKING:
    from unembed.generation.texts import Writing
    from unembed.model.transformer import Transformer

# The error of rounding is measured on so many tokens of the prompt at most: each costs one step of both models.
_MOST_MEASURED = 32
# Below this a model lies in the processor's caches, and how it is stored makes no difference.
_LARGE = 2**24
# Packing them takes about as long as it saves on thirty tokens.
_LONG = 48
# Of the free memory at most this part is spent on it without being asked.
_SPARE = 3
# A forward with guesses costs a processor about so many without: with fewer tokens from each, guessing is slower than nothing.
_PAYS = 1.5


def weight_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --weights and --lookup to a command."""
    weights = click.option(
        "--weights",
        type=click.Choice(["float32", "bfloat16", "float16", "int8"]),
        help="What new tokens are computed with. float32, the default, is the model's own numbers; the others are rounded "
        "copies, read faster, and what the rounding does to the scores is measured on the prompt and said.",
    )
    lookup = click.option(
        "--lookup",
        "n_guesses",
        type=click.IntRange(min=0, max=64),
        metavar="N",
        default=0,
        help="With --greedy: guess N tokens at a time from what followed before in the text. The text stays the same; it "
        "comes faster where it repeats itself.",
    )
    return weights(lookup(command))


def writing_model(
    model: "Transformer", kind: str | None, prompt_ids: Sequence[int], n_tokens: int, *, quiet: bool
) -> "tuple[Transformer, dict[str, Any]]":
    """The model to write one text with, and what the JSON tells of its weights. Raises: UsageError, InputError."""
    from unembed.cli.tables import cell
    from unembed.generation.weights.copies import derived_bytes, with_weights
    from unembed.generation.weights.packing import check_kind
    from unembed.generation.weights.rounding import rounding_error

    if kind is None:
        return (with_weights(model, "float32") if _gains(model, n_tokens) else model), {}
    made = with_weights(model, chosen := check_kind(kind))
    if chosen == "float32":
        return made, {"weights": {"kind": kind, "derived_bytes": derived_bytes(made)}}
    facts = dict(rounding_error(model, made, prompt_ids[-_MOST_MEASURED:]).values)
    if not math.isfinite(facts["worst_logit_difference"]):
        end = " float16's sums end at 65,504; take bfloat16" if kind == "float16" else " take float32"
        raise InputError(f"weights: with {kind} weights the model's scores on the prompt are no finite numbers.{end}")
    n_same = round(facts["greedy_agreement"] * facts["n_positions"])
    say(
        f"{kind} weights: {cell(derived_bytes(made), words(), 'derived_bytes')} beside the model's own. On the last "
        f"{counted(facts['n_positions'], 'token')} of the prompt, read by themselves, the scores differ by "
        f"{facts['worst_logit_difference']:.2g} nats at most, the distributions by "
        f"{facts['kl_nats']:.2g} nats (KL), and the greedy choice is the same at {n_same} of them",
        quiet=quiet,
    )
    return made, {"weights": {"kind": kind, **facts}}


def guessed(writing: "Writing", n_guesses: int, *, quiet: bool) -> dict[str, Any]:
    """What came of the guesses, said and for the JSON; nothing where none was asked for."""
    if not n_guesses:
        return {}
    made = writing.continuation
    seldom = made.n_guessed and len(made.ids) < _PAYS * made.n_forwards
    advice = "; so few make it no faster on a processor, leave --lookup out" if seldom else ""
    say(
        f"{len(made.ids)} tokens in {made.n_forwards} forwards: {made.n_guessed_right} of {made.n_guessed} guesses were "
        f"right{advice}",
        quiet=quiet,
    )
    return {"lookup": {name: getattr(made, name) for name in ("n_forwards", "n_guessed", "n_guessed_right")}}


def told_speed(writing: "Writing", seconds: float, *, asked: bool, quiet: bool) -> None:
    """How fast a text was written, for people who watch it or who `asked` for a way to write faster."""
    n = len(writing.continuation.ids)
    if n and (asked or sys.stderr.isatty()):
        say(f"{counted(n, 'token')} in {seconds:,.1f} s ({n / seconds:,.0f} tokens/s)", quiet=quiet)


def _gains(model: "Transformer", n_tokens: int) -> bool:
    """Whether packing the matrices pays for so many tokens, and there is room for it."""
    import torch

    from unembed.generation.weights.copies import packed_bytes
    from unembed.runtime import available_memory

    parameters = list(model.parameters())
    is_plain = all(one.dtype == torch.float32 and one.device.type == "cpu" for one in parameters)
    if not is_plain or n_tokens < _LONG or sum(one.numel() for one in parameters) < _LARGE:
        return False
    free = available_memory()
    return free is None or free >= _SPARE * packed_bytes(model)
