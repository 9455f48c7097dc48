"""Models of transformers are made once a session for each case and dtype; cases are told apart by name in the reports."""

import json
import shutil
from collections.abc import Callable, Iterator

import pytest
import torch
from safetensors.torch import load_file, save_file

from parity import BY_NAME
from parity.harness import Parity, Reference, build


@pytest.fixture(scope="session")
def reference(tmp_path_factory) -> Iterator[Callable[..., Reference]]:
    """reference(parity, case, dtype): transformers' model and its folder, which no test may change."""
    made: dict[tuple[str, str, torch.dtype], Reference] = {}

    def get(parity: Parity, case: str = "base", dtype: torch.dtype = torch.float64) -> Reference:
        key = (parity.family, case, dtype)
        if key not in made:
            made[key] = build(parity, case, dtype, tmp_path_factory.mktemp("reference"))
        return made[key]

    yield get
    for one in made.values():
        shutil.rmtree(one.folder)


@pytest.fixture
def folder(reference, tmp_path):
    """folder(family, case, **config): a copy of the reference's folder whose config is changed; `...` drops a key."""

    def make(family, case="base", drop_tensors=(), rename=None, more=None, **config):
        theirs = reference(BY_NAME[family], case, torch.float32).folder
        plain = json.loads((theirs / "config.json").read_text()) | config
        plain = {key: value for key, value in plain.items() if value is not ...}
        (tmp_path / "config.json").write_text(json.dumps(plain))
        tensors = load_file(theirs / "model.safetensors")
        tensors = {(rename or str)(name): t for name, t in tensors.items() if name not in drop_tensors} | (more or {})
        save_file(tensors, tmp_path / "model.safetensors")
        return tmp_path

    return make
