"""Doctor: what the disk under a directory does, what the system allows, and what that means.

It measures in a file of its own, which it removes, and reads a few files of the kernel. Where the
system does not tell something, the report says so instead of guessing.
"""

from __future__ import annotations

import os
import resource
import secrets
import shutil
import sys
import time
from contextlib import suppress
from typing import Final, Literal

import msgspec

from store import AccessError

SYNCS_MAX: Final = 400
SYNC_SECONDS: Final = 1.0
"""How many syncs are measured, and for how long at the most."""
WRITE_BYTES: Final = 4096
FAST_SYNC_SECONDS: Final = 20e-6
"""A sync that is faster cannot have reached anything that survives a power cut."""
SLOW_SYNC_SECONDS: Final = 20e-3
FREE_BYTES_MIN: Final = 1 << 30
FREE_SHARE_MIN: Final = 0.05
FREE_FILES_MIN: Final = 10_000
OPEN_FILES_MIN: Final = 1024
MEMORY_KINDS: Final = frozenset(("tmpfs", "ramfs", "devtmpfs"))
REMOTE_KINDS: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs")
)
LAX_OPTIONS: Final = frozenset(("nobarrier", "barrier=0", "data=writeback", "nointegrity"))

Level = Literal["good", "note", "warning"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. A warning is worth acting upon."""

    level: Level
    about: str
    text: str
    advice: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. Durations are seconds; None is what the system does not tell."""

    path: str
    file_system: str | None
    device: str | None
    mount_options: list[str]
    sync_p50: float
    sync_p99: float
    syncs_per_second: float
    free_bytes: int
    free_share: float
    free_files: int | None
    open_files_limit: int
    findings: list[Finding]

    @property
    def healthy(self) -> bool:
        return not any(finding.level == "warning" for finding in self.findings)


class _Mount(msgspec.Struct, frozen=True):
    """Where a directory lies."""

    kind: str | None = None
    device: str | None = None
    options: list[str] = []


def diagnose(path: str | os.PathLike[str]) -> Diagnosis:
    """Look at the disk under a directory, or under where it would be.

    AccessError if nothing can be written there; other OSErrors as they come.
    """
    path = os.fspath(path)
    place = _existing(path)
    try:
        durations = measure_syncs(place)
    except OSError as error:
        raise AccessError(
            f"{place}: no file can be written here to measure with ({error.strerror or error}). "
            f"Nothing was changed. Check that it is a directory which this user may write to, on a "
            f"disk with space."
        ) from error
    mount = mount_of(place)
    space = shutil.disk_usage(place)
    files = _free_files(place)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    p50, p99 = _percentile(durations, 0.5), _percentile(durations, 0.99)
    share = space.free / space.total if space.total else 0.0
    findings = [
        _about_syncs(p50, p99, mount.kind),
        _about_file_system(mount),
        *_about_cache(place),
        *_about_preload(),
        _about_space(space.free, share),
        _about_files(files),
        _about_limit(soft),
    ]
    return Diagnosis(
        path=path,
        file_system=mount.kind,
        device=mount.device,
        mount_options=mount.options,
        sync_p50=p50,
        sync_p99=p99,
        syncs_per_second=len(durations) / sum(durations) if durations else 0.0,
        free_bytes=space.free,
        free_share=share,
        free_files=files,
        open_files_limit=soft,
        findings=findings,
    )


def measure_syncs(directory: str) -> list[float]:
    """How long it takes to make a small append durable, many times over."""
    name = f"{directory}/.fifoq-doctor-{secrets.token_hex(4)}"
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    durations: list[float] = []
    try:
        data = os.urandom(WRITE_BYTES)
        until = time.perf_counter() + SYNC_SECONDS
        while len(durations) < SYNCS_MAX and time.perf_counter() < until:
            os.write(descriptor, data)
            start = time.perf_counter()
            _sync(descriptor)
            durations.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
        os.unlink(name)
    return durations


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def _percentile(durations: list[float], share: float) -> float:
    ordered = sorted(durations)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _existing(path: str) -> str:
    """The directory itself, or the nearest one above it that is there."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def mount_of(path: str, table: str = "/proc/self/mountinfo") -> _Mount:
    """File system, device and options of the mount that holds a directory, where that is told."""
    try:
        with open(table) as file:
            lines = file.read().splitlines()
    except OSError:
        return _Mount()
    wanted = os.stat(path).st_dev
    device = f"{os.major(wanted)}:{os.minor(wanted)}"
    path = os.path.realpath(path)
    best = _Mount()
    longest = -1
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 6 or len(rest) < 3:
            continue
        point = fields[4].encode().decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # The same device, and of those the mount that is nearest; btrfs tells another number.
        score = len(point) + 10_000 * (fields[2] == device)
        if inside and score > longest:
            longest = score
            options = sorted({*fields[5].split(","), *rest[2].split(",")})
            best = _Mount(rest[0], rest[1], options)
    return best


def _free_files(path: str) -> int | None:
    """How many more files there may be; None where there is no such limit."""
    found = os.statvfs(path)
    return found.f_favail if found.f_files else None


def _about_syncs(p50: float, p99: float, kind: str | None) -> Finding:
    told = f"a sync takes {p50 * 1e3:.3g} ms (p99 {p99 * 1e3:.3g} ms)"
    if kind in MEMORY_KINDS:
        return Finding("note", "sync", f"{told}, since this is memory")
    if p50 < FAST_SYNC_SECONDS:
        return Finding(
            "warning",
            "sync",
            f"{told}: faster than any disk can be. Something below says that data is safe which "
            f"is not",
            "After a power cut, confirmed records may be missing. Look for a volatile write cache, "
            "a virtual disk that ignores flushes, or libeatmydata; keep nothing here that matters.",
        )
    if p50 > SLOW_SYNC_SECONDS:
        return Finding(
            "note",
            "sync",
            f"{told}, which is slow",
            "Let many callers share a commit (put_many, more tasks), or use durability "
            '"os" where losing the last 0.1 s to a power cut is fine. A disk with a '
            "power-loss-protected cache is faster.",
        )
    return Finding("good", "sync", told)


def _about_file_system(mount: _Mount) -> Finding:
    about = "file system"
    if mount.kind is None:
        return Finding("note", about, "the system does not tell which file system this is")
    if mount.kind in MEMORY_KINDS:
        return Finding(
            "warning",
            about,
            f"this is {mount.kind}: everything here is gone when the machine stops",
            "Put the store on a disk.",
        )
    if mount.kind in REMOTE_KINDS:
        return Finding(
            "warning",
            about,
            f"this is {mount.kind}, over a network",
            "Locks and syncs mean less there, and readers on another machine may see old bytes. "
            "Put the store on a local disk.",
        )
    if mount.kind == "overlay":
        return Finding(
            "warning",
            about,
            "this is the writable layer of a container: it goes when the container is removed",
            "Mount a volume, and put the store there.",
        )
    lax = sorted(LAX_OPTIONS & {*mount.options})
    if lax:
        return Finding(
            "warning",
            about,
            f"{mount.kind} is mounted with {', '.join(lax)}",
            "A power cut may tear what was synced. Mount it without.",
        )
    return Finding("good", about, f"{mount.kind} on {mount.device}")


def _about_cache(path: str) -> list[Finding]:
    """Whether the disk itself keeps writes in a cache that a power cut empties."""
    number = os.stat(path).st_dev
    block = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
    for place in (f"{block}/queue/write_cache", f"{block}/../queue/write_cache"):
        with suppress(OSError), open(place) as file:
            kind = file.read().strip()
            if kind == "write back":
                text = "the disk has a write cache that is flushed by each sync"
                return [Finding("good", "write cache", text)]
            return [Finding("good", "write cache", f"the disk has none to flush ({kind})")]
    return [Finding("note", "write cache", "the system does not tell whether the disk has one")]


def _about_preload() -> list[Finding]:
    """Libraries that make syncs do nothing, in this process or in whatever it starts."""
    loaded = os.environ.get("LD_PRELOAD", "")
    if "eatmydata" not in loaded:
        return []
    return [
        Finding(
            "warning",
            "libeatmydata",
            "LD_PRELOAD makes every sync do nothing",
            "Start without it: no durability holds.",
        )
    ]


def _about_space(free: int, share: float) -> Finding:
    told = f"{free / (1 << 30):.3g} GiB free ({share:.0%})"
    if free < FREE_BYTES_MIN or share < FREE_SHARE_MIN:
        return Finding(
            "warning",
            "space",
            told,
            "A full disk refuses puts, and still lets takes and acks through. Free some, or "
            "compact: `fifoq compact PATH`.",
        )
    return Finding("good", "space", told)


def _about_files(files: int | None) -> Finding:
    if files is None:
        return Finding("good", "inodes", "this file system has no limit of files")
    if files < FREE_FILES_MIN:
        return Finding(
            "warning",
            "inodes",
            f"only {files} more files fit",
            "A store needs few files, but none at all stops it. Remove some elsewhere.",
        )
    return Finding("good", "inodes", f"{files} more files fit")


def _about_limit(soft: int) -> Finding:
    if soft < OPEN_FILES_MIN:
        return Finding(
            "warning",
            "open files",
            f"a process may have {soft} files open (RLIMIT_NOFILE)",
            f"A store needs about 20, a service more. Raise it: `ulimit -n {OPEN_FILES_MIN}`.",
        )
    return Finding("good", "open files", f"a process may have {soft} files open")
