"""Decoding: the cache changes nothing, a batch changes nothing, and what happens at the edge of the context is as stated."""

import math

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from oracles.specs import ROTARY, SCALINGS, base, changed
from small import small_model
from unembed.errors import InputError, ShapeError, SpecError, UsageError
from unembed.generation.decode import Continuation, generate_ids, stream_ids
from unembed.generation.sampling import GREEDY, Sampling
from unembed.model.kv_cache import KvCache
from unembed.model.masks import Keys, visibility
from unembed.model.spec import Attention, Causal
from unembed.model.taps import Recorder

LEARNED = {"type": "learned", "n_rows": 12, "offset": 0}
WINDOW = {"type": "causal", "window": 3}
SPECS = {
    "no_positions": base(),
    "learned": changed(base(), embedding__position=LEARNED),
    "learned_offset": changed(base(), embedding__position={"type": "learned", "n_rows": 14, "offset": 2}),
    "sinusoidal": changed(base(), embedding__position={"type": "sinusoidal", "theta": 100.0}),
    "rotary": changed(base(), block__attention__position=ROTARY),
    "rotary_interleaved_part": changed(
        base(), block__attention__position={**ROTARY, "pairing": "interleaved", "fraction": 0.67}
    ),
    "rotary_yarn": changed(base(), block__attention__position={**ROTARY, "scaling": SCALINGS["yarn"]}),
    "alibi": changed(base(), block__attention__position={"type": "alibi"}),
    "window": changed(base(), block__attention__sees=WINDOW, embedding__position=LEARNED),
    "alibi_window": changed(base(), block__attention__position={"type": "alibi"}, block__attention__sees=WINDOW),
    "rotary_window_grouped": changed(
        base(), block__attention__n_kv_heads=2, block__attention__sees=WINDOW, block__attention__position=ROTARY
    ),
    "multi_query": changed(base(), block__attention__n_kv_heads=1, embedding__position=LEARNED),
    "softcap": changed(base(), block__attention__score_softcap=0.8, block__attention__position=ROTARY),
}
SPECS["window_per_layer"] = changed(SPECS["window"])
SPECS["window_per_layer"]["blocks"][1]["attention"]["sees"]["window"] = None
# Enough to meet each way of computing a position and a mask; `make test-slow` tries the others too.
QUICK = ("learned", "rotary_window_grouped", "alibi_window")
EVERY_SPEC = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in [*SPECS, "rotary_dynamic", "token_dropout"]
]
DYNAMIC = changed(base(), block__attention__position={**ROTARY, "scaling": SCALINGS["dynamic"]})
DROPPING = changed(base(), embedding__token_dropout={"mask_id": 4, "trained_share": 0.12}, embedding__position=LEARNED)
UNCACHED = {"rotary_dynamic": DYNAMIC, "token_dropout": DROPPING}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [8, 9, 7, 9, 3, 2, 3, 8, 4, 6]])


def cache_for(model, batch, capacity=12):
    table = model.embed.table
    return KvCache(model.spec, batch=batch, capacity=capacity, dtype=table.dtype, device=table.device)


def in_pieces(model, ids, sizes, mask=None):
    """Logits of all positions when the ids come in pieces of these sizes, through one cache."""
    cache, logits, begin = cache_for(model, len(ids)), [], 0
    for size in sizes:
        piece = slice(begin, begin + size)
        logits.append(model(ids[:, piece], mask=None if mask is None else mask[:, piece], cache=cache))
        begin += size
    return torch.cat(logits, dim=1)


# --- A15: with and without a cache ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", SPECS)
def test_cached_equals_uncached_at_every_split(name, dtype):
    """A15b: prefill p tokens, then one at a time, for every p; and in chunks of 3."""
    model = small_model(SPECS[name], dtype=dtype)
    n = IDS.shape[1]
    with torch.no_grad():
        whole = model(IDS)
        scale = whole.abs().max()
        splits = [[p, *[1] * (n - p)] for p in (range(1, n + 1) if dtype == torch.float64 else (1, 6))]
        for sizes in [*splits, [3, 3, 3, 1], [1, 4, 2, 3]]:
            worst = (in_pieces(model, IDS, sizes) - whole).abs().max() / scale
            assert worst <= TOLERANCE[dtype], sizes


@pytest.mark.parametrize("name", SPECS)
def test_padded_prompts_in_a_cache_equal_each_alone(name):
    """Padding on the left of a cached batch moves no position, whether the prompt comes whole or in chunks of 3."""
    model = small_model(SPECS[name])
    mask = torch.tensor([[False] * 4 + [True] * 6, [True] * 10])
    with torch.no_grad():
        alone = [model(IDS[row : row + 1, ~mask[row].logical_not()]) for row in range(2)]
        for sizes in ([10], [5, 1, 1, 1, 1, 1], [3, 3, 3, 1]):
            got = in_pieces(model, IDS, sizes, mask)
            for row in range(2):
                assert (got[row, mask[row]] - alone[row][0]).abs().max() <= 1e-12 * alone[row].abs().max()


@pytest.mark.parametrize(
    ("window", "expected"), [(None, [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]), (2, [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]])]
)
def test_two_new_queries_over_five_keys_see_the_right_ones(window, expected):
    """A15a: the triangle hangs from the lower right corner, not from the upper left."""
    attention = Attention(
        n_heads=1,
        n_kv_heads=1,
        d_head=2,
        score_scale=1.0,
        score_softcap=None,
        position=None,
        sees=Causal(window=window),
        biases=(),
        qk_norm=None,
    )
    keys = Keys(torch.tensor([[3, 4]]), torch.arange(5)[None], None)
    seen = visibility(attention, keys, torch.float32)
    assert not seen.is_causal
    assert seen.visible[0, 0].int().tolist() == expected


def test_cache_accounts_for_its_room():
    model = small_model(SPECS["rotary_window_grouped"])
    cache = cache_for(model, batch=2, capacity=8)
    assert cache.size_bytes() == 2 * 2 * (2 * 2 * 8 * 6) * 8  # keys and values, layers, [batch, kv_head, pos, d_head]
    model(IDS[:, :5], cache=cache)
    assert (cache.length, cache.n_real().tolist()) == (5, [5, 5])


def test_cache_messages():
    model = small_model()
    cache = cache_for(model, batch=2, capacity=4)
    model(IDS[:, :3], cache=cache)
    with pytest.raises(ShapeError, match=r"cache: holds 3 of 4 tokens and cannot take 2 more; make it with a larger"):
        model(IDS[:, 3:5], cache=cache)
    with pytest.raises(ShapeError, match="cache: made for 2 sequences, got 1"):
        model(IDS[:1, :1], cache=cache)
    assert cache.length == 3  # neither refusal has moved it
    for plain in (DYNAMIC, DROPPING):
        with pytest.raises(SpecError, match="cached keys would be wrong; run without a cache"):
            small_model(plain)(IDS[:, :1], cache=cache)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 0}, "cache: batch is 0, expected a whole number, at least 1"),
        ({"batch": 1.0}, r"cache: batch is 1\.0, expected a whole number"),
        ({"capacity": -1}, "cache: capacity is -1, expected a whole number"),
        ({"capacity": True}, "cache: capacity is True, expected a whole number"),
    ],
)
def test_a_cache_that_cannot_be_made(changes, message):
    with pytest.raises(ShapeError, match=message):
        cache_for(small_model(), **{"batch": 1, "capacity": 4} | changes)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            base(n_layers=3),
            r"cache: made for 3 layers with .* \[4, 6\], the model has 2 with \[4, 6\]; make it from this",
        ),
        (
            changed(base(), block__attention__n_kv_heads=2),
            r"made for 2 layers with .* \[2, 6\], the model has 2 with \[4, 6\]",
        ),
        (changed(base(), block__attention__d_head=2), r"\[4, 2\], the model has 2 with \[4, 6\]"),
    ],
)
def test_a_cache_of_another_model_is_refused_and_stays_as_it_is(other, message):
    cache = cache_for(small_model(other), batch=1)
    with pytest.raises(ShapeError, match=message):
        small_model()(IDS[:1], cache=cache)
    assert cache.length == 0
    half = cache_for(small_model(dtype=torch.float32), batch=1)
    with pytest.raises(
        ShapeError, match=r"made for torch.float32 on cpu, the model is torch.float64 on cpu; make it for"
    ):
        small_model()(IDS[:1], cache=half)


def test_the_cache_takes_room_for_what_is_written_and_not_for_the_whole_context(monkeypatch):
    """A context of 100,000 tokens costs nothing until it is used: 3 read and 5 made need 8 slots, whatever the context."""
    made = []

    class Counted(KvCache):
        def __init__(self, spec, **options):
            made.append(options["capacity"])
            super().__init__(spec, **options)

    monkeypatch.setattr("unembed.generation.window.KvCache", Counted)
    long = small_model(changed(base(), context_length=100_000))
    texts = generate_ids(long, [[1, 2, 3], [4]], n_tokens=5, sampling=GREEDY, seeds=[0, 0])
    assert ([len(text.ids) for text in texts], made) == ([5, 5], [8])
    made.clear()
    generate_ids(small_model(SPECS["learned"]), [[1, 2, 3]], n_tokens=20, sampling=GREEDY, seeds=[0])
    # never more than the context; read again at 13, then from 9 on after every fourth, the last time for two tokens
    assert made == [12, 12, 12, 11]


# --- A14b: in a batch and alone ---------------------------------------------------------------------------

PROMPTS = [[5], [1, 2, 3], [9, 8, 7, 6, 5, 4, 3]]


@pytest.mark.parametrize("name", SPECS)
def test_prompts_of_unequal_length_equal_each_alone(name):
    """Hidden states, attention rows and last logits of lengths 1, 3, 7, padded left or right, within 1e-12 (float64)."""
    model = small_model(SPECS[name])
    for side in ("left", "right"):
        rows, masks = [], []
        for prompt in PROMPTS:
            blank = 7 - len(prompt)
            rows.append([0] * blank + prompt if side == "left" else prompt + [0] * blank)
            masks.append(
                [False] * blank + [True] * len(prompt) if side == "left" else [True] * len(prompt) + [False] * blank
            )
        mask, together = torch.tensor(masks), Recorder(detach=True)
        with torch.no_grad():
            model(torch.tensor(rows), mask=mask, tap=together, attention="explicit")
        for row, prompt in enumerate(PROMPTS):
            alone = Recorder(detach=True)
            with torch.no_grad():
                model(torch.tensor([prompt]), tap=alone, attention="explicit")
            for tap, value in alone.values.items():
                if "table" in tap or tap.endswith(("attn_scores", "pos_embed")):
                    continue
                got = together.values[tap][row]
                if tap.endswith("attn_pattern"):
                    assert (got[:, mask[row]][:, :, ~mask[row]] == 0).all()  # padding gets nothing
                    got = got[:, mask[row]][:, :, mask[row]]
                else:
                    got = got[mask[row]]
                assert (got - value[0]).abs().max() <= 1e-12 * value.abs().max(), (side, prompt, tap)


@pytest.mark.parametrize("name", EVERY_SPEC)
def test_generated_texts_are_the_same_alone_and_in_a_batch(name):
    """Same seed, same ids and log-probabilities, past the context too: it holds 12 tokens, and 20 are made."""
    model = small_model({**SPECS, **UNCACHED}[name])
    options = {"n_tokens": 20, "sampling": Sampling(temperature=1.5)}
    together = generate_ids(model, PROMPTS, seeds=[3, 4, 5], **options)
    for prompt, seed, text in zip(PROMPTS, (3, 4, 5), together, strict=True):
        (alone,) = generate_ids(model, [prompt], seeds=[seed], **options)
        assert (alone.ids, alone.n_slides, alone.stopped) == (text.ids, text.n_slides, text.stopped)
        assert alone.logprobs == pytest.approx(text.logprobs, rel=1e-9)


def test_seeds_decide_the_text():
    model = small_model(SPECS["rotary"])
    texts = generate_ids(model, [[1, 2]] * 4, n_tokens=20, sampling=Sampling(temperature=2.0), seeds=[7, 7, 8, 9])
    assert texts[0].ids == texts[1].ids
    assert len({tuple(text.ids) for text in texts}) == 3


# --- against full forwards --------------------------------------------------------------------------------


def by_hand(model, prompt, n_tokens):
    """Greedy text by the stated rule: when 12 tokens are full, the last nine are read again as a fresh text."""
    view, ids, logprobs, n_slides = list(prompt), [], [], 0
    while len(ids) < n_tokens:
        if len(view) > model.spec.context_length:
            view, n_slides = view[-(3 * model.spec.context_length // 4) :], n_slides + 1
        with torch.no_grad():
            scores = model(torch.tensor([view]))[0, -1].log_softmax(-1)
        ids.append(int(scores.argmax()))
        logprobs.append(float(scores.max()))
        view.append(ids[-1])
    return ids, logprobs, n_slides


@pytest.mark.parametrize("name", EVERY_SPEC)
@pytest.mark.parametrize("prompt", [[5], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], list(range(13)) * 2], ids=len)
def test_oracle_greedy_text_past_the_context(name, prompt):
    """One id, a full context and a prompt twice as long as the context: the slide rule, against uncached forwards."""
    model = small_model({**SPECS, **UNCACHED}[name])
    (text,) = generate_ids(model, [prompt], n_tokens=16, sampling=GREEDY, seeds=[0])
    ids, logprobs, n_slides = by_hand(model, prompt, 16)
    assert text.ids == ids
    assert text.logprobs == pytest.approx(logprobs, rel=1e-9)
    assert (text.n_slides, text.stopped) == (n_slides, "length")


# --- how a text ends --------------------------------------------------------------------------------------


def test_stop_rule_ends_a_text_when_the_context_is_full():
    """12 tokens fit: a prompt of 10 leaves room to read two more, so three can be made; one of 13 leaves none."""
    model = small_model(SPECS["learned"])
    prompts = [list(range(10)), list(range(12)), list(range(13)), [1]]
    texts = generate_ids(model, prompts, n_tokens=20, sampling=GREEDY, seeds=[0] * 4, past_context="stop")
    assert [len(text.ids) for text in texts] == [3, 1, 0, 12]
    assert {text.stopped for text in texts} == {"context"}
    assert {text.n_slides for text in texts} == {0}
    free = generate_ids(model, prompts, n_tokens=3, sampling=GREEDY, seeds=[0] * 4)
    assert free[0].ids == texts[0].ids


def test_end_token_ends_one_text_and_not_its_neighbours():
    model = small_model(SPECS["rotary"])
    options = {"n_tokens": 30, "sampling": Sampling(temperature=2.0)}
    free = generate_ids(model, [[1], [2, 3]], seeds=[1, 2], **options)
    end = free[0].ids[4]
    first, second = generate_ids(model, [[1], [2, 3]], seeds=[1, 2], end_id=end, **options)
    assert first.ids == free[0].ids[: free[0].ids.index(end)]  # the end token itself is not kept
    assert first.stopped == "end"
    assert len(first.logprobs) == len(first.ids)
    cut = free[1].ids.index(end) if end in free[1].ids else 30
    assert second.ids == free[1].ids[:cut]
    assert end not in second.ids


def test_stream_gives_each_step_and_none_where_a_text_has_ended():
    model = small_model(SPECS["rotary"])
    options = {"n_tokens": 8, "sampling": Sampling(temperature=2.0), "seeds": [1, 2]}
    whole = generate_ids(model, [[1], [2, 3]], **options)
    end = whole[0].ids[2]
    texts = [Continuation(prompt_ids=[1]), Continuation(prompt_ids=[2, 3])]
    steps = list(stream_ids(model, texts, end_id=end, **options))
    for row, text in enumerate(texts):
        assert [step[row] for step in steps if step[row] is not None] == text.ids
    n = len(texts[0].ids)
    assert [step[0] for step in steps[n:]] == [None] * (len(steps) - n)
    assert len(steps) <= 8


def test_zero_tokens_and_no_prompts():
    (text,) = generate_ids(small_model(), [[1]], n_tokens=0, sampling=GREEDY, seeds=[0])
    assert (text.ids, text.stopped) == ([], "length")
    assert generate_ids(small_model(), [], n_tokens=5, sampling=GREEDY, seeds=[]) == []


def test_model_of_context_one_slides_every_token():
    model = small_model(
        changed(base(), context_length=1, embedding__position={"type": "learned", "n_rows": 1, "offset": 0})
    )
    (text,) = generate_ids(model, [[1, 2]], n_tokens=5, sampling=GREEDY, seeds=[0])
    assert (len(text.ids), text.n_slides) == (5, 5)


def test_logprobs_are_those_of_the_unfiltered_distribution():
    """Top-1 leaves one id with probability 1; its log-probability is still the model's own."""
    model = small_model(SPECS["rotary"])
    (text,) = generate_ids(model, [[4, 2]], n_tokens=6, sampling=Sampling(top_k=1, temperature=0.5), seeds=[0])
    with torch.no_grad():
        scores = model(torch.tensor([[4, 2, *text.ids]]))[0].log_softmax(-1)
    assert text.logprobs == pytest.approx([float(scores[1 + i, id_]) for i, id_ in enumerate(text.ids)], rel=1e-9)
    assert all(-math.inf < p < 0 for p in text.logprobs)


@pytest.mark.parametrize(
    ("changes", "options", "error", "message"),
    [
        ({}, {"prompts": [[]]}, InputError, "generate: a prompt has no tokens; give some text"),
        ({}, {"prompts": [[1], [13]], "seeds": [0, 0]}, InputError, "prompt id 13 has no row in the table of 13"),
        ({}, {"prompts": [[-1]]}, InputError, "prompt id -1 has no row"),
        ({}, {"n_tokens": -1}, UsageError, "tokens is -1; it must be 0 or more"),
        ({}, {"seeds": [1, 2]}, UsageError, "1 prompts but 2 seeds; give one seed for each"),
        ({}, {"seeds": [-1]}, UsageError, "seed is -1; it must be 0 or more"),
        ({}, {"seeds": [2**63]}, UsageError, r"seed is 9223372036854775808; .* below 2\*\*63"),
        ({}, {"sampling": Sampling(top_k=0)}, UsageError, "top-k is 0"),
        (
            {"block__attention__sees": {"type": "bidirectional"}},
            {},
            InputError,
            "this is a masked model, every position sees every other",
        ),
    ],
)
def test_messages(changes, options, error, message):
    given = {"prompts": [[1]], "n_tokens": 3, "sampling": GREEDY, "seeds": [0]} | options
    with pytest.raises(error, match=message):
        generate_ids(small_model(changed(base(), **changes)), given.pop("prompts"), **given)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ["learned", pytest.param("rotary", marks=pytest.mark.slow)])
def test_compiled_blocks_are_compiled_twice_for_any_depth_and_never_after_the_third_token(name):
    """A15c: one graph for the prompt and one for single tokens, shared by all layers; 50 tokens add none."""
    changes = {"context_length": 64}
    if name == "learned":
        changes["embedding__position"] = {"type": "learned", "n_rows": 64, "offset": 0}
    deep = changed({**base(n_layers=9), "embedding": SPECS[name]["embedding"]}, **changes)
    for block in deep["blocks"]:
        block["attention"] = SPECS[name]["blocks"][0]["attention"]
    model = small_model(deep)
    (plain,) = generate_ids(model, [[1, 2, 3]], n_tokens=50, sampling=GREEDY, seeds=[0])
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    for block in model.blocks:
        block.compile(backend=counter)
    text = Continuation(prompt_ids=[1, 2, 3])
    steps = stream_ids(model, [text], n_tokens=50, sampling=GREEDY, seeds=[0])
    counts = [counter.frame_count for _ in steps]
    torch._dynamo.reset()
    assert counts[2:] == [2] * 48
    assert text.ids == plain.ids
