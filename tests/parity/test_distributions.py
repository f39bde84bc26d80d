"""Distributions against PyTorch's: draws of one seed, densities, moments, entropies, divergences, and their gradients."""

from functools import partial
from importlib import import_module

import numpy as np
import pytest
import torch
from both import LIBRARIES, agree

import ddpgrad

rng = np.random.default_rng(0)
LOC = rng.normal(size=(3, 4))
POSITIVE = rng.uniform(0.5, 3.0, (3, 4))
OTHER = rng.uniform(0.5, 3.0, (3, 4))
PROBS = rng.uniform(0.05, 0.95, (3, 4))
SIMPLEX = PROBS / PROBS.sum(-1, keepdims=True)
OTHERS = OTHER / OTHER.sum(-1, keepdims=True)
TRIL = np.tril(rng.normal(size=(3, 4, 4))) * 0.3 + 1.5 * np.eye(4)
COVARIANCE = TRIL @ TRIL.swapaxes(-1, -2)


def flow(d, loc, scale):
    """Distributions through transforms, one after the other."""
    affine = d.AffineTransform(loc, scale)
    return d.TransformedDistribution(d.Normal(loc * 0, 1.0), [affine, d.TanhTransform(cache_size=1)])


def stretched(d, loc, tril):
    base = d.Independent(d.Normal(loc, 1.0), 1)
    return d.TransformedDistribution(base, [d.SigmoidTransform(), d.AffineTransform(-1.0, 2.0)])


# name: (how it is made from a library's `distributions` and parameters, the parameters of p, those of q or None)
CASES = {
    "Normal": (lambda d, a, b: d.Normal(a, b), (LOC, POSITIVE), (-LOC, OTHER)),
    "LogNormal": (lambda d, a, b: d.LogNormal(a, b), (LOC, POSITIVE), (-LOC, OTHER)),
    "HalfNormal": (lambda d, a: d.HalfNormal(a), (POSITIVE,), (OTHER,)),
    "Uniform": (lambda d, a, b: d.Uniform(a, b), (LOC, LOC + POSITIVE), (LOC - 1, LOC + POSITIVE + 1)),
    "Laplace": (lambda d, a, b: d.Laplace(a, b), (LOC, POSITIVE), (-LOC, OTHER)),
    "Cauchy": (lambda d, a, b: d.Cauchy(a, b), (LOC, POSITIVE), (-LOC, OTHER)),
    "Gumbel": (lambda d, a, b: d.Gumbel(a, b), (LOC, POSITIVE), (-LOC, OTHER)),
    "Exponential": (lambda d, a: d.Exponential(a), (POSITIVE,), (OTHER,)),
    "Gamma": (lambda d, a, b: d.Gamma(a, b), (POSITIVE, OTHER), (OTHER, POSITIVE)),
    "Chi2": (lambda d, a: d.Chi2(a), (POSITIVE,), (OTHER,)),
    "Beta": (lambda d, a, b: d.Beta(a, b), (POSITIVE, OTHER), (OTHER, POSITIVE)),
    "Dirichlet": (lambda d, a: d.Dirichlet(a), (POSITIVE,), (OTHER,)),
    "StudentT": (lambda d, a, b, c: d.StudentT(a, b, c), (POSITIVE + 1, LOC, OTHER), None),
    "Bernoulli probs": (lambda d, a: d.Bernoulli(a), (PROBS,), (SIMPLEX,)),
    "Bernoulli logits": (lambda d, a: d.Bernoulli(logits=a), (LOC,), (-LOC,)),
    "Geometric": (lambda d, a: d.Geometric(a), (PROBS,), (SIMPLEX,)),
    "Poisson": (lambda d, a: d.Poisson(a), (POSITIVE,), (OTHER,)),
    "Categorical probs": (lambda d, a: d.Categorical(a), (PROBS,), (OTHER,)),
    "Categorical logits": (lambda d, a: d.Categorical(logits=a), (LOC,), (-LOC,)),
    "OneHotCategorical": (lambda d, a: d.OneHotCategorical(a), (SIMPLEX,), (OTHERS,)),
    "straight through": (lambda d, a: d.OneHotCategoricalStraightThrough(a), (SIMPLEX,), None),
    "RelaxedBernoulli": (lambda d, a: d.RelaxedBernoulli(a.new_tensor(0.7), a), (PROBS,), None),
    "RelaxedOneHot": (lambda d, a: d.RelaxedOneHotCategorical(a.new_tensor(0.7), logits=a), (LOC,), None),
    "scale_tril": (lambda d, a, b: d.MultivariateNormal(a, scale_tril=b), (LOC, TRIL), (-LOC, 2 * TRIL)),
    "covariance": (lambda d, a, b: d.MultivariateNormal(a, b), (LOC, COVARIANCE), (LOC, 2 * COVARIANCE)),
    "precision": (
        lambda d, a, b: d.MultivariateNormal(a, precision_matrix=b), (LOC[0], COVARIANCE), (LOC, 3 * COVARIANCE)
    ),
    "Independent": (lambda d, a, b: d.Independent(d.Normal(a, b), 1), (LOC, POSITIVE), (-LOC, OTHER)),
    "expanded": (lambda d, a, b: d.Normal(a, b).expand((5, 3, 4)), (LOC, POSITIVE), None),
    "expanded tril": (lambda d, a, b: d.MultivariateNormal(a, scale_tril=b).expand((2, 3)), (LOC, TRIL), None),
    "mixture": (
        lambda d, w, a, b: d.MixtureSameFamily(d.Categorical(logits=w), d.Normal(a, b)), (LOC, LOC, POSITIVE), None
    ),
    "mixture of vectors": (
        lambda d, w, a, b: d.MixtureSameFamily(d.Categorical(w), d.Independent(d.Normal(a, b), 1)),
        (SIMPLEX[0, :3], LOC, POSITIVE), None,
    ),
    "HalfCauchy": (lambda d, a: d.HalfCauchy(a), (POSITIVE,), None),
    "Pareto": (lambda d, a, b: d.Pareto(a, b), (POSITIVE, OTHER), (POSITIVE * 0.9, POSITIVE)),
    "Weibull": (lambda d, a, b: d.Weibull(a, b), (POSITIVE, OTHER + 1), None),
    "Kumaraswamy": (lambda d, a, b: d.Kumaraswamy(a, b), (POSITIVE, OTHER), None),
    "LogisticNormal": (lambda d, a, b: d.LogisticNormal(a, b), (LOC, POSITIVE), (-LOC, OTHER)),
    "NegativeBinomial probs": (lambda d, a, b: d.NegativeBinomial(a, b), (POSITIVE, PROBS), None),
    "NegativeBinomial logits": (lambda d, a, b: d.NegativeBinomial(a, logits=b), (POSITIVE, LOC), None),
    "Binomial probs": (lambda d, a: d.Binomial(5, a), (PROBS,), (SIMPLEX,)),
    "Binomial logits": (lambda d, a: d.Binomial(5, logits=a), (LOC,), (-LOC,)),
    "Multinomial probs": (lambda d, a: d.Multinomial(6, a), (SIMPLEX,), None),
    "Multinomial logits": (lambda d, a: d.Multinomial(6, logits=a), (LOC,), None),
    "InverseGamma": (lambda d, a, b: d.InverseGamma(a + 2, b), (POSITIVE, OTHER), (OTHER, POSITIVE)),
    "FisherSnedecor": (lambda d, a, b: d.FisherSnedecor(a + 2, b + 4), (POSITIVE, OTHER), None),
    "ContinuousBernoulli": (lambda d, a: d.ContinuousBernoulli(a), (PROBS,), (SIMPLEX,)),
    "ContinuousBernoulli logits": (lambda d, a: d.ContinuousBernoulli(logits=a), (LOC * 0.01,), (LOC,)),
    "VonMises": (lambda d, a, b: d.VonMises(a, b), (LOC, POSITIVE), None),
    "LKJCholesky": (lambda d, a: d.LKJCholesky(3, a), (POSITIVE,), None),
    "low rank": (
        lambda d, a, b, c: d.LowRankMultivariateNormal(a, b, c), (LOC, TRIL[:, :, :2], POSITIVE),
        (-LOC, TRIL[:, :, 1:], OTHER),
    ),
    "expanded low rank": (
        lambda d, a, b, c: d.LowRankMultivariateNormal(a, b, c).expand((2, 3)), (LOC, TRIL[0, :, :2], POSITIVE[0]), None
    ),
    "tanh flow": (flow, (LOC, POSITIVE), None),
    "events in a flow": (stretched, (LOC, POSITIVE), None),
}  # fmt: skip
WITH_INVERSES = (
    "Normal", "LogNormal", "HalfNormal", "Uniform", "Laplace", "Cauchy", "Gumbel", "Exponential", "HalfCauchy", "Pareto", "Weibull",
    "Kumaraswamy", "ContinuousBernoulli", "ContinuousBernoulli logits", "tanh flow",
)  # fmt: skip
# The gradients of PyTorch's gamma draws are approximations that are good to three digits.
ROUGH = dict.fromkeys(
    ("Gamma", "Chi2", "StudentT", "InverseGamma", "FisherSnedecor", "Beta", "Dirichlet"), 3e-3
)


# PyTorch's Bessel functions have eight digits, and so has its entropy of Multinomial; near its limits the formulas of ContinuousBernoulli cancel.
OF_VALUES = {"VonMises": 1e-6, "Multinomial probs": 1e-6, "Multinomial logits": 1e-6}
OF_GRADIENTS = {"VonMises": 1e-6, "ContinuousBernoulli": 1e-7, "ContinuousBernoulli logits": 1e-3}


def made(library, name, which=1):
    parameters = [library.tensor(p, requires_grad=True) for p in CASES[name][which]]
    return CASES[name][0](library.distributions, *parameters), parameters


def numpy(x):
    return x.detach().numpy()


def gradients(library, out, parameters):
    """Of the sum of sines, so that no gradient is the same everywhere."""
    found = library.autograd.grad(out.sin().sum(), parameters, allow_unused=True)
    return [p * 0 if g is None else g for g, p in zip(found, parameters, strict=True)]


def same(name, compute, rtol=1e-9):
    """compute(library, p) gives one tensor, or NotImplementedError: equal in both, and so are its gradients."""

    def values(library):
        p, parameters = made(library, name)
        try:
            return compute(library, p), parameters
        except NotImplementedError:
            return None

    def slopes(library):
        out, parameters = values(library)
        return gradients(library, out, parameters) if out.requires_grad else []

    if agree(values, OF_VALUES.get(name, 1e-9), seed=3) is None:
        pytest.skip(f"PyTorch's {name} does not have it")
    agree(slopes, max(rtol, OF_GRADIENTS.get(name, 0.0)), seed=3)


@pytest.mark.parametrize("name", CASES)
def test_draws_of_one_seed_are_equal(name):
    same(name, lambda _, p: p.sample((2,)))


@pytest.mark.parametrize("name", CASES)
def test_gradients_flow_through_draws(name):
    for library in LIBRARIES:
        if not made(library, name)[0].has_rsample:
            pytest.skip(f"{name} has no rsample")
    same(name, lambda _, p: p.rsample((2, 3)), ROUGH.get(name, 1e-9))


@pytest.mark.parametrize("name", CASES)
def test_log_prob(name):
    torch.manual_seed(5)
    drawn = made(torch, name)[0].sample((4,)).numpy()
    same(name, lambda library, p: p.log_prob(library.tensor(drawn)))


@pytest.mark.parametrize("what", ["mean", "variance", "stddev", "mode"])
@pytest.mark.parametrize("name", CASES)
def test_moments(name, what):
    def moment(library, p):
        return getattr(p, what) * 1.0

    if (name, what) == ("Kumaraswamy", "mode"):
        pytest.skip("PyTorch's is nan")
    same(name, moment)


def test_the_density_is_highest_at_the_mode():
    p = ddpgrad.distributions.Kumaraswamy(*(ddpgrad.tensor(x + 1) for x in (POSITIVE, OTHER)))
    assert all((p.log_prob(p.mode) > p.log_prob(p.mode * near)).all() for near in (0.99, 1.01))
    assert p.mode[0, 0].isfinite() and ddpgrad.distributions.Kumaraswamy(0.5, 2.0).mode.isnan()


@pytest.mark.parametrize("name", CASES)
def test_entropy(name):
    same(name, lambda _, p: p.entropy(), 1e-6)  # PyTorch's trigamma is good to eight digits


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] is not None])
def test_kl_divergence(name):
    same(name, lambda library, p: library.distributions.kl_divergence(p, made(library, name, 2)[0]))


@pytest.mark.parametrize("name", WITH_INVERSES)
def test_distribution_function_and_its_inverse(name):
    torch.manual_seed(5)
    drawn = made(torch, name)[0].sample().numpy()
    same(name, lambda library, p: p.cdf(library.tensor(drawn)))
    same(name, lambda library, p: p.icdf(library.tensor(PROBS)))


@pytest.mark.parametrize(
    "name", ["Bernoulli probs", "Binomial logits", "Categorical logits", "OneHotCategorical"]
)
def test_enumerated_support(name):
    for expand in (True, False):
        theirs, ours = (numpy(made(lib, name)[0].enumerate_support(expand)) for lib in LIBRARIES)
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", CASES)
def test_shapes_and_printing(name):
    theirs, ours = (made(lib, name)[0] for lib in LIBRARIES)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    assert str(ours).startswith(type(theirs).__name__)


def test_users_own_distributions_and_rules():
    def program(t):
        class Shifted(t.distributions.Normal):
            def log_probs(self, value):
                return super().log_prob(value).sum(-1, keepdim=True)

        @t.distributions.register_kl(Shifted, t.distributions.Normal)
        def rule(p, q):
            return p.loc - q.loc

        p = Shifted(t.tensor(LOC), t.tensor(POSITIVE))
        q = t.distributions.Normal(t.tensor(-LOC), t.tensor(OTHER))
        divergences = t.distributions.kl_divergence(p, q), t.distributions.kl_divergence(q, p)
        return p.log_probs(t.tensor(OTHER)), divergences

    agree(program, 1e-12)


@pytest.mark.parametrize("which", ["covariance_matrix", "precision_matrix", "scale_tril"])
def test_wishart(which):
    """Draws are those of PyTorch's decomposition: its `rsample` draws again what is fine, since it asks the wrong way round."""

    def program(library, sloped=False):
        matrix = library.tensor(TRIL if which == "scale_tril" else COVARIANCE, requires_grad=True)
        df = library.tensor(POSITIVE[:, 0] + 5, requires_grad=True)
        p = library.distributions.Wishart(df, **{which: matrix}).expand((2, 3))
        outs = [
            p.log_prob(library.tensor(COVARIANCE)),
            p.entropy(),
            p.mean,
            p.variance,
            p._bartlett_sampling((2,)),
        ]
        if sloped:
            return gradients(library, sum(out.sum() for out in outs), [df, matrix])
        return library.distributions.Wishart(df, **{which: matrix}).mode, outs

    agree(program, 1e-9, seed=3)
    agree(partial(program, sloped=True), ROUGH["Chi2"], seed=3)
    with pytest.raises(ValueError, match="greater than ndim - 1 = 3"):
        ddpgrad.distributions.Wishart(2.5, ddpgrad.tensor(COVARIANCE))


def test_classes_are_on_the_pages_where_pytorch_has_them():
    here = [name for name in torch.distributions.__all__ if hasattr(ddpgrad.distributions, name)]
    assert len(here) > 50
    for name in here:
        page = getattr(getattr(torch.distributions, name), "__module__", torch.distributions.__name__)
        module = import_module(f"ddpgrad{page.removeprefix('torch')}")
        assert getattr(module, name) is getattr(ddpgrad.distributions, name), f"{page}.{name}"


@pytest.mark.parametrize("given", ["covariance_matrix", "precision_matrix", "scale_tril"])
@pytest.mark.parametrize("name", ["MultivariateNormal", "Wishart"])
def test_the_factor_of_a_matrix_is_kept_without_the_batch(name, given):
    """Libraries read it by PyTorch's name."""

    def program(library):
        matrix = library.eye(2) + 0.5 * library.ones(2, 2).tril()
        matrix = matrix if given == "scale_tril" else matrix @ matrix.T
        first = library.zeros(3, 2) if name == "MultivariateNormal" else library.tensor([3.0, 4.0, 5.0])
        made = getattr(library.distributions, name)(first, **{given: matrix})
        assert made._unbroadcasted_scale_tril.shape == (2, 2)
        assert made.expand((4, 3)).scale_tril.shape == (4, 3, 2, 2)
        with pytest.raises(library.linalg.LinAlgError):
            type(made)(first, covariance_matrix=-matrix, validate_args=False)
        return made._unbroadcasted_scale_tril, made.scale_tril[0]

    agree(program)
