import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.few import few
from traceadvisor.analysis.operators.source_files import is_library
from traceadvisor.scrubbing.texts import MOST_NUMBERED, Numbers, Texts


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/home/ada/lab/train.py", "/folder1/folder2/folder3/train.py"),
        (r"C:\Users\ada\train.py", r"\folder1\folder2\train.py"),
        ("train.py", "train.py"),
        ("./train.py", "./train.py"),
        ("../lab/train.py", "../folder1/train.py"),
        ("lab/models/net.py", "folder1/folder2/net.py"),
        ("torch/nn/modules/module.py", "torch/nn/modules/module.py"),
        ("json/decoder.py", "json/decoder.py"),
        ("/opt/lab/lib/python3.11/site-packages/torch/nn/x.py", "site-packages/torch/nn/x.py"),
        ("/opt/lab/lib/python3.11/site-packages/lab/x.py", "site-packages/folder1/x.py"),
        ("/opt/lab/lib/python3.11/json/decoder.py", "/lib/python3.11/json/decoder.py"),
        ("/scratch/torchinductor_ada/ab/cab.py", "/torchinductor_user/folder1/cab.py"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("<ipython-input-3-lab>", "<code1>"),
        ("lab/fast.pyx", "folder1/fast.pyx"),
        ("datasets/arrow_dataset.py", "datasets/arrow_dataset.py"),
        ("datasets/ours.py", "folder1/ours.py"),
    ],
)
def test_folders_are_numbered_and_public_libraries_stay(file: str, shown: str) -> None:
    assert Texts().file(file) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("aten::mm", "aten::mm"),
        ("void at::native::elementwise<4, at::F<float> >(int, char*)", None),
        ("Torch-Compiled Region: 0/0", None),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", None),
        ("model/encoder/layer.3", None),
        ("<built-in method run of Net object at 0x7f00>", None),
        ("Memcpy HtoD (Pageable -> Device)", None),
        ("cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(Params)", None),
        ("/home/ada/lab/train.py(41): main", "/folder1/folder2/folder3/train.py(41): main"),
        ("load /data/lab/set", "load /folder1/folder2/folder3"),
        ("load ~/lab/net.py", "load ~/folder1/net.py"),
        ("fetch https://lab.example/x?y", "fetch [address]"),
        ("ping 10.0.0.7:29500", "ping [address]"),
        ("mail ada@lab.example.org", "mail [address]"),
        ("key=ghp_0123456789abcdefghijABCDEFGHIJ012345", "key=[redacted]"),
        ("x.cluster.internal forward", "host1 forward"),
        ("to 2001:db8::1 and [fe80::1]:80", "to [address] and [[address]]:80"),
        ("ac::add<face::bed>", None),
        ("skimage.io.imread", None),
        ("encoder.local.0", None),
        ("c10::BFloat16", None),
        ("Dequeue@Conv2D", None),
        ("model/encoder/attention.key", None),
        ("Optimizer.step#Adam.step", None),
        ("nn.Module: Linear_0", None),
        ("jit(train)/jit(main)/transpose.3", None),
        ("torch/nn/modules/conv.py", None),
        ("read data/lab/x.py, lab/x.bin.", "read folder1/folder2/x.py, folder2/folder3"),
        (r"./lab/x.py ..\lab\x.py $HOME/lab/x.py", r"./folder1/x.py ..\folder1\x.py folder2/folder1/x.py"),
        ("load(//lab/share/x)", "load(//folder1/folder2/folder3)"),
        ("00:1B:44:11:3A:B7 ada@node-12 ada@node12:22", "[address] [address] [address]:22"),
    ],
)
def test_names_stay_but_for_what_is_private_in_them(name: str, shown: str | None) -> None:
    assert Texts().name(name) == (shown or name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("telemetry.node-7.jsonl of node-7", "telemetry.host1.jsonl of host1"),
        ("node-7_12.3.pt.trace.json", "host1_12.3.pt.trace.json"),
        ("supernode-77 stays", "supernode-77 stays"),
        ("NODE-7:0 and mynode-7x", "host1:0 and myhost1x"),
        ("on ADA and ada, with Adam", "on host1 and host1, with Adam"),
        ("ada@lab and 00:1B:44:11:3A:B7", "[address] and [address]"),
        ("see db.lab.internal and fe80::1:2", "see [address] and [address]"),
        ("in lab/data/set.csv", "in folder1/folder2/folder3"),
        ("3 of 12 rows, 5 MB/s at 10:15:00", "3 of 12 rows, 5 MB/s at 10:15:00"),
    ],
)
def test_sentences_name_no_host_and_no_folder(text: str, shown: str) -> None:
    texts = Texts()
    texts.learn("node-7", "ada", "adam", None, "")
    assert texts.free(text) == shown


FOLDERS = ("torch", "lab", "site-packages", "lib", "python3.11", "json", "datasets", "..", "torchinductor_ada",
           "<string>", "...", "traceadvisor", "recording", "")  # fmt: skip
FILES = ("arrow_x.py", "x.py", "y.pyx", "torch.py", "random.py", "train")
PATHS = st.tuples(st.lists(st.sampled_from(FOLDERS), max_size=5), st.sampled_from(FILES)).map(
    lambda parts: "/".join((*parts[0], parts[1]))
)
OWN = (None, frozenset({"lab", "x.py"}), frozenset({"datasets"}), frozenset({"torch"}))


@given(PATHS, st.sampled_from(OWN))
def test_library_code_stays_library_code(file: str, own: frozenset[str] | None) -> None:
    texts = Texts(own)
    mapped = None if own is None else frozenset(map(texts.own_part, own))
    assert is_library(texts.file(file), mapped) is is_library(file, own)


@given(st.lists(st.text(alphabet="ab/.~<", max_size=8), min_size=2, max_size=2))
def test_different_paths_stay_different(files: list[str]) -> None:
    texts = Texts()
    one, other = map(texts.file, files)
    assert (one == other) is (files[0] == files[1])


@given(st.text(alphabet=st.characters(codec=None), max_size=60))
def test_any_text_can_be_scrubbed_and_written(text: str) -> None:
    texts = Texts()
    for scrubbed in (texts.name(text), texts.free(text), texts.stack(text)):
        scrubbed.encode()


def test_numbers_are_limited() -> None:
    numbers = Numbers("folder")
    for number in range(MOST_NUMBERED + 10):
        numbers(str(number))
    assert numbers("7") == "folder8"
    assert numbers("new") == "folder"


@pytest.mark.parametrize(
    "pattern",
    few(
        ["a/", "/a", "~/", "a.", "a:", "1.", "\\a", "site-packages/", "torchinductor_", "f(1): ", ";", "a@", "::"],
        "traceadvisor/scrubbing",
    ),
)
def test_long_hostile_text_is_scrubbed_in_time(pattern: str) -> None:
    text = pattern * (20_000 // len(pattern))
    started = time.process_time()
    texts = Texts()
    for scrub in (texts.name, texts.free, texts.stack, texts.file):
        scrub(text)
    assert time.process_time() - started < 5
