"""Marking an exam in grammar: does the model let a verb agree with a subject that stands four or more words before it?

Questions come from the grammar itself, and from no sentence that stands in the training text. An answer is right when the
forms that agree are together more probable than those that do not, and the most probable of all is one that agrees. The
next file to read is ../geometry/neighbours.py.
"""

from collections import Counter
from collections.abc import Iterable

import torch

from unembed.corpora.grammar import Grammar
from unembed.lenses.asking import refuse_broken
from unembed.model.transformer import Transformer
from unembed.results import Picture, Result, Table
from unembed.tokenizers.base import Tokenizer

N_QUESTIONS = 500
QUESTION_SEED = 2


@torch.no_grad()
def score_agreements(
    model: Transformer,
    tokenizer: Tokenizer,
    rules: Grammar,
    *,
    exclude: Iterable[tuple[str, ...]] = (),
    n: int = N_QUESTIONS,
    min_distance: int = 4,
) -> Result:
    """Asks n questions, none of which begins like a sentence in `exclude` (what the model was trained on).

    Table `agreement`: items and right answers by feature; values: `items`, `right`, `share`. Raises: CorpusError when the
    grammar has too few such questions; InputError for a model that scores no number.
    """
    questions = rules.long_agreements(QUESTION_SEED, n, min_distance=min_distance, exclude=exclude)
    asked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    id_of = {tokenizer.token_text(i): i for i in range(tokenizer.vocab_size)}
    for question in questions:
        ids = torch.tensor([[id_of[word] for word in (".", *question.prefix)]], device=model.embed.table.device)
        logits = model(ids)[0, -1]
        refuse_broken("agreement", logits)
        probs = logits.double().softmax(-1)
        agreeing = probs[[id_of[word] for word in question.right]]
        clashing = probs[[id_of[word] for word in question.wrong]]
        is_right = agreeing.sum() > clashing.sum() and agreeing.max() > clashing.max()
        asked[question.feature] += 1
        right[question.feature] += int(is_right)
    features = sorted(asked)
    table = Table(
        columns={
            "feature": features,
            "items": [asked[name] for name in features],
            "right": [right[name] for name in features],
            "share": [right[name] / asked[name] for name in features],
        }
    )
    items, correct = sum(asked.values()), sum(right.values())
    return Result(
        name="agreement",
        tables={"agreement": table},
        values={"items": items, "right": correct, "share": correct / items},
        pictures=(
            Picture(
                key="agreement",
                kind="bars",
                table="agreement",
                x="share",
                y="feature",
                tooltip=("feature", "items", "right"),
            ),
        ),
    )
