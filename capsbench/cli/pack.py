"""`capsbench pack`: an archive for a GPU machine that has PyTorch and no network.

What that machine brings back is packed by pack_results.py.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console

from capsbench.cli.inputs import refuse_shared_folders
from capsbench.cli.options import file_to_write, is_archive
from capsbench.cli.pack_packages import fetch, listed, missing_packages
from capsbench.cli.pack_results import write_archive
from capsbench.data.raw import TORCHVISION
from capsbench.data.source import find_source, verify
from capsbench.errors import CapsbenchError, ResourceError
from capsbench.files import whole_file, write_json
from capsbench.plan import House
from capsbench.plan.custom import custom_files
from capsbench.plan.routings import is_custom
from capsbench.provenance import PACKAGE, SOURCE, git, git_state, is_packed, tree

REPOSITORY = PACKAGE.parent
MEGABYTES = 60
PYTHONS = ("3.11", "3.12", "3.13")
FOR_ONE_PYTHON = """\
"$python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "{0}")' || {{
    echo "run.sh: $python is not Python {0}, which this pack is for; name one with PYTHON=, or pack with --python" >&2
    exit 2
}}
"""
RUN = """\
#!/bin/sh
# Trains and evaluates the runs of the plans that are not done, stops after the given minutes (9), and goes on when
# called again; further arguments go to `capsbench work`. If OUT names a folder, each plan's results are then packed
# into it, whatever came of the work. The exit code is the work's, or 1 if that was 0 and packing failed.
case "$OUT" in ""|/*) ;; *) OUT="$PWD/$OUT" ;; esac
cd "$(dirname "$0")" || exit 1
export PYTHONPATH="$PWD:$PWD/site${PYTHONPATH:+:$PYTHONPATH}" CAPSBENCH_DATA="$PWD/data"
python="${PYTHON:-python3}" minutes="${1:-9}"
[ $# -eq 0 ] || shift
%s"$python" -m capsbench work %s --minutes "$minutes" "$@"
code=$?
if [ -n "$OUT" ]; then
    results="$("$python" -c 'from capsbench.plan import results_root; print(results_root())')" || exit 1
    for runs in "$results"/*/runs; do
        [ -f "${runs%%/runs}/plan.json" ] || continue
        folder="${runs%%/runs}"
        "$python" -m capsbench pack --results "$folder" --to "$OUT/${folder##*/}.tar.gz" || [ $code -ne 0 ] || code=1
    done
fi
exit $code
"""


def pack(console: Console, plans: list[Path], to: Path, python: str, have: Path | None) -> None:
    """Write the code of this commit, MNIST, the packages that are missing there and `run.sh` as one archive.

    Args:
        plans: what `run.sh` works on, in that order; python: the machine's Python, such as 3.12.
        have: packages that the machine has beside PyTorch, one a line (`pip list --format=freeze` will do).

    Raises:
        CapsbenchError: `python` is none of ours, the clone is dirty or none, a plan is not in its commit or not about
            MNIST, or the archive would pass 60 MB. PlanError: a plan is wrong.
        DataError: no MNIST. ResourceError: the packages could not be fetched.
    """
    if python not in PYTHONS:
        raise CapsbenchError(f"--python must be {', '.join(PYTHONS[:-1])} or {PYTHONS[-1]}, not {python}.")
    if is_packed() and not (REPOSITORY / ".git").exists():
        raise CapsbenchError(
            "This was unpacked from an archive; pack from a clone, so that the archive can name its commit."
        )
    state = git_state()
    if state["commit"] is None or state["dirty"] is not False:
        raise CapsbenchError(
            "Only a clean commit is packed, since its results must name it. Commit your changes first."
        )
    to = file_to_write("--to", to, "capsbench.tar.gz", is_archive)
    houses = [House.load(plan) for plan in plans]
    refuse_shared_folders(houses)
    inside = [_inside(house) for house in houses]
    if any(house.plan.tasks.affnist is not None for house in houses):
        console.print("affNIST: not in the archive; runs there are measured on affnist-synth (docs/gpu-run.md).")
    source = find_source("mnist")
    verify(source)
    command = git("archive", "HEAD", "--", *SOURCE)  # no results: what is done here is not done there
    code = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "capsbench-pack"
        root.mkdir()
        unpacked = subprocess.run(["tar", "-x"], cwd=root, input=code, capture_output=True, check=False)
        if unpacked.returncode:
            *_, why = unpacked.stderr.decode(errors="replace").strip().splitlines() or ["tar failed"]
            raise ResourceError(f"{root} cannot be written ({why}); make room there, or set TMPDIR to another place.")
        data = root / "data" / TORCHVISION["mnist"] / "raw"
        data.mkdir(parents=True)
        assert source.folder is not None
        for file in sorted(source.folder.glob("*ubyte*")):
            shutil.copy(file, data)
        names = missing_packages(listed(have) if have else {}, python)
        console.print(f"packages: {', '.join(names) or 'none'}")
        fetch(names, root / "site", python)
        check = FOR_ONE_PYTHON.format(python) if names else ""  # compiled for it; the code itself takes any
        (root / "run.sh").write_text(RUN % (check, shlex.join(inside)))
        (root / "run.sh").chmod(0o755)
        write_json(root / "PACKED.json", {"commit": state["commit"], "files": tree(root)})
        archive = Path(name) / to.name
        size = write_archive(lambda out: out.add(root, root.name), archive)
        if size > MEGABYTES:
            large = sorted((root / "site").iterdir(), key=_size, reverse=True)[:4]
            raise CapsbenchError(
                f"The archive would take {size:.0f} MB, more than {MEGABYTES}; largest: "
                f"{', '.join(path.name for path in large)}. With --have, list what the machine already has, "
                "or end --to in .tar.xz."
            )
        with whole_file(to) as temporary:  # only now: an earlier archive stays where this one may not be
            shutil.copyfile(archive, temporary)
    console.print(f"{to}: {size:.0f} MB. On the other machine: tar xf {to.name} && capsbench-pack/run.sh", markup=False)


def _inside(house: House) -> str:
    """The plan's path in the clone; it and the routings beside it are in the commit, and its data are MNIST."""
    if house.plan.dataset != "mnist":
        raise CapsbenchError(f"{house.path} uses {house.plan.dataset}; the archive can contain only MNIST.")
    routings = {cell.routing for cell in house.cells if is_custom(cell.routing)}
    files = [file for routing in sorted(routings) for file in custom_files(routing, house.path.parent).values()]
    for file in files:
        _of_the_commit(file)
    return _of_the_commit(house.path)


def _of_the_commit(file: Path) -> str:
    """A file's path in the clone. Raises CapsbenchError unless it is in the commit, outside results/."""
    path = file.resolve()
    if path.is_relative_to(REPOSITORY):
        name = path.relative_to(REPOSITORY).as_posix()
        command = git("ls-tree", "--name-only", "HEAD", "--", name)
        found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
        if found.strip() and not name.startswith("results/"):
            return name
    raise CapsbenchError(f"{file} is not in this clone's commit, which is what is packed (without results/).")


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())
