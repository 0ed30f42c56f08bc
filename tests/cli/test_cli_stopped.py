"""Ctrl-C in a command: its own exit code, one sentence, no traceback."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from places import PATIENCE, REPOSITORY, Place, copy_source, wait_for

from capsbench import cli


def test_ctrl_c_in_a_command_is_one_sentence_and_its_own_exit_code(tmp_path: Path) -> None:
    place = Place(tmp_path, REPOSITORY)
    os.mkfifo(place.folder / "endless.yaml")
    process = place.start("-m", "capsbench", "plan", "endless.yaml")
    with (place.folder / "endless.yaml").open("w"):  # opens once the command has: from then on it waits for a word
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, "", "capsbench: stopped.\n")


def test_so_is_ctrl_c_while_snakemake_reads_the_plan(tmp_path: Path) -> None:
    """A terminal's, to both: Snakemake has no job yet that could save."""
    place = Place(tmp_path, copy_source(tmp_path / "clone"))
    place.plan()
    snakefile = place.clone / "Snakefile"
    snakefile.write_text(f'open("endless").read()\n{snakefile.read_text()}')
    os.mkfifo(place.folder / "endless")
    process = place.start("-m", "capsbench", "run", "tiny.yaml")
    with (place.folder / "endless").open("w"):  # opens once Snakemake reads
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, out + err
    assert err.endswith("capsbench: stopped.\n")
    assert "Traceback" not in out + err


def test_many_ctrl_c_in_a_row_save_as_one_does(tmp_path: Path) -> None:
    place = Place(tmp_path, REPOSITORY)
    place.plan(steps=100_000, variants="[cnn]")
    process = place.start("-m", "capsbench", "train", "tiny.yaml", CAPSBENCH_CHECKPOINT_SECONDS="0.1")
    wait_for(place.results / "runs/mnist/cnn/seed-0/checkpoint/last.safetensors", process)
    for _ in range(100):
        with contextlib.suppress(ProcessLookupError):  # it has come to its end
            process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (4, 130), out + err  # 130: between the last word of training and the command's own
    assert "stopped" in err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("where", ["while it is answered", "while the command leaves"])
def test_so_is_a_second_ctrl_c(where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    signals = iter([KeyboardInterrupt])

    def run() -> None:
        if where == "while it is answered":
            raise next(signals)
        raise SystemExit(0)

    def leave(code: object) -> None:  # not the process that the tests run in
        for one in signals:
            raise one

    monkeypatch.setattr(cli, "_run", run)
    monkeypatch.setattr(cli, "_leave", leave)
    monkeypatch.setattr(cli.gc, "set_threshold", lambda _: None)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code, capsys.readouterr().err) == (130, "capsbench: stopped.\n")
