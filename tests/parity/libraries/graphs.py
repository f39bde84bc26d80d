"""torch_geometric: convolutions on a random graph, batches of graphs, pooling, transforms."""

import torch
import torch_geometric as pyg
import torch_geometric.nn as geometric
import torch_geometric.transforms as T
from reporting import say
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.utils import coalesce, negative_sampling, scatter, softmax, to_dense_adj, to_undirected

KINDS = {
    "gcn": geometric.GCNConv,
    "gat": lambda i, o: geometric.GATConv(i, o, heads=2, concat=False),
    "sage": lambda i, o: geometric.SAGEConv(i, o, aggr=["mean", "max", "std"]),
    "gin": lambda i, o: geometric.GINConv(nn.Linear(i, o)),
    "transformer": geometric.TransformerConv,
    "edge": lambda i, o: geometric.EdgeConv(nn.Linear(2 * i, o)),
}
g = torch.Generator().manual_seed(0)
edges = to_undirected(coalesce(torch.randint(0, 30, (2, 120), generator=g)))
data = Data(x=torch.randn(30, 8, generator=g), edge_index=edges, y=torch.randint(0, 3, (30,), generator=g))
say("data", repr(data), data.is_undirected(), data.has_isolated_nodes())

for name, make in KINDS.items():
    torch.manual_seed(0)
    first, second = make(8, 16), make(16, 3)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], 0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(second(first(data.x, edges).relu(), edges), data.y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    say(name, losses)


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = geometric.GCNConv(8, 16), geometric.GraphNorm(16)
        self.head = nn.Linear(48, 3)

    def forward(self, batch):
        h = self.norm(self.convolution(batch.x, batch.edge_index).relu(), batch.batch)
        pools = geometric.global_mean_pool, geometric.global_max_pool, geometric.global_add_pool
        return self.head(torch.cat([pool(h, batch.batch) for pool in pools], 1))


pyg.seed_everything(0)
sizes = range(4, 16)
graphs = [
    Data(x=torch.randn(n, 8), edge_index=torch.randint(0, n, (2, 3 * n)), y=torch.tensor([n % 3]))
    for n in sizes
]
model = Pooled()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for batch in DataLoader(graphs, batch_size=4, shuffle=True):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch), batch.y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
say("batches", losses, repr(batch), batch.to_data_list()[0].num_nodes)
say("model", geometric.GCN(8, 16, 2, 3)(data.x, edges), repr(geometric.MLP([8, 16, 3])))
groups = torch.tensor([0, 0, 1, 1, 1, 2])
say("functions", softmax(torch.arange(6.0), groups), scatter(torch.arange(6.0), groups, reduce="mean"))
say("transforms", repr(T.Compose([T.NormalizeFeatures(), T.AddSelfLoops()])(data)), to_dense_adj(edges).sum())
say("links", repr(T.RandomLinkSplit(is_undirected=True)(data)[0]), negative_sampling(edges, 30).shape)
hetero = HeteroData()
hetero["a"].x, hetero["b"].x = torch.randn(5, 8), torch.randn(6, 8)
hetero["a", "to", "b"].edge_index = torch.randint(0, 5, (2, 9))
convolution = geometric.HeteroConv({("a", "to", "b"): geometric.SAGEConv((8, 8), 4)})
say("kinds of nodes", repr(hetero), convolution(hetero.x_dict, hetero.edge_index_dict))
torch.save({"data": data, "model": model.state_dict()}, "graphs.pt")
loaded = torch.load("graphs.pt", weights_only=False)
say("loaded", repr(loaded["data"]), loaded["model"]["head.weight"])


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = geometric.SAGEConv((-1, -1), 8), geometric.SAGEConv((-1, -1), 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


torch.manual_seed(0)
there = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 5]])
hetero = geometric.to_hetero(Layers(), (["a", "b"], [("a", "to", "b"), ("b", "from", "a")]), aggr="sum")
found = hetero(
    {"a": torch.randn(5, 4), "b": torch.randn(6, 3)},
    {("a", "to", "b"): there, ("b", "from", "a"): there.flip(0)},
)
sum(each.sum() for each in found.values()).backward()
say("to_hetero", *found.values(), [p.grad.norm() for p in hetero.parameters()])
