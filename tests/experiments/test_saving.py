from importlib import metadata
from pathlib import Path

import pytest
import torch

from tests.warm import warm
from traceadvisor.experiments.run import changed_files, footprints

NIGHTLY = pytest.mark.nightly("traceadvisor/experiments")

START = """
import sys
from pathlib import Path
from traceadvisor.experiments.inside.saving import ScratchFolder
notes = []
ScratchFolder(Path("out/scratch"), note=notes.append)
import io, json, os, pickle, shutil, tempfile
import numpy
import torch
"""

TEN_WAYS = """
old = {name: Path(name).read_bytes() for name in os.listdir() if os.path.isfile(name)}
one = torch.ones(3)

def check(path, is_torch=True):
    assert os.path.exists(path) and os.path.basename(path) in os.listdir(os.path.dirname(path) or "."), path
    assert not is_torch or torch.load(path).tolist() == [1.0, 1.0, 1.0], path

torch.save(one, "1.pt")
check("1.pt")
with open("2.pt", "wb") as file:
    torch.save(one, file)
check("2.pt")
torch.save(one, "3.tmp")
os.replace("3.tmp", "3.pt")
check("3.pt")
assert not os.path.exists("3.tmp") and Path("3.pt").stat().st_size > 100
with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
    torch.save(one, file)
os.rename(file.name, "4.pt")
check("4.pt")
shutil.copy("1.pt", "5.pt")
check("5.pt")
shutil.copyfile("1.pt", "6.pt")
check("6.pt")
shutil.move("6.pt", "7.pt")
check("7.pt")
assert not Path("6.pt").exists()
buffer = io.BytesIO()
torch.save(one, buffer)
Path("8.pt").write_bytes(buffer.getvalue())
check("8.pt")
with open("9.pkl", "wb") as file:
    pickle.dump([1], file)
assert pickle.load(open("9.pkl", "rb")) == [1]
numpy.save("10.npy", [1])
assert numpy.load("10.npy").tolist() == [1]
shutil.rmtree("folder")
assert not os.path.exists("folder") and "folder" not in os.listdir()
os.makedirs("folder")
torch.save(one, "folder/11.pt")
check("folder/11.pt")
assert [entry.name for entry in os.scandir("folder")] == ["11.pt"]
shutil.copytree("folder", "copied", dirs_exist_ok=True)
check("copied/11.pt")
shutil.copytree("folder", "new-folder")
check("new-folder/11.pt")
assert [path.name for path in Path().glob("new-folder/*.pt")] == ["11.pt"]
with open("12.log", "a") as file:
    print("more", file=file)
assert Path("12.log").read_text() == "before 12.log" + "more\\n"
json.dump([1], open("13.json", "w"))
assert json.load(open("13.json")) == [1]
os.unlink("14.pt")
assert not os.path.exists("14.pt") and "14.pt" not in os.listdir()
torch.jit.save(torch.jit.trace(torch.nn.ReLU(), one), "15.pt")
assert torch.jit.load("15.pt")(one).tolist() == [1.0, 1.0, 1.0]
os.unlink("latest")
os.symlink("1.pt", "latest")
check("latest")
torch.save(one, "latest")
check("1.pt")
Path("14.pt").touch()
os.utime("13.json")
os.truncate("10.npy", 3)
assert os.path.getsize("10.npy") == 3
assert not notes, notes
"""

NAMES = (
    *("1.pt", "2.pt", "3.pt", "4.pt", "5.pt", "6.pt", "7.pt", "8.pt", "9.pkl", "10.npy", "12.log", "13.json", "14.pt"),
    *("15.pt", "folder/11.pt", "folder/12.pt", "copied/11.pt", "1.safetensors", "model/model.safetensors"),
    *("model/config.json", "model/training_args.bin", "lightning/last.ckpt"),
)


def _of_before(folder: Path) -> dict[str, tuple[int, int]]:
    """Files that a script must not change."""
    for name in NAMES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"before {name}")
    (folder / "latest").symlink_to("3.pt")
    found = footprints(folder, ignored=folder / "out")
    assert found is not None
    return found


def _run(folder: Path, source: str) -> None:
    script = folder.with_suffix(".py")  # no file of the folder
    script.write_text(START + source)
    done = warm(str(script), cwd=folder)
    assert done.returncode == 0, done.stderr


def _assert_all_stays(folder: Path, source: str) -> None:
    before = _of_before(folder)
    content = {name: (folder / name).read_text() for name in NAMES}
    _run(folder, source)
    assert {name: (folder / name).read_text() for name in NAMES} == content
    changed = changed_files(before, footprints(folder, ignored=folder / "out"))
    assert changed is not None
    assert not {name for name in changed if name in before}


@pytest.mark.nightly("traceadvisor/experiments")
def test_however_a_script_saves_no_file_of_before_changes_and_it_reads_back_what_it_wrote(tmp_path: Path) -> None:
    _assert_all_stays(tmp_path, TEN_WAYS)


@pytest.mark.nightly("traceadvisor/experiments")
def test_files_that_are_opened_below_open_stay_and_are_read_back(tmp_path: Path) -> None:
    source = """
import bz2, lzma
for number, flags in enumerate((os.O_TRUNC, os.O_TRUNC | os.O_CREAT, os.O_APPEND), 1):
    with os.fdopen(os.open(f"{number}.pt", os.O_WRONLY | flags), "w") as file:
        file.write("after")
    assert Path(f"{number}.pt").read_text().endswith("after")
with io.FileIO("4.pt", "w") as raw:
    raw.write(b"after")
    assert isinstance(raw, io.FileIO) and raw.readable() is False
assert io.FileIO("4.pt").read() == b"after"
assert isinstance(open("4.pt", "rb", buffering=0), io.FileIO) and issubclass(io.FileIO, io.RawIOBase)
class Own(io.FileIO):
    pass
with Own("5.pt", mode="r+") as raw:
    raw.write(b"AFTER")
assert Path("5.pt").read_bytes() == b"AFTERe 5.pt"
for number, module in ((6, bz2), (7, lzma)):
    with module.open(f"{number}.pt", "wb") as packed:
        packed.write(b"after")
    assert module.open(f"{number}.pt").read() == b"after"
"""
    _assert_all_stays(tmp_path, source)


def test_a_copy_of_a_private_file_is_private(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("before")
    (tmp_path / "key").chmod(0o600)
    _run(tmp_path, 'open("key", "a").write("+"); os.close(os.open("key", os.O_WRONLY | os.O_TRUNC))')
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "out" / "scratch").iterdir()}
    assert modes == {0o600}
    assert (tmp_path / "key").read_text() == "before"


def test_safetensors_go_to_the_scratch_folder_too(tmp_path: Path) -> None:
    if not list(metadata.distributions(name="safetensors")):  # another test may leave a stand-in among the modules
        pytest.skip("safetensors is not installed: make frameworks")
    source = """
from safetensors.torch import load_file, save_file
save_file({"a": torch.ones(2)}, "1.safetensors")
assert load_file("1.safetensors")["a"].tolist() == [1.0, 1.0]
os.replace("1.safetensors", "model/model.safetensors")
assert load_file("model/model.safetensors")["a"].tolist() == [1.0, 1.0]
"""
    _assert_all_stays(tmp_path, source)


@NIGHTLY
def test_a_model_of_transformers_is_saved_and_loaded(tmp_path: Path, transformers: None) -> None:
    source = """
from transformers import BertConfig, BertModel, Trainer, TrainingArguments
config = BertConfig(hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4, vocab_size=5)
trainer = Trainer(BertModel(config), TrainingArguments("model", report_to=[], use_cpu=True))
trainer.save_model("model")
again = BertModel.from_pretrained("model")
for name, value in trainer.model.state_dict().items():
    assert torch.equal(again.state_dict()[name].cpu(), value.cpu()), name
"""
    _assert_all_stays(tmp_path, source)


@NIGHTLY
def test_a_checkpoint_of_lightning_is_saved_and_loaded(tmp_path: Path, lightning: None) -> None:
    source = """
import lightning
from lightning.pytorch.demos.boring_classes import BoringModel
trainer = lightning.Trainer(max_steps=1, logger=False, enable_checkpointing=False, accelerator="cpu")
model = BoringModel()
trainer.fit(model)
trainer.save_checkpoint("lightning/last.ckpt")
again = BoringModel.load_from_checkpoint("lightning/last.ckpt", weights_only=False)
assert torch.equal(again.layer.weight, model.layer.weight)
"""
    _assert_all_stays(tmp_path, source)


def test_a_checkpoint_with_a_new_name_goes_to_the_scratch_folder(tmp_path: Path) -> None:
    source = 'torch.save(torch.ones(1), "new.pt"); assert torch.load("new.pt").tolist() == [1.0]'
    _run(tmp_path, source)
    assert not (tmp_path / "new.pt").exists()
    assert torch.load(tmp_path / "out" / "scratch" / "000-new.pt").tolist() == [1.0]


def test_processes_that_the_script_forks_change_no_file_of_before_either(tmp_path: Path) -> None:
    source = """
torch.save(torch.ones(1), "1.pt")
if (child := os.fork()) == 0:
    Path("2.pt").write_text("by the child")
    os._exit(int(Path("2.pt").read_text() != "by the child" or torch.load("1.pt").tolist() != [1.0]))
assert os.waitpid(child, 0)[1] == 0
"""
    _assert_all_stays(tmp_path, source)


def test_a_file_that_is_too_large_to_copy_is_named_before_it_changes(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("before")
    source = """
import traceadvisor.experiments.inside.overlay as overlay
overlay.LARGEST_COPY = 3
open("large", "r+").write("after!")
assert notes == ["The script changed large in place: it is too large to copy."]
"""
    _run(tmp_path, source)
    assert (tmp_path / "large").read_text() == "after!"


def test_files_that_are_new_changed_or_gone_are_listed(tmp_path: Path) -> None:
    for name in ("same", "changed", "gone"):
        (tmp_path / name).write_text(name)
    ignored = tmp_path / "out"
    before = footprints(tmp_path, ignored=ignored)
    (tmp_path / "changed").write_text("longer than before")
    (tmp_path / "gone").unlink()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "new").write_text("")
    ignored.mkdir()
    (ignored / "journal").write_text("")
    assert changed_files(before, footprints(tmp_path, ignored=ignored)) == ("changed", "gone", "sub/new")
    assert changed_files(before, None) is None
