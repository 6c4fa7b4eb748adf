"""Why the noise of Stokes I is above that of its hands: common noise, or weights that do not describe it."""

from __future__ import annotations

import numpy as np
import pytest

from biro.observation.noise_of_hands import NoiseOfHands, noise_of_hands
from biro.observation.observation import Observation

N_TIME, N_BASELINE = 200, 20


def observed(
    vis: np.ndarray, weight: np.ndarray | float, corr_type: tuple[str, ...] = ("RR", "LL")
) -> Observation:
    """Visibilities (n_time, n_baseline, 2) of baselines with a first antenna in common."""
    n = N_TIME * N_BASELINE
    return Observation.from_arrays(
        vis=vis.reshape(n, 1, 2),
        uvw=np.ones((n, 3)),
        antenna1=np.zeros(n, int),
        antenna2=np.tile(1 + np.arange(N_BASELINE), N_TIME),
        time=5e9 + 10.0 * np.repeat(np.arange(N_TIME), N_BASELINE),
        interval=10.0,
        chan_freq=[1.4e9],
        corr_type=corr_type,
        weight=np.broadcast_to(weight, vis.shape).reshape(n, 1, 2),
    )


def noise(seed: int, correlation: float = 0.0) -> np.ndarray:
    """Unit noise of two hands, complex (n_time, n_baseline, 2)."""
    rng = np.random.default_rng(seed)
    common, *own = (
        rng.normal(size=(N_TIME, N_BASELINE)) + 1j * rng.normal(size=(N_TIME, N_BASELINE)) for _ in range(3)
    )
    return np.stack(
        [np.sqrt(correlation) * common + np.sqrt(1.0 - correlation) * each for each in own], axis=-1
    )


def found(obs: Observation) -> NoiseOfHands:
    result = noise_of_hands(obs.partitions)
    assert result is not None
    return result


# A robust sigma of 3980 differences is known to 0.91 / sqrt(3980) = 1.4 %, a correlation to 2 %: four
# standard errors.
SIGMA, RHO = 0.06, 0.08


def test_noise_that_hands_share_is_named() -> None:
    """The mean of two of the variance 1 and the correlation rho has the variance (1 + rho) / 2."""
    result = found(observed(noise(1, 0.5), 1.0, ("XX", "YY")))
    assert result.correlation == pytest.approx(0.5, abs=RHO)
    assert result.weighted == pytest.approx(np.sqrt(1.5), rel=SIGMA)
    assert result.hands == pytest.approx(1.0, rel=SIGMA)
    assert "the noise of the hands is correlated (0." in result.remark()
    assert "1.2" in result.remark()
    assert "--stokes I" in result.remark()


def test_weights_that_do_not_follow_the_noise_are_named() -> None:
    """Equal noise 1, weights 4 and 1 (or 1 and 4): sqrt((16 + 1) / 5) for the weighted mean.

    The plain mean has the variance 2/4 and the weight 4 / (1/4 + 1): sqrt(1.6).
    """
    weight = np.where(np.arange(N_BASELINE)[:, None] % 2 == [0, 1], 4.0, 1.0)
    result = found(observed(noise(2), weight))
    assert result.weighted == pytest.approx(np.sqrt(3.4), rel=SIGMA)
    assert result.steady == pytest.approx(np.sqrt(3.4), rel=SIGMA)
    assert result.plain == pytest.approx(np.sqrt(1.6), rel=SIGMA)
    assert result.correlation == pytest.approx(0.0, abs=RHO)
    assert result.weight_ratio == pytest.approx((0.25, 4.0))
    assert "weights of the hands (0.25 to 4) does not follow their noise" in result.remark()
    assert "correlat" not in result.remark()


def test_weights_that_change_mix_hands_that_differ() -> None:
    """I moves by the change of w1 / (w1 + w2), +-1/6 here, times V1 - V2 = 6: by 1 each way at each time."""
    weight = np.where(np.arange(N_TIME)[:, None, None] % 2 == [0, 1], 2.0, 1.0) * np.ones((1, N_BASELINE, 1))
    result = found(observed(noise(3) / np.sqrt(weight) + np.array([6.0, 0.0]), weight))
    # The noise of each is 1; with the weights held, as much for the mean.
    assert result.hands == pytest.approx(1.0, rel=SIGMA)
    assert result.steady == pytest.approx(1.0, rel=SIGMA)
    assert "the hands differ" in result.remark()
    assert "(0.5 to 2) changes from one time to the next" in result.remark()


@pytest.mark.parametrize("correlation", [0.0, 0.1])
@pytest.mark.parametrize("is_equal", [True, False])
def test_sound_weights_give_no_remark(correlation: float, is_equal: bool) -> None:
    """A correlation of 0.1 makes errors 5 % too small, and no fit warns of it either."""
    rng = np.random.default_rng(4)
    weight = 1.0 if is_equal else rng.lognormal(0.0, 0.7, (N_TIME, N_BASELINE, 2))
    result = found(observed(1.0 + noise(5, correlation) / np.sqrt(weight), weight))
    assert result.weighted == pytest.approx(np.sqrt(1.0 + correlation), rel=SIGMA)
    assert result.remark() == ""


def test_what_has_no_cause_says_so() -> None:
    """Figures by hand: neither a correlation nor the plain mean explains 1.5 for 1."""
    result = NoiseOfHands(("RR", "LL"), 5000, 1.0, 1.5, 1.5, 1.4, 0.1, (1.0, 1.0), False)
    assert "biro did not find the cause" in result.remark()
    assert "the correlation 0.10 of RR and LL explains 1.05 times" in result.remark()


def test_one_hand_alone_is_not_compared() -> None:
    assert noise_of_hands(observed(noise(6), 1.0, ("RR", "RL")).partitions) is None
