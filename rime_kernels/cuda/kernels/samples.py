"""What an ending of the sums over sources is compiled for, and a thread's memory for it."""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import float32, float64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Module
from rime_kernels.inputs import Variant

# Local arrays alone, which no thread shares: the simulator has them outside of a kernel's module, too.
cuda: Module = device.local_arrays()


class EpilogueKernel(NamedTuple):
    """All that an ending is compiled for."""

    variant: Variant
    matrix: tuple[complex, ...]  # (n_corr, 4), flat: `Rows.stokes_to_corr`
    n_template: int
    has_adjoint: bool
    n: int  # samples whose sums a thread has
    width: int  # of them, those whose data are at hand together
    swaps: bool  # a weight below 0 says that the sums are those of the baseline turned round
    staged: bool = False  # matrices that stay diagonal are read from shared memory: `tiles.sums`

    @property
    def n_corr(self) -> int:
        return len(self.matrix) // 4

    @property
    def n_datum(self) -> int:
        """Data at hand together."""
        return self.width * self.n_corr

    @property
    def n_factor(self) -> int:
        """Factors of templates for the samples at hand."""
        return max(1, self.n_template * self.width)

    @property
    def n_through(self) -> int:
        """Sums of templates that are to be seen through matrices, of the samples at hand."""
        return self.n_datum if self.variant.jones and self.n_template else 1

    @property
    def n_matrix(self) -> int:
        """Numbers of a matrix that an adjoint works with; 1 without matrices."""
        return 8 if self.variant.jones and self.has_adjoint else 1

    @property
    def n_record(self) -> int:
        """What a sample leaves for the matrices of its antennas."""
        return record_size(self.variant, self.n_corr)

    @property
    def n_back(self) -> int:
        """Residuals, in Stokes parameters, of the samples at hand."""
        return 2 * self.variant.n_stokes * self.width if self.has_adjoint else 1


def record_size(variant: Variant, n_corr: int) -> int:
    """Numbers that a sample leaves for the matrices of its two antennas.

    Eight for each of them, as `Matrices` has them. Of matrices that stay diagonal w (V - D) conj(X) of each
    correlation, real and imaginary part, which are multiplied by the element of the other antenna later.
    """
    return 2 * n_corr if variant.diagonal else 16


class Matrices(NamedTuple):
    """A thread's memory for the way back through the matrices of two antennas, in working precision.

    Each is (n_matrix,): the real parts of the four elements row by row, then the imaginary parts.
    """

    full: Array  # X
    first: Array  # A_p
    second: Array  # A_q
    seen: Array  # the weighted residuals, 0 where nothing was observed
    half: Array  # products on the way
    rest: Array


class EpilogueSamples(NamedTuple):
    """A thread's memory for the samples at hand, in working precision; sizes are those of
    `EpilogueKernel`.
    """

    re: Array  # (n_datum,): data without templates, then weighted residuals; real and imaginary part
    im: Array
    weight: Array  # (n_datum,)
    factor_re: Array  # (n_factor,): scale of each template and, where it is moved, its phase
    factor_im: Array
    back: Array  # (n_back,)
    model_re: Array  # (n_corr,), of one sample
    model_im: Array
    template_re: Array  # (n_through,): sums of templates, which are seen through matrices
    template_im: Array
    matrices: Matrices


@functools.cache
def make_sample_arrays(end: EpilogueKernel) -> Compiled:
    """Function that declares a thread's arrays for its epilogue."""
    real = float32 if end.variant.single else float64
    n_datum, n_factor, n_back, n_corr = end.n_datum, end.n_factor, end.n_back, end.n_corr
    n_through, n_matrix = end.n_through, end.n_matrix

    @device.inline
    def sample_arrays() -> EpilogueSamples:
        matrices = Matrices(
            cuda.local.array(n_matrix, real), cuda.local.array(n_matrix, real),
            cuda.local.array(n_matrix, real), cuda.local.array(n_matrix, real),
            cuda.local.array(n_matrix, real), cuda.local.array(n_matrix, real),
        )  # fmt: skip
        return EpilogueSamples(
            cuda.local.array(n_datum, real), cuda.local.array(n_datum, real), cuda.local.array(n_datum, real),
            cuda.local.array(n_factor, real), cuda.local.array(n_factor, real),
            cuda.local.array(n_back, real), cuda.local.array(n_corr, real), cuda.local.array(n_corr, real),
            cuda.local.array(n_through, real), cuda.local.array(n_through, real), matrices,
        )  # fmt: skip

    return sample_arrays
