"""The visibility of a beta model, brightness (1 + (r/rc)^2)^(1/2 - 3 beta); float64."""

from __future__ import annotations

import math

from rime_kernels.compile.jit import physics_function, scalar

_PI2 = math.pi * math.pi
# Trapezoids of this width over 1 + mu/10 integrate to 1e-13; integrands below e^-_DROP are left out.
_STEP = 0.28
_DROP = 34.0
# Where the sum would take too long; no model asks for it.
_MOST_MU = 100.0
# Shorter baselines, in wavelengths times rc, are taken as this one: V there differs from 1 by less than 1e-8.
_LEAST = 1e-12


@scalar
def digamma(x: float) -> float:
    """d ln Gamma / dx, x > 0: Abramowitz & Stegun 6.3.18 from x >= 10, 6.3.5 below; to 1e-14."""
    shift = 0.0
    while x < 10.0:
        shift -= 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    tail = y * (1.0 / 252.0 - y * (1.0 / 240.0 - y * (1.0 / 132.0 - y * (691.0 / 32760.0 - y / 12.0))))
    return shift + math.log(x) - 0.5 / x - y * (1.0 / 12.0 - y * (1.0 / 120.0) + y * tail)


@physics_function
def beta_model(s: float, beta: float) -> tuple[float, float, float]:
    """2 (k/2)^mu K_mu(k) / Gamma(mu), k = 2 pi sqrt(s), mu = 3 beta - 3/2 > 0: V, dV/ds, dV/dbeta.

    s = (q rc)^2 (Cavaliere & Fusco-Femiano 1976; the transform is Gradshteyn & Ryzhik 6.565.4). With t = e^x,

        V = 1/Gamma(mu) int t^(mu-1) exp(-t - k^2/(4t)) dt

    by trapezoids in x (Abramowitz & Stegun 9.6.24 with the same substitution); exact derivatives of that sum.
    """
    mu = 3.0 * beta - 1.5
    if not 0.0 < mu < _MOST_MU:
        return math.nan, math.nan, math.nan
    quarter = _PI2 * max(s, _LEAST * _LEAST)
    step = _STEP / (1.0 + 0.1 * mu)
    # exp(-k^2/(4t)) or t^mu is negligible below, e^-t above.
    low = max(math.log(quarter / (_DROP + 10.0)), -_DROP / mu)
    x = math.log(_DROP + 4.0 * mu + 10.0)
    n_step = int((x - low) / step) + 1
    t, over, power = math.exp(x), math.exp(-x), math.exp(mu * x - math.lgamma(mu))
    down, up, power_down = math.exp(-step), math.exp(step), math.exp(-mu * step)
    total, by_quarter, by_mu = 0.0, 0.0, 0.0
    for _ in range(n_step):
        term = power * math.exp(-t - quarter * over)
        total += term
        by_quarter -= term * over
        by_mu += term * x
        x -= step
        t, over, power = t * down, over * up, power * power_down
    if s == 0.0:
        return 1.0, 0.0, 0.0
    value = step * total
    return value, _PI2 * by_quarter * step, 3.0 * (by_mu * step - digamma(mu) * value)
