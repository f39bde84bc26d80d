"""What `torch.distributions` looks up by type, against PyTorch: divergences of pairs, constraints, transforms for them."""

import warnings

import numpy as np
import pytest
import torch
from both import LIBRARIES, agree

import ddpgrad

rng = np.random.default_rng(1)
A, B = rng.uniform(0.5, 3.0, (2, 2, 4))
# Each is made from its library's `distributions` and two tensors.
KINDS = {
    "Bernoulli": lambda d, a, b: d.Bernoulli(a / 4),
    "Binomial": lambda d, a, b: d.Binomial(10, a / 4),
    "Beta": lambda d, a, b: d.Beta(a, b),
    "Chi2": lambda d, a, b: d.Chi2(a),
    "ContinuousBernoulli": lambda d, a, b: d.ContinuousBernoulli(a / 4),
    "Exponential": lambda d, a, b: d.Exponential(a),
    "Gamma": lambda d, a, b: d.Gamma(a, b),
    "Gumbel": lambda d, a, b: d.Gumbel(a, b),
    "Laplace": lambda d, a, b: d.Laplace(a, b),
    "Normal": lambda d, a, b: d.Normal(a, b),
    "Pareto": lambda d, a, b: d.Pareto(a, b),
    "Poisson": lambda d, a, b: d.Poisson(a),
    "Uniform of numbers": lambda d, a, b: d.Uniform(-a, b),
    "Uniform of positive numbers": lambda d, a, b: d.Uniform(a, a + b),
    "Uniform within 1": lambda d, a, b: d.Uniform(a / 8, 0.5 + b / 8),
}


def numpy(x):
    return x.detach().numpy()


@pytest.mark.parametrize("p_name", KINDS)
def test_divergences_of_all_pairs(p_name):
    """Values, and gradients to the parameters of q where values are finite."""
    compared = 0
    for make in KINDS.values():

        def program(library, make=make):
            given = [library.tensor(x, requires_grad=True) for x in (*A, *B)]
            p, q = (KINDS[p_name](library.distributions, *given[:2]), make(library.distributions, *given[2:]))
            try:
                kl = library.distributions.kl_divergence(p, q).expand(4)
            except NotImplementedError:
                return None
            finite = kl.requires_grad and bool(kl.isfinite().all())
            slopes = library.autograd.grad(kl.sum(), given[2:], allow_unused=True) if finite else ()
            return kl, [library.zeros(1) if s is None else s for s in slopes]

        compared += agree(program) is not None
    assert compared


@pytest.mark.parametrize(
    "name", ["Bernoulli", "Beta", "Chi2", "ContinuousBernoulli", "Exponential", "Gamma", "Normal", "Poisson"]
)
def test_exponential_families_by_their_normalizer(name):
    """The entropy and the divergence that the gradient of the log normalizer gives."""

    def program(library):
        d = library.distributions
        p, q = (KINDS[name](d, library.tensor(a), library.tensor(b)) for a, b in (A, B))
        assert isinstance(p, d.ExponentialFamily)
        outs = [d.kl._kl_expfamily_expfamily(p, q)]
        try:
            outs.append(d.ExponentialFamily.entropy(p))
        except NotImplementedError:
            assert name in ("Beta", "Poisson")
        return outs

    agree(program, 1e-7)


def test_divergences_of_wishart_distributions():
    """PyTorch's, of batches, adds up what belongs to different distributions of a batch; ours are those of each."""
    df, matrices = A[0] + 2, B[0][:, None, None] * np.array([[1.0, 0.3], [0.3, 2.0]])

    def of(library, which):
        return library.distributions.Wishart(library.tensor(df[which]), library.tensor(matrices[which]))

    def kl(library, p, q):
        return numpy(library.distributions.kl_divergence(of(library, p), of(library, q)))

    expected = [kl(torch, i, 3 - i) for i in range(4)]
    np.testing.assert_allclose([kl(ddpgrad, i, 3 - i) for i in range(4)], expected, rtol=1e-9)
    np.testing.assert_allclose(kl(ddpgrad, slice(None), [3, 2, 1, 0]), expected, rtol=1e-9)


MATRICES = np.array(
    [[[2.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [-0.6, 0.8]], [[1.0, 2.0], [2.0, 1.0]]]
)
INSIDE = rng.uniform(0.1, 0.9, (3, 4))
NUMBERS = np.array([-1.5, -1.0, 0.0, 0.3, 1.0, 2.0, np.nan])
# name: (the constraint, what is checked)
CONSTRAINTS = {
    **{name: (lambda c, n=name: getattr(c, n), NUMBERS) for name in ("real", "boolean", "positive", "nonnegative", "unit_interval")},
    **{name: (lambda c, n=name: getattr(c, n), NUMBERS) for name in ("nonnegative_integer", "positive_integer")},
    **{
        name: (lambda c, n=name: getattr(c, n), MATRICES)
        for name in (
            "square", "symmetric", "positive_semidefinite", "lower_triangular", "lower_cholesky", "corr_cholesky", "simplex",
            "one_hot", "real_vector",
        )
    },
    "one indefinite": (lambda c: c.positive_definite, MATRICES[3:]),
    "definite": (lambda c: c.positive_definite, MATRICES[:1]),
    "interval": (lambda c: c.interval(-1.0, 1.0), NUMBERS),
    "half_open_interval": (lambda c: c.half_open_interval(-1.0, 1.0), NUMBERS),
    "integer_interval": (lambda c: c.integer_interval(-1, 1), NUMBERS),
    "greater_than": (lambda c: c.greater_than(1.0), NUMBERS),
    "greater_than_eq": (lambda c: c.greater_than_eq(1.0), NUMBERS),
    "less_than": (lambda c: c.less_than(1.0), NUMBERS),
    "multinomial": (lambda c: c.multinomial(3), np.array([[1.0, 2.0], [2.0, 2.0], [-1.0, 1.0]])),
    "independent": (lambda c: c.independent(c.positive, 2), MATRICES),
    "mixture": (lambda c: c.MixtureSameFamilyConstraint(c.interval(0.0, c_bounds(c))), NUMBERS),
    "cat": (lambda c: c.cat([c.positive, c.real], 0, [3, 4]), NUMBERS),
    "stack": (lambda c: c.stack([c.positive, c.unit_interval], -1), MATRICES),
}  # fmt: skip


def c_bounds(c):
    """Upper bounds of two components."""
    library = torch if c.__name__.startswith("torch") else ddpgrad
    return library.tensor([1.0, 3.0])


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints(name):
    make, given = CONSTRAINTS[name]

    def program(library):
        made = make(library.distributions.constraints)
        told = "" if name == "mixture" else repr(made)
        return made.check(library.tensor(given)), made.event_dim, made.is_discrete, told

    agree(program)


REGISTERED = [name for name in CONSTRAINTS if name not in ("mixture", "one indefinite")]


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", REGISTERED)
def test_transforms_for_constraints(registry, name):
    def program(library):
        constraint = CONSTRAINTS[name][0](library.distributions.constraints)
        try:
            transform = getattr(library.distributions, registry)(constraint)
        except NotImplementedError as e:
            return str(e)
        shape = {"cat": (7,), "stack": (3, 2), "corr_cholesky": (5, 6)}.get(name, (4, 4))
        x = library.tensor(np.random.default_rng(2).normal(size=shape), requires_grad=True)
        y = transform(x)
        outs = [y, transform.inv(y)]
        if transform.bijective and name != "stack":
            outs.append(transform.log_abs_det_jacobian(x, y))
        return *outs, library.autograd.grad(sum(out.sin().sum() for out in outs), x)[0]

    agree(program, 1e-8)


def test_registries_of_ones_own():
    for library in LIBRARIES:
        d = library.distributions

        class Even(d.constraints.Constraint):
            pass

        registry = d.constraint_registry.ConstraintRegistry()

        @registry.register(Even)
        def double(constraint, d=d):
            return d.AffineTransform(0.0, 2.0)

        assert float(registry(Even())(library.tensor(3.0))) == 6.0
        with pytest.raises(NotImplementedError, match="Cannot transform _Real constraints"):
            registry(d.constraints.real)
        with pytest.raises(TypeError, match="Expected constraint to be either"):
            registry.register(3, double)


@pytest.mark.parametrize(
    ("make", "given"),
    [
        *((make, INSIDE) for make in (
            lambda d: d.ExpTransform(), lambda d: d.PowerTransform(2.0), lambda d: d.SigmoidTransform(), lambda d: d.SoftplusTransform(),
            lambda d: d.TanhTransform(), lambda d: d.StickBreakingTransform(), lambda d: d.AffineTransform(1.0, -2.0),
            lambda d: d.AffineTransform(1.0, 2.0, event_dim=1), lambda d: d.IndependentTransform(d.ExpTransform(), 1),
            lambda d: d.ReshapeTransform((4,), (2, 2)), lambda d: d.ComposeTransform([d.AffineTransform(0.0, 0.1), d.ExpTransform()]),
            lambda d: d.ComposeTransform([d.IndependentTransform(d.ExpTransform(), 1), d.AffineTransform(0.0, 2.0)]),
        )),
        (lambda d: d.CumulativeDistributionTransform(d.Laplace(0.5, 2.0)), NUMBERS[:6]),
        (lambda d: d.PowerTransform(4.0).inv, A[0]),
        (lambda d: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(1.0, 3.0)]).inv, 1 + A[0]),
        (lambda d: d.IndependentTransform(d.AffineTransform(1.0, 3.0), 1).with_cache(1), A[0]),
        (lambda d: d.CatTransform([d.ExpTransform(), d.AffineTransform(0.0, 3.0)], 0, [1, 3]), A[0]),
        (lambda d: d.StackTransform([d.ExpTransform(), d.AffineTransform(0.0, 3.0)], 1), A.T),
    ],
)  # fmt: skip
def test_transforms(make, given):
    def program(library):
        transform, x = make(library.distributions), library.tensor(given)
        y = transform(x)
        logs = transform.log_abs_det_jacobian(x, y), transform.inv.log_abs_det_jacobian(y, x)
        shapes = transform.forward_shape(x.shape), transform.inverse_shape(y.shape)
        return (
            y,
            transform.inv(y),
            logs,
            transform.bijective,
            transform.inv.inv is transform,
            *map(tuple, shapes),
        )

    agree(program, 1e-9)


@pytest.mark.parametrize("diag", range(-4, 4))
def test_triangles_as_vectors(diag):
    for library in LIBRARIES:
        utils = library.distributions.utils
        given = library.tensor(TRIANGLES).tril(diag)
        vector = utils.tril_matrix_to_vec(given, diag)
        np.testing.assert_array_equal(numpy(vector), TRIANGLES[:, np.tri(4, 4, diag, dtype=bool)])
        np.testing.assert_array_equal(numpy(utils.vec_to_tril_matrix(vector, diag)), numpy(given))


TRIANGLES = rng.normal(size=(2, 4, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda d, t: d.utils.tril_matrix_to_vec(t.ones(3, 3), 3),
        lambda d, t: d.utils.vec_to_tril_matrix(t.ones(5)),
        lambda d, t: d.constraints.independent(d.constraints.real, 2).check(t.ones(3)),
        lambda d, t: d.constraints.dependent.event_dim,
        lambda d, t: d.CatTransform([d.ExpTransform()], lengths=[2])(t.ones(3)),
        lambda d, t: d.StackTransform([d.ExpTransform()])(t.ones(3)),
        lambda d, t: d.CatTransform([3]),
        lambda d, t: d.constraints.cat([3]),
        lambda d, t: d.CorrCholeskyTransform().forward_shape(()),
        lambda d, t: d.CorrCholeskyTransform().inverse_shape((3, 4)),
        lambda d, t: d.ReshapeTransform((2,), (2,)).forward_shape((3,)),
        lambda d, t: d.ReshapeTransform((2,), (2,)).forward_shape(()),
        lambda d, t: d.StickBreakingTransform().sign,
        lambda d, t: d.ReshapeTransform((4,), (2, 2)).event_dim,
        lambda d, t: d.TransformedDistribution(d.Normal(0.0, 1.0), abs),
        lambda d, t: d.LKJCholesky(1),
        lambda d, t: d.LowRankMultivariateNormal(t.zeros(2), t.eye(3), t.ones(2)),
        lambda d, t: d.LowRankMultivariateNormal(t.zeros(2), t.ones(2, 1), t.ones(3)),
        lambda d, t: d.LowRankMultivariateNormal(t.zeros(()), t.ones(2, 1), t.ones(3)),
        lambda d, t: d.LowRankMultivariateNormal(t.zeros(5, 2), t.ones(3, 2, 1), t.ones(2)),
        lambda d, t: d.GeneralizedPareto(0.0, -1.0, 0.0),
        lambda d, t: d.Independent(d.Bernoulli(t.ones(2)), 1).enumerate_support(),
        lambda d, t: d.kl_divergence(d.Normal(0.0, 1.0), d.Bernoulli(0.3)),
        lambda d, t: d.Distribution().support,
        lambda d, t: d.register_kl(d.Normal, 3),
        lambda d, t: d.Normal(0.0, t.tensor([1.0, -1.0])),
        lambda d, t: d.Categorical(t.tensor([0.5, -0.5])),
        lambda d, t: d.Bernoulli(1.5),
        lambda d, t: d.Bernoulli(0.5, 0.0),
        lambda d, t: d.Uniform(1.0, 0.0),
        lambda d, t: d.Normal(0.0, 1.0).log_prob(1.0),
        lambda d, t: d.Uniform(0.0, 1.0).log_prob(t.tensor(2.0)),
        lambda d, t: d.Categorical(t.ones(3)).log_prob(t.tensor(3)),
        lambda d, t: d.MultivariateNormal(t.zeros(2), -t.eye(2)),
        lambda d, t: d.MultivariateNormal(t.zeros(2)),
        lambda d, t: d.Independent(d.Normal(0.0, 1.0), 1),
        lambda d, t: d.Normal(t.zeros(3), 1.0).log_prob(t.zeros(4)),
    ],
)  # fmt: skip
def test_errors_are_of_pytorchs_types(wrong):
    kinds = []
    for library in LIBRARIES:
        with warnings.catch_warnings(), pytest.raises(Exception) as caught:  # of which type, is compared
            warnings.simplefilter("ignore")
            wrong(library.distributions, library)
        kinds.append(caught.type)
    assert kinds[1] is kinds[0]


def test_what_a_class_has_not_said_is_not_checked():
    for library in LIBRARIES:

        class Delta(library.distributions.Distribution):
            pass

        with pytest.warns(UserWarning, match="arg_constraints"):
            made = Delta(validate_args=True)
        with pytest.warns(UserWarning, match="support"):
            made._validate_sample(library.tensor(1.0))
        with pytest.warns(FutureWarning, match="sample_n"):
            assert library.distributions.Normal(0.0, 1.0).sample_n(3).shape == (3,)


def test_draws_have_gradients_of_zero_to_their_parameters():
    """As PyTorch's functions that draw have."""
    for library in LIBRARIES:
        p = library.tensor([0.5, 0.2], requires_grad=True)
        for draw in (
            library.bernoulli, library.poisson, lambda p, t=library: t.normal(p, 1.0), lambda p, t=library: t.normal(0.0, p),
            lambda p, t=library: t.normal(p, t.ones(3, 2)),
        ):  # fmt: skip
            assert library.autograd.grad(draw(p).sum(), p)[0].tolist() == [0.0, 0.0]
            with library.no_grad():
                assert not draw(p).requires_grad


@pytest.mark.parametrize("k", [0.0, 0.3, -0.4, 1.2])
def test_generalized_pareto(k):
    """In float32, the only type in which PyTorch's computes; and that its functions belong together, in float64."""
    loc, scale, u = A[0], B[0], np.array([0.1, 0.4, 0.6, 0.9])

    def program(library):
        given = [library.tensor(x.astype("f4"), requires_grad=True) for x in (loc, scale)]
        p = library.distributions.GeneralizedPareto(*given, k)
        x = p.icdf(library.tensor(u.astype("f4")))
        outs = [x, p.mean, p.variance, p.entropy(), p.mode, p.support.upper_bound]
        outs += [f(x) for f in (p.cdf, p.log_cdf, p.log_survival_function, p.log_prob)]
        outs = [*library.broadcast_tensors(*outs), p.rsample((2,))]
        finite = [out.sum() for out in outs if bool(out.isfinite().all())]
        return outs, library.autograd.grad(sum(finite), given)

    agree(program, 2e-5, seed=3)
    p = ddpgrad.distributions.GeneralizedPareto(ddpgrad.tensor(loc), ddpgrad.tensor(scale), k)
    x = p.icdf(ddpgrad.tensor(u)).requires_grad_()
    np.testing.assert_allclose(numpy(p.cdf(x)), u, rtol=1e-12)
    (density,) = ddpgrad.autograd.grad(p.cdf(x).sum(), x)
    np.testing.assert_allclose(numpy(density), numpy(p.log_prob(x).exp()), rtol=1e-12)
