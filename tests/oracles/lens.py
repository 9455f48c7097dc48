"""What the lens measures of scores, one number at a time in float64: the definitions as loops, and nothing of the package.

`statistics` takes the scores of one sequence, [layer][pos][vocab], the last layer being the model's answer.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

SLACK = 1e-9  # equal scores may be told apart by their last bits, so a rank is a range


def statistics(
    scores: Sequence[Sequence[Sequence[float]]],
    *,
    targets: Sequence[int | None],
    following: Sequence[int | None],
    n_top: int,
) -> dict[str, list[list[Any]]]:
    """Every statistic by its name, as [layer][pos]; `settled` as [pos], ranks as (least, greatest), absent ones None."""
    n_layers, n_pos = len(scores), len(scores[0])
    out: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        out.setdefault(name, [[None] * n_pos for _ in range(n_layers)])[layer][pos] = value

    for layer in range(n_layers):
        for pos in range(n_pos):
            row = [float(s) for s in scores[layer][pos]]
            p, total = distribution(row)
            q, _ = distribution([float(s) for s in scores[-1][pos]])
            put("logsumexp_nats", total)
            put("entropy_nats", -sum(x * math.log(x) for x in p if x > 0))
            put("kl_to_final_nats", kl(q, p))
            middle = [(x + y) / 2 for x, y in zip(p, q, strict=True)]
            put("js_to_final_nats", (kl(p, middle) + kl(q, middle)) / 2)
            put("tv_to_final", sum(abs(x - y) for x, y in zip(p, q, strict=True)) / 2)
            order = sorted(range(len(row)), key=lambda i: -row[i])
            put("top_ids", order[:n_top])
            put("top_probabilities", [p[i] for i in order[:n_top]])
            target, after = targets[pos], following[pos]
            known = target is not None
            put("target_logit", row[target] if known else None)
            put("target_probability", p[target] if known else None)
            put("target_logprob", math.log(p[target]) if known else None)
            put(
                "target_rank",
                tuple(1 + sum(s > row[target] + e for s in row) for e in (SLACK, -SLACK)) if known else None,
            )
            put("cross_entropy_nats", None if after is None else -math.log(p[after]))
    for layer in range(n_layers):
        for pos in range(n_pos):
            put("agrees", out["top_ids"][layer][pos][0] == out["top_ids"][-1][pos][0])
    out["settled"] = [settled([out["agrees"][layer][pos] for layer in range(n_layers)]) for pos in range(n_pos)]
    return out


def distribution(row: Sequence[float]) -> tuple[list[float], float]:
    """The softmax of a row, and its log-sum-exp."""
    highest = max(row)
    total = highest + math.log(math.fsum(math.exp(s - highest) for s in row))
    return [math.exp(s - total) for s in row], total


def kl(p: Sequence[float], q: Sequence[float]) -> float:
    """Sum of p log(p / q), in nats."""
    return math.fsum(x * math.log(x / y) for x, y in zip(p, q, strict=True) if x > 0)


def settled(agrees: Sequence[bool]) -> int:
    """The first layer from which on every one agrees."""
    first = len(agrees) - 1
    while first > 0 and agrees[first - 1]:
        first -= 1
    return first


def random_scores(n_layers: int, n_pos: int, n_vocab: int, seed: int) -> np.ndarray:
    """Scores of layers that come nearer to the last one, some far apart, none equal."""
    generator = np.random.default_rng(seed)
    last = generator.normal(size=(1, n_pos, n_vocab)) * 3
    away = generator.normal(size=(n_layers, n_pos, n_vocab)) * np.linspace(4, 0, n_layers)[:, None, None]
    return last + away
