"""Processes of this machine: none outlives its driver."""

from __future__ import annotations

import signal
from unittest import mock

import pytest
from cli_fixtures import tiny_model as tiny_model
from internals import local_module as local


def test_workers_leave_ctrl_c_to_their_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows does not hand on what the driver has said of it."""
    monkeypatch.setattr(local, "start_worker", lambda job, threads: (job, threads))
    monkeypatch.setattr(local, "_begin", None, raising=False)
    before = signal.getsignal(signal.SIGINT)
    try:
        local._start("job", 1)  # type: ignore[arg-type]
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_workers_do_not_finish_what_nobody_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After Ctrl-C their units could take minutes, and what comes of them would be thrown away."""
    pool = mock.Mock(_processes={1: mock.Mock(), 2: mock.Mock()})
    monkeypatch.setattr(local, "ProcessPoolExecutor", lambda *_, **__: pool)
    with local.Local(workers=2).open(mock.Mock()):
        pass
    assert not any(process.kill.called for process in pool._processes.values())
    with pytest.raises(KeyboardInterrupt), local.Local(workers=2).open(mock.Mock()):
        raise KeyboardInterrupt
    assert all(process.kill.called for process in pool._processes.values())
    assert pool.shutdown.call_count == 2
