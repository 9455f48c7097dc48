"""The lens held against the truth: from which layer on does it know what the grammar decides?

A grammar of ours has exact probabilities, so nothing need be guessed. Two questions are put to every layer. First, those of
the exam (agreement.py): after this beginning, are the forms that agree together more probable than those that clash, and is
the best of all one that agrees? The lens knows a feature from the first layer on from which at least nine in ten answers
are right in every layer. Second, on held-out windows: how far is its distribution from the true one, and how much of it
lies on words that can come at all?

    divergence of layer l = mean of KL(p_true || p_l),    possible = mean of the sum of p_l over words with p_true > 0

What a window cannot see is averaged over, as in the floor of the loss. Before it: calibration.py. The next file to read is
../views/over_training.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unembed.corpora.grammar import Agreement, Grammar
from unembed.lenses.agreement import QUESTION_SEED
from unembed.lenses.asking import refuse_broken
from unembed.lenses.states import take_states
from unembed.lenses.translators import Translators
from unembed.model.transformer import Transformer
from unembed.results import Picture, Result, Table
from unembed.tokenizers.base import Tokenizer

KNOWS = 0.9
N_QUESTIONS = 500
N_WINDOWS = 32
BATCH = 64


def lens_truth(
    model: Transformer,
    tokenizer: Tokenizer,
    rules: Grammar,
    words: Sequence[str],
    *,
    exclude: Iterable[tuple[str, ...]] = (),
    tuned: Translators | None = None,
    n_questions: int = N_QUESTIONS,
    min_distance: int = 1,
) -> Result:
    """Puts every layer to the exam and beside the grammar's own probabilities on `words`, a held-out piece of its stream.

    Table `known_from`: `lens`, `feature`, `items`, `chance_share` (what a blind guess gets), `last_share` right at the last
    layer, and `known_layer`, null where it never is. Table `by_feature`: the share right by feature and layer. Table
    `truth`: `kl_to_truth_nats` and `possible_share` by layer. Value `knows_share`, the share that counts as knowing.
    Raises: CorpusError when the grammar has too few questions or the words are too few for a window.
    """
    questions = rules.long_agreements(QUESTION_SEED, n_questions, min_distance=min_distance, exclude=exclude)
    lenses: dict[str, Translators | None] = {"logit": None} | ({} if tuned is None else {"tuned": tuned})
    column = _columns(tokenizer, rules)
    shares: dict[str, list[Any]] = {name: [] for name in ("lens", "feature", "layer", "items", "right", "share")}
    known: dict[str, list[Any]] = {
        name: [] for name in ("lens", "feature", "items", "chance_share", "last_share", "known_layer")
    }
    truth: dict[str, list[Any]] = {name: [] for name in ("lens", "layer", "kl_to_truth_nats", "possible_share")}
    marks = {lens: _marks(model, questions, column, translate) for lens, translate in lenses.items()}
    features = sorted({one.feature for one in questions})
    for lens, right in marks.items():
        for feature in features:
            chosen = np.array([one.feature == feature for one in questions])
            n = int(chosen.sum())
            share = right[:, chosen].mean(axis=1)
            _add(shares, [(lens, feature, layer, n, round(s * n), s) for layer, s in enumerate(share.tolist())])
            blind = [len(q.right) / (len(q.right) + len(q.wrong)) for q in questions if q.feature == feature]
            _add(known, [(lens, feature, n, float(np.mean(blind)), float(share[-1]), known_layer(share))])
    for lens, translate in lenses.items():
        divergence, possible = _beside_truth(model, rules, words, column, translate)
        _add(truth, [(lens, *row) for row in zip(range(len(divergence)), divergence, possible, strict=True)])
    return Result(
        name="truth",
        tables={
            "known_from": Table(columns=known),
            "by_feature": Table(columns=shares),
            "truth": Table(columns=truth, units={"kl_to_truth_nats": "nats"}),
        },
        values={"items": len(questions), "knows_share": KNOWS},
        notes=("lens_is_a_clue",),
        pictures=(
            Picture(
                key="by_feature",
                kind="grid",
                table="by_feature",
                x="layer",
                y="feature",
                color="share",
                text="share",
                facet="lens" if tuned is not None else None,
                tooltip=("lens", "feature", "layer", "items", "right", "share"),
            ),
            Picture(key="truth", kind="lines", table="truth", x="layer", y="kl_to_truth_nats", color="lens"),
        ),
    )


def known_layer(shares: Float[np.ndarray, " layer"]) -> int | None:
    """The first layer from which on every share is at least KNOWS; None where the last one is not.

    >>> known_layer(np.array([0.5, 0.95, 0.8, 0.9, 1.0])), known_layer(np.array([1.0, 0.5]))
    (3, None)
    """
    short = np.flatnonzero(shares < KNOWS)
    first = int(short[-1]) + 1 if len(short) else 0
    return first if first < len(shares) else None


def _add(columns: Mapping[str, list[Any]], rows: Iterable[Sequence[Any]]) -> None:
    for row in rows:
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)


def _columns(tokenizer: Tokenizer, rules: Grammar) -> dict[str, int]:
    """The id of each word of the grammar."""
    id_of = {tokenizer.token_text(i): i for i in range(tokenizer.vocab_size)}
    return {word: id_of[word] for word in rules.words}


@torch.no_grad()
def _probabilities(
    model: Transformer, states: Float[Tensor, "layer pos d_model"], translate: Translators | None, n_known: int
) -> Float[np.ndarray, "layer pos vocab"]:
    moved = states if translate is None else translate(range(len(states)), states)
    probs: np.ndarray = model.unembed(moved)[..., :n_known].double().softmax(-1).cpu().numpy()
    return probs


def _marks(
    model: Transformer, questions: Sequence[Agreement], column: Mapping[str, int], translate: Translators | None
) -> np.ndarray:
    """Whether each question is answered right, [layer, question]. Shorter beginnings are filled up behind, unseen."""
    marks = []
    for first in range(0, len(questions), BATCH):
        part = questions[first : first + BATCH]
        beginnings = [[column[word] for word in (".", *one.prefix)] for one in part]
        longest = max(map(len, beginnings))
        ids = torch.tensor([one + [0] * (longest - len(one)) for one in beginnings])
        values = take_states(model, ids).values
        refuse_broken("truth", values[-1].abs(), "final states")
        ends = torch.tensor([len(one) - 1 for one in beginnings])
        last = values[:, torch.arange(len(part)), ends]
        probs = _probabilities(model, last, translate, max(column.values()) + 1)
        for row, one in enumerate(part):
            agreeing, clashing = (probs[:, row, [column[word] for word in words]] for words in (one.right, one.wrong))
            marks.append(
                (agreeing.sum(-1) > clashing.sum(-1)) & (agreeing.max(-1) > clashing.max(-1)),
            )
    return np.stack(marks, axis=1)


def _beside_truth(
    model: Transformer, rules: Grammar, words: Sequence[str], column: Mapping[str, int], translate: Translators | None
) -> tuple[list[float], list[float]]:
    """Mean divergence from the true distribution, and mean probability of what is possible, layer by layer."""
    length = model.spec.context_length
    windows = [words[at : at + length] for at in range(0, len(words) - length + 1, length)][:N_WINDOWS]
    true = rules.distributions(windows, "anywhere").reshape(-1, len(rules.words))
    ids = torch.tensor([[column[word] for word in window] for window in windows])
    states = take_states(model, ids).values.flatten(1, 2)
    order = [column[word] for word in rules.words]
    n_known = max(order) + 1
    divergence, possible = [], []
    for layer in range(len(states)):
        x = states[layer]
        moved = x if translate is None else translate.one(layer, x)
        with torch.no_grad():
            scores = model.unembed(moved[None])[0, :, :n_known].double()
        refuse_broken("truth", scores)
        logs = scores.log_softmax(-1)[:, order].cpu().numpy()
        there = true > 0
        terms = np.where(there, true * (np.log(np.where(there, true, 1.0)) - logs), 0.0)
        divergence.append(float(terms.sum(-1).mean()))
        possible.append(float(np.where(there, np.exp(logs), 0.0).sum(-1).mean()))
    return divergence, possible
