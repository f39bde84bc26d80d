"""Distributions by their own laws: densities are slopes of distribution functions, draws follow densities."""

import copy
import pickle

import numpy as np
import pytest

import ddpgrad as t
import ddpgrad.distributions as d
from ddpgrad.distributions.dirichlet import beta_slope


def test_the_slope_of_beta_draws_is_that_of_the_quantile():
    """I_x(a, 1) is x**a and I_x(1, b) is 1 - (1-x)**b, whose quantiles can be differentiated by hand."""
    x, a = np.meshgrid([1e-30, 1e-3, 0.2, 0.5, 0.8, 0.999], [1e-2, 0.3, 1.0, 7.0, 1e3])
    np.testing.assert_allclose(beta_slope(x, a, np.ones_like(a)), -x * np.log(x) / a / (1 - x), rtol=1e-9)
    # Exchanging a with b exchanges x with 1 - x, so the slope to b is the other one's with its sign turned.
    u = 1 - (1 - x) ** a
    inside = (u > 0) & (u < 1)
    to_b = -beta_slope(1 - x, a, np.ones_like(a)) * x
    np.testing.assert_allclose(to_b[inside], ((1 - x) * np.log1p(-x) / a)[inside], rtol=1e-9)


def test_gradients_of_dirichlet_draws_are_those_of_the_mean_on_average():
    t.manual_seed(0)
    concentration = t.tensor([0.7, 2.0, 3.5], dtype=t.float64, requires_grad=True)
    p = d.Dirichlet(concentration)
    (estimated,) = t.autograd.grad(p.rsample((20000,))[:, 1].mean(), concentration)
    (exact,) = t.autograd.grad(p.mean[1], concentration)
    np.testing.assert_allclose(estimated.numpy(), exact.numpy(), atol=2e-3)


def test_small_weights_draw_neither_0_nor_1():
    t.manual_seed(1)
    for dtype in (t.float32, t.float64):
        drawn = d.Beta(t.tensor(1e-2, dtype=dtype), t.tensor(1e-2, dtype=dtype)).sample((2000,))
        assert bool(((drawn > 0) & (drawn < 1)).all())
        assert 0.4 < float((drawn < 0.5).float().mean()) < 0.6
    assert bool(d.Beta(t.tensor([1e-6]), t.tensor([1e-6])).sample().isfinite().all())


@pytest.mark.parametrize("dim", [2, 4])
def test_factors_of_correlation_matrices(dim):
    """Correlations of LKJ(1) in two dimensions are uniform; in more, draws are factors of correlation matrices."""
    t.manual_seed(2)
    p = d.LKJCholesky(dim, t.tensor(1.0, dtype=t.float64))
    drawn = p.sample((2000,))
    assert bool(d.constraints.corr_cholesky.check(drawn).all())
    matrices = drawn @ drawn.mT
    np.testing.assert_allclose(matrices.diagonal(dim1=-2, dim2=-1).numpy(), 1.0, rtol=1e-12)
    if dim == 2:
        correlation = matrices[:, 1, 0].numpy()
        np.testing.assert_allclose(np.quantile(correlation, [0.25, 0.5, 0.75]), [-0.5, 0, 0.5], atol=0.06)
        np.testing.assert_allclose(p.log_prob(drawn).exp().numpy(), 0.5, rtol=1e-12)


def test_divergences_are_means_of_log_ratios():
    t.manual_seed(3)
    one = t.tensor(1.5, dtype=t.float64)
    gamma, normal, gumbel = d.Gamma(one * 2, one), d.Normal(one, one), d.Gumbel(one, one)
    pairs = [
        (gamma, normal),
        (gamma, gumbel),
        (normal, gumbel),
        (normal, d.Laplace(one, one)),
        (gumbel, normal),
    ]
    for p, q in pairs:
        x = p.sample((20000,))
        estimate = (p.log_prob(x) - q.log_prob(x)).mean()
        assert abs(float(estimate - d.kl_divergence(p, q))) < 0.06, (p, q)
    assert float(d.kl_divergence(normal, gamma)) == float("inf")


def test_a_low_rank_normal_is_the_full_one():
    rng = np.random.default_rng(4)
    loc, factor, diagonal = (
        t.tensor(x) for x in (rng.normal(size=5), rng.normal(size=(5, 2)), rng.uniform(1, 2, 5))
    )
    low = d.LowRankMultivariateNormal(loc, factor, diagonal)
    full = d.MultivariateNormal(loc, factor @ factor.mT + diagonal.diag())
    x = t.tensor(rng.normal(size=(3, 5)))
    for name in ("mean", "variance", "covariance_matrix", "precision_matrix", "scale_tril"):
        np.testing.assert_allclose(
            getattr(low, name).numpy(), getattr(full, name).numpy(), rtol=1e-9, atol=1e-12
        )
    np.testing.assert_allclose(low.log_prob(x).numpy(), full.log_prob(x).numpy(), rtol=1e-12)
    np.testing.assert_allclose(float(low.entropy()), float(full.entropy()), rtol=1e-12)
    assert abs(float(d.kl_divergence(low, full))) < 1e-12 > abs(float(d.kl_divergence(full, low)))


def test_events_of_composed_transforms():
    """A part that joins dimensions asks for more of those before it."""
    parts = [
        d.AffineTransform(0.0, 1.0),
        d.ReshapeTransform((4, 5), (20,)),
        d.ReshapeTransform((3, 20), (6, 10)),
    ]
    whole = d.ComposeTransform(parts)
    assert (whole.domain.event_dim, whole.codomain.event_dim) == (3, 2)
    p = d.TransformedDistribution(d.Normal(t.zeros(2, 3, 4, 5), 1.0), parts)
    assert (p.batch_shape, p.event_shape) == ((2,), (6, 10))
    assert p.log_prob(p.sample((7,))).shape == (7, 2)


def test_an_inverse_is_forgotten_with_its_last_user():
    transform = d.ComposeTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0)])
    inverse = transform.inv
    assert inverse is transform.inv
    assert inverse.inv is transform
    assert d.identity_transform.inv == d.identity_transform
    cached = d.ReshapeTransform((4,), (2, 2)).with_cache()
    x = t.zeros(3, 4)
    assert cached(x) is cached(x)
    assert cached.inv(cached(x)) is x


def test_a_transform_with_an_inverse_is_copied_and_pickled_with_one_of_its_own():
    law = d.LogNormal(t.zeros(2), t.ones(2))
    half = law.icdf(t.tensor(0.5))  # which makes the inverse
    assert t.equal(pickle.loads(pickle.dumps(law)).icdf(t.tensor(0.5)), half)
    affine = d.transforms.AffineTransform(1.0, 2.0)
    # torchrl's transforms keep the inverse where PyTorch does.
    assert affine._inv is None and d.ExpTransform()._cached_x_y == (None, None)
    inverse, other = affine.inv, copy.deepcopy(affine)
    assert affine._inv() is inverse and copy.copy(inverse).inv is affine
    assert inverse is affine.inv and other.inv is not inverse and other.inv.inv is other


def test_laws_without_dimensions_are_drawn_into_tensors_that_can_be_written_to():
    laws = (
        d.StudentT(3.0),
        d.Chi2(2.0),
        d.Gamma(1.0, 1.0),
        d.Beta(1.0, 2.0),
        d.Binomial(3, t.tensor(0.5)),
        d.VonMises(0.0, 1.0),
    )
    for law in laws:
        drawn = law.sample()
        assert drawn.shape == () and drawn.mul_(0).item() == 0


def test_a_divergence_may_be_registered_for_a_base_of_a_library():
    class Base:
        pass

    class Point(Base):
        pass

    d.kl.register_kl(Base, d.Normal)(lambda p, q: "rule")
    assert d.kl_divergence(Point(), d.Normal(0.0, 1.0)) == "rule"
    with pytest.raises(TypeError, match="type_q"):
        d.kl.register_kl(Base, 3)


def test_a_wishart_draw_has_the_name_by_which_libraries_call_it():
    law = d.Wishart(t.tensor(5.0), t.tensor([[2.0, 0.5], [0.5, 1.0]]))
    t.manual_seed(3)
    draws = law.rsample((4,))
    t.manual_seed(3)
    assert t.equal(law._bartlett_sampling(t.Size((4,))), draws)
