"""Ranks with different numbers of samples: `ddprun -n 4 examples/features/exact_evaluation.py`.

The last step of an epoch has 2 samples for all ranks: those without one join with gradients of zero. The evaluation reads each
sample once; its mean is exact, and rank 0 has the answers to all samples, in the order of the data.
"""

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import launcher, nn
from ddpgrad.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y, numbers = torch.randn(66, 16), torch.randint(0, 4, (66,)), torch.arange(66)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
training = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
test = DataLoader(TensorDataset(x, y, numbers), batch_size=4)
model, optimizer, training, test = launcher.setup(model, optimizer, training, test)

for _ in range(5):
    for inputs, target in training:
        optimizer.zero_grad()
        model.loss_weight(len(target))  # a rank may have one sample more than another
        F.cross_entropy(model(inputs), target).backward()
        optimizer.step()

loss, answers, places = dist.Mean(), [], []
with torch.no_grad():
    for inputs, target, number in test:
        answers.append(model(inputs))
        places.append(number)
        loss.update(F.cross_entropy(answers[-1], target), len(target))
mean, order = loss.compute(), torch.cat(dist.all_gather_variable(torch.cat(places))).argsort()
answers = torch.cat(dist.all_gather_variable(torch.cat(answers)))[order]
if dist.get_rank() == 0:
    print(
        f"loss {mean:.8f} on {len(order)} samples; of the answers in order {F.cross_entropy(answers, y).item():.6f}"
    )
dist.destroy_process_group()
