"""What is inside a run's model: the lens on a text of its own, its token table, and its marks in grammar.

Before it: accounts.py. The next file to read is ../analyses.py, where all of them stand in order.
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from unembed.corpora.grammar import Grammar
from unembed.corpora.grammar.agreement import sentences
from unembed.generation.sampling import GREEDY
from unembed.generation.texts import continue_text, prompt_ids
from unembed.geometry.projections import token_map
from unembed.lenses.agreement import score_agreements
from unembed.lenses.logit_lens import logit_lens
from unembed.results import Result
from unembed.views.run import RunView

MOST_POINTS = 400  # more points than this hide each other
LENS_TOKENS = 9  # as many cells as fit beside each other on a wide page, and none is cut at its edge
# what a reader of the page asks first; a table of all that can be measured is wider than a page
LENS_STATISTICS = ("top", "entropy", "kl_to_final", "target", "agreement")
N_FOCUS = 4
COUNTED_IDS = 10_000_000  # enough to know which tokens are common, in little memory


def lens(run: RunView) -> Result:
    """The logit lens on a short text that the model itself wrote, greedily."""
    model = run.model()
    found = logit_lens(model, own_ids(run), texts=run.token_texts, statistics=LENS_STATISTICS)
    # the page shows single numbers and the picture; the arrays stand in its table
    single = {"n_layers": model.spec.n_layers, "identity_error": found.values["identity_error"]}
    return replace(found, tables={"lens": found.tables["lens"]}, values=single)


def own_ids(run: RunView) -> list[int]:
    """A short text that the model itself wrote, greedily."""
    model, opening = run.model(), run.opening()
    n = min(LENS_TOKENS, model.spec.context_length - 1)
    written = continue_text(model, opening, n_tokens=n, sampling=GREEDY, seed=0).values
    start, is_text = prompt_ids(run.tokenizer, opening)
    return [*start, *written["ids"]][-n:] if is_text else list(written["ids"])[:n] or start


def token_space(run: RunView) -> Result:
    """The token table before training and after, as planes, with the neighbours of common tokens that moved far."""
    texts = run.token_texts[:MOST_POINTS]
    tables = [("before", run.model(0).embed.table), ("after", run.model().embed.table)]
    groups = None
    if run.learns_grammar:
        parts = _parts_of_speech(run.grammar())
        groups = [parts.get(text, "special") for text in texts]
    return token_map(tables, texts, groups=groups, focus=_common_tokens(run, len(texts)))


def _common_tokens(run: RunView, n: int) -> list[int]:
    """Of the commoner half of the ordinary tokens that training has read, those whose vectors moved the most.

    No one where the run's data is gone: then nobody knows how often they were read.
    """
    if not run.has_data:
        return []
    counts = np.bincount(run.shards.train.ids[:COUNTED_IDS], minlength=n)[:n]
    specials = set(run.tokenizer.specials.values())
    read = [i for i in np.argsort(-counts, kind="stable").tolist() if counts[i] and i not in specials]
    # a mark such as "." moves far, but has no meaning that its neighbours could share
    lettered = [i for i in read if any(letter.isalnum() for letter in run.token_texts[i])]
    read = lettered if len(lettered) >= N_FOCUS else read
    common = read[: max(N_FOCUS, len(read) // 2)]
    moved = (run.model().embed.table - run.model(0).embed.table).detach().norm(dim=-1)
    return sorted(common, key=lambda i: -float(moved[i]))[:N_FOCUS]


def has_a_plane(run: RunView) -> bool:
    """Whether the table is large enough to be seen as a plane; a text of one letter makes a table of one row."""
    return min(run.tokenizer.vocab_size, run.model().spec.embedding.d_model) >= 2


def agreement(run: RunView) -> Result:
    """How many long agreements of the grammar the model gets right, on sentences that it has not read."""
    read = sentences(run.token_texts[i] for i in run.shards.train.ids.tolist())
    return score_agreements(run.model(), run.tokenizer, run.grammar(), exclude=read)


def _parts_of_speech(rules: Grammar) -> dict[str, str]:
    """The part of speech that each word has most often in a stretch of the grammar's text."""
    words, states = rules.sample(seed=0, n_words=20_000)
    labels = rules.state_labels("part")
    counts: dict[str, Counter[str]] = {}
    for word, state in zip(words, states, strict=True):
        counts.setdefault(word, Counter())[labels[int(state)]] += 1
    return {word: found.most_common(1)[0][0] for word, found in counts.items()}
