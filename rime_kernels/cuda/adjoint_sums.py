"""Add up the sums that each launch leaves for the sources, and turn the totals into derivatives of chi2."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.adjoint import Adjoint
from rime_kernels.compile.types import DeviceArray, Stream
from rime_kernels.cuda.adjoint_launcher import AdjointLauncher, AdjointWork
from rime_kernels.cuda.adjoint_totals import add_up, collect, grouped
from rime_kernels.cuda.antenna_sums import AntennaSums
from rime_kernels.cuda.kernels import brightness, reductions, scalars
from rime_kernels.cuda.kernels.chi2_terms import n_kinds
from rime_kernels.cuda.layouts.launch import Arrays, Slab
from rime_kernels.inputs import Parameters, Variant
from rime_kernels.physics.envelope import AXIS_SCALE
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.physics.profiles import N_PARAMETER

# d env / d projection = -2 ln 2 env times the coordinate along the source times this times (u, v, w).
_OF_PROJECTION = -2.0 * math.log(2.0) * scalars.EXPONENT_SCALE * SPEED_OF_LIGHT
# Sizes of batch whose answers' parts are remembered.
_MAX_SIZES = 64


class AdjointSums:
    """Sums of one kind of call, on the device.

    Parameters
    ----------
    launcher : AdjointLauncher
        The kernel that makes records.
    variant : Variant
    shared_beam : int
        Code of the beam that all antennas share.
    spectrum : Spectrum
    given : Parameters
        Of a call; sizes alone matter.
    n_template, n_profile : int
    antennas : AntennaSums or None
        Sums for the matrices of the antennas, where there are any.
    """

    def __init__(
        self, launcher: AdjointLauncher, variant: Variant, shared_beam: int,
        spectrum: brightness.SpectrumKernel,
        given: Parameters, n_template: int, n_profile: int = 0, antennas: AntennaSums | None = None,
    ) -> None:  # fmt: skip
        self._spectrum, self._n_profile, self._antennas = spectrum, n_profile, antennas
        self._launcher, self._variant, self._shared_beam = launcher, variant, shared_beam
        self._n_template, self._n_term = n_template, given.spectral_terms.shape[3]
        self._n_source, self._n_gaussian = given.lm.shape[1], given.shape.shape[1]
        self._n_time, self._n_antenna = given.stokes.shape[1], given.pointing.shape[2]
        self._n_kind = n_kinds(n_template, variant.log, True)
        self._parts: dict[int, list[tuple[slice, tuple[int, ...]]]] = {}
        n_total = launcher.n_column * self._n_source * launcher.moments.n_value
        self._groups = grouped(launcher.unit_time, self._n_time, n_total)

    def record_bytes(self, slab: Slab) -> int:
        """Records of one entry of the batch."""
        first, stop = self._launcher.units(slab)
        itemsize, launcher = np.dtype(self._variant.real).itemsize, self._launcher
        each = sum(launcher.n_copies) * self._n_source * launcher.moments.n_value * itemsize
        of_pairs = 0 if self._antennas is None else self._antennas.record_bytes(slab)
        return int((stop - first) * launcher.n_column * each) + int(launcher.more_bytes(slab)) + of_pairs

    def total_bytes(self) -> int:
        """Totals of one entry of the batch."""
        launcher = self._launcher
        per_group = launcher.n_column * self._n_source * launcher.moments.n_value
        n_total = self._groups.n_group * per_group + self._n_kind * launcher.n_sum
        return 16 * n_total + (0 if self._antennas is None else 2 * self._antennas.total_bytes())

    @property
    def max_batch(self) -> int:
        return int(self._launcher.max_batch)

    def launch(
        self, workspace: device.Workspace, piece: Slab, arrays: Arrays, stream: Stream = 0,
        adds: Stream = 0, main: Stream = 0,
    ) -> None:  # fmt: skip
        """Work a piece out, and add what it gives to the totals; pieces come in the order of their units.

        `adds` is the stream that waits for all others, or the only one of pieces; `main` makes totals.
        """
        launcher, n_batch = self._launcher, arrays.inputs.direction.shape[0]
        first, stop = launcher.units(piece)
        n_value, totals = launcher.moments.n_value, self._totals(workspace, n_batch)
        n_item = n_batch * (stop - first) * launcher.n_column * self._n_source * n_value
        records = [
            workspace.array(f"records {k}", (n_copy * n_item,), self._variant.real)
            for k, n_copy in enumerate(launcher.n_copies)
        ]
        size = (1, 1) if self._antennas is None else (n_batch, self._antennas.record_size(piece))
        by_pair = workspace.array("by pair", size, self._variant.real)
        launcher.launch(AdjointWork(workspace, piece, arrays, records, by_pair, stream, adds))
        # Of all sources, or of points and of Gaussians.
        points = (self._n_source - self._n_gaussian) * n_value
        items = [slice(0, points), slice(points, None)] if len(records) > 1 else [None]
        with device.forked(adds, [main]):
            for n_copy, values, of in zip(launcher.n_copies, records, items, strict=True):
                collect(self._groups, first, stop, n_copy, values, totals, main, of)
            if self._antennas is not None:
                self._antennas.collect(workspace, piece, arrays, by_pair, main)

    def nothing(self) -> Adjoint:
        """The derivatives of an empty batch."""
        return self.adjoint(np.empty(0), 0)

    def sums(self, workspace: device.Workspace, n_batch: int) -> DeviceArray:
        """Workspace for the partial sums, float64: of chi2 and of derivatives: `chi2_terms.n_kinds`."""
        shape = n_batch * self._n_kind, self._launcher.n_sum
        return workspace.array("adjoint sums", shape, np.float64)

    def _totals(self, workspace: device.Workspace, n_batch: int) -> DeviceArray:
        n_item = self._n_source * self._launcher.moments.n_value
        shape = n_batch, self._groups.n_group, self._launcher.n_column, n_item
        return workspace.array("totals", shape, np.float64)

    def _shapes(self, n_batch: int) -> list[tuple[int, ...]]:
        """What is fetched: sums of rows; of sources; S0, spectra, shared beam; antennas; matrices."""
        moments = self._launcher.moments
        of_time = n_batch, self._n_time, self._n_source, self._variant.n_stokes
        shapes: list[tuple[int, ...]] = [(n_batch, self._n_kind), (n_batch, self._n_source, moments.n_value)]
        turned = (*of_time, 4) if self._spectrum.turned else (min(1, n_batch), 1, 1, 1, 1)
        shapes += [of_time, (*of_time, self._n_term), of_time, turned]
        if self._launcher.has_pointing:
            shapes.append(self._launcher.pointing_shape(n_batch, self._n_antenna))
        if self._antennas is not None:
            shapes.append(self._antennas.shape(n_batch))
        return shapes

    def _fetched_parts(self, n_batch: int) -> list[tuple[slice, tuple[int, ...]]]:
        """Where each of the `_shapes` lies in what is fetched; kept, for it is asked for with every call."""
        if n_batch not in self._parts:
            shapes = self._shapes(n_batch)
            ends = np.cumsum([0, *(math.prod(shape) for shape in shapes)]).tolist()
            if len(self._parts) >= _MAX_SIZES:
                self._parts.clear()
            self._parts[n_batch] = list(zip(map(slice, ends, ends[1:]), shapes, strict=True))
        return self._parts[n_batch]

    def answer(
        self, workspace: device.Workspace, given: Parameters, chan_freq: DeviceArray, main: Stream
    ) -> DeviceArray:
        """All that is fetched, float64 on the device, once all pieces have been launched."""
        launcher, variant, n_batch = self._launcher, self._variant, given.lm.shape[0]
        whole, rows, of_source, *of_bright = workspace.parts("answer", self._shapes(n_batch), np.float64)
        sums, totals = self.sums(workspace, n_batch), self._totals(workspace, n_batch)
        moments = launcher.moments
        n_thread, (n_group, n_column) = device.threads_per_block(), totals.shape[1:3]
        reductions.make_batch_sums(n_thread)[sums.shape[0], n_thread, main](sums, rows.reshape(rows.size))
        shape = n_batch, n_column, self._n_source * moments.n_value
        groups = workspace.array("groups", shape, np.float64)
        add_up(totals, (n_batch, n_group), groups, main)
        add_up(groups, (n_batch, n_column), of_source, main)
        of_channel = n_batch, self._n_time, n_column, self._n_source, launcher.run, variant.n_stokes
        bright = workspace.array("by channel", of_channel, np.float64)
        groups_of_time = n_group if self._n_time == 1 else 1
        add_up(
            totals, (n_batch * self._n_time, groups_of_time), bright, main, moments.n_value, moments.n_bright
        )
        brightness.make_pull_brightness(variant, self._shared_beam, self._n_term, self._spectrum)[
            n_batch * self._n_time * self._n_source, brightness.pull_threads(), main
        ](
            bright, chan_freq, given.lm, given.stokes, given.ref_freq, given.spectral_form,
            given.spectral_terms, given.faraday, given.beam_scale, *of_bright[:4],
        )  # fmt: skip
        if launcher.has_pointing:
            launcher.sum_pointing(workspace, n_batch, of_bright[4], main)
        if self._antennas is not None:
            self._antennas.add_up(workspace, n_batch, of_bright[-1], main)
        return whole

    def adjoint(self, fetched: NDArray[np.float64], n_batch: int) -> Adjoint:
        """The derivatives from what was fetched."""
        rows, of_source, stokes, terms, argument, turned, *by_antenna = (
            fetched[part].reshape(shape) for part, shape in self._fetched_parts(n_batch)
        )
        moments, n_row = self._launcher.moments, max(1, self._n_template + self._variant.log)
        projection = np.zeros((n_batch, self._n_gaussian, 2, 3))
        if moments.has_gaussian:
            kinds = slice(moments.projection, moments.projection + 6)
            found = of_source[:, self._n_source - self._n_gaussian :, kinds]
            projection = 2.0 * _OF_PROJECTION * found.reshape(projection.shape)
            projection[:, self._n_gaussian - self._n_profile :] *= AXIS_SCALE / _OF_PROJECTION
        profile = np.zeros((n_batch, max(1, self._n_profile), N_PARAMETER))
        if self._n_profile:
            profile = 2.0 * of_source[:, self._n_source - self._n_profile :, moments.profile :]
        scale, voltage_lm = np.zeros(n_batch), np.zeros((n_batch, self._n_source, 2))
        pointing = np.zeros((n_batch, 1, 1, 2))
        if moments.has_beam:
            of_voltage = 2.0 * of_source[..., moments.voltage : moments.voltage + 3]
            scale, voltage_lm = of_voltage[..., 2].sum(axis=1), of_voltage[..., :2]
        if self._launcher.has_pointing:
            pointing = -2.0 * self._launcher.pointing(by_antenna[0], self._n_antenna)
        template = np.zeros((n_batch, 4 * n_row))
        template[:, : self._n_kind - 1] = 2.0 * rows[:, 1:]
        direction = of_source[..., moments.direction : moments.direction + 3]
        return Adjoint(
            rows[:, 0], stokes, _summed(terms), _summed(argument).sum(axis=2), 4.0 * math.pi * direction,
            projection, scale, pointing, voltage_lm, template.reshape(n_batch, n_row, 4),
            profile,
            _summed(turned).sum(axis=2) if self._spectrum.turned else np.zeros((n_batch, 0, 4)),
            None if self._antennas is None else self._antennas.jones(by_antenna[-1]),
        )  # fmt: skip


def _summed(by_time: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum over the times, axis 1; in most calls there is one."""
    return by_time[:, 0] if by_time.shape[1] == 1 else by_time.sum(axis=1)
