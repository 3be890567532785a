"""Changes of source files: each changed call runs with the wanted arguments, and nothing else of the file differs."""

from difflib import SequenceMatcher

import pytest

from tests.judging.test_constructor_call import arguments, recorded
from traceadvisor.experiments.patching.source import DEEPEST, LARGEST_BYTES, LeftAsItIs, Source
from traceadvisor.judging.constructor_call import LOADER_ORDER, Unchanged, changed_call
from traceadvisor.model.patch import Unpatched
from traceadvisor.model.setting_value import SettingValue

WORKERS: dict[str, SettingValue] = {"num_workers": 4, "persistent_workers": True}


def changed(content: str | bytes, keywords: dict[str, SettingValue], name: str = "DataLoader") -> bytes:
    """The file with these arguments in its only call of a class."""
    source = Source(content.encode() if isinstance(content, str) else content)
    call = source.call({name})
    for key, value in keywords.items():
        source.set_argument(call, key, value, LOADER_ORDER if name == "DataLoader" else ())
    return source.content()


def refused(content: str, keywords: dict[str, SettingValue], name: str = "DataLoader") -> tuple[Unpatched, str | None]:
    """Why a file is left as it is."""
    with pytest.raises(LeftAsItIs) as reason:
        changed(content, keywords, name)
    return reason.value.reason, reason.value.detail


@pytest.mark.parametrize(
    "before",
    [
        "loader = DataLoader(ds)",
        "loader = DataLoader(ds, )",
        "loader = DataLoader(ds, 32)",
        "loader = DataLoader(ds, 8, True, None, None, 0)",
        "loader = DataLoader(ds, num_workers=0)",
        "loader = DataLoader(ds, num_workers=0, **more)",
        "loader = DataLoader(\n    ds,\n    batch_size=8,\n)",
        "loader = DataLoader(\n    ds,\n    batch_size=8\n)",
        "loader = DataLoader(\n    ds,  # all\n    batch_size=8  # eight\n)",
        "loader = DataLoader(\n    ds, batch_size=8\n)",
        "loader = DataLoader(ds,\n                    batch_size=8)",
    ],
)
def test_a_call_gets_the_arguments_and_the_report_shows_the_same_lines(before: str) -> None:
    after = changed(f"more = {{'shuffle': True}}\n{before}\n", WORKERS).decode().partition("\n")[2]
    assert arguments(after, "DataLoader") == {**arguments(before, "DataLoader"), **WORKERS}
    try:
        shown = changed_call(recorded(before), WORKERS).source
    except Unchanged:
        return
    assert [line.rstrip() for line in after.splitlines()] == [line.rstrip() for line in shown.splitlines()]


@pytest.mark.parametrize(
    "content",
    [
        b"x = DataLoader(ds)",
        b"x = DataLoader(ds)\r\n\ty\r\n".replace(b"\ty", b"if x:\r\n\ty = 1"),
        b"\xef\xbb\xbf# caf\xc3\xa9\nx = DataLoader(ds)  # no newline",
        "# -*- coding: latin-1 -*-\nname = 'é'\nx = DataLoader(ds)\n".encode("latin-1"),
        b"x = DataLoader(ds)   \n\n\x0c\ndef  f( a ) :\n\treturn a ;\n",
        b"x = DataLoader(ds)\r\ny = 1\nz = 2\r\n",
        b"if 1:\n  x = DataLoader(ds) ; y = '''\\\n  \t'''\n",
    ],
)
def test_every_byte_outside_of_the_call_stays(content: bytes) -> None:
    after = changed(content, {"num_workers": 4})
    blocks = SequenceMatcher(None, content, after, autojunk=False).get_opcodes()
    assert [(kind, after[low:high]) for kind, _, _, low, high in blocks if kind != "equal"] == [
        ("insert", b", num_workers=4")
    ]


def test_a_dictionary_that_only_this_call_uses_is_changed() -> None:
    before = "def f(ds):\n    kw = {'batch_size': 8, 'num_workers': 0}  # ours\n    return DataLoader(ds, **kw)\n"
    after = changed(before, {"num_workers": 4}).decode()
    assert after == before.replace("0}", "4}")


def test_an_argument_that_a_visible_dictionary_lacks_is_added_to_the_call() -> None:
    before = "options = dict(batch_size=8)\ntest = DataLoader(old, **options)\n"
    assert changed(before, {"num_workers": 4}).decode() == before.replace("**options)", "**options, num_workers=4)")


def test_a_constant_that_only_this_call_uses_is_changed_where_it_is_assigned() -> None:
    before = "WORKERS = 0  # none\nloader = DataLoader(ds, num_workers=WORKERS)\n"
    assert changed(before, {"num_workers": 4}).decode() == before.replace("= 0", "= 4")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("x = DataLoader(ds, **more())", (Unpatched.UNSEEN_ARGUMENTS, "**more()")),
        ("x = DataLoader(*values)", (Unpatched.UNSEEN_ARGUMENTS, "*values")),
        ("kw = {'a': 1}\nkw.update(b)\nx = DataLoader(ds, **kw)", (Unpatched.UNSEEN_ARGUMENTS, "**kw")),
        ("kw = {'a': 1}\nkw['b'] = 2\nx = DataLoader(ds, **kw)", (Unpatched.UNSEEN_ARGUMENTS, "**kw")),
        ("kw = {'a': 1}\nfill(kw)\nx = DataLoader(ds, **kw)", (Unpatched.UNSEEN_ARGUMENTS, "**kw")),
        ("kw = {**other}\nx = DataLoader(ds, **kw)", (Unpatched.UNSEEN_ARGUMENTS, "**kw")),
        ("def f(kw):\n    return DataLoader(ds, **kw)", (Unpatched.UNSEEN_ARGUMENTS, "**kw")),
        ("kw = {}\nkw = {'a': 1}\nx = DataLoader(ds, **kw)", (Unpatched.UNSEEN_ARGUMENTS, "**kw")),
        (
            "kw = {'num_workers': 0}\ny = Other(**kw)\nx = DataLoader(ds, **kw)",
            (Unpatched.SHARED, "kw"),
        ),
        ("N = 0\ny = N\nx = DataLoader(ds, num_workers=N)", (Unpatched.SHARED, "N")),
        ("x = DataLoader(ds, num_workers=args.workers)", (Unpatched.EXPRESSION, "args.workers")),
        ("for n in (0, 2):\n    x = DataLoader(ds, num_workers=n)", (Unpatched.EXPRESSION, "n")),
        ("x = DataLoader(ds, num_workers=4)", (Unpatched.ALREADY_SET, None)),
        ("x = DataLoader(a)\ny = DataLoader(b)", (Unpatched.SEVERAL_PLACES, "DataLoader")),
        ("x = Loader(a)", (Unpatched.NO_PLACE, "DataLoader")),
        ("x = DataLoader(", (Unpatched.UNREADABLE, None)),
        ("x = DataLoader(ds)\x00", (Unpatched.UNREADABLE, None)),
    ],
)
def test_what_cannot_be_changed_safely_is_left_with_its_reason(content: str, why: tuple[Unpatched, str | None]) -> None:
    assert refused(content, {"num_workers": 4}) == why


def test_arguments_that_exclude_each_other_are_not_combined() -> None:
    assert refused("x = AdamW(p, foreach=True)", {"fused": True}, "AdamW") == (Unpatched.EXCLUDED, "foreach")
    assert (
        changed("x = AdamW(p, foreach=False)", {"fused": True}, "AdamW") == b"x = AdamW(p, foreach=False, fused=True)"
    )


def test_many_positional_arguments_are_not_guessed() -> None:
    assert refused("x = AdamW(p, 1, 2, 3, 4, 5, 6)", {"fused": True}, "AdamW") == (Unpatched.POSITIONAL, None)


@pytest.mark.parametrize(
    "nested", ["-" * (DEEPEST + 50) + "1", "a" + ".b" * (DEEPEST + 50), "a" + "()" * (DEEPEST + 50)]
)
def test_deep_nesting_never_reaches_the_parser(nested: str) -> None:
    assert refused(f"y = {nested}\nx = DataLoader(ds)", WORKERS) == (Unpatched.UNREADABLE, None)


def test_a_large_file_is_left_as_it_is() -> None:
    assert refused("x = DataLoader(ds)\n" + "#" * LARGEST_BYTES, WORKERS) == (Unpatched.UNREADABLE, None)


def test_a_file_that_libcst_does_not_give_back_as_it_was_is_left_as_it_is() -> None:
    assert refused("\x0cx = DataLoader(ds)\n", WORKERS) == (Unpatched.UNREADABLE, None)


def test_comments_between_arguments_stay_where_they_are() -> None:
    before = "x = DataLoader(\n    ds,\n    # none so far:\n    num_workers=0,\n    # the end\n)"
    added = "num_workers=4,\n    persistent_workers=True,"
    assert changed(before, WORKERS).decode() == before.replace("num_workers=0,", added)


def test_a_call_is_found_by_its_line_among_several() -> None:
    source = Source(b"x = DataLoader(a)\ny = DataLoader(b)\n")
    source.set_argument(source.call({"DataLoader"}, 2), "num_workers", 4, LOADER_ORDER)
    assert source.content() == b"x = DataLoader(a)\ny = DataLoader(b, num_workers=4)\n"


def test_several_changes_of_a_file_are_made_together() -> None:
    source = Source(
        b'"""Doc."""\nimport os\nimport torch  # it\n\nmodel = Net().to(dev)  # big\n'
        b"loader = DataLoader(ds)\nopt.zero_grad(set_to_none=False)\n"
    )
    source.add_after_imports('torch.set_float32_matmul_precision("high")')
    source.add_below_assignment(source.call({"Net"}), "{name}.compile()")
    source.set_in_methods("zero_grad", "set_to_none", value=True)
    source.set_argument(source.call({"DataLoader"}), "num_workers", 4, LOADER_ORDER)
    assert source.content().decode() == (
        '"""Doc."""\nimport os\nimport torch  # it\ntorch.set_float32_matmul_precision("high")\n\n'
        "model = Net().to(dev)  # big\nmodel.compile()\n"
        "loader = DataLoader(ds, num_workers=4)\nopt.zero_grad(set_to_none=True)\n"
    )


@pytest.mark.parametrize("content", ["import torch as t\n", "from torch import nn\n", "x = 1\nimport torch\n"])
def test_a_line_that_needs_torch_is_not_added_without_its_import(content: str) -> None:
    with pytest.raises(LeftAsItIs) as reason:
        Source(content.encode()).add_after_imports("torch.backends.cudnn.benchmark = True")
    assert reason.value.reason is Unpatched.NO_PLACE


@pytest.mark.parametrize(
    "content", ["train(Net())", "a = b = Net()", "a, b = Net(), 1", "a = wrap(Net())", "a = Net(); b = 1"]
)
def test_a_model_without_a_name_of_its_own_gets_no_line(content: str) -> None:
    source = Source(content.encode())
    with pytest.raises(LeftAsItIs) as reason:
        source.add_below_assignment(source.call({"Net"}), "{name}.compile()")
    assert reason.value.reason is Unpatched.NO_PLACE


def _non_blocking(content: str) -> str:
    source = Source(content.encode())
    source.set_in_copies(source.copies_of_batches(source.call({"DataLoader"})), "non_blocking", value=True)
    return source.content().decode()


def test_copies_of_batches_to_a_gpu_do_not_block() -> None:
    before = (
        "loader = DataLoader(ds)\n"
        "for step, (x, y) in enumerate(loader):\n"
        "    x, y = x.to(device), y.cuda()\n"
        "    z = model(x).to(device)\n"
        "    x.to('cuda:0', torch.float16)\n"
        "    x.cpu(), x.to('cpu'), model.to(device), x.to(torch.device('cpu'))\n"
    )
    assert _non_blocking(before) == (
        before.replace("= x.to(device)", "= x.to(device, non_blocking=True)")
        .replace("y.cuda()", "y.cuda(non_blocking=True)")
        .replace("torch.float16)", "torch.float16, non_blocking=True)")
    )


def test_copies_in_loops_over_something_else_stay() -> None:
    with pytest.raises(LeftAsItIs) as reason:
        _non_blocking("loader = DataLoader(ds)\nfor x in rows:\n    x.to(device)\n")
    assert reason.value.reason is Unpatched.NO_PLACE


def test_copies_that_do_not_block_already_stay_beside_others() -> None:
    before = "loader = DataLoader(ds)\nfor x, y in loader:\n    x.to(device{}), y.to(device, non_blocking=True)\n"
    assert _non_blocking(before.format("")) == before.format(", non_blocking=True")


def test_of_calls_that_belong_together_none_is_changed_if_one_cannot_be() -> None:
    content = b"loader = DataLoader(ds)\nfor x, y in loader:\n    x.to(device), y.to(device, non_blocking=fast)\n"
    content += b"    opt.zero_grad(set_to_none=False), opt.zero_grad(set_to_none=fast)\n"
    source = Source(content)
    with pytest.raises(LeftAsItIs) as reason:
        source.set_in_copies(source.copies_of_batches(source.call({"DataLoader"})), "non_blocking", value=True)
    assert reason.value.reason is Unpatched.EXPRESSION
    with pytest.raises(LeftAsItIs):
        source.set_in_methods("zero_grad", "set_to_none", value=True)
    assert source.content() == content
