"""How much of a small disk is taken, in whole sectors. A hole takes nothing until written."""

from __future__ import annotations

from fifoq.testing.pending import SECTOR_BYTES


class Capacity:
    """Counts the sectors that files occupy against a limit in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._sectors_max = limit_bytes // SECTOR_BYTES
        self._sectors: dict[int, set[int]] = {}
        self._used = 0

    def copy(self) -> Capacity:
        twin = Capacity(self._sectors_max * SECTOR_BYTES)
        twin._sectors = {ino: sectors.copy() for ino, sectors in self._sectors.items()}
        twin._used = self._used
        return twin

    def take(self, ino: int, offset: int, count: int) -> int:
        """Take space for a write; returns how many of its bytes fit, from the front."""
        mine = self._sectors.setdefault(ino, set())
        end = offset + count
        for sector in range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            if sector in mine:
                continue
            if self._used >= self._sectors_max:
                return max(0, sector * SECTOR_BYTES - offset)
            mine.add(sector)
            self._used += 1
        return count

    def cut(self, ino: int, size: int) -> None:
        """Give back the sectors that lie past `size`."""
        mine = self._sectors.get(ino, set())
        kept = {sector for sector in mine if sector * SECTOR_BYTES < size}
        self._used -= len(mine) - len(kept)
        self._sectors[ino] = kept

    def free(self, ino: int) -> None:
        """Give back all that a file held."""
        self._used -= len(self._sectors.pop(ino, ()))
