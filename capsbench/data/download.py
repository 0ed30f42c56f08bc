"""Downloading a data set into the cache: from torchvision's mirrors, checked, and renamed into place when whole."""

from __future__ import annotations

import errno
import http.client
import os
import secrets
import shutil
import threading
import time
import urllib.error
from pathlib import Path

from capsbench.data import raw
from capsbench.data.source import missing_file
from capsbench.errors import DataError, ResourceError

# A mirror that sends nothing for so long is given up. MNIST has two mirrors: a machine without a network knows after
# 24 s. A socket timeout would not do: it counts anew for each address of a host and not at all for the name's look-up.
STALL_SECONDS = 12.0
LEFTOVER_SECONDS = 24 * 3600.0  # a killed process cannot tidy up; the next one does, when no download can still run
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM}


class DownloadError(DataError):
    """No mirror gave the files. The message is a clause without a full stop: the caller adds what to do."""


def download_files(dataset: str, cache: Path) -> Path:
    """Fetch the four .gz files of `dataset` into `cache`; the folder where they lie afterwards.

    torchvision's downloader fetches each file from the first of its mirrors that works; a mirror that failed once is
    not asked again. Each file is checked by its content before it counts (MNIST by SHA-256, so a mirror that gzips
    anew is fine; the others by torchvision's MD5). Everything happens in a folder of this process, which is renamed
    when whole: of two processes at once, the later one takes the earlier one's files.
    Raises DownloadError if no mirror gives a right file, ResourceError if the cache cannot be written.
    """
    final = cache / raw.TORCHVISION[dataset]
    own = cache / f".{final.name}.{os.getpid()}-{secrets.token_hex(4)}"
    try:
        (own / "raw").mkdir(parents=True)
        _remove_leftovers(cache, final.name)
        _fetch_all(dataset, own)
        _move(own / "raw", final / "raw")
    except OSError as error:
        raise ResourceError(
            f"The download cache {cache} cannot be written ({error.strerror or error}); make room there, or name "
            f"another folder with CAPSBENCH_CACHE."
        ) from error
    finally:
        # An abandoned download may write one more file while this runs; then the next process removes the rest.
        shutil.rmtree(own, ignore_errors=True)
    return final / "raw"


def _fetch_all(dataset: str, own: Path) -> None:
    """Fetch and check the four files into own/raw. Raises DownloadError; OSError if the disk is at fault."""
    mirrors = list(torchvision_mirrors(dataset))
    failures: list[str] = []
    for name in raw.FILES:
        while mirrors:
            attempt = own / f"attempt-{len(failures)}"  # an abandoned download never meets the next one's file
            try:
                _fetch(f"{mirrors[0]}{name}.gz", attempt, f"{name}.gz")
                raw.read_checked(dataset, attempt, name)
            except (OSError, RuntimeError, http.client.HTTPException, DataError) as error:
                if isinstance(error, OSError) and error.errno in DISK_ERRORS:
                    raise
                failures.append(f"{mirrors.pop(0)}{name}.gz: {_reason(error, attempt)}")
                continue
            os.replace(attempt / f"{name}.gz", own / "raw" / f"{name}.gz")
            break
        else:
            raise DownloadError(f"{raw.BADGES[dataset]} could not be downloaded ({'; '.join(failures)})")


def torchvision_mirrors(dataset: str) -> list[str]:
    """The addresses that the installed torchvision downloads `dataset` from, in its order."""
    return list(raw.torchvision_class(dataset).mirrors)


def _fetch(url: str, folder: Path, name: str) -> None:
    """Download `url` to folder/name. Raises what torchvision's downloader raised, or TimeoutError when nothing comes.

    The download runs in a thread of its own so that it can be given up while it hangs in a look-up or a read.
    """
    from torchvision.datasets.utils import download_url

    raised: list[Exception] = []

    def work() -> None:
        try:
            download_url(url, folder, filename=name)
        except Exception as error:  # handed to the caller below, whatever it is
            raised.append(error)

    thread = threading.Thread(target=work, name=f"download {name}", daemon=True)
    thread.start()
    size, last = -1, time.monotonic()
    while thread.is_alive():
        thread.join(0.05)
        grown = _size(folder / name)
        if grown != size:
            size, last = grown, time.monotonic()
        elif time.monotonic() - last > STALL_SECONDS:
            raise TimeoutError(f"nothing came for {STALL_SECONDS:g} s")
    if raised:
        raise raised[0]


def _move(whole: Path, final: Path) -> None:
    """Rename the folder of four checked files to `final`, unless another process was first."""
    try:
        final.parent.mkdir(exist_ok=True)
        whole.rename(final)
    except OSError:
        if not final.is_dir():
            raise
        if missing_file(final) is not None:  # somebody took a file out of the cache: every file here is whole and right
            for path in whole.iterdir():
                os.replace(path, final / path.name)


def _remove_leftovers(cache: Path, name: str) -> None:
    for folder in cache.glob(f".{name}.*"):
        try:
            age = time.time() - folder.stat().st_mtime
        except FileNotFoundError:  # its owner was faster
            continue
        if age > LEFTOVER_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)  # another process may be removing it too


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _reason(error: Exception, attempt: Path) -> str:
    """What went wrong, without the path of a temporary folder and without a second full stop."""
    text = str(error)
    if isinstance(error, DataError):
        text = text.split(";")[0]  # the remedy is the caller's
    elif isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        text = str(error.reason)
    return text.replace(f"{attempt}{os.sep}", "").rstrip(".") or type(error).__name__
