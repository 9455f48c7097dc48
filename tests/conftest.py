"""What all tests share: shapes enforced at run time, the data folder, and random numbers that nobody else draws.

The import hook below rewrites `unembed` as it is imported, so that each call checks its shapes and other annotations.
It has to stand before the first import of `unembed`, which is why it is no fixture. It sees this process only: a test
that starts `unembed` as a command runs the code as users have it. Next to read: test_layers.py, which keeps the
folders in order.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jaxtyping
import pytest

if TYPE_CHECKING:
    import torch

# Products of tests are small: a second thread brings nothing, and on a busy machine every product waits for it.
N_THREADS = 1

jaxtyping.install_import_hook("unembed", "run_time_checks.checked")

# Set before torch is imported, so that tests without torch need not import it; commands started by a test inherit them.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = str(min(N_THREADS, int(os.environ.get(_variable) or N_THREADS)))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with the texts, sequences and weights that tests read; skips where there is none."""
    named = os.environ.get("UNEMBED_TEST_DATA")
    if not named:
        pytest.skip("UNEMBED_TEST_DATA is not set: it names the folder with the test data (../shared/data)")
    folder = Path(named).resolve()
    if not folder.is_dir():
        pytest.fail(f"UNEMBED_TEST_DATA is {named!r}, which is no folder")
    return folder


@pytest.fixture
def generator() -> "torch.Generator":
    """A torch generator of this test alone, seeded with 0; torch's own generator is left as it was."""
    import torch

    return torch.Generator().manual_seed(0)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Switches the run-time checks off for one test: `torch.compile` cannot trace through them, and they are slow.

    Use it where a test counts graphs or compiles with `fullgraph=True`, where a message is wanted that the checks would
    forestall, or where the same functions run thousands of times on shapes that another test has checked; nowhere else.
    """
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
