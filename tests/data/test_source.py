"""Where the data are looked for, in which order, and what is said when they are not there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capsbench.data.raw import FILES
from capsbench.data.source import DataSource, find_source, source_digest
from capsbench.errors import DataError


def lay(folder: Path, suffix: str = ".gz", without: str = "") -> Path:
    """Four files with the right names: to be found, never to be read."""
    folder.mkdir(parents=True)
    for name in FILES:
        if name != without:
            (folder / f"{name}{suffix}").touch()
    return folder


def test_the_snakefile_can_import_and_ask_without_torch_and_numpy(tmp_path):
    lay(tmp_path / "MNIST" / "raw")
    code = (
        "import sys; from capsbench.data.source import find_source, source_digest\n"
        "source = find_source('mnist'); source_digest(source)\n"
        "print(source.origin, {'torch', 'torchvision', 'numpy'} & set(sys.modules))"
    )
    environment = {"CAPSBENCH_DATA": str(tmp_path), "PATH": ""}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout == "CAPSBENCH_DATA set()\n"


@pytest.mark.parametrize("inside", ["MNIST/raw", "raw", "."])
@pytest.mark.parametrize("suffix", [".gz", ""])
def test_the_usual_layouts_gzipped_and_unpacked(nothing_named, tmp_path, inside, suffix):
    raw = lay(tmp_path / "data" / inside, suffix)
    assert find_source("mnist", tmp_path / "data") == DataSource("mnist", raw, "MNIST", "plan")


@pytest.mark.parametrize(
    ("dataset", "inside", "badge"), [("fashion-mnist", "FashionMNIST", "Fashion-MNIST"), ("kmnist", "KMNIST", "KMNIST")]
)
def test_each_data_set_has_its_own_folder(nothing_named, tmp_path, dataset, inside, badge):
    lay(tmp_path / "MNIST" / "raw")
    raw = lay(tmp_path / inside / "raw")
    assert find_source(dataset, tmp_path) == DataSource(dataset, raw, badge, "plan")


def test_the_order_is_environment_then_plan_then_cache(nothing_named, tmp_path, monkeypatch):
    lay(nothing_named / "MNIST" / "raw")
    assert find_source("mnist").origin == "cache"
    lay(tmp_path / "plan" / "raw")
    assert find_source("mnist", tmp_path / "plan").folder == tmp_path / "plan" / "raw"
    lay(tmp_path / "environment" / "raw")
    monkeypatch.setenv("CAPSBENCH_DATA", str(tmp_path / "environment"))
    found = find_source("mnist", tmp_path / "plan")
    assert (found.origin, found.folder) == ("CAPSBENCH_DATA", tmp_path / "environment" / "raw")
    monkeypatch.setenv("CAPSBENCH_DATA", "")  # empty is not named, as in `CAPSBENCH_DATA= make quick`
    assert find_source("mnist").origin == "cache"


def test_the_cache_is_in_the_current_folder_unless_named(nothing_named, tmp_path, monkeypatch):
    monkeypatch.delenv("CAPSBENCH_CACHE")
    monkeypatch.chdir(tmp_path)
    raw = lay(tmp_path / ".cache" / "capsbench" / "data" / "MNIST" / "raw")
    assert find_source("mnist", download=False) == DataSource("mnist", raw, "MNIST", "cache")


@pytest.mark.parametrize("variable", [True, False])
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda folder: None, "is not a folder that exists"),
        (lambda folder: folder.write_text("a file"), "is not a folder that exists"),
        (lambda folder: folder.mkdir(), "holds none of its four files"),
        (lambda folder: lay(folder / "FashionMNIST" / "raw"), "holds none of its four files"),
        (
            lambda folder: lay(folder / "MNIST" / "raw", without="t10k-labels-idx1-ubyte"),
            "lacks t10k-labels-idx1-ubyte",
        ),
        (lambda folder: lay(folder, "", without="train-images-idx3-ubyte"), "lacks train-images-idx3-ubyte"),
    ],
)
def test_named_but_missing_is_an_error_even_with_a_full_cache_and_fallback(
    nothing_named, tmp_path, monkeypatch, variable, make, what
):
    lay(nothing_named / "MNIST" / "raw")
    folder = tmp_path / "named"
    make(folder)
    if variable:
        monkeypatch.setenv("CAPSBENCH_DATA", str(folder))
    with pytest.raises(DataError, match=what) as caught:
        find_source("mnist", None if variable else folder, fallback=True)
    sentence = str(caught.value)
    assert str(folder) in sentence
    assert ("CAPSBENCH_DATA names" if variable else "the plan names") in sentence
    assert sentence.endswith("name another folder, or none to have the files downloaded.")


@pytest.mark.parametrize("folder", ["x" * 300, "~nobody-of-that-name/data"])
def test_names_that_no_folder_can_have(nothing_named, folder):
    with pytest.raises(DataError, match=f"{folder}, which the plan names"):
        find_source("mnist", folder)


def test_nothing_named_and_no_download(nothing_named):
    with pytest.raises(
        DataError, match=r"not in the cache .* and downloading is off; name a folder .*CAPSBENCH_DATA\."
    ):
        find_source("mnist", download=False)
    source = find_source("mnist", fallback=True, download=False)
    assert (source.dataset, source.folder, source.badge) == ("uci-digits", None, "UCI digits, not MNIST")
    assert "downloading is off, so this goes on with the handwritten digits" in source.notice
    assert not nothing_named.exists()


@pytest.mark.parametrize("dataset", ["fashion-mnist", "kmnist"])
def test_digits_do_not_stand_in_for_other_data(nothing_named, dataset):
    with pytest.raises(DataError, match="downloading is off"):
        find_source(dataset, fallback=True, download=False)


def test_an_unknown_data_set_names_the_nearest():
    with pytest.raises(DataError, match="'fashion-mnits'; did you mean 'fashion-mnist'"):
        find_source("fashion-mnits")


def test_digests_tell_data_sets_apart_and_folders_not(small_fashion, small_files, tmp_path):
    shutil.copytree(small_fashion / "FashionMNIST", tmp_path / "carried" / "KMNIST")
    here, there = find_source("fashion-mnist", small_fashion), find_source("fashion-mnist", tmp_path / "carried/KMNIST")
    assert here.folder != there.folder
    assert source_digest(here) == source_digest(there)
    assert source_digest(here) != source_digest(find_source("kmnist", tmp_path / "carried"))
    path = there.folder / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes() + b"\0")
    assert source_digest(here) != source_digest(there)


def test_mnists_digest_never_changes(tmp_path):
    """Results that are carried about are known by it: were it to change, all of them would be trained again."""
    source = DataSource("mnist", tmp_path, "MNIST", "plan")
    assert source_digest(source) == "9698467e057e22da0718fc24f0b6a93280fa72442f5795836898d37a959c2470"
