"""Random mixtures of all that a spec can say: cached equals uncached at every split, alone, in a batch and in pieces.

The variants one by one are in test_decode.py; here two or more of them meet.
"""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.mixtures import random_spec
from small import small_model
from unembed.generation.decode import Continuation, generate_ids, stream_ids
from unembed.generation.sampling import Sampling
from unembed.model.kv_cache import KvCache

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}
N_QUICK, N_SLOW = 6, 40


def causal_spec(seed):
    """A random mixture in which every layer looks back, and old keys stay as they are."""
    spec = copy.deepcopy(random_spec(seed))
    spec["embedding"]["token_dropout"] = None
    for block in spec["blocks"]:
        attention = block["attention"]
        if attention["sees"]["type"] == "bidirectional":
            attention["sees"] = {"type": "causal", "window": None}
        position = attention["position"]
        if position is not None and (position.get("scaling") or {}).get("type") == "dynamic":
            position["scaling"] = None
    return spec


def cached(model, ids, mask, sizes):
    """The logits of all positions, the ids coming in pieces through one cache."""
    table = model.embed.table
    cache = KvCache(model.spec, batch=len(ids), capacity=ids.shape[1], dtype=table.dtype, device=table.device)
    found, begin = [], 0
    for size in sizes:
        piece = slice(begin, begin + size)
        found.append(model(ids[:, piece], mask=None if mask is None else mask[:, piece], cache=cache))
        begin += size
    assert begin == ids.shape[1]
    return torch.cat(found, dim=1)


def check_splits(seed, dtype):
    """Every split of a text of the full context, by prefill and single tokens, and some by pieces of any size."""
    model = small_model(causal_spec(seed), dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    n, vocab_size = model.spec.context_length, model.spec.embedding.vocab_size
    ids = torch.randint(vocab_size, (3, n), generator=generator)
    lengths = [n, max(1, n // 2), 1]
    mask = torch.tensor([[False] * (n - length) + [True] * length for length in lengths])
    pieces = [[n], [3] * (n // 3) + [n % 3] * (n % 3 > 0), [1] * n]
    with torch.no_grad():
        whole = model(ids)
        scale = float(whole.abs().max())
        for sizes in [*([p, *[1] * (n - p)] for p in range(1, n)), *pieces]:
            worst = float((cached(model, ids[:1], None, sizes) - whole[:1]).abs().max())
            assert worst <= TOLERANCE[dtype] * scale, (seed, sizes, worst)
        alone = [model(ids[row : row + 1, n - length :])[0] for row, length in enumerate(lengths)]
        for sizes in pieces:
            together = cached(model, ids, mask, sizes)
            for row, length in enumerate(lengths):
                worst = float((together[row, n - length :] - alone[row]).abs().max())
                assert worst <= TOLERANCE[dtype] * scale, (seed, sizes, row, worst)


def check_texts(seed, order, sizes):
    """Five prompts give the same texts in any order, in batches of any size, and as a stream, past the context too."""
    model = small_model(causal_spec(seed))
    vocab_size, length = model.spec.embedding.vocab_size, model.spec.context_length
    generator = torch.Generator().manual_seed(seed)
    prompts = [
        torch.randint(vocab_size, (n,), generator=generator).tolist() for n in (1, 2, length // 2, length, length + 3)
    ]
    options = {"n_tokens": length + 4, "sampling": Sampling(temperature=1.2, top_p=0.98), "end_id": 0}
    alone = [generate_ids(model, [prompt], seeds=[i], **options)[0] for i, prompt in enumerate(prompts)]
    begin = 0
    for size in sizes:
        some = order[begin : begin + size]
        begin += size
        together = generate_ids(model, [prompts[i] for i in some], seeds=some, **options)
        streamed = [Continuation(prompt_ids=prompts[i]) for i in some]
        steps = list(stream_ids(model, streamed, seeds=some, **options))
        for row, i in enumerate(some):
            for text in (together[row], streamed[row]):
                assert (text.ids, text.stopped, text.n_slides) == (alone[i].ids, alone[i].stopped, alone[i].n_slides)
                assert text.logprobs == pytest.approx(alone[i].logprobs, rel=1e-9, abs=1e-12)
            assert [step[row] for step in steps if step[row] is not None] == alone[i].ids


def test_the_mixtures_hold_every_kind_of_position_window_and_grouping():
    found = set()
    for seed in range(N_SLOW):
        spec = causal_spec(seed)
        found.add((spec["embedding"]["position"] or {"type": "no positions added"})["type"])
        for block in spec["blocks"]:
            attention = block["attention"]
            found.add((attention["position"] or {"type": "none in attention"})["type"])
            found.add("window" if attention["sees"]["window"] else "whole")
            found.add("grouped" if attention["n_heads"] > attention["n_kv_heads"] else "one key a head")
    assert found == {
        *("learned", "sinusoidal", "no positions added", "rotary", "alibi", "none in attention"),
        *("window", "whole", "grouped", "one key a head"),
    }


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=[pytest.mark.slow] if s >= N_QUICK else []) for s in range(N_SLOW)]
)
def test_property_cached_equals_uncached_in_any_mixture(seed, dtype):
    check_splits(seed, dtype)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("seed", range(2))
def test_texts_are_the_same_in_any_company_and_order(seed):
    check_texts(seed, [4, 0, 3, 1, 2], [2, 3])


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@settings(deadline=None, max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    order=st.permutations(range(5)),
    sizes=st.sampled_from([[5], [4, 1], [3, 2], [1, 2, 2], [2, 3]]),
)
def test_property_texts_are_the_same_in_any_company_and_order(seed, order, sizes):
    check_texts(seed, order, sizes)
