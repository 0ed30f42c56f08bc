"""What `capsbench bring` takes of an archive, and what it leaves; of its runs nothing was trained."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from finished_runs import WEIGHTS, finished
from rich.console import Console

from capsbench.cli import bring as bringing
from capsbench.cli.bring import bring
from capsbench.cli.pack_results import pack_results
from capsbench.data.source import DataSource
from capsbench.errors import CapsbenchError, DataError, ResourceError
from capsbench.files import read_json, write_json, write_text
from capsbench.locks import LOCK, lock, sole
from capsbench.pipeline import dataset_record, described, open_house
from capsbench.plan import House
from capsbench.plan.done import run_digests

Place = tuple[House, DataSource]
OTHER = """
budget: reduced
seeds: [0]
uci_digits: true
width: 0.0625
training: {steps: 4, batch: 16, precision: float32}
tasks:
  mnist: {variants: [cnn, capsnet-r3-recon]}
"""
CNN = "runs/mnist/cnn/seed-{}"


@pytest.fixture
def here(plans: list[Path]) -> Place:
    return open_house(plans[0])


@pytest.fixture
def there(here: Place, tmp_path: Path) -> House:
    """The same plan on another machine, where seeds 0 and 1 of the CNN are done."""
    _, source = here
    elsewhere = replace(here[0], root=tmp_path / "there")
    for seed in (0, 1):
        finished(elsewhere, source, elsewhere.cells[0], seed, 60, 5)
        write_text(elsewhere.folder / CNN.format(seed) / "history.csv", "trained there\n")
    write_json(elsewhere.folder / "plan.json", described(elsewhere, dataset_record(source)))
    return elsewhere


@pytest.fixture
def brought(there: House, tmp_path: Path) -> Callable[[], str]:
    """What `bring` says of an archive of what is there now."""

    def bring_it() -> str:
        console = Console(record=True, width=300)
        archive = tmp_path / "back.tar.gz"
        pack_results(console, there.folder, archive)
        try:
            bring(console, [archive], None)
        except CapsbenchError as error:
            console.print(f"{type(error).__name__}: {error}")
        return console.export_text().replace(str(tmp_path), "")

    return bring_it


def test_what_is_done_there_and_not_here_arrives_whole(here: Place, there: House, brought: Callable[[], str]) -> None:
    ours = here[0].folder / CNN.format(0)
    write_json(ours / "manifest.json", {"digest": "of another training", "status": "done"})
    for name in ("weights.safetensors", "checkpoint/newest.safetensors", "gone/metrics.json"):
        write_text(ours / name, "of the stale run")
    said = brought()
    stale = "brought, in the place of a run here that was not done, damaged, or of another config, source or data"
    assert f"/back.tar.gz: 1 run: {stale}\n  mnist/cnn/seed-0\n" in said
    assert "/back.tar.gz: 1 run: brought\n  mnist/cnn/seed-1\n" in said
    for seed in (0, 1):
        for file in (there.folder / CNN.format(seed)).rglob("*.*"):
            assert (here[0].folder / file.relative_to(there.folder)).read_bytes() == file.read_bytes()
    left = [path.name for path in ours.iterdir() if not path.name.startswith(".")]
    assert not {"weights.safetensors", "checkpoint", "gone"} & set(left)
    assert read_json(here[0].folder / "plan.json")["name"] == here[0].name
    assert "2 runs: kept, done here already" in brought()


def test_a_run_that_is_done_here_stays(here: Place, brought: Callable[[], str]) -> None:
    house, source = here
    finished(house, source, house.cells[0], 0, 7, 7)  # trained here; its routing's metrics are still to come
    mine = house.folder / CNN.format(0) / "manifest.json"
    shutil.rmtree(mine.parent / "test")
    before = mine.read_bytes()
    write_text(mine.parent / "weights.safetensors", WEIGHTS)
    said = brought()
    assert "1 run: kept, done here already" in said
    assert "1 run: brought\n  mnist/cnn/seed-1" in said
    assert mine.read_bytes() == before
    (mine.parent / "weights.safetensors").unlink()  # it could never be evaluated
    assert "1 run: brought, in the place of a run here that was not done" in brought()


def test_a_run_that_ends_here_while_bring_waits_for_it_stays(
    here: Place, brought: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    house, source = here

    @contextlib.contextmanager
    def waits(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
        if folder == house.folder / CNN.format(0):  # another process held it until it was done
            finished(house, source, house.cells[0], 0, 7, 7)
            write_text(folder / "history.csv", "trained here\n")
        with sole(folder, say):
            yield

    monkeypatch.setattr(bringing, "sole", waits)
    said = brought()
    assert "1 run: kept, done here already" in said
    assert "1 run: brought\n  mnist/cnn/seed-1" in said
    assert (house.folder / CNN.format(0) / "history.csv").read_text() == "trained here\n"


def test_what_does_not_count_here_is_named_with_its_reason(
    here: Place, there: House, brought: Callable[[], str]
) -> None:
    house, source = here
    manifest = there.folder / CNN.format(0) / "manifest.json"
    said = read_json(manifest)
    write_json(manifest, {**said, "digest": "x", "digests": {"config": "x", "training_source": "x", "data": "x"}})
    shutil.copytree(manifest.parent, there.folder / "runs/mnist/capsnet-r9/seed-0")
    finished(there, source, there.cells[1], 0, 60, 5)
    evaluated = there.folder / "runs/mnist/capsnet-r3-recon/seed-0/test"
    evaluated.rename(evaluated.with_name("other"))
    with sole(house.folder / CNN.format(1), print):
        words = brought()
    for expected in (
        "1 run: made with another config and training source and data than here\n  mnist/cnn/seed-0",
        "1 run: a process is at work on it\n  mnist/cnn/seed-1",
        "1 run: the plan has no such run\n  mnist/capsnet-r9/seed-0",
        "1 run: it is not evaluated\n  mnist/capsnet-r3-recon/seed-0",
        "CapsbenchError: 4 runs left out, for the reasons above.",
    ):
        assert expected in words
    assert not list(house.folder.rglob("manifest.json"))


def test_a_run_that_was_stopped_half_way_is_not_done_and_is_taken_again(
    here: Place, brought: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = bringing._copy

    def stops(file: Path, to: Path) -> None:
        if file.name == "manifest.json":
            raise KeyboardInterrupt
        copy(file, to)

    with monkeypatch.context() as patch:
        patch.setattr(bringing, "_copy", stops)
        with pytest.raises(KeyboardInterrupt):
            brought()
    assert (here[0].folder / CNN.format(0) / "history.csv").is_file()
    assert not list(here[0].folder.rglob("manifest.json"))
    assert "2 runs: brought" in brought()


@pytest.mark.parametrize("packed", [True, False])
def test_what_one_plan_has_trained_another_that_has_the_row_alike_need_not_train(
    there: House, tmp_path: Path, packed: bool
) -> None:
    other = tmp_path / "other.yaml"  # which has not the CNN's seed 1
    other.write_text(OTHER)
    house, source = open_house(other)
    finished(there, source, there.cells[1], 0, 60, 5)
    manifest = there.folder / "runs/mnist/capsnet-r3-recon/seed-0/manifest.json"
    digests = run_digests(house, house.cells[1], 0, dataset_record(source)["digest"])
    write_json(manifest, {**read_json(manifest), "digest": "x", "digests": {**digests, "config": "of another rate"}})
    place = there.folder
    console = Console(record=True, width=300)
    if packed:
        place = tmp_path / "theirs.tar.gz"
        pack_results(console, there.folder, place)
    before = {path: path.read_bytes() for path in there.folder.rglob("*") if path.is_file()}
    bring(console, [place], other)
    said = console.export_text()
    assert "1 run: brought\n  mnist/cnn/seed-0\n" in said
    assert "1 run: made with another config than here\n  mnist/capsnet-r3-recon/seed-0\n" in said
    assert [path.parent.name for path in house.folder.rglob("manifest.json")] == ["seed-0"]
    for file in (there.folder / CNN.format(0)).rglob("*.*"):
        assert file.name.startswith(".") or (house.folder / file.relative_to(there.folder)).is_file()
    assert read_json(house.folder / "plan.json")["name"] == "other-digits"
    assert {path: path.read_bytes() for path in before} == before


def test_a_row_that_is_the_same_but_for_its_name_is_pointed_out(there: House, tmp_path: Path) -> None:
    """It is not brought: a manifest says what its run is called. To train it again unaware would be a pity."""
    other = tmp_path / "other.yaml"
    own = "variants:\n  my-cnn: {base: cnn, title: Mine}\ntasks:\n  mnist: {variants: [my-cnn]}\n"
    other.write_text(OTHER.partition("tasks:")[0].replace("seeds: [0]", "seeds: [0, 4]") + own)
    for seed in (0, 1):
        manifest = there.folder / CNN.format(seed) / "manifest.json"
        digests = {"config": there.cells[0].config_digest(seed)}
        write_json(manifest, read_json(manifest) | {"digests": digests})
    console = Console(record=True, width=300)
    bring(console, [there.folder], other)
    said = "1 run: has the config of this plan's mnist/my-cnn; give that row the name that it has there"
    assert f"{said}\n  mnist/cnn/seed-0\n" in console.export_text()
    house, source = open_house(other)
    finished(house, source, house.cells[0], 0, 1, 1)  # here too by now
    bring(console, [there.folder], other)
    assert "it has no run of this plan" in console.export_text()


def test_a_run_that_a_process_is_at_work_on_elsewhere_is_left(there: House, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(OTHER)
    console = Console(record=True, width=300)
    with sole(there.folder / CNN.format(0), print), pytest.raises(CapsbenchError, match="1 run left out"):
        bring(console, [there.folder], other)
    assert "1 run: a process is at work on it\n  mnist/cnn/seed-0\n" in console.export_text()


def test_a_run_s_lock_stays_the_file_that_others_wait_for(there: House, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(OTHER)
    house, _ = open_house(tmp_path / "other.yaml")
    ours, theirs = (of.folder / CNN.format(0) / LOCK for of in (house, there))
    for path in (ours, theirs):
        write_text(path, "")
    before = ours.stat().st_ino
    bring(Console(quiet=True), [there.folder], house.path)
    assert (ours.parent / "manifest.json").is_file()
    assert ours.stat().st_ino == before


def test_nothing_is_brought_beside_a_snakemake(here: Place, brought: Callable[[], str]) -> None:
    handle = lock(here[0].folder)
    assert handle is not None
    assert "ResourceError: Snakemake is at work on" in brought()
    assert not list(here[0].folder.rglob("manifest.json"))


def test_archives_that_are_none_of_ours_are_sentences(here: Place, there: House, tmp_path: Path) -> None:
    console = Console(record=True, width=300)
    whole = tmp_path / "whole.tar.gz"
    pack_results(console, there.folder, whole)

    def archive(name: str, files: dict[str, bytes]) -> Path:
        with tarfile.open(tmp_path / name, "w:gz") as out:
            for path, content in files.items():
                member = tarfile.TarInfo(path)
                member.size = len(content)
                member.pax_headers = {"path": path}  # the one kind of name that may hold a NUL
                out.addfile(member, io.BytesIO(content))
        return tmp_path / name

    write_json(here[0].folder / "plan.json", described(here[0], dataset_record(here[1])))
    (tmp_path / "torn.tar.gz").write_bytes(whole.read_bytes()[:-200])
    (tmp_path / "words.tar.gz").write_text("words")
    plan = (there.folder / "plan.json").read_bytes()
    gone = plan.replace(str(here[0].path).encode(), b"nowhere.yaml")
    for file, expected in {
        tmp_path / "torn.tar.gz": "is not a complete archive",
        tmp_path / "words.tar.gz": "is not a complete archive",
        tmp_path / "missing.tar.gz": "cannot be read or unpacked: No such file or directory",
        tmp_path: "holds no results: it has no plan.json that names a plan",
        here[0].folder: r"is the results folder of .*a\.yaml itself; name another plan for these runs with --plan",
        archive("out.tar.gz", {"../plan.json": plan}): "would end up outside the results",
        archive("nul.tar.gz", {"a/b\0c": b""}): "would end up outside the results",
        archive("empty.tar.gz", {"a/x.json": b"{}"}): "has no plan.json that names a plan",
        archive("up.tar.gz", {"a/plan.json": b'{"name": ".."}'}): "has no plan.json that names a plan",
        archive("out-again.tar.gz", {"a/plan.json": b'{"name": "a/../../b"}'}): "has no plan.json that names a plan",
        archive("gone.tar.gz", {"a/plan.json": gone}): r"belongs to the plan nowhere.yaml, which is not here; name it",
    }.items():
        with pytest.raises(DataError, match=expected):
            bring(console, [file], None)
    assert not list(here[0].folder.rglob("manifest.json"))
    bring(console, [tmp_path / "gone.tar.gz"], here[0].path)
    assert "gone.tar.gz: it has no run of this plan" in console.export_text()
    with pytest.raises(ResourceError), sole(here[0].folder, print):
        bring(console, [whole], here[0].path)


@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_an_archive_with_one_bit_that_is_another_is_a_sentence(there: House, tmp_path: Path, suffix: str) -> None:
    archive = tmp_path / f"back.tar.{suffix}"
    write_text(there.folder / CNN.format(0) / "history.csv", random.Random(0).randbytes(100_000).hex())
    pack_results(Console(quiet=True), there.folder, archive)
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    with pytest.raises(DataError, match=r"is not a complete archive \(.*\); copy it again"):
        bring(Console(quiet=True), [archive], None)


@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_an_archive_that_is_broken_in_the_middle_is_a_sentence(there: House, tmp_path: Path, suffix: str) -> None:
    archive = tmp_path / f"back.tar.{suffix}"
    write_text(there.folder / CNN.format(0) / "history.csv", random.Random(0).randbytes(100_000).hex())
    pack_results(Console(quiet=True), there.folder, archive)
    content = archive.read_bytes()
    if suffix == "gz":
        begun = zlib.compressobj(wbits=31)
        content = begun.compress(gzip.decompress(content)[:50_000]) + begun.flush(zlib.Z_FULL_FLUSH)
    else:
        assert content.startswith(b"\xfd7zXZ")
        content = content[:50_000]
    archive.write_bytes(content + bytes([255] * 1_000))  # of which neither could be made
    with pytest.raises(DataError, match=r"is not a complete archive \(.*\); copy it again"):
        bring(Console(quiet=True), [archive], None)


def test_what_was_evaluated_by_an_earlier_version_of_its_plan_is_packed(
    there: House, plans: list[Path], tmp_path: Path
) -> None:
    for seed in (0, 1):
        write_text(there.folder / CNN.format(seed) / "weights.safetensors", "")
    plans[0].write_text(plans[0].read_text().replace("mnist: {", "mnist: {test_images: 400, ", 1))
    console = Console(record=True, width=300)
    pack_results(console, there.folder, tmp_path / "back.tar.gz")
    assert "left out" not in console.export_text()


def test_results_whose_plan_json_is_torn_are_packed_and_it_is_said_that_nothing_takes_them(
    there: House, tmp_path: Path
) -> None:
    console = Console(record=True, width=300)
    archive = tmp_path / "torn.tar.gz"
    (there.folder / "plan.json").write_text('{"schema": 1, "na')
    pack_results(console, there.folder, archive)
    assert "cannot be read, and `capsbench bring` takes no archive without it" in console.export_text()
    with tarfile.open(archive) as packed:
        assert any(name.endswith("cnn/seed-0/manifest.json") for name in packed.getnames())
    with pytest.raises(DataError, match=r"has no plan\.json that names a plan"):
        bring(console, [archive], None)
