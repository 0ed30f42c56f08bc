"""Weights as one small file, plans worked on without Snakemake, and archives for a machine without a network."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest
from places import Place, Said
from rich.console import Console

from capsbench.cli import pack as packing
from capsbench.cli import pack_results as packing_results
from capsbench.cli.pack_results import archived_name, pack_results
from capsbench.data.source import DataSource
from capsbench.errors import CapsbenchError, ResourceError
from capsbench.files import write_json, write_text
from capsbench.locks import sole
from capsbench.training.checkpoint import read_tensors, write_tensors

RUN = "runs/mnist/capsnet-r3-recon/seed-0"


def test_weights_give_their_figure_again_and_altered_ones_none(done) -> None:
    file = done.folder / "small.safetensors"
    said = done.capsbench("weights", done.results / RUN, "--to", file)
    assert said.code == 0, said.text
    published = re.search(r"[\d.]+ % error \(\d+ of [\d,]+ images\)", said.out)
    assert published
    assert file.stat().st_size < (done.results / RUN / "weights.safetensors").stat().st_size * 0.6
    said = done.capsbench("evaluate", "--weights", file)
    assert said.code == 0, said.text
    assert f"mnist/capsnet-r3-recon seed 0, UCI digits, not MNIST: {published[0]}; as the file says" in said.out

    tensors, meta = read_tensors(file)
    write_tensors(file, tensors, {**meta, "correct": meta["correct"] + 1})  # a figure that these weights do not give
    said = done.capsbench("evaluate", "--weights", file)
    assert said.code == 1, said.text
    assert f"{published[0]}; but the file says" in said.out

    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    said = done.capsbench("evaluate", "--weights", file)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "has been altered" in said.err


def test_a_row_whose_width_scales_a_key_that_does_nothing_gives_its_weights(done) -> None:
    """A CNN's decoder, which it has without reconstruction: in a manifest nobody wrote it, and nobody can unsay it."""
    said = done.capsbench("weights", done.results / "runs/mnist/cnn/seed-0", "--to", "cnn.safetensors")
    assert said.code == 0, said.text
    said = done.capsbench("evaluate", "--weights", "cnn.safetensors")
    assert (said.code, "as the file says" in said.out) == (0, True), said.text


def test_what_holds_no_weights_is_a_sentence(done) -> None:
    for arguments, expected in (
        (["evaluate"], "Name a plan, such as config/quick.yaml, or a file of weights with --weights."),
        (["evaluate", "tiny.yaml", "--weights", "x"], "Name a plan or, with --weights, a file; not both."),
        (["evaluate", "--weights", "nowhere"], "nowhere is not there."),
        (["evaluate", "--weights", done.results / RUN / "weights.safetensors"], "is no file of `capsbench weights`"),
        (["weights", "nowhere", "--to", "x"], "nowhere holds no run"),
        (["weights", done.results / RUN, "--to", "."], "--to is ., a folder; name the file, such as capsnet-r3-reco"),
        (["weights", done.results / "runs/mnist/diverging/seed-0", "--to", "x"], "is a run of mnist that is failed"),
    ):
        said = done.capsbench(*arguments)
        assert (said.code, said.out) == (2, ""), arguments
        assert expected in said.err
        assert "Traceback" not in said.err


def test_work_stops_in_time_goes_on_and_gives_the_bits_that_snakemake_gives(place, finished) -> None:
    place.plan()
    assert place.capsbench("work", "tiny.yaml", "--minutes", 0).err.endswith(
        "3 runs not done for lack of time; give the same command again to go on.\n"
    )
    said = place.capsbench("work", "tiny.yaml")
    assert said.code == 3, said.text  # of the run that diverges
    assert "3 runs to do" in said.out
    assert "all is done; the loss of 1 run was not finite" in said.out
    for name in ("weights.safetensors", "test/predictions.npz"):
        there, here = (where.results / RUN / name for where in (finished.place, place))
        assert there.read_bytes() == here.read_bytes(), name
    said = place.capsbench("work", "tiny.yaml")
    assert "0 runs to do" in said.out
    assert said.code == 3, said.text


def test_a_run_that_is_asked_for_alone_is_the_one_of_the_plan(place) -> None:
    """Its manifest speaks of the plan's seeds, not of those asked for."""
    place.plan(seeds=[0, 1])
    said = place.capsbench("work", "tiny.yaml", "--variant", "cnn", "--seed", 1)
    assert said.code == 0, said.text
    manifest = json.loads((place.results / "runs/mnist/cnn/seed-1/manifest.json").read_text())
    assert "2 of 5 seeds" in manifest["reductions"]


def time_is_up_in_the_middle(place: Place, seeds: int = 1, **environment: str) -> Said:
    """What `work` says when its time is up while it trains: on a slow machine a short one is over before that.

    seeds: how many are to have something to save. The first may have made a step, and the second none yet.
    """
    for minutes in (0.15, 0.4, 1, 3):
        said = place.capsbench("work", "tiny.yaml", "--minutes", minutes, **environment)
        assert said.code == 4, said.text
        if said.out.count("saved after step") >= seeds:
            break
    return said


@pytest.mark.slow
def test_time_that_is_up_in_the_middle_of_a_run_loses_nothing(place) -> None:
    place.plan(steps=100_000, variants="[capsnet-r3-recon]")
    said = time_is_up_in_the_middle(place)
    assert re.search(r"stopped by SIGTERM, saved after step \d+ of 100000", said.out)
    assert said.err == "capsbench: 1 run not done for lack of time; give the same command again to go on.\n"
    said = time_is_up_in_the_middle(place)
    assert "going on after step" in said.out


@pytest.mark.slow
def test_work_trains_several_seeds_at_once_where_that_is_asked_for(place, tmp_path: Path) -> None:
    at_once = {"CAPSBENCH_SEEDS_AT_ONCE": "2"}
    place.plan(steps=100_000, seeds=[0, 1], variants="[capsnet-r3-recon]")
    said = time_is_up_in_the_middle(place, 2, **at_once)
    assert len(re.findall(r"saved after step \d+ of 100000", said.out)) == 2
    assert said.err == "capsbench: 2 runs not done for lack of time; give the same command again to go on.\n"

    shutil.rmtree(place.results)
    place.plan(seeds=[0, 1], variants="[cnn, capsnet-r3-recon]")
    said = place.capsbench("work", "tiny.yaml", **at_once)
    assert said.code == 0, said.text
    assert "4 runs to do" in said.out
    alone = Place(tmp_path / "alone", place.clone)
    alone.root.mkdir(parents=True)
    alone.plan(seeds=[0, 1], variants="[cnn, capsnet-r3-recon]")
    assert alone.capsbench("work", "tiny.yaml").code == 0
    weights = sorted(path.relative_to(place.results) for path in place.results.glob("runs/*/*/*/weights.safetensors"))
    assert len(weights) == 4
    for path in weights:
        assert (place.results / path).read_bytes() == (alone.results / path).read_bytes(), path


def test_results_that_come_back_without_weights_are_recognised_as_done(done, tmp_path: Path, clone: Path) -> None:
    archive = tmp_path / "back.tar.gz"
    said = done.capsbench("pack", "--results", done.results, "--to", archive)
    assert said.code == 0, said.text
    home = Place(tmp_path / "home", clone)
    home.root.mkdir(parents=True)
    home.plan()
    said = home.capsbench("bring", archive)
    assert said.code == 0, said.text
    assert "3 runs: brought" in said.out
    assert list(home.root.rglob("predictions.npz"))
    assert not [*home.root.rglob("*.safetensors"), *home.root.rglob("scores.npz")]
    assert home.manifests() == done.manifests()
    assert not {job for job in home.would_run() if job.startswith(("Train", "Evaluate"))}
    said = home.capsbench("work", "tiny.yaml")
    assert "0 runs to do" in said.out, said.text

    said = home.capsbench("pack", "--results", home.folder, "--to", archive)
    assert said.code == 2
    assert "holds no results" in said.err


def test_a_pack_that_grows_too_large_is_refused_and_names_what_is_large(tmp_path: Path, monkeypatch) -> None:
    assert packing.MEGABYTES == 60  # as docs/gpu-run.md says
    monkeypatch.setattr(packing, "MEGABYTES", 0)
    monkeypatch.setattr(packing, "git_state", lambda: {"commit": "a", "dirty": False})
    monkeypatch.setattr(packing, "find_source", lambda _: DataSource("mnist", tmp_path, "MNIST", "plan"))
    monkeypatch.setattr(packing, "verify", lambda _: {})
    monkeypatch.setattr(packing, "fetch", lambda names, site, _: (site / "large").mkdir(parents=True))
    to = tmp_path / "pack.tar.gz"
    earlier = gzip.compress(b"an earlier one")
    to.write_bytes(earlier)
    plans = [packing.REPOSITORY / "config" / "smoke.yaml"]
    with pytest.raises(
        CapsbenchError, match=r"would take \d+ MB, more than 0; largest: large\. With --have, list what"
    ):
        packing.pack(Console(quiet=True), plans, to, "3.12", None)
    assert to.read_bytes() == earlier


def test_what_is_trained_and_not_evaluated_stays_where_its_weights_are(tmp_path: Path) -> None:
    results = tmp_path / "results" / "paper"
    runs = [("evaluated", "done"), ("waiting", "done"), ("retrained", "done"), ("torn", "done"), ("held", "done")]
    runs += [("damaged", "done"), ("failing", "failed"), ("broken", None)]
    for name, status in runs:
        folder = results / "runs" / "mnist" / name / "seed-0"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps({"status": status, "weights": "a"}) if status else "{")
        (folder / "weights.safetensors").touch()
    for name, weights in (("evaluated", "a"), ("retrained", "of an earlier training"), ("torn", "a"), ("held", "a")):
        for condition in ("test", "routing"):
            metrics = {"weights": weights, "digest": condition if name == "torn" else "one"}
            write_json(results / "runs/mnist" / name / "seed-0" / condition / "metrics.json", metrics)
    write_text(results / "runs/mnist/damaged/seed-0/test/metrics.json", "{")
    (results / "plan.json").touch()
    for name in ("logs/train/mnist/evaluated.log", "runs/mnist/evaluated/seed-0/checkpoint/best.json"):
        write_text(results / name, "of use here alone")
    (results / "runs/mnist/evaluated/seed-0/test/.predictions.npz.ab12").write_text("a process was killed")
    console = Console(record=True, width=300)
    with sole(results / "runs/mnist/held/seed-0", print):
        pack_results(console, results, tmp_path / "back.tar.gz")
    said = console.export_text()
    assert "mnist/held/seed-0 is left out: a process is at work on it." in said
    for name in ("waiting", "retrained", "torn", "damaged"):
        assert f"mnist/{name}/seed-0 is left out: it is not evaluated yet, and its weights stay here." in said
    with tarfile.open(tmp_path / "back.tar.gz") as stored:
        manifests = [name for name in stored.getnames() if name.endswith("manifest.json")]
        assert not [name for name in stored.getnames() if name.endswith(".safetensors") or "/." in name]
        assert not [name for name in stored.getnames() if "/logs/" in name or "/checkpoint/" in name]
    assert sorted(manifests) == [
        f"paper/runs/mnist/{n}/seed-0/manifest.json" for n in ("broken", "evaluated", "failing")
    ]


def test_a_run_without_one_of_its_plan_s_conditions_stays_where_its_weights_are(done, tmp_path: Path) -> None:
    shutil.rmtree(done.results / RUN / "routing")
    said = done.capsbench("pack", "--results", done.results, "--to", tmp_path / "back.tar.gz")
    assert said.code == 0, said.text
    assert f"{RUN} is left out: it is not evaluated yet, and its weights stay here." in said.out
    (done.results / RUN / "weights.safetensors").unlink()  # then leaving it out would bring nothing
    assert "is left out" not in done.capsbench("pack", "--results", done.results, "--to", tmp_path / "back.tar.gz").out


def test_a_run_that_is_trained_while_others_are_packed_is_not_packed_as_done(tmp_path: Path, monkeypatch) -> None:
    first, second = (tmp_path / "runs" / "mnist" / name / "seed-0" / "manifest.json" for name in ("first", "second"))
    write_json(first, {"status": "failed", "weights": None})
    (tmp_path / "plan.json").touch()

    def ends_meanwhile(run: Path) -> bool:
        write_json(second, {"status": "done", "weights": "a"})
        return False

    monkeypatch.setattr(packing_results, "_is_at_work", ends_meanwhile)
    pack_results(Console(record=True), tmp_path, tmp_path / "back.tar.gz")
    with tarfile.open(tmp_path / "back.tar.gz") as stored:
        packed = [name.partition("/")[2] for name in stored.getnames()]
    assert str(first.relative_to(tmp_path)) in packed
    assert str(second.relative_to(tmp_path)) not in packed


def test_what_goes_away_while_it_is_packed_is_a_sentence(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "plan.json").touch()
    monkeypatch.setattr(packing_results, "_kept", lambda *_: iter([tmp_path / "gone"]))
    with pytest.raises(ResourceError, match="gone disappeared while it was being packed; try again"):
        pack_results(Console(record=True), tmp_path, tmp_path / "back.tar.gz")
    assert not (tmp_path / "back.tar.gz").exists()


def test_an_archive_that_cannot_be_made_is_not_said_to_be_a_run_that_disappeared(tmp_path: Path) -> None:
    (tmp_path / "plan.json").touch()
    with pytest.raises(ResourceError, match=r"/proc/back.tar.gz cannot be made \(.*\); name another file with --to."):
        pack_results(Console(record=True), tmp_path, Path("/proc/back.tar.gz"))


def test_results_behind_links_are_packed_whole_under_the_name_that_was_said(tmp_path: Path) -> None:
    disk = tmp_path / "scratch" / "run7"
    folder = disk / "elsewhere" / "mnist" / "cnn" / "seed-0"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"status": "failed", "weights": None}))
    (disk / "runs").symlink_to(disk / "elsewhere")
    (disk / "plan.json").touch()
    (tmp_path / "paper").symlink_to(disk)
    (folder / "history.csv").symlink_to(disk / "gone")  # these two lead nowhere, and round and round
    (folder / "up").symlink_to(disk)
    (folder / "up-to-runs").symlink_to(disk / "elsewhere")
    pack_results(Console(record=True), tmp_path / "paper", tmp_path / "back.tar.gz")
    with tarfile.open(tmp_path / "back.tar.gz") as stored:
        assert {name.split("/")[0] for name in stored.getnames()} == {"paper"}
        assert stored.getmember("paper/runs/mnist/cnn/seed-0/manifest.json").isreg()
        assert not [name for name in stored.getnames() if "/up" in name or name.endswith("history.csv")]
    assert archived_name(tmp_path / "paper" / "tables" / "..") == archived_name(tmp_path / "paper") == "paper"


def test_an_archive_in_the_folder_itself_holds_no_archive(tmp_path: Path) -> None:
    (tmp_path / "plan.json").touch()
    for _ in range(2):
        pack_results(Console(record=True), tmp_path, tmp_path / "back.tar.gz")
        with tarfile.open(tmp_path / "back.tar.gz") as stored:
            assert stored.getnames() == [f"{tmp_path.name}/plan.json"]


def test_a_folder_in_the_place_of_an_archive_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "plan.json").touch()
    with pytest.raises(CapsbenchError, match=r"a folder; name the file, such as .*results\.tar\.gz\.$"):
        pack_results(Console(record=True), tmp_path, tmp_path)
