"""metrics.jsonl: complete lines and nothing else, whatever a kill or a full disk left (A30: the log of a resumed run)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints.faults import FaultyDisk
from unembed.checkpoints.run.metrics import MetricsLog
from unembed.errors import ResourceError, RunError


def record(step: int, split: str = "train") -> dict:
    return {"step": step, "split": split, "loss_nats": 3.0 / (step + 1), "learning_rate": 1e-3}


@pytest.fixture
def log(tmp_path):
    return MetricsLog(tmp_path / "metrics.jsonl")


def test_worked_example_lines(log):
    log.append({"step": 3, "split": "val", "loss_nats": float("nan"), "note": "한국어"})
    log.append({"step": 4, "loss_nats": 0.1})
    assert log.path.read_text(encoding="utf-8") == (
        '{"step": 3, "split": "val", "loss_nats": null, "not_finite": "nan", "note": "한국어"}\n'
        '{"step": 4, "loss_nats": 0.1}\n'
    )
    assert log.records()[0]["not_finite"] == "nan"


def test_no_log_yet(log):
    assert log.records() == []
    log.truncate(5)
    log.flush()
    assert not log.path.exists()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.binary(max_size=8))
def test_property_a_resumed_log_equals_the_unbroken_one(tmp_path_factory, checkpoint, reached, torn):
    folder = tmp_path_factory.mktemp("logs")
    unbroken, resumed = MetricsLog(folder / "a.jsonl"), MetricsLog(folder / "b.jsonl")
    for step in range(10):
        unbroken.append(record(step))
        unbroken.append(record(step, "val"))
    for step in range(max(checkpoint, reached) + 1):
        resumed.append(record(step))
        resumed.append(record(step, "val"))
    with resumed.path.open("ab") as file:
        file.write(torn.replace(b"\n", b"{"))
    again = MetricsLog(resumed.path)
    again.truncate(checkpoint)
    for step in range(checkpoint + 1, 10):
        again.append(record(step))
        again.append(record(step, "val"))
    assert resumed.path.read_bytes() == unbroken.path.read_bytes()


@pytest.mark.parametrize(
    "torn", [b'{"step": 1, "loss_na', b'{"step": 1}', b"\0" * 40, b"\0\0\n\0\n", b"[1]\n", b"\xff\n", b'"\n']
)
def test_what_stands_after_the_last_line_is_passed_over_and_cut(log, torn):
    log.append(record(0))
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + torn)
    again = MetricsLog(log.path)
    assert again.records() == [record(0)]
    again.append(record(1))
    assert log.path.read_bytes() == whole + json.dumps(record(1)).encode() + b"\n"


def test_minus_one_removes_all(log):
    log.append(record(0))
    log.truncate(-1)
    assert log.path.read_bytes() == b""
    log.append(record(0))
    assert log.records() == [record(0)]


@pytest.mark.parametrize("broken", [b"{\n", b"[]\n", b'{"loss": 1}\n', b'{"step": true}\n', b"[" * 100_000 + b"\n"])
def test_damage_before_the_end_is_named(log, broken):
    log.append(record(0))
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + broken + whole)
    for work in (log.records, lambda: log.truncate(0), lambda: MetricsLog(log.path).append(record(3))):
        with pytest.raises(RunError, match=r"metrics\.jsonl: line 2 is no record .* Remove that line"):
            work()
    assert log.path.read_bytes() == whole + broken + whole


@pytest.mark.parametrize("step", [None, 1.0, "1", True])
def test_a_record_needs_a_step(log, step):
    with pytest.raises(RunError, match="needs an integer `step`"):
        log.append({"step": step})
    with pytest.raises(RunError, match="got None"):
        log.append({})


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO", "short"])
def test_every_call_of_an_append_may_fail(tmp_path, fault):
    for at in range(3):
        path = tmp_path / f"{fault}-{at}.jsonl"
        MetricsLog(path).append(record(0))
        faulty = MetricsLog(path, files=FaultyDisk(at=at, fault=fault))
        if fault == "short":
            faulty.append(record(1))
        else:
            with pytest.raises(ResourceError if fault == "ENOSPC" else RunError, match="The record of step 1"):
                faulty.append(record(1))
        found = MetricsLog(path).records()
        assert found[0] == record(0)
        assert found[1:] in ([], [record(1)])
        faulty.append(record(2))
        assert MetricsLog(path).records()[-1] == record(2)


def test_a_line_torn_by_a_full_disk_is_cut_before_the_next(log):
    class HalfThenFull(FaultyDisk):
        def write(self, handle, data):
            if self.fault == "full":
                return self._call("write", handle, data[:0]) or self._fail()
            self.fault = "full"
            return super()._call("write", handle, data[:5])

        def _fail(self):
            raise OSError(28, "No space left on device")

    log.append(record(0))
    with pytest.raises(ResourceError, match="No space left on device"):
        MetricsLog(log.path, files=HalfThenFull()).append(record(1))
    assert log.path.read_bytes().endswith(b'\n{"ste')
    assert log.records() == [record(0)]
    later = MetricsLog(log.path)
    later.append(record(1))
    assert later.records() == [record(0), record(1)]
