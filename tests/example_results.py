"""Results shaped as those of a tour, with numbers from a formula: what the report's tests build pages from."""

import numpy as np

from unembed.results import Picture, Result, Table

TOKENS = {
    "en": ["the", "old", "teacher", "near", "the", "tall", "trees", "writes", "a", "letter", "."],
    "es": ["las", "niñas", "pequeñas", "de", "la", "escuela", "grande", "cantaban", "una", "canción", "."],
    "ko": ["할머니", "께서", "어제", "시장", "에서", "사과", "를", "천천히", "고르", "셨다", "."],
}
GROUPS = ("noun", "verb", "determiner", "adjective", "particle")
FEATURES = {
    "en": ["person", "number", "tense"],
    "es": ["person", "number", "gender", "tense"],
    "ko": ["honorific", "tense", "particle"],
}


def loss() -> Result:
    """A curve that falls towards a floor."""
    steps = np.arange(0, 1201, 20)
    rng = np.random.default_rng(0)
    val = 1.482 + 2.6 * np.exp(-steps / 150) + 0.012
    train = val + rng.normal(0, 0.02, len(steps))
    table = Table(
        columns={
            "step": np.concatenate([steps, steps]),
            "split": ["train"] * len(steps) + ["val"] * len(steps),
            "loss_nats": np.concatenate([train, val]),
        },
        units={"loss_nats": "nats"},
    )
    return Result(
        name="loss",
        tables={"loss": table, "floors": Table(columns={"name": ["entropy_floor"], "y": [1.482]})},
        values={
            "val_loss_nats": 1.4948,
            "entropy_floor_nats": 1.482,
            "ratio": 1.4948 / 1.482,
            "seconds": 61.37,
            "tokens": 2_457_600,
        },
        pictures=(
            Picture(
                key="loss", kind="lines", table="loss", x="step", y="loss_nats", color="split", rules_table="floors"
            ),
        ),
    )


def samples(lang: str, extra: tuple[str, ...] = ()) -> Result:
    """Noise first, sentences later."""
    rng, words = np.random.default_rng(1), TOKENS[lang]
    noise = [" ".join(rng.permutation(words)) for _ in range(4)]
    good = " ".join(words)
    texts = [*noise, good, f"{good} {good}", *extra]
    return Result(
        name="samples",
        tables={"samples": Table(columns={"step": [0, 100, 300, 600, *[1200] * (len(texts) - 4)], "text": texts})},
    )


def parameters() -> Result:
    """The accounts of mini-gpt's shape."""
    parts = {"token_table": 4096, "positions": 1024, "attention": 32_768, "mlp": 65_536, "norms": 1280, "head": 0}
    total = sum(parts.values())
    table = Table(
        columns={
            "part": list(parts),
            "parameters": list(parts.values()),
            "share": [n / total for n in parts.values()],
        }
    )
    picture = Picture(
        key="by_part", kind="bars", table="by_part", x="parameters", y="part", tooltip=("part", "parameters", "share")
    )
    return Result(
        name="parameters",
        tables={"by_part": table},
        values={
            "parameters": total,
            "parameters_untied": total + 4096,
            "table_parameters": 4096,
            "tied": True,
            "tying_saves": 4096,
        },
        pictures=(picture,),
    )


def lens(lang: str, tokens: tuple[str, ...] | None = None) -> Result:
    """Guesses that become surer from layer to layer."""
    tokens = tokens or tuple(TOKENS[lang])
    columns: dict[str, list[object]] = {
        name: [] for name in ("position", "token", "layer", "text", "probability", "entropy_nats", "top")
    }
    for position, token in enumerate(tokens):
        for layer in range(5):
            p = (0.04 + 0.23 * layer) * (0.6 + 0.4 * np.cos(position))
            guess = tokens[(position + 1 + (4 - layer) * 3) % len(tokens)]
            top = ", ".join(f"{tokens[(position + i) % len(tokens)]} {max(p, 0.01) / (i + 1):.2f}" for i in range(5))
            row = (position, token, layer, guess, max(p, 0.01), 3.2 - 0.7 * layer, top)
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
    picture = Picture(
        key="lens",
        kind="grid",
        table="lens",
        x="position",
        x_text="token",
        y="layer",
        color="probability",
        text="text",
        tooltip=("token", "layer", "top", "probability", "entropy_nats"),
    )
    return Result(name="lens", tables={"lens": Table(columns=columns)}, notes=("lens_is_a_clue",), pictures=(picture,))


def token_map(lang: str, names: tuple[str, ...] | None = None) -> Result:
    """A cloud that falls into groups."""
    rng = np.random.default_rng(2)
    names = names or tuple(dict.fromkeys([*TOKENS[lang], *(f"{word}{end}" for word in TOKENS[lang] for end in "abc")]))
    group = np.arange(len(names)) % len(GROUPS)
    angle = 2 * np.pi * group / len(GROUPS)
    before = rng.normal(size=(len(names), 2))
    after = np.stack([np.cos(angle), np.sin(angle)], 1) * 2 + rng.normal(size=(len(names), 2)) * 0.35
    points = Table(
        columns={
            "when": ["before"] * len(names) + ["after"] * len(names),
            "id": [*range(len(names))] * 2,
            "text": [*names] * 2,
            "x": np.concatenate([before[:, 0], after[:, 0]]),
            "y": np.concatenate([before[:, 1], after[:, 1]]),
            "group": [GROUPS[i] for i in group] * 2,
        }
    )
    near = [
        (word, when, names[(i * 5 + rank) % len(names)], (0.9 if when == "after" else 0.3) - 0.05 * rank, rank + 1)
        for i, word in enumerate(names[:5])
        for when in ("before", "after")
        for rank in range(4)
    ]
    columns = dict(zip(("text", "when", "neighbour", "cosine", "rank"), zip(*near, strict=True), strict=True))
    picture = Picture(
        key="token_map",
        kind="points",
        table="points",
        x="x",
        y="y",
        color="group",
        text="text",
        facet="when",
        tooltip=("text", "id", "group"),
    )
    return Result(
        name="token_map",
        tables={"points": points, "neighbours": Table(columns={k: list(v) for k, v in columns.items()})},
        values={"explained_variance": {"before": 0.081, "after": 0.524}},
        pictures=(picture,),
    )


def agreement(lang: str) -> Result:
    """Nearly everything right."""
    names = [*FEATURES[lang], "all"]
    right = [497 - i for i in range(len(names))]
    table = Table(
        columns={
            "feature": names,
            "items": [500] * len(names),
            "right": right,
            "share": [n / 500 for n in right],
        }
    )
    picture = Picture(key="agreement", kind="bars", table="agreement", x="share", y="feature")
    return Result(name="agreement", tables={"agreement": table}, values={"share": 0.992}, pictures=(picture,))


def sections(lang: str) -> list[tuple[str, Result]]:
    """All sections of a tour's report, in its order."""
    return [
        ("loss", loss()),
        ("samples", samples(lang)),
        ("agreement", agreement(lang)),
        ("lens", lens(lang)),
        ("token_map", token_map(lang)),
        ("parameters", parameters()),
    ]


FACTS = {"unembed": "0.1.0", "torch": "2.13.0", "python": "3.11.2", "seed": "1", "data": "grammar es, 64 words"}
COMMAND = "unembed tour --out runs/tour --lang es"
