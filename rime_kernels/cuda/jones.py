"""Beams of 2x2 Jones matrices on the device, and how the kernels that see through them are cut."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.arrays import Sources
from rime_kernels.compile.types import Record
from rime_kernels.cuda.kernels.arguments import typed
from rime_kernels.cuda.kernels.jones.pairs import as_pairs
from rime_kernels.cuda.kernels.jones.voltages import CudaBeams
from rime_kernels.cuda.kernels.rows.parts import RowShape
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.launch_shapes.families import MAX_SHARED
from rime_kernels.jones_beam import JonesBeam

# What a beam has besides the numbers of each call.
_CONSTANT = "coefficient", "grid", "antenna_class", "angle", "feed_angle", "wavelength2", "applies"
# Antennas beyond which tiles of 3 x 3 pay, for of smaller ones several blocks would stage the same; and slots
# of a block.
_MANY, _SLOTS = 32, {2: 64, 3: 66}
_THREADS, _REGISTERS, _CHUNK = 256, 128, 4


def beam_of(sources: Sources) -> JonesBeam | None:
    """The beam, where there is a source to be seen through it."""
    return sources.beam if isinstance(sources.beam, JonesBeam) and sources.n_source else None


def by_rows(sources: Sources, *, for_adjoint: bool) -> bool:
    """Whether such sources go row by row in the factored form too: what the kernel over tiles does not do."""
    return beam_of(sources) is not None and (for_adjoint or sources.n_profile > 0)


class DeviceBeams:
    """The beam that the last call had, kept on the device as long as calls have the same one."""

    def __init__(self, single: bool) -> None:
        self._single = single
        self._held: list[NDArray[np.generic] | None] = []
        self._beams: Record = None

    def load(self, beam: JonesBeam | None) -> tuple[Record, bool]:
        """The beam for the kernels (None without one), and whether it has taken another one's place."""
        if beam is None:
            return None, False
        if self.has(beam):
            return self._beams, False
        self._held = []
        self._beams = typed(_on_device(beam, self._single))
        self._held = [getattr(beam, name) for name in _CONSTANT]
        return self._beams, True

    def has(self, beam: JonesBeam | None) -> bool:
        """Whether the beam is on the device, or there is none."""
        if beam is None or not self._held:
            return beam is None
        # Compared by identity: their content would take longer to compare than to sum.
        return all(getattr(beam, name) is held for name, held in zip(_CONSTANT, self._held, strict=True))


def _on_device(beam: JonesBeam, single: bool) -> CudaBeams:
    _, n_chan, n_y, n_x = beam.coefficient.shape[:4]
    applies = np.ones(1, np.int32) if beam.applies is None else beam.applies.astype(np.int32)
    coefficient, antenna_class = as_pairs(beam.coefficient, single), np.atleast_2d(beam.antenna_class)
    wavelength2 = np.zeros(1) if beam.wavelength2 is None else beam.wavelength2
    first_x, step_x, first_y, step_y = beam.grid.tolist()
    return CudaBeams(
        device.upload(coefficient), device.upload(antenna_class), device.upload(beam.angle),
        device.upload(beam.feed_angles), device.upload(wavelength2), device.upload(applies), n_chan, n_y, n_x,
        first_x, step_x, first_y, step_y,
    )  # fmt: skip


def tile_shape(single: bool, has_gaussian: bool, n_antenna: int) -> TileShape:
    """How the kernel over tiles is cut: as many items in a block as it has slots and threads for."""
    if device.simulated():
        return TileShape(2, 16, 2, 8, 2)
    side = 3 if n_antenna > _MANY else 2
    n_slot, n_group = _SLOTS[side], -(-n_antenna // side)
    n_tile = n_group * (n_group + 1) // 2
    n_item = max(1, min(n_slot // (n_group * side), _THREADS // n_tile, 8))
    n_thread = min(_THREADS, -(-n_item * n_tile // 32) * 32)
    chunk = _CHUNK
    shape = TileShape(side, n_thread, chunk, n_slot, n_item, _REGISTERS if single else 0)
    while _shared_bytes(single, has_gaussian, shape) > MAX_SHARED:
        chunk -= 1
        shape = TileShape(side, n_thread, chunk, n_slot, n_item, shape.max_register)
    return shape


def row_shape() -> RowShape:
    """How the kernel over rows is cut: a channel for each thread."""
    return RowShape(16 if device.simulated() else 128, 1)


def least_rows(time_index: NDArray[np.int32]) -> int:
    """Rows by which slabs are cut: few times, ascending here, are cut in two."""
    return 2 * -(-time_index.size // max(1, np.unique(time_index).size))


def _shared_bytes(single: bool, has_gaussian: bool, shape: TileShape) -> int:
    """Bytes of the shared arrays of `jones.tiles.make_tile_sums`, the gaps that align them included."""
    cplx = 8 if single else 16
    n_term = shape.n_slot // shape.side * (shape.chunk * shape.side + 1)
    n_coordinate = 2 * n_term * has_gaussian
    arrays = [
        16 * cplx * n_term,  # T and T B, of two chunks
        cplx * n_coordinate + cplx * n_coordinate * single,  # along and across, and their low parts
        (10 * 8 + 8 + 4) * shape.n_slot,  # coordinates, frames, where terms lie
        8 * shape.n_item + 8 * shape.n_thread,
    ]
    return sum(arrays) + 16 * 20
