"""The treatment of gains that is asked for."""

from __future__ import annotations

from biro.choices import Gains
from biro.display.formatting import first_few
from biro.errors import InputError
from biro.likelihood.correlated_noise.visibilities import VisibilityLikelihoodWithCorrelatedNoise
from biro.likelihood.densities.closures import ClosureLikelihood
from biro.likelihood.densities.closures_with_noise_terms import ClosureLikelihoodWithNoiseTerms
from biro.likelihood.densities.gain_treatment import INNER_GAINS, GainTreatment
from biro.likelihood.densities.noise_terms import VisibilityLikelihoodWithNoiseTerms
from biro.likelihood.densities.visibilities import VisibilityLikelihood
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.integrals.fluxes_beside_gains import InnerFluxAndGainLikelihood
from biro.likelihood.integrals.gains import InnerGainLikelihood
from biro.likelihood.integrals.inner_parameters import InnerParameters
from biro.likelihood.integrals.linear import LinearLikelihood
from biro.models import BoundModel
from biro.models.components.antenna_terms.gain import is_of_prior
from biro.observation.observation import Observation


def needing_all_data(gains: Gains, model: BoundModel, full: BoundModel) -> str:
    """What needs all data in one process, so that no others can share them; "" where there is nothing."""
    if gains != "sample":
        return f'gains="{gains}"'
    if full.has_fitted_gains:
        return "gains that are fitted"
    if model is not full:
        return "marginalise = true"
    if model.noise_correlation is not None:
        return "correlated noise"
    return "" if model.noise_terms is None else "noise that differs among baselines or follows the model"


def treatment_of(
    gains: Gains,
    observation: Observation,
    model: BoundModel,
    engines: PartitionEngines,
    full: BoundModel,
    of_sky: BoundModel,
) -> GainTreatment:
    """The treatment with this name, of a model that is bound to an observation.

    `full` is the model with what `model`, to which theta belongs, may lack: priors of gains, or quantities
    that are marginalised analytically. `of_sky` has the latter, and gains unless they are `INNER_GAINS`.

    Raises
    ------
    InputError
        The treatment cannot be used with these data or this model.
    """
    linear = [p.name for p in full.parameters if p.prior.marginalise] if model is not full else []
    if linear and model.model.noise.follows_model and gains != "closures":
        raise InputError(
            f"found marginalise = true of {first_few(linear)} beside systematic in [noise]. This noise "
            "depends on the model, so the integral has no closed form. Remove marginalise = true to fit "
            "them"
        )
    if model.noise_correlation is not None:
        _refuse_correlation(gains, linear)
        return VisibilityLikelihoodWithCorrelatedNoise(observation, model, engines)
    if linear and gains == "sample":
        return LinearLikelihood(observation, model, engines, InnerParameters(full, model))
    if linear and gains == "closures":
        raise InputError(
            f"found marginalise = true of {first_few(linear)}, but closures are not linear in these. "
            'Remove it to fit them, or give gains priors and use gains="marginalise" to integrate over '
            "both"
        )
    if gains in INNER_GAINS:
        of_priors = [name for name in model.parameter_names if is_of_prior(name)]
        if of_priors and gains == "solve":
            raise InputError(
                f'gains="solve" needs fixed priors of the gains, found {first_few(of_priors)} with a '
                "prior. Gains and their spread have no joint maximum. Give it a number, or use "
                'gains="marginalise" or "sample"'
            )
        integrate = gains == "marginalise"
        if linear:
            return InnerFluxAndGainLikelihood(observation, model, engines, full, of_sky, integrate=integrate)
        return InnerGainLikelihood(observation, model, engines, full, integrate=integrate)
    if gains == "closures":
        # A fixed fraction of all amplitudes is in the covariance of closures once and for all.
        is_stated = model.noise_terms is None or model.model.noise.fixed_fraction > 0.0
        of_closures = ClosureLikelihood if is_stated else ClosureLikelihoodWithNoiseTerms
        return of_closures(observation, model, engines)
    kind = VisibilityLikelihood if model.noise_terms is None else VisibilityLikelihoodWithNoiseTerms
    return kind(observation, model, engines)


def _refuse_correlation(gains: Gains, linear: list[str]) -> None:
    """Refuse what does not go with correlated noise.

    Raises
    ------
    InputError
    """
    if gains != "sample":
        raise InputError(
            f'[noise] correlation works with gains="sample" only, found gains="{gains}"; leave one of them '
            "out"
        )
    if linear:
        raise InputError(
            f"[noise] correlation does not work with marginalise = true, found for {first_few(linear)}; "
            "remove it to fit them"
        )
