"""What functions compute of tensors of which each rank has a part: values, gradients, and where results lie."""

import pytest
from replicas import line, on_line, on_ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, zeros
from ddpgrad.distributed.tensor.experimental import implicit_replication, local_map

torch.manual_seed(0)
A, B = torch.randn(5, 6), torch.randn(5, 6).abs() + 0.5
C, CLASSES = torch.randn(6, 4), torch.tensor([0, 3, 5, 1, 1])
PLACES = [Shard(0), Shard(1), Replicate()]
EXPRESSIONS = {
    "by element": lambda x, y, z: (x * y + 1).exp() / y - torch.where(x > 0, x, 2.0),
    "products": lambda x, y, z: F.linear(x, z.t(), z[0]) @ z.t(),
    "of vectors": lambda x, y, z: x @ y[0] + y.mv(x[1]),
    "reductions": lambda x, y, z: x.sum(0) * y.mean() + y.amax(0) - x.min() + x.var(0),
    "norms": lambda x, y, z: F.layer_norm(x, (6,), y[0], y[1]) + F.rms_norm(y, (6,), x[0]),
    "softmax": lambda x, y, z: x.softmax(1) + y.log_softmax(0) + x.logsumexp(1, keepdim=True),
    "views": lambda x, y, z: x.view(5, 2, 3).transpose(0, 1).flatten(1)[:, 2:9].unsqueeze(1),
    "joined": lambda x, y, z: torch.stack(torch.cat([x, y], 1).chunk(3, 1), 1).permute(1, 0, 2),
    "ordered": lambda x, y, z: x.sort(1)[0].cumsum(0) + y.topk(6, 1)[0],
    "by index": lambda x, y, z: x[:, [0, 2, 2]].sum(1) + y[1:, 0].sum() + x[[4, 1, 1]].sum(0)[:5],
    "losses": lambda x, y, z: F.mse_loss(x, y) + F.binary_cross_entropy_with_logits(x, y),
    "no rule": lambda x, y, z: torch.linalg.qr(x)[1] + y.t().contiguous().flip(0)[:5, :5].det(),
    "by hand": lambda x, y, z: torch.einsum("ij,kj,jl->il", x, y, z),
}


@on_ranks(2)
def test_a_sum_of_parts_stays_one_when_it_is_written_to():
    mesh = line()
    x = distribute_tensor(A, mesh, [Partial()])
    whole = A.clone()
    for t in (x, whole):
        t.add_(1).clamp_(max=1.0).mul_(3)
        t[0] = 5.0
    assert x.placements == (Partial(),)
    torch.testing.assert_close(x.full_tensor(), whole)
    y = distribute_tensor(A, mesh, [Shard(0)]).requires_grad_()
    moved = y.redistribute(
        placements=[Replicate()], forward_dtype=torch.bfloat16, backward_dtype=torch.float32
    )
    (moved * (1 / 3)).sum().backward()
    assert (moved.dtype, y.grad.dtype) == (torch.bfloat16, torch.float32)
    assert x.fill_(2.0).full_tensor().unique().tolist() == [2.0]


@on_ranks(2)
def test_norms_of_unequal_columns():
    mesh = line()
    p = nn.Parameter(distribute_tensor(A[:, :5], mesh, [Shard(1)]))
    p.grad = distribute_tensor(A[:, :5], mesh, [Shard(1)])
    assert nn.utils.clip_grad_norm_([p], 0.5).item() == pytest.approx(A[:, :5].norm().item(), rel=1e-5)
    assert p.grad.full_tensor().norm().item() == pytest.approx(0.5, rel=1e-5)


def placed(mesh, *values_and_places):
    return [distribute_tensor(v, mesh, [p]).requires_grad_() for v, p in values_and_places]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_values_and_gradients_are_those_of_one_rank(name):
    function = EXPRESSIONS[name]
    plain = [x.clone().requires_grad_() for x in (A, B, C)]
    expected = function(*plain)
    (expected * expected).sum().backward()

    def program(mesh):
        for i in range(9):
            given = placed(mesh, (A, PLACES[i % 3]), (B, PLACES[i // 3]), (C, PLACES[(i + i // 3) % 3]))
            found = function(*given)
            assert isinstance(found, DTensor)
            assert found.shape == expected.shape
            (found * found).sum().backward()
            torch.testing.assert_close(found.full_tensor(), expected, rtol=1e-4, atol=1e-5)
            for x, own in zip(given, plain, strict=True):
                assert (x.grad is None) is (own.grad is None)
                if x.grad is not None:
                    assert x.grad.placements == x.placements
                    torch.testing.assert_close(x.grad.full_tensor(), own.grad, rtol=1e-4, atol=1e-4)

    on_line(2, program)
    on_line(3, program)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("place", PLACES)
def test_losses_of_classes_that_are_divided(place, reduction):
    plain = A.clone().requires_grad_()
    expected = F.cross_entropy(plain, CLASSES, reduction=reduction, label_smoothing=0.1)
    expected.sum().backward()

    def program(mesh):
        (scores,) = placed(mesh, (A, place))
        with implicit_replication():
            loss = F.cross_entropy(scores, CLASSES, reduction=reduction, label_smoothing=0.1)
        loss.sum().backward()
        torch.testing.assert_close(loss.full_tensor(), expected)
        torch.testing.assert_close(scores.grad.full_tensor(), plain.grad)

    on_line(2, program)


@pytest.mark.parametrize("place", PLACES)
def test_rows_of_a_table_that_is_divided(place):
    words = torch.tensor([[0, 4, 2], [1, 1, 3]])
    plain = A.clone().requires_grad_()
    F.embedding(words, plain).square().sum().backward()

    def program(mesh):
        (table,) = placed(mesh, (A, place))
        found = F.embedding(distribute_tensor(words, mesh), table)
        found.square().sum().backward()
        assert torch.equal(found.full_tensor(), A[words])
        torch.testing.assert_close(table.grad.full_tensor(), plain.grad)
        return found.placements[0]

    lies = {Shard(0): Partial(), Shard(1): Shard(2), Replicate(): Replicate()}[place]
    assert on_line(2, program) == [lies] * 2


@on_ranks(2)
def test_results_lie_where_nothing_has_to_move():
    mesh = line()
    rows, columns, everywhere = (distribute_tensor(A, mesh, [p]) for p in PLACES)
    weight = distribute_tensor(C, mesh, [Shard(0)])
    told = [
        rows + everywhere, columns.sum(1), columns @ weight, everywhere @ weight, rows.t(), columns.mean(1), rows.max(),
        rows.softmax(1), rows.softmax(0), (columns @ weight) * 2, columns.view(5, 2, 3), rows.view(30), everywhere[1:],
    ]  # fmt: skip
    places = " ".join(str(t.placements[0]) for t in told)
    assert places == "S(0) P(sum) P(sum) P(sum) S(1) P(avg) R S(0) R P(sum) S(1) R R"


@on_ranks(2)
def test_sequences_that_are_divided_stay_so_in_the_gradients_of_a_layer():
    mesh = line()
    x = distribute_tensor(torch.randn(2, 4, 6), mesh, [Shard(1)]).requires_grad_()
    layer = nn.Linear(6, 3)
    weight, bias = (distribute_tensor(p.detach(), mesh).requires_grad_() for p in layer.parameters())
    seen = []
    x.register_hook(lambda g: seen.append(g.placements))
    weight.register_hook(lambda g: seen.append(g.placements))
    (F.linear(x, weight, bias) ** 2).sum().backward()
    plain = x.full_tensor().detach().requires_grad_()
    (layer(plain) ** 2).sum().backward()
    torch.testing.assert_close(x.grad.full_tensor(), plain.grad)
    torch.testing.assert_close(weight.grad.full_tensor(), layer.weight.grad)
    torch.testing.assert_close(bias.grad.full_tensor(), layer.bias.grad)
    assert sorted(map(str, seen)) == ["(Partial(sum),)", "(Shard(dim=1),)"]


@on_ranks(4)
def test_placements_on_two_dimensions_of_a_mesh():
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for places in ([Shard(0), Shard(0)], [Shard(0), Shard(1)], [Replicate(), Shard(1)], [Shard(1), Shard(1)]):
        x = distribute_tensor(A, mesh, places).requires_grad_()
        z = distribute_tensor(C, mesh, [Replicate(), Shard(0)]).requires_grad_()
        (x @ z).relu().sum().backward()
        assert torch.equal(x.full_tensor(), A)
        for others in ([Shard(1), Shard(0)], [Replicate(), Replicate()], [Shard(0), Replicate()]):
            assert torch.equal(x.redistribute(placements=others).full_tensor(), A)
        plain, weight = A.clone().requires_grad_(), C.clone().requires_grad_()
        (plain @ weight).relu().sum().backward()
        torch.testing.assert_close(x.grad.full_tensor(), plain.grad)
        torch.testing.assert_close(z.grad.full_tensor(), weight.grad)
        norms = [nn.utils.clip_grad_norm_(given, 1.0) for given in ([x, z], [plain, weight])]
        torch.testing.assert_close(norms[0].full_tensor(), norms[1])
        torch.testing.assert_close(x.grad.full_tensor(), plain.grad)
        found = torch.amp.GradScaler("cpu", init_scale=2.0)
        found.scale(torch.ones(()))
        optimizer = torch.optim.Adam([x, z], lr=0.1)
        if mesh.get_local_rank("tp"):
            x.grad.to_local().fill_(float("inf"))
        found.unscale_(optimizer)
        found.step(optimizer)
        assert torch.equal(z.full_tensor(), C)


@on_ranks(2)
def test_writes_in_place_and_their_gradients():
    mesh = line()
    x, w = placed(mesh, (A, Shard(0)), (B, Shard(1)))
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.mul_(2)
    y = x * 1
    y[1:3] = w[:2]
    y.mul_(w).add_(1)
    total = zeros(5, 6, device_mesh=mesh, placements=[Shard(0)])
    total += y
    total.sum().backward()
    plain, other = A.clone().requires_grad_(), B.clone().requires_grad_()
    z = plain * 1
    z[1:3] = other[:2]
    z.mul_(other).add_(1).sum().backward()
    assert torch.equal(total.full_tensor(), z)
    torch.testing.assert_close(x.grad.full_tensor(), plain.grad)
    torch.testing.assert_close(w.grad.full_tensor(), other.grad)
    with torch.no_grad():
        x.zero_()
        x[2] = 5.0
    assert x.full_tensor().sum(1).tolist() == [0.0, 0.0, 30.0, 0.0, 0.0]


@on_ranks(2)
def test_gradients_go_into_dtensors_and_out_of_them():
    mesh = line()
    rank = dist.get_rank()
    own = torch.full((2,), rank + 1.0, requires_grad=True)
    for place, expected in ((Shard(0), 1.0 + rank), (Partial(), 1.0)):
        own.grad = None
        made = DTensor.from_local(own, mesh, [place])
        factor = torch.tensor([1.0, 1.0, 2.0, 2.0]) if place == Shard(0) else torch.ones(2)
        (made.full_tensor() * factor).sum().backward()
        assert own.grad.tolist() == [expected] * 2
    (x,) = placed(mesh, (A, Replicate()))
    (x.to_local(grad_placements=[Partial()]) * (rank + 1)).sum().backward()
    assert x.grad.full_tensor().unique().tolist() == [3.0]
    (z,) = placed(mesh, (A, Shard(0)))
    first, _, last = z.chunk(3, 1)
    (first.full_tensor() - 2 * last.redistribute(placements=[Replicate()]).to_local()).sum().backward()
    assert z.grad.full_tensor()[0].tolist() == [1.0, 1.0, 0.0, 0.0, -2.0, -2.0]
    seen = []
    y = (x * 2).redistribute(placements=[Shard(0)])
    y.register_hook(lambda g: seen.append((type(g), g.placements)))
    y.retain_grad()
    (found,) = torch.autograd.grad(y.square().sum(), [x], create_graph=True)
    torch.testing.assert_close(found.full_tensor(), 8 * A)
    (again,) = torch.autograd.grad(found.sum(), [x])
    assert seen[0] == (DTensor, (Shard(0),))
    assert again.full_tensor().unique().tolist() == [8.0]
    plus = local_map(lambda a, b: a + b, out_placements=[Shard(0)])
    assert plus(y, y).full_tensor().equal(4 * A)


@pytest.mark.parametrize(
    ("mistake", "error", "text"),
    [
        (lambda x: x + torch.ones(5, 6), RuntimeError, "got mixed torch.Tensor and DTensor"),
        (lambda x: torch.ones(5, 6) @ x.t(), RuntimeError, "got mixed torch.Tensor and DTensor"),
        (lambda x: x.redistribute(placements=[Partial()]), RuntimeError, "for internal use only"),
        (lambda x: x.redistribute(), RuntimeError, "placements is needed"),
        (
            lambda x: distribute_tensor(A, None, [Shard(0)]),
            RuntimeError,
            "No device mesh is currently active",
        ),
        (lambda x: x @ x, RuntimeError, "5x6 and 5x6"),
        (lambda x: DTensor.from_local(A, x.device_mesh, shape=(5, 6)), RuntimeError, "both shape and stride"),
        (
            lambda x: DTensor.from_local(A[dist.get_rank() :], x.device_mesh, [Shard(0)], run_check=True),
            ValueError,
            "Inconsistent tensor metadata",
        ),
        (lambda x: distribute_tensor(x, x.device_mesh, [Shard(1)]), ValueError, "to a different placements"),
    ],
)
@on_ranks(2)
def test_mistakes_are_told(mistake, error, text):
    mesh = line()
    with pytest.raises(error, match=text):
        mistake(distribute_tensor(A, mesh, [Shard(0)]))


def test_functions_of_a_program_s_own_have_gradients():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    def program(mesh):
        (x,) = placed(mesh, (A, Shard(0)))
        (Square.apply(x) + Square.apply(x * 1)).sum().backward()
        torch.testing.assert_close(x.grad.full_tensor(), 4 * A)
        made = [x.new_zeros(5, 6), x.new_full((2,), 3.0), torch.empty_like(x, requires_grad=True)]
        return [(type(t).__name__, str(t.placements[0]), t.requires_grad) for t in made]

    assert on_line(2, program)[0] == [
        ("DTensor", "S(0)", False),
        ("DTensor", "R", False),
        ("DTensor", "S(0)", True),
    ]


@pytest.mark.parametrize("name", ["NAdam", "Adafactor", "Muon"])
@on_ranks(2)
def test_optimizers_that_are_made_of_ops_update_parts(name):
    mesh = line()
    p = nn.Parameter(distribute_tensor(A, mesh, [Shard(0)]))
    q = nn.Parameter(A.clone())
    for weight in (p, q):
        optimizer = getattr(torch.optim, name)([weight], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (weight * weight).sum().backward()
            optimizer.step()
    tolerance = 0.02 if name == "Muon" else 1e-5  # whose products are of 16 bits
    torch.testing.assert_close(p.full_tensor(), q.detach(), rtol=tolerance, atol=tolerance)
