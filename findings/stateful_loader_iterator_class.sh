#!/usr/bin/env bash
# The iterator of torchdata's StatefulDataLoader does not derive from the iterator of PyTorch that it replaces.
#
# Versions: Python 3.11, torchdata 0.11.0, torch 2.13.0 (CPU), numpy 2.4.6.
# Behaviour: `StatefulDataLoader` is a subclass of PyTorch's `DataLoader`, and its documentation calls it a drop-in
# replacement. With `num_workers=0`, though, its iterator is no `_SingleProcessDataLoaderIter`: it derives
# only from `_BaseDataLoaderIter`. The name of the class is part of the event that the profiler records for each
# batch. So code that recognises loading by `isinstance` or by the event's usual name misses this loader.
# One would expect that the iterator, as the loader, derives from the class that it replaces.
# Output seen:
#     DataLoader: is a DataLoader: True
#     DataLoader: iterator is a _BaseDataLoaderIter: True
#     DataLoader: iterator is a _SingleProcessDataLoaderIter: True
#     DataLoader: event enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
#     StatefulDataLoader: is a DataLoader: True
#     StatefulDataLoader: iterator is a _BaseDataLoaderIter: True
#     StatefulDataLoader: iterator is a _SingleProcessDataLoaderIter: False
#     StatefulDataLoader: event enumerate(DataLoader)#_StatefulSingleProcessDataLoaderIter.__next__
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchdata==0.11.0

cat > "$folder/program.py" <<'PROGRAM'
from torch.profiler import profile
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter, _SingleProcessDataLoaderIter
from torchdata.stateful_dataloader import StatefulDataLoader


def describe(loader_class):
    name = loader_class.__name__
    loader = loader_class(list(range(4)), batch_size=2, num_workers=0)
    print(f"{name}: is a DataLoader: {isinstance(loader, DataLoader)}")
    iterator = iter(loader)
    for base in (_BaseDataLoaderIter, _SingleProcessDataLoaderIter):
        print(f"{name}: iterator is a {base.__name__}: {isinstance(iterator, base)}")
    with profile() as profiler:
        for _ in loader:
            pass
    for event in sorted({event.name for event in profiler.events() if "DataLoader" in event.name}):
        print(f"{name}: event {event}")


describe(DataLoader)
describe(StatefulDataLoader)
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
DataLoader: is a DataLoader: True
DataLoader: iterator is a _BaseDataLoaderIter: True
DataLoader: iterator is a _SingleProcessDataLoaderIter: True
DataLoader: event enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
StatefulDataLoader: is a DataLoader: True
StatefulDataLoader: iterator is a _BaseDataLoaderIter: True
StatefulDataLoader: iterator is a _SingleProcessDataLoaderIter: False
StatefulDataLoader: event enumerate(DataLoader)#_StatefulSingleProcessDataLoaderIter.__next__
EXPECTED

"$folder/venv/bin/python" "$folder/program.py" 2> "$folder/errors.txt" > "$folder/output.txt" || {
    cat "$folder/errors.txt" >&2
    exit 1
}
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
