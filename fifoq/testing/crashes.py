"""Where a run can be cut, and what the disk may hold afterwards.

`crash_points` stops a run at every state its disk passes through. `power_images` gives what a
power cut may leave of one state, `after_process_crash` what the end of the process alone leaves;
the second can be worked on and cut again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from random import Random

from fifoq.testing.disk import ROOT_INO, Disk
from fifoq.testing.image import ROOT_PLACE, Image, Kind, Place
from fifoq.testing.pending import (
    ABSENT,
    Fill,
    Link,
    Outcome,
    Pending,
    Plan,
    Truncate,
    Unlink,
    Write,
    done,
    outcome_count,
    outcomes,
    random_outcome,
    settle,
)
from fifoq.testing.simfiles import SimFiles

IMAGES_MAX = 4096
SAMPLES = 512
_WORK_FACTOR = 8

Entries = dict[int, dict[str, int]]
"""Directory ino to its names, as a power cut may leave them."""

Variants = dict[bytes, Plan]
"""Every content a file may be left with, and one way to get there."""


def crash_points(
    run: Callable[[SimFiles], object],
    visit: Callable[[int, SimFiles], None],
    *,
    files: SimFiles | None = None,
) -> int:
    """Run a scenario and call `visit(index, files)` at every state of its disk; returns how many.

    A visit happens just before each change and once at the end, so whatever the scenario
    has confirmed by then must already hold of the state it sees. `files` is the running disk
    itself: look at it with `power_images` or `after_process_crash`, which leave it alone.
    If the scenario raises, the state it ended in is visited too and then the error goes on.
    """
    files = SimFiles() if files is None else files
    count = 0

    def at_change() -> None:
        nonlocal count
        visit(count, files)
        count += 1

    files.disk.before_change = at_change
    try:
        run(files)
    finally:
        files.disk.before_change = None
        at_change()
    return count


def after_process_crash(files: SimFiles) -> SimFiles:
    """A new disk as the next process finds it: cache kept, pending still pending, no handles."""
    twin = files.copy()
    twin.process_crash()
    return twin


def power_images(
    files: SimFiles, *, limit: int = IMAGES_MAX, samples: int = SAMPLES, seed: int = 0
) -> Iterator[Image]:
    """The different images that a power cut may leave, each once; `files` is not changed.

    All of them, if there are at most `limit`. Else the telling ones (nothing, everything, each
    operation alone missing, alone present or alone grown, every prefix) and `samples` random ones.
    """
    disk = files.disk
    operations = _reachable_operations(disk)
    images = _all_images(disk, operations, limit)
    if images is None:
        images = _chosen_images(disk, operations, _choices(operations, samples, Random(seed)))
    return images


def image_after(files: SimFiles, outcome: Callable[[Pending], Outcome]) -> Image:
    """The image in which each pending operation has the outcome that a test chose for it."""
    operations = _reachable_operations(files.disk)
    return next(_chosen_images(files.disk, operations, iter([list(map(outcome, operations))])))


def _reachable_operations(disk: Disk) -> list[Pending]:
    """Pending operations, without those on files that no power cut can show."""
    inos = {ino for node in disk.nodes.values() for ino in node.durable_entries.values()}
    inos.update(operation.ino for operation in disk.pending if isinstance(operation, Link))
    return [
        operation
        for operation in disk.pending
        if isinstance(operation, (Link, Unlink)) or operation.ino in inos
    ]


def _all_images(disk: Disk, operations: list[Pending], limit: int) -> Iterator[Image] | None:
    """Every image, or None if there are more than `limit`."""
    variants: dict[int, Variants] = {}
    by_ino: dict[int, list[Write | Truncate]] = {}
    for operation in operations:
        if isinstance(operation, (Write, Truncate)):
            by_ino.setdefault(operation.ino, []).append(operation)
    for ino, own in by_ino.items():
        found = _variants(disk, ino, own, limit)
        if found is None:
            return None
        variants[ino] = found
    trees = _trees(disk, operations, limit)
    if trees is None:
        return None
    walks = [(*_walk(disk, entries), plan) for entries, plan in trees]
    sizes = {ino: len(found) for ino, found in variants.items()}
    if sum(prod(sizes.get(ino, 1) for ino in inos) for _, inos, _ in walks) > limit:
        return None
    return _product(disk, walks, variants)


def _variants(
    disk: Disk, ino: int, operations: list[Write | Truncate], limit: int
) -> Variants | None:
    """Every content of one file. Merging equal contents after each operation keeps this small."""
    durable = disk.nodes[ino].durable
    shortest = len(durable)
    variants: Variants = {durable: ()}
    for operation in operations:
        grows = isinstance(operation, Write) and operation.offset + len(operation.data) > shortest
        if len(variants) * outcome_count(operation, grows=grows) > limit * _WORK_FACTOR:
            return None
        grown: Variants = {}
        for outcome in outcomes(operation, grows=grows):
            for content, plan in variants.items():
                result = settle(content, operation, outcome, disk.scraps)
                if result not in grown:
                    grown[result] = (*plan, (operation, outcome))
        if len(grown) > limit:
            return None
        variants = grown
        if isinstance(operation, Truncate):
            shortest = min(shortest, operation.size)
    return variants


def _trees(disk: Disk, operations: list[Pending], limit: int) -> list[tuple[Entries, Plan]] | None:
    """Every set of names, each with one way to get there, or None if they are too many."""
    trees: list[tuple[Entries, Plan]] = [(_durable_entries(disk), ())]
    for operation in operations:
        if not isinstance(operation, (Link, Unlink)):
            continue
        done_trees = [(_renamed(entries, operation), plan) for entries, plan in trees]
        found: dict[object, tuple[Entries, Plan]] = {}
        for outcome, branch in ((ABSENT, trees), (done(operation), done_trees)):
            for entries, plan in branch:
                found.setdefault(_frozen(entries), (entries, (*plan, (operation, outcome))))
        trees = list(found.values())
        if len(trees) > limit:
            return None
    return trees


def _product(
    disk: Disk,
    walks: list[tuple[tuple[Place, ...], tuple[int, ...], Plan]],
    variants: Mapping[int, Variants],
) -> Iterator[Image]:
    seen: set[Image] = set()
    for places, inos, plan in walks:
        plans = tuple(variants.get(ino) or {disk.nodes[ino].durable: ()} for ino in inos)
        for contents in product(*plans):
            image = Image(places, contents, scraps=disk.scraps, entry_plan=plan, file_plans=plans)
            if len(walks) > 1:
                if image in seen:
                    continue
                seen.add(image)
            yield image


def _choices(operations: list[Pending], samples: int, random: Random) -> Iterator[list[Outcome]]:
    """The telling choices of one outcome for each operation, then random ones."""
    absent = [ABSENT] * len(operations)
    whole = [done(operation) for operation in operations]
    yield absent
    yield whole
    for index, operation in enumerate(operations):
        yield [*whole[:index], ABSENT, *whole[index + 1 :]]
        yield [*absent[:index], whole[index], *absent[index + 1 :]]
        yield whole[:index] + absent[index:]
        if isinstance(operation, Write):
            for fill in (Fill.ZERO, Fill.GARBAGE):
                grown = Outcome(0, fill)
                yield [*whole[:index], grown, *whole[index + 1 :]]
                yield [*absent[:index], grown, *absent[index + 1 :]]
    for _ in range(samples):
        yield [random_outcome(operation, random) for operation in operations]


def _chosen_images(
    disk: Disk, operations: list[Pending], choices: Iterator[list[Outcome]]
) -> Iterator[Image]:
    seen: set[Image] = set()
    for choice in choices:
        image = _image(disk, tuple(zip(operations, choice, strict=True)))
        if image not in seen:
            seen.add(image)
            yield image


def _image(disk: Disk, plan: Plan) -> Image:
    entries = _durable_entries(disk)
    contents: dict[int, bytes] = {}
    for operation, outcome in plan:
        if isinstance(operation, (Write, Truncate)):
            before = contents.get(operation.ino)
            if before is None:
                before = disk.nodes[operation.ino].durable
            contents[operation.ino] = settle(before, operation, outcome, disk.scraps)
        elif outcome != ABSENT:
            entries = _renamed(entries, operation)
    places, inos = _walk(disk, entries)
    row = tuple(contents[ino] if ino in contents else disk.nodes[ino].durable for ino in inos)
    return Image(places, row, scraps=disk.scraps, entry_plan=plan)


def _durable_entries(disk: Disk) -> Entries:
    return {
        ino: node.durable_entries for ino, node in disk.nodes.items() if node.kind is Kind.DIRECTORY
    }


def _renamed(entries: Entries, operation: Link | Unlink) -> Entries:
    names = entries[operation.directory].copy()
    if isinstance(operation, Link):
        names[operation.name] = operation.ino
    else:
        names.pop(operation.name, None)
    return {**entries, operation.directory: names}


def _frozen(entries: Entries) -> frozenset[tuple[int, frozenset[tuple[str, int]]]]:
    return frozenset((ino, frozenset(names.items())) for ino, names in entries.items())


def _walk(disk: Disk, entries: Entries) -> tuple[tuple[Place, ...], tuple[int, ...]]:
    """Places from the root down, in the one order that makes equal trees equal, and their inos."""
    places, inos = [ROOT_PLACE], [ROOT_INO]
    todo = [(0, ROOT_INO)]
    for parent, directory in todo:
        for name, ino in sorted(entries[directory].items()):
            kind = disk.nodes[ino].kind
            if kind is Kind.DIRECTORY:
                todo.append((len(places), ino))
            places.append(Place(parent, name, kind))
            inos.append(ino)
    return tuple(places), tuple(inos)
