"""The checks of conftest.py are really on: a wrong shape, type or result of `unembed`'s functions raises in tests."""

import importlib
import sys

import jaxtyping
import msgspec
import pytest
import torch

SOURCE = '''
"""A package with one function of each kind that the hook must get right."""
from dataclasses import dataclass
from typing import Protocol, Self
import msgspec
import torch
from jaxtyping import Float
from torch import Tensor, nn


class Named(Protocol):
    name: str


class Spec(msgspec.Struct, tag="spec", frozen=True, kw_only=True, forbid_unknown_fields=True):
    width: int

    @property
    def twice(self) -> int:
        return 2 * self.width

    def wider(self) -> Self:
        return msgspec.structs.replace(self, width=self.width + 1)


@dataclass(frozen=True, kw_only=True)
class Row:
    value: float


class Layer(nn.Module):
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, x: Float[Tensor, "batch pos"], named: Named | None = None) -> Float[Tensor, "batch pos"]:
        return x * self.spec.twice


def wrong_result(x: Float[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
    return x
'''


@pytest.fixture
def glass(tmp_path, monkeypatch):
    """The package above, imported through a hook like conftest.py's."""
    (tmp_path / "glass_for_checks.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with jaxtyping.install_import_hook("glass_for_checks", "run_time_checks.checked"):
        yield importlib.import_module("glass_for_checks")
    del sys.modules["glass_for_checks"]


def test_wrong_shapes_types_and_results_raise(glass):
    layer = glass.Layer(glass.Spec(width=2))
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'x'"):
        layer(torch.zeros(3))
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'x'"):
        layer(torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
        glass.wrong_result(torch.zeros(2, 3))
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'value'"):
        glass.Row(value="1")


def test_what_beartype_cannot_read_is_left_alone(glass):
    spec = glass.Spec(width=2)
    assert spec.wider().twice == 6
    assert glass.Layer(spec)(torch.ones(1, 1), named=object()).item() == 4
    assert glass.Row(value=1).value == 1


def test_structs_still_refuse_unknown_fields(glass):
    assert msgspec.json.decode(b'{"type":"spec","width":3}', type=glass.Spec).twice == 6
    with pytest.raises(msgspec.ValidationError, match="unknown field `depth`"):
        msgspec.json.decode(b'{"type":"spec","depth":3}', type=glass.Spec)


def test_unchecked_lets_a_layer_compile_to_one_graph(glass, unchecked):
    layer = glass.Layer(glass.Spec(width=2))
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2, 2)), layer(torch.ones(2, 2)))


def test_this_process_runs_unembed_checked():
    results = importlib.import_module("unembed.results")
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'name'"):
        results.Result(name=3)
