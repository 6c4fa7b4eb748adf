"""The posterior: samples with a table, a file and figures."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from biro.display.arguments import PATH
from biro.inference.posterior.samples import Samples
from biro.inference.posterior.table import PosteriorTable, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from biro.imaging.fit_images import PredictsVisibilities


class Posterior(Samples):
    """Samples of a posterior, in the units of the model file, as `biro.sample` returns them.

    `posterior["core.I"]` gives draws of one parameter that all count alike, `equal_weight()` those of all
    parameters. `samples` and `weight` are the draws as the sampler returned them; those of dynesty, none, and
    nuts with several modes are weighted. `weighted_draws` gives both for one parameter.
    `biro.inference.posterior.samples.Samples` has further attributes.

    Attributes
    ----------
    columns : tuple of Column
        Parameters, in the order of the samples' second axis.
    samples : float64 (n_sample, n_param)
        Weighted by `weight` unless `log_weight` is None.
    log_weight : float64 (n_sample,) or None
        Normalised log weights; None for samples of equal weight.
    log_likelihood, log_prior : float64 (n_sample,)
    log_evidence, log_evidence_err : float or None
        Of the normalised prior (constraints included), and one sigma.
    effective : float64 (n_param,)
        Effective sample size of each parameter.
    provenance : Provenance
        Sampler, seed, options, digests of data and model, versions.
    """

    def __repr__(self) -> str:
        n, who = len(self.samples), self.provenance.sampler
        return f"<Posterior: {n} samples of {self.n_param} parameters, sampler {who}; summary() is its table>"

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def summary(self) -> PosteriorTable:
        """Median, 68 % and 95 %, best fit, effective sample size of each parameter, and the evidence."""
        return summarise(self)

    def plot_residual_image(self, likelihood: PredictsVisibilities, **options: Any) -> Figure:
        """Dirty images of the data, the best fit and the residuals, with peak and rms; a row for each field.

        Parameters
        ----------
        likelihood : Likelihood
            Of the data and the model that were sampled.
        **options
            Any of `biro.imaging.imager.Imaging`: weighting, robust, cell, size, stokes, ...

        Raises
        ------
        InputError
            As `biro.image`.
        """
        from biro.imaging.fit_images import draw_fit_images, fit_images

        best = self.best_fit
        return draw_fit_images(fit_images(likelihood, best, **options), likelihood, best)

    def save(self, path: str | PathLike[str]) -> None:
        """Write one HDF5 file laid out as ArviZ InferenceData (netCDF4), replacing what is there.

        Raises
        ------
        OSError
            It cannot be written; an older file is left as it was.
        """
        from biro.inference.posterior.file import save  # h5py takes long to import

        save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        InputError
            No such file, or not a posterior of this package.
        """
        from biro.inference.posterior.file import load

        PATH.refuse(path, "Posterior.load")
        return load(path, cls)
