"""A Gaussian process by GPyTorch with functions of lazy matrices, and variational inference by Pyro."""

import gpytorch
import pyro
import pyro.distributions as dist
import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator
from pyro.infer import SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoMultivariateNormal, AutoNormal
from pyro.nn import PyroModule, PyroSample
from reporting import say

torch.manual_seed(0)
x = torch.linspace(0, 1, 20)
y = torch.sin(6 * x) + 0.1 * torch.randn(20)


class Process(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
process = Process(likelihood)
optimizer = torch.optim.Adam(process.parameters(), lr=0.1)
marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, process)
for step in range(4):
    optimizer.zero_grad()
    loss = -marginal(process(x), y)
    loss.backward()
    optimizer.step()
    say(f"process {step}", loss.item())
process.eval(), likelihood.eval()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    predicted = likelihood(process(torch.linspace(0, 1, 4)))
say("predicted", [predicted.mean.tolist(), predicted.variance.tolist()])

root = torch.randn(4, 4)
lazy, diagonal = to_linear_operator(root @ root.T + 4 * torch.eye(4)), DiagLinearOperator(torch.ones(4))
say(
    "lazy",
    [
        part.to_dense().tolist() if hasattr(part, "to_dense") else part.tolist()
        for part in (
            torch.matmul(lazy, torch.ones(4)),
            torch.ones(4, 4) + diagonal,
            torch.linalg.cholesky(lazy),
            torch.logdet(lazy),
            torch.sum(lazy, -1),
        )
    ],
)


class Regression(PyroModule):
    def __init__(self):
        super().__init__()
        self.linear = PyroModule[torch.nn.Linear](1, 1)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 1]).to_event(2))

    def forward(self, x, y=None):
        mean = self.linear(x[:, None]).squeeze(-1)
        with pyro.plate("data", len(x)):
            return pyro.sample("y", dist.Normal(mean, 0.5), obs=y)


for kind in (AutoNormal, AutoMultivariateNormal):
    pyro.clear_param_store()
    pyro.set_rng_seed(1)
    model = Regression()
    guide = kind(model)
    inference = SVI(model, guide, pyro.optim.ClippedAdam({"lr": 0.05}), Trace_ELBO(num_particles=2))
    say(kind.__name__, [inference.step(x, y) for _ in range(4)])
    say(f"{kind.__name__} parameters", [p.tolist() for p in (*model.parameters(), *guide.parameters())])
    say(f"{kind.__name__} draws", Predictive(model, guide=guide, num_samples=2)(x[:3])["y"].tolist())
