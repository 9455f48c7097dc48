"""No field of a config class is forgotten: each is varied by a case, or excused with a reason."""

import pytest

from parity import PARITIES
from parity.harness import EXCUSED_EVERYWHERE, quiet_transformers

EACH = pytest.mark.parametrize("parity", PARITIES, ids=lambda parity: parity.family)


def fields_of(config_class):
    """The names that a config of this class has: those that it writes, and those that its classes declare."""
    declared = {
        name
        for one in config_class.__mro__
        for name, kind in getattr(one, "__annotations__", {}).items()
        if "ClassVar" not in str(kind)
    }
    return declared | set(config_class().to_dict())


def unvaried(parity):
    config_class = getattr(quiet_transformers(), parity.config)
    plain = config_class()
    made = [config_class(**parity.changed(case)) for case in parity.all_cases]
    return {
        name
        for name in fields_of(config_class)
        if all(getattr(one, name, None) == getattr(plain, name, None) for one in made)
    }


@EACH
def test_every_field_is_varied_or_excused(parity):
    excused = {**EXCUSED_EVERYWHERE, **parity.excused}
    forgotten = unvaried(parity) - set(excused)
    assert not forgotten, f"neither varied nor excused: {sorted(forgotten)}"


@EACH
def test_no_excuse_is_left_over(parity):
    assert set(parity.excused) <= unvaried(parity)


@EACH
def test_seeded_a_field_that_no_case_varies_is_found(parity):
    plain = getattr(quiet_transformers(), parity.config)().to_dict()
    for name in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "hidden_act", "tie_word_embeddings"):
        if name in plain:
            values = {case: {**change, name: plain[name]} for case, change in parity.cases.items()}
            found = unvaried(parity._replace(base={**parity.base, name: plain[name]}, cases=values))
            assert name in found - set(parity.excused) - set(EXCUSED_EVERYWHERE)
