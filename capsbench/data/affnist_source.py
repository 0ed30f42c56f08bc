"""Where the official affNIST comes from: the data folder, the cache, or a download; and that it stays the same file."""

from __future__ import annotations

import http.client
import io
import urllib.request
import zipfile
from pathlib import Path

from capsbench.data.affnist_files import OfficialAffnist, read_files
from capsbench.data.affnist_place import FOLDER, files_digest, official_path
from capsbench.data.batch import DigitSet
from capsbench.data.source import cache_folder
from capsbench.errors import DataError, ResourceError
from capsbench.files import read_json, whole_file, write_json

URL = "https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/test.mat.zip"
LIMIT = 1 << 30  # bytes of a download; the images unpacked are half of it
STALL_SECONDS = 30.0


def official_affnist(digits: DigitSet, folder: str | Path | None = None) -> OfficialAffnist | None:
    """The official test set, or None where its files are not: then SyntheticAffnist takes its place.

    digits: all of MNIST's test digits. Looks into affNIST/ in the folder that CAPSBENCH_DATA names (else `folder`, the
    plan's), then in the cache, where `download_affnist` may have put it. Nobody published a checksum, so the SHA-256 of
    the files is recorded in the cache at their first use and compared at each later one.
    Raises DataError when files are there but damaged, changed, or not those of `digits`.
    """
    path = official_path(folder)
    if path is None:
        return None
    digest = files_digest(path)
    record = cache_folder() / FOLDER / "digests.json"
    _compare(path, digest, record)
    found = read_files(path, digits, digest)
    _record(path, digest, record)
    return found


def download_affnist(folder: Path, url: str | None = None) -> Path:
    """Fetch the official one-file archive into `folder`; its path there. The name appears when the file is whole.

    Raises DataError when the address does not give a whole zip file, ResourceError when `folder` cannot be written.
    """
    final = folder / "test.mat.zip"
    content = _fetch(url or URL)
    try:
        with whole_file(final) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise ResourceError(
            f"{final} cannot be written ({error.strerror or error}); make room there, or name another folder with "
            "CAPSBENCH_CACHE."
        ) from error
    return final


def _fetch(url: str) -> bytes:
    """What `url` gives, whole. Raises DataError."""
    remedy = f"put test.mat.zip into a folder {FOLDER} in the data folder, or use the synthetic set"
    try:
        with urllib.request.urlopen(url, timeout=STALL_SECONDS) as response:
            content: bytes = response.read(LIMIT + 1)
            expected = response.headers.get("Content-Length")
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise DataError(f"affNIST could not be downloaded from {url} ({reason}); {remedy}.") from error
    if expected not in (None, str(len(content))) or not zipfile.is_zipfile(io.BytesIO(content)):
        raise DataError(f"{url} gave {len(content):,} bytes that are no whole zip file; {remedy}.")
    return content


def _compare(path: Path, digest: str, record: Path) -> None:
    known = _recorded(record).get(str(path))
    if known not in (None, digest):
        raise DataError(
            f"{path} is not the file it was at its first use: its SHA-256 is {digest}, not {known}; put the first file "
            f"back, or delete its line in {record} if the change was meant."
        )


def _record(path: Path, digest: str, record: Path) -> None:
    recorded = _recorded(record)
    if str(path) in recorded:
        return
    try:
        write_json(record, recorded | {str(path): digest})
    except OSError as error:
        raise ResourceError(
            f"{record} cannot be written ({error.strerror or error}); make room there, or name another folder with "
            "CAPSBENCH_CACHE."
        ) from error


def _recorded(record: Path) -> dict[str, str]:
    try:
        recorded = read_json(record)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{record} cannot be read ({error}); delete it, and the files count as new.") from error
    if not isinstance(recorded, dict):
        raise DataError(f"{record} is not a list of digests by file; delete it, and the files count as new.")
    return recorded
