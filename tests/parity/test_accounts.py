"""Nothing in a file is passed over: each tensor and each config key of each family, renamed, dropped, added or wrong.

A load stops with the name, or it gives the very same model because the key changes nothing. Where a dropped key means
another model and older files lack it, the family's data names it under `optional`. The sources are changed in memory.
"""

import copy

import pytest
import torch

from parity import PARITIES
from unembed.checkpoints.foreign.huggingface import open_folder
from unembed.checkpoints.foreign.translate import describe, translate
from unembed.errors import UnembedError

EACH = pytest.mark.parametrize("parity", PARITIES, ids=lambda parity: parity.family)
WRONG = ([], {}, [1], "zzz", True, False, -1, 0, 0.5, 2**70, float("nan"), float("inf"), {"a": None}, [[]])


@pytest.fixture
def source(parity, reference, unchecked):
    """The source of the family's base case; `unchecked`, since its functions run hundreds of times on one shape."""
    return open_folder(reference(parity, "base", torch.float32).folder)


def with_tensors(source, drop=(), **more):
    return source._replace(tensors={**{name: t for name, t in source.tensors.items() if name not in drop}, **more})


def refusal(source, load=translate):
    """The message that a load stops with; None where it does not. Anything but our own errors goes through."""
    try:
        load(source)
    except UnembedError as error:
        message = str(error)
    else:
        return None
    assert len(message.splitlines()) <= 6
    return message


@EACH
def test_each_tensor_dropped_renamed_added_or_changed_stops_the_load_by_name(parity, source):
    assert refusal(source) is None
    pairs = parity.ours().duplicates
    repeats = {one.theirs for one in pairs}
    is_tied = source.config.get("tie_word_embeddings", True)
    # of BERT's two names of one bias either may be missing, but not both
    spare = repeats | {one.original for one in pairs if one.is_written_if_untied}
    for one in pairs:
        assert repr(one.original) in refusal(with_tensors(source, drop=[one.original, one.theirs]))
    for name, tensor in source.tensors.items():
        dropped = refusal(with_tensors(source, drop=[name]))
        assert (dropped is None) if name in spare else (repr(name) in dropped), name
        new = f"{name}_x"
        message = refusal(with_tensors(source, drop=[name], **{new: tensor}))
        assert repr(new) in message or repr(name) in message  # a head is asked for before the others
        assert f"source tensor has no rule: {new!r}" in refusal(with_tensors(source, **{new: tensor}))
        if name in repeats:
            message = refusal(with_tensors(source, **{name: tensor + 1}))
            # an untied head's bias is trained apart from the other of its names, and is the one that is added
            is_apart = name in {one.theirs for one in pairs if one.is_written_if_untied} and not is_tied
            assert (message is None) if is_apart else ("should repeat" in message), name
            assert "should repeat" in refusal(with_tensors(source, **{name: tensor[None]}))
            continue
        for changed in (tensor[:-1], tensor[None], tensor[..., :0], tensor.flatten()[0]):
            message = refusal(with_tensors(source, **{name: changed}))
            assert f"tensor {name!r} has shape" in message or f"should repeat {name!r}" in message, changed.shape
        for dtype in (torch.int8, torch.int64, torch.bool):
            message = refusal(with_tensors(source, **{name: tensor.to(dtype)}))
            expected = f"tensor {name!r} is {str(dtype)[6:]}, expected one of float64"
            assert expected in message or f"should repeat {name!r}" in message


def paths(config, prefix=()):
    """Every key of a config, those inside objects too, as tuples."""
    for key, value in config.items():
        yield (*prefix, key)
        if isinstance(value, dict) and key not in ("id2label", "label2id"):
            yield from paths(value, (*prefix, key))


def edited(source, path, edit):
    """The source with the object that holds the last key of `path` edited."""
    config = copy.deepcopy(source.config)
    place = config
    for key in path[:-1]:
        place = place[key]
    edit(place, path[-1])
    return source._replace(config=config)


def rename(place, key):
    place[key + "_x"] = place.pop(key)


@EACH
def test_each_config_key_renamed_or_added_stops_the_load_by_name(parity, source):
    for path in paths(source.config):
        if path[-1] == "model_type":
            continue  # chooses the family, before this: test_refusals.py
        message = refusal(edited(source, path, rename), describe)
        assert path[-1] in message or path[0] in message, path
        message = refusal(edited(source, path, lambda place, key: place.update({key + "_x": 1})), describe)
        assert f"1 config key has no meaning here: {'.'.join(path)}_x = 1" in message, path


def test_every_leftover_is_listed_at_once(reference):
    source = open_folder(reference(PARITIES[1], "base", torch.float32).folder)
    more = {f"a_key_{n}": n for n in range(8)}
    with pytest.raises(
        UnembedError, match=r"8 config keys have no meaning here: a_key_0 = 0, .*a_key_5 = 5 and 2 more"
    ):
        translate(source._replace(config={**source.config, **more}))
    tensors = {f"t{n}": torch.zeros(2) for n in range(8)}
    with pytest.raises(UnembedError, match=r"8 source tensors have no rule: 't0' float32\[2\], .* and 2 more"):
        translate(with_tensors(source, **tensors))


@EACH
def test_each_config_key_dropped_stops_the_load_or_changes_nothing(parity, source):
    assert silent_about(source, dict.pop) == set(parity.optional)


@EACH
def test_each_config_key_set_to_null_stops_the_load_or_changes_nothing(parity, source):
    found = silent_about(source, lambda place, key: place.update({key: None}))
    assert found == set(parity.optional) | set(parity.null)


def silent_about(source, edit):
    """The keys that an edit turns into another model without a word. A message names the key or a tensor."""
    spec, silent = describe(source).spec, set()
    for path in paths(source.config):
        changed = edited(source, path, edit)
        message = refusal(changed)
        if message is not None:
            named = (path[-1], path[0], "has shape", "have no rule", "has no rule", "is missing:", "are missing:")
            assert any(word in message for word in named), (path, message)
        elif describe(changed).spec != spec:
            silent.add(path[-1])
    return silent


@EACH
def test_each_config_key_with_a_wrong_value_is_an_error_of_ours_or_changes_nothing(parity, source):
    spec = describe(source).spec
    for path in paths(source.config):
        before = source.config
        for key in path:
            before = before[key]
        for value in WRONG:
            changed = edited(source, path, lambda place, key, value=value: place.update({key: copy.deepcopy(value)}))
            message = refusal(changed, describe)
            if message is not None:
                named = (path[-1], path[0], "the config describes no model: ")
                assert any(word in message for word in named), (path, value, message)
                continue
            is_number = type(value) in (int, float) and type(before) in (int, float)
            is_switch = type(value) is bool and type(before) is bool
            assert is_number or is_switch or describe(changed).spec == spec, (path, value)
