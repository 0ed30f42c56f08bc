"""Profiles: what a cluster's says is what Snakemake does, site words stand nowhere else, and GPUs limit local jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from snakemake.cli import parse_args

from capsbench.cli.snakemake import SNAKEMAKE, command, gpus

DEFAULT, SLURM = (Path("profiles") / name / "profile.yaml" for name in ("default", "slurm"))
SETTINGS = """
import json, sys
from snakemake.cli import parse_args
said = vars(parse_args(sys.argv[1:])[1])
words = lambda resources: {name: resource.raw for name, resource in resources.items()}
said["default_resources"] = words(said["default_resources"])
said["set_threads"] = words(said["set_threads"])
said["set_resources"] = {rule: words(resources) for rule, resources in said["set_resources"].items()}
print(json.dumps(said, default=str))
"""
SITE_WORDS = re.compile(r"\b(slurm_\w+|gpu_model|gres|qos|constraint|partition|account)\s*=")


def test_what_the_slurm_profile_says_is_what_snakemake_does(place, clone) -> None:
    """profiles/default is read as well, wherever Snakemake stands, and wins key by key: no key may stand in both."""
    wanted = yaml.safe_load((clone / SLURM).read_text())
    assert not wanted.keys() & yaml.safe_load((clone / DEFAULT).read_text()).keys()
    said = place.ask("-c", SETTINGS, "--snakefile", clone / "Snakefile", "--profile", clone / "profiles" / "slurm")
    assert said.code == 0, said.text
    assert "profiles/default" in said.err
    got = json.loads(said.out)
    extra = wanted.pop("default-resources")
    assert got["default_resources"].items() >= extra.items()
    assert len(wanted) >= 5
    for key, value in wanted.items():
        assert str(got[key.replace("-", "_")]) == str(value), key
    assert got["keep_going"] is True  # of profiles/default: it stays in force


def test_the_words_of_a_site_stand_in_the_profile_alone(clone) -> None:
    profile = (clone / SLURM).read_text()
    assert all(f"# {word}" in profile for word in ("slurm_account", "slurm_partition", "gpu_model"))
    for path in (clone / "workflow").rglob("*.smk"):
        assert not SITE_WORDS.search(path.read_text()), path


def test_the_commented_lines_of_the_profile_are_yaml_that_snakemake_takes(place, clone) -> None:
    """A user only takes a # away: every line that is commented out must then mean something."""
    text = re.sub(r"(?m)^( *)# ( *[a-z][a-z_-]*:( .*)?)$", r"\1\2", (clone / SLURM).read_text())
    folder = place.folder / "site"
    folder.mkdir()
    (folder / "profile.yaml").write_text(text)
    said = place.ask("-c", SETTINGS, "--snakefile", clone / "Snakefile", "--profile", folder)
    assert said.code == 0, said.text
    got = json.loads(said.out)
    assert got["default_resources"].items() >= {"slurm_account": "'my_account'", "gpu_model": "'a100'"}.items()
    asked = got["set_resources"]
    assert asked["train"] == {"runtime": 480, "mem_mb": 16000, "gpu": 0}
    assert asked["evaluate"] == {"runtime": 60, "gpu": 0}
    assert (asked["cost"]["gpu"], asked["tune"]) == (0, {"gpu": 0})
    assert got["slurm_status_command"] == "squeue"


@pytest.fixture
def two_mock_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A mock of NVIDIA's program that lists two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "GPU 0: Mock (UUID: GPU-0)"\necho "GPU 1: Mock (UUID: GPU-1)"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_VISIBLE_DEVICES", "CAPSBENCH_DEVICE", "SNAKEMAKE_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("two_mock_gpus")
@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("CAPSBENCH_DEVICE", "", 2),
        ("CAPSBENCH_DEVICE", "cpu", 0),
        ("CAPSBENCH_DEVICE", "cuda", 2),
        ("CAPSBENCH_DEVICE", "cuda:1", 1),
        ("CUDA_VISIBLE_DEVICES", "", 0),
        ("CUDA_VISIBLE_DEVICES", "-1", 0),
        ("CUDA_VISIBLE_DEVICES", "NoDevFiles", 0),
        ("CUDA_VISIBLE_DEVICES", "1", 1),
        ("CUDA_VISIBLE_DEVICES", "GPU-0,GPU-1,GPU-7", 3),
    ],
)
def test_gpus_are_counted_as_cuda_would(monkeypatch: pytest.MonkeyPatch, name: str, value: str, count: int) -> None:
    monkeypatch.setenv(name, value)
    assert gpus() == count


@pytest.mark.usefixtures("two_mock_gpus")
def test_a_local_run_starts_one_job_a_gpu_and_a_batch_run_is_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--resources gpu=2 --cores all" in " ".join(command(Path("tiny.yaml"), "all", []))
    for batch in (
        ["--profile", "profiles/slurm"], ["--profile=profiles/slurm"], ["--workflow-profile", "profiles/slurm"],
        ["--executor", "kubernetes"], ["--exec=slurm"], ["-e", "slurm"],
    ):  # fmt: skip
        assert "--resources" not in command(Path("tiny.yaml"), "all", batch)
    monkeypatch.setenv("PATH", "")
    assert "--resources" not in command(Path("tiny.yaml"), "all", [])


@pytest.mark.usefixtures("two_mock_gpus")
@pytest.mark.parametrize(
    ("options", "resources", "targets"),
    [
        ("results/x/report.html", {"gpu": 2}, ["results/x/report.html"]),
        ("--resources mem_mb=64000 tmp=1", {"gpu": 2, "mem_mb": 64000, "tmp": 1}, []),
        ("--res mem_mb=64000 --forceall", {"gpu": 2, "mem_mb": 64000}, []),
        ("--resources=mem_mb=64000 --forceall", {"gpu": 2, "mem_mb": 64000}, []),
        ("--resources gpu=1 -k --resources mem_mb=64000", {"gpu": 2, "mem_mb": 64000}, []),
        ("-k --resources gpu=1 mem_mb=64000", {"gpu": 1, "mem_mb": 64000}, []),
        ("--resources mem_mb=64000 results/x/report.html", {"gpu": 2, "mem_mb": 64000}, ["results/x/report.html"]),
        ("--resource mem_mb=64000 -k", {"gpu": 2, "mem_mb": 64000}, []),
    ],
)
def test_a_user_s_words_to_snakemake_take_nothing_away(options, resources, targets) -> None:
    """What Snakemake reads of the command line: the plan, one job a GPU, and the words."""
    made = command(Path("tiny.yaml"), "all", options.split())
    said = parse_args(made[made.index(SNAKEMAKE) + 1 :])[1]
    assert [Path(path).name for path in said.configfile] == ["tiny.yaml"]
    assert dict(said.resources) == resources
    assert list(said.targets) == targets
    assert said.nolock


@pytest.mark.slow
def test_with_one_gpu_jobs_that_ask_for_one_run_one_after_the_other(place) -> None:
    place.plan(steps=200, variants="[cnn, capsnet-r3-recon]")
    one_gpu = {"CAPSBENCH_DEVICE": "", "CUDA_VISIBLE_DEVICES": "0"}  # a mock if there is none: cells train on the CPU
    said = place.capsbench("run", "tiny.yaml", "--cores", 2, **one_gpu)
    assert said.code == 0, said.text
    spans = sorted((m["started"], m["finished"]) for m in map(json.loads, place.manifests().values()))
    assert len(spans) == 2
    assert spans[0][1] <= spans[1][0], spans
