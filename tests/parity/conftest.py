"""Models of transformers are made once a session for each case and dtype; cases are told apart by name in the reports."""

import shutil
from collections.abc import Callable, Iterator

import pytest
import torch

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
