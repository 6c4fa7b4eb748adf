"""What one call gives the kernels to read: its parameters on the device, and the data piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rime_kernels import device
from rime_kernels.arrays import AntennaTerms
from rime_kernels.compile.types import DeviceArray, Record, Stream
from rime_kernels.cuda.kernels import brightness as rime_cuda
from rime_kernels.cuda.kernels.arguments import DataColumns
from rime_kernels.cuda.layouts.data import Data
from rime_kernels.cuda.layouts.launch import Arrays, Layout, Slab
from rime_kernels.inputs import Inputs, Parameters, Variant


class CudaCall(NamedTuple):
    """What is asked for: parameters on the host, and how the rows are laid out for them."""

    given: Parameters
    shared_beam: int
    variant: Variant
    layout: Layout
    n_gaussian: int  # Gaussians and profiles
    spectrum: rime_cuda.SpectrumKernel
    n_profile: int = 0
    terms: AntennaTerms | None = None
    kept_jones: DeviceArray = None  # matrices that stay on the device, in the place of `Parameters.jones`
    beams: Record = None  # as in `Arrays`
    varied: tuple[int, int] = (0, 0)  # `Sources.varied_range`

    @property
    def n_batch(self) -> int:
        return int(self.given.lm.shape[0])

    @property
    def n_source(self) -> int:
        return int(self.given.lm.shape[1])

    @property
    def jones_shape(self) -> tuple[int, int, int]:
        """The shape of Jones matrices, as in `Arrays`."""
        return (0, 0, 0) if self.terms is None else (self.terms.time_block.size, *self.terms.jones.shape[2:4])

    def jones(self, given: Parameters) -> DeviceArray:
        """The matrices that kernels read; `given` is on the device."""
        return given.jones if self.kept_jones is None else self.kept_jones

    @property
    def per_time(self) -> bool:
        return self.given.stokes.shape[1] > 1


class ParameterStaging:
    """Makes what the kernels read, in arrays of a workspace; Gaussians in the tangent frame or not."""

    def __init__(self, workspace: device.Workspace, *, tangent: bool) -> None:
        self._workspace, self._tangent = workspace, tangent

    def arrays(
        self, call: CudaCall, given: Parameters, data: Data, pieces: list[tuple[int, Slab]],
        streams: list[Stream], main: Stream,
    ) -> Iterator[tuple[Slab, Arrays, Stream]]:  # fmt: skip
        """What the kernels read for each piece, all but where sums go; and the stream to launch them on.

        While one slab is summed the next is on its way: it is asked for before.
        """
        no_vis = self._workspace.array("no vis", (1, 1, 1, 1), call.variant.complex)
        inputs = self.inputs(call, given, main)
        bright: DeviceArray = (
            None if call.per_time else self.brightness(call, given, None, "brightness", main)
        )
        loaded: dict[int, DataColumns] = {}
        n_stream = len(streams)
        with device.forked(main, streams):
            for k, (i, piece) in enumerate(pieces):
                for j in sorted({i, pieces[min(k + 1, len(pieces) - 1)][0]} - loaded.keys()):
                    loaded[j] = data.load(j, streams[j % n_stream])
                stream = streams[i % n_stream]
                if call.per_time:
                    bright = self.brightness(call, given, piece, f"brightness {i % 2}", stream)
                n_time = n_times(piece) if call.per_time else 1
                offset = call.layout.n_datum(call.layout.slab(data.slabs[i].unit.start, piece.unit.start))
                columns = loaded[i].ahead(offset)
                arrays = Arrays(
                    inputs, call.n_gaussian, bright, n_time, columns, no_vis, None, call.jones(given),
                    call.jones_shape, call.n_profile, call.beams,
                )  # fmt: skip
                yield piece, arrays, stream

    def inputs(self, call: CudaCall, given: Parameters, stream: Stream) -> Inputs:
        """What the kernels read, on the device."""
        n_item = call.n_batch * call.n_source
        direction = self._workspace.array("direction", (call.n_batch, call.n_source, 3), np.float64)
        shape = (call.n_batch, max(1, call.n_gaussian), 2, 3)
        projection = self._workspace.array("projection", shape, np.float64)
        device.launch_each(
            rime_cuda.make_geometry(self._tangent), n_item, stream, call.n_source - call.n_gaussian, given.lm,
            given.shape, direction, projection,
        )  # fmt: skip
        return Inputs(  # every array on the device
            direction, given.stokes, given.ref_freq, given.spectral_form, given.spectral_terms, projection,
            given.beam_scale, given.pointing, given.template, given.faraday, given.profile,
            given.profile_kind, *call.varied,
        )  # fmt: skip

    def brightness(
        self, call: CudaCall, given: Parameters, piece: Slab | None, name: str, stream: Stream
    ) -> DeviceArray:
        """B of the times of a piece, or of all times at once where it does not change."""
        first, n_time = (piece.time.start, n_times(piece)) if piece else (0, 1)
        n_item = call.n_batch * n_time * call.layout.n_chan * call.n_source
        polarised = call.variant.polarised
        kind = call.variant.complex if polarised else call.variant.real
        bright = self._workspace.array(name, (n_item * (2 if polarised else 1),), kind)
        kernel = rime_cuda.make_brightness(
            call.variant, call.shared_beam, call.layout.source_first, call.spectrum
        )
        device.launch_each(
            kernel, n_item, stream, call.layout.n_chan, first, n_time, call.layout.chan_freq, given.lm,
            given.stokes, given.ref_freq, given.spectral_form, given.spectral_terms, given.faraday,
            given.beam_scale, bright,
        )  # fmt: skip
        return bright


def n_times(piece: Slab) -> int:
    return int(piece.time.stop - piece.time.start)
