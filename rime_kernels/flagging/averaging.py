"""Visibilities flagged and averaged as they come; flagged ones count where nothing else does."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check, device
from rime_kernels.errors import InputError
from rime_kernels.flagging.options import LEFT, SpectrumOptions


class Mean(NamedTuple):
    """Averages of cells of integrations and channels.

    Attributes
    ----------
    vis : complex128 (n_row, n_cell, n_corr)
        Weighted mean, in the unit of the visibilities; 0 where no visibility has a weight.
    weight : float64 (n_row, n_cell, n_corr)
        Sum of the weights of what the mean is of.
    flag : bool (n_row, n_cell, n_corr)
        Whether all visibilities of the cell are flagged or without weight.
    """

    vis: NDArray[np.complex128]
    weight: NDArray[np.float64]
    flag: NDArray[np.bool_]


class AverageSums(Protocol):
    """Sums over the visibilities of cells, on the CPU or a GPU.

    `values` are sums of weight times visibility and of weights, where flagged visibilities keep 2^-64 of
    theirs, and whether all that has a weight was flagged.
    """

    def add(
        self, vis: NDArray[np.complex64], weight: NDArray[np.float32], flag: NDArray[np.bool_]
    ) -> None: ...

    def flags(self) -> NDArray[np.bool_]: ...

    def values(self) -> tuple[NDArray[np.complex128], NDArray[np.float64], NDArray[np.bool_]]: ...

    def clear(self) -> None: ...


class OnlineAverage:
    """Flags visibilities of integrations, as these come, and averages them over these and groups of channels.

    With `spectra` each spectrum of an integration is looked at by itself first, and interference that is
    found in it is flagged (`rime_kernels.flagging.spectra.flag_spectra`).

    A flagged visibility has 2^-64 of its weight. The mean of a cell is that of its visibilities that are not
    flagged, but a cell of which all are flagged has the mean of these, and its weight in full: it stays there
    to be looked at, with its flag.

    Parameters
    ----------
    shape : (n_row, n_chan, n_corr)
        Of one integration.
    channels : int
        Adjacent channels that are averaged together; the last group may be smaller.
    spectra : SpectrumOptions, optional
        How interference is looked for; without it, it is not.
    backend : "auto", "cpu" or "cuda"
        Where spectra are looked at and sums are kept: on a GPU nothing comes back until it is asked for. Both
        give the same, to the rounding of float64, but for amplitudes within 1e-6 of a threshold.

    Raises
    ------
    InputError
        Numbers that are not whole, or not above 0.
    BackendError
        "cuda" where there is no device.

    Examples
    --------
    >>> average = OnlineAverage((1, 4, 1), channels=2, backend="cpu")
    >>> average.add(np.ones((1, 4, 1)), np.ones((1, 4, 1)), [[[True], [True], [False], [False]]])
    >>> average.mean().weight.ravel(), average.mean().flag.ravel()
    (array([2., 2.]), array([ True, False]))
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        channels: int = 1,
        spectra: SpectrumOptions | None = None,
        backend: device.Backend = "auto",
    ) -> None:
        for name, number in (*zip(("n_row", "n_chan", "n_corr"), shape, strict=True), ("channels", channels)):
            if not isinstance(number, int) or number < 1:
                raise InputError(f"{name} must be a whole number above 0, got {number!r}")
        self.shape, self.channels = shape, channels
        self._sums: AverageSums
        if device.resolve(backend)[0] == "cuda":
            from rime_kernels.flagging.cuda.averaging import DeviceSums

            self._sums = DeviceSums(shape, channels, spectra)
        else:
            self._sums = _HostSums(shape, channels, spectra)

    def add(self, vis: ArrayLike, weight: ArrayLike, flag: ArrayLike = False) -> None:
        """Flag the visibilities of an integration, and add them.

        Parameters
        ----------
        vis : complex64 (n_row, n_chan, n_corr)
            Or all three arrays on the GPU, complex64, float32 and uint8 and of this shape, where they are
            looked at as they are; flags that are found are written into that of flags.
        weight : float32, broadcast against vis
            What is not above 0 or not finite leaves a visibility out; so does one that is not finite.
        flag : bool, broadcast against vis

        Raises
        ------
        InputError
            Another shape than that of the average, or arrays of which some are on the GPU.
        """
        given = vis, weight, flag
        if any(map(device.is_on_device, given)):
            self._sums.add(*self._checked_on_device(given))
            return
        value = check.array("vis", vis, np.complex64, ("n_row", "n_chan", "n_corr"))
        if value.shape != self.shape:
            raise InputError(f"vis must have the shape {self.shape} of the average, got {value.shape}")
        try:
            stated = np.broadcast_to(np.asarray(weight, np.float32), self.shape)
            flagged = np.broadcast_to(np.asarray(flag, bool), self.shape)
        except ValueError:
            raise InputError(f"weight and flag must fit the shape {self.shape} of vis") from None
        self._sums.add(value, stated, flagged)

    def _checked_on_device(self, given: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        """Arrays that are all on the GPU that sums are kept on."""
        kinds = {"vis": np.complex64, "weight": np.float32, "flag": np.uint8}
        for (name, kind), each in zip(kinds.items(), given, strict=True):
            if isinstance(self._sums, _HostSums) or not device.is_on_device(each):
                raise InputError(f"{name}: vis, weight and flag must all be where the sums are kept")
            if each.shape != self.shape or each.dtype != kind:
                raise InputError(
                    f"{name} on the GPU must be {np.dtype(kind)} of the shape {self.shape} of the average,"
                    f" got {each.dtype} of {each.shape}"
                )
        return given

    def flags(self) -> NDArray[np.bool_]:
        """Flags (n_row, n_chan, n_corr) of the integration that came last: given, and found in spectra."""
        return self._sums.flags()

    def mean(self) -> Mean:
        """The averages of what was added so far."""
        total, weight, flag = self._sums.values()
        vis = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0.0)
        return Mean(vis, np.where(flag, weight / LEFT, weight), flag)

    def clear(self) -> None:
        """Begin again."""
        self._sums.clear()


class _HostSums:
    """Sums on the CPU."""

    def __init__(self, shape: tuple[int, int, int], channels: int, spectra: SpectrumOptions | None) -> None:
        n_row, n_chan, n_corr = shape
        self._starts, self._spectra = np.arange(0, n_chan, channels), spectra
        cells = n_row, len(self._starts), n_corr
        self._total, self._weight = np.zeros(cells, np.complex128), np.zeros(cells)
        self._all_flagged, self._flag = np.ones(cells, bool), np.zeros(shape, bool)

    def add(self, vis: NDArray[np.complex64], weight: NDArray[np.float32], flag: NDArray[np.bool_]) -> None:
        counts = (weight > 0.0) & np.isfinite(weight) & np.isfinite(vis)
        value, used = np.where(counts, vis, np.complex64(0.0)), np.where(counts, weight, np.float32(0.0))
        self._flag = flag if self._spectra is None else flag | self._found(value, flag | ~counts)
        kept = np.where(self._flag, LEFT, 1.0) * used
        self._total += np.add.reduceat(kept * value, self._starts, axis=1)
        self._weight += np.add.reduceat(kept, self._starts, axis=1)
        self._all_flagged &= np.logical_and.reduceat(self._flag | ~counts, self._starts, axis=1)

    def _found(self, vis: NDArray[np.complex64], left_out: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What is found in the spectra of an integration."""
        from rime_kernels.flagging.spectra import flag_spectra

        n_row, n_chan, n_corr = vis.shape
        amplitude, given = (np.moveaxis(each, 2, 1).reshape(-1, n_chan) for each in (np.abs(vis), left_out))
        found = flag_spectra(amplitude, given, self._spectra)
        return np.moveaxis(found.reshape(n_row, n_corr, n_chan), 1, 2)

    def flags(self) -> NDArray[np.bool_]:
        return self._flag.copy()

    def values(self) -> tuple[NDArray[np.complex128], NDArray[np.float64], NDArray[np.bool_]]:
        return self._total.copy(), self._weight.copy(), self._all_flagged.copy()

    def clear(self) -> None:
        self._total[...], self._weight[...], self._all_flagged[...] = 0.0, 0.0, True
