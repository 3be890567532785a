"""Trains a graph network with the loader of PyTorch Geometric."""

from __future__ import annotations

import torch
from own_clock import clock_of_script, say
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv

BATCHES, EPOCHS = 20, 3


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    graphs = [Data(x=torch.randn(4, 8), edge_index=edges) for _ in range(4 * BATCHES)]
    model = GCNConv(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    clock = clock_of_script()
    losses = []
    for _ in range(EPOCHS):
        for batch in DataLoader(graphs, batch_size=4, num_workers=2):
            clock.begin()
            clock.pause()
            loss = (model(batch.x, batch.edge_index) - batch.x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.end()
            losses.append(loss.item())
    say(losses)


if __name__ == "__main__":
    main()
