import pytest

from traceadvisor.errors import UsageError
from traceadvisor.experiments.settings import Settings, line, parsed


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("num_workers=0,2,4", "num_workers", (0, 2, 4)),
        ("batch_size = 16 , 32", "batch_size", (16, 32)),
        ("fused=true", "fused", (True,)),
        ("foreach=0,1", "foreach", (False, True)),
        ("amp=bfloat16", "amp", ("bfloat16",)),
        ("set:train.CHUNK=1,2.5,fast", "set:train.CHUNK", (1, 2.5, "fast")),
        ("env:OMP_NUM_THREADS=1,2", "env:OMP_NUM_THREADS", ("1", "2")),
    ],
)
def test_a_setting_is_read_from_its_text(text: str, name: str, values: tuple[object, ...]) -> None:
    assert parsed(text) == (name, values)


@pytest.mark.parametrize(
    "text",
    [
        "num_workers",
        "num_workers=",
        "num_workers=-1",
        "num_workers=two",
        "batch_size=0",
        "amp=int8",
        "fused=3",
        "speed=1",
        "set:X=1",
        "cached=1",
    ],
)
def test_a_text_that_is_no_setting_is_refused_with_its_words(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parsed(text)
    assert text.partition("=")[0] in str(refused.value)


def test_the_loader_has_its_settings_and_the_step_the_others() -> None:
    mixed = Settings.of({"num_workers": 2, "amp": "bfloat16", "batch_size": 64, "env:A": "1", "set:a.B": 2})
    assert mixed.of_loader().document() == {"num_workers": 2, "batch_size": 64}


def test_later_settings_replace_earlier_ones() -> None:
    both = Settings.of({"num_workers": 2, "fused": True}).having(Settings.of({"num_workers": 4}))
    assert both.document() == {"fused": True, "num_workers": 4}
    assert both["num_workers"] == 4
    assert both["amp"] is None
    assert both.words() == "fused=True, num_workers=4"


def test_a_setting_is_shown_as_code_to_paste() -> None:
    assert line("num_workers", 2, device="cpu", optimizer="SGD") == "DataLoader(..., num_workers=2)"
    assert line("fused", value=True, device="cpu", optimizer="AdamW") == "torch.optim.AdamW(..., fused=True)"
    assert line("set:__main__.CHUNK", 2, device="cpu", optimizer="SGD") == "CHUNK = 2"
    assert line("env:OMP_NUM_THREADS", "2", device="cpu", optimizer="SGD") == "export OMP_NUM_THREADS=2"
    assert 'torch.autocast("cuda", dtype=torch.bfloat16)' in line("amp", "bfloat16", device="cuda", optimizer="SGD")
    assert "GradScaler" in line("amp", "float16", device="cuda", optimizer="SGD")
    tf32 = line("tf32", value=True, device="cuda", optimizer="SGD")
    assert tf32.endswith("; torch.backends.cudnn.allow_tf32 = True")  # of matrix products and convolutions, as measured
