"""Logits, hidden states and loss are transformers': to 1e-10 in float64, and in float32 as near as float32 allows.

Sequences are longer than 20 tokens and than every window. The hidden states of transformers are the stream after the
embedding and after each block, the last one behind the final norm. Padding stands on either side, and cached decoding
is held against transformers' uncached logits.
"""

import itertools

import pytest
import torch

from parity import PARITIES
from parity.harness import N_TOKENS, TOLERANCE, exactly, token_ids
from unembed.checkpoints.load import load
from unembed.model.kv_cache import KvCache
from unembed.model.spec import DynamicScaling, Rotary
from unembed.model.taps import Recorder
from unembed.objectives.loss import IGNORED, next_token_loss

QUICK = ("base", "as published")


def cases(*, all_quick=False, causal=False):
    """All families' cases; those beyond the first two are slow ones unless all are wanted at once."""
    return [
        pytest.param(
            parity,
            case,
            id=f"{parity.family}: {case}",
            marks=() if all_quick or case in QUICK else pytest.mark.slow,
        )
        for parity in PARITIES
        for case in parity.all_cases
        if parity.is_causal or not causal
    ]


LENGTHS = (N_TOKENS, 9, 24)


def worst(ours, theirs):
    return float((ours - theirs).abs().max())


def labels_of(parity, ids):
    """Each id for a causal model; for a masked one a third of them, the others not counted."""
    if parity.is_causal:
        return ids
    return ids.where(torch.rand(ids.shape, generator=torch.Generator().manual_seed(3)) < 0.3, IGNORED)


def token_types(model, ids):
    n_types = model.spec.embedding.n_token_types
    return None if n_types is None else (torch.arange(ids.shape[1]) // 7 % n_types).expand_as(ids)


def run_theirs(reference, dtype, ids, types=None, **inputs):
    extra = {} if types is None else {"token_type_ids": types}
    with exactly(dtype):
        return reference.model(ids, output_hidden_states=True, use_cache=False, **extra, **inputs)


@pytest.mark.parametrize(("parity", "case"), cases(all_quick=True))
def test_parity_of_logits_hidden_states_and_loss_in_float64(parity, case, reference):
    compare(parity, case, torch.float64, reference)


@pytest.mark.parametrize(("parity", "case"), cases())
def test_parity_of_logits_hidden_states_and_loss_in_float32(parity, case, reference):
    compare(parity, case, torch.float32, reference)


def compare(parity, case, dtype, reference):
    theirs = reference(parity, case, dtype)
    ours = load(theirs.folder, dtype="file")
    ids = token_ids(41, 2, N_TOKENS)
    types, labels = token_types(ours, ids), labels_of(parity, ids)
    expected = run_theirs(theirs, dtype, ids, types, labels=labels)
    recorder = Recorder()
    with torch.no_grad():
        logits = ours(ids, token_types=types, tap=recorder, attention="explicit")
        fused = ours(ids, token_types=types)
    assert logits.dtype == dtype
    scale = max(1.0, float(expected.logits.abs().max()))
    tolerance = TOLERANCE if dtype == torch.float64 else 2e-5 * scale
    assert worst(logits, expected.logits) <= tolerance
    assert worst(fused, expected.logits) <= tolerance
    n_layers = ours.spec.n_layers
    stream = [recorder.values[f"blocks.{layer}.resid_post"] for layer in range(n_layers)]
    stream = [recorder.values["blocks.0.resid_pre"], *stream[:-1], recorder.values["final_norm"]]
    assert len(expected.hidden_states) == len(stream)
    for layer, (a, b) in enumerate(zip(stream, expected.hidden_states, strict=True)):
        bound = TOLERANCE if dtype == torch.float64 else 2e-5 * max(1.0, float(b.abs().max()))
        assert worst(a, b) <= bound, f"hidden state {layer}"
    scores, targets = (logits[:, :-1], ids[:, 1:]) if parity.is_causal else (logits, labels)
    assert worst(next_token_loss(scores, targets).mean(), expected.loss) <= tolerance


def padded(parity, model, side):
    """Ids of three lengths, where each stands, and which are real."""
    column = torch.arange(N_TOKENS)
    lengths = torch.tensor(LENGTHS)[:, None]
    mask = column < lengths if side == "right" else column >= N_TOKENS - lengths
    pad = parity.base["pad_token_id"] if parity.family != "roberta" else model.spec.embedding.position.offset - 1
    return token_ids(41, len(LENGTHS), N_TOKENS).where(mask, pad), mask


def is_dynamic(model):
    positions = [block.attention.position for block in model.spec.blocks]
    return any(isinstance(one, Rotary) and isinstance(one.scaling, DynamicScaling) for one in positions)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("parity", "case"), cases())
def test_parity_with_padding(parity, case, side, reference):
    theirs = reference(parity, case)
    ours = load(theirs.folder, dtype="file")
    ids, mask = padded(parity, ours, side)
    inputs = {"attention_mask": mask.long()}
    if parity.family != "roberta":  # which finds the positions itself, from the padding ids
        inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    if is_dynamic(ours):
        # transformers scales a whole batch by its longest sequence, so each is compared alone
        with torch.no_grad():
            logits = ours(ids, mask=mask)
        for row, real in enumerate(mask):
            alone = run_theirs(theirs, torch.float64, ids[row][real][None]).logits[0]
            assert worst(logits[row][real], alone) <= TOLERANCE
        return
    expected = run_theirs(theirs, torch.float64, ids, **inputs).logits
    with torch.no_grad():
        assert worst(ours(ids, mask=mask)[mask], expected[mask]) <= TOLERANCE
        assert worst(ours(ids, mask=mask, attention="explicit")[mask], expected[mask]) <= TOLERANCE


@pytest.mark.parametrize("is_padded", [False, True], ids=["alone", "padded"])
@pytest.mark.parametrize(("parity", "case"), cases(causal=True))
def test_parity_of_cached_decoding(parity, case, is_padded, reference):
    theirs = reference(parity, case)
    ours = load(theirs.folder, dtype="file")
    if not ours.can_cache:
        assert is_dynamic(ours)
        return
    ids, mask = padded(parity, ours, "left")
    inputs = {"attention_mask": mask.long(), "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    if not is_padded:
        ids, mask, inputs = ids[:1], None, {}
    expected = run_theirs(theirs, torch.float64, ids, **inputs).logits
    cache = KvCache(ours.spec, batch=len(ids), capacity=N_TOKENS, dtype=torch.float64, device=torch.device("cpu"))
    edges = [0, 17, *range(20, N_TOKENS + 1)]
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    with torch.no_grad():
        for begin, end in itertools.pairwise(edges):
            part = slice(begin, end)
            logits = ours(ids[:, part], mask=None if mask is None else mask[:, part], cache=cache)
            assert worst(logits[real[:, part]], expected[:, part][real[:, part]]) <= TOLERANCE, (
                f"tokens {begin} to {end}"
            )
