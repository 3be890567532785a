"""The beginnings of tokens in ``tokens.toml``. Tokens are put together here: no scanner finds one in this file."""

from itertools import cycle, islice
from typing import Any

import pytest

from traceadvisor.text.cleaning import clean
from traceadvisor.text.secrets import REDACTED, holds_secret, token_table

SAMPLES = {
    "base64": "Q7w/e9+Zx_1-",
    "dash": "4f-9Ab2",
    "dotted": "a.7_Bc-2D",
    "hex": "0f3a9c",
    "letters": "a9Bc3dE",
    "upper": "A9B3C",
    "url": "x-4_Yz7",
    "word": "b_8Kd2",
}

KINDS = [(kind, prefix) for kind in token_table() for prefix in kind["prefixes"]]


def _token(kind: dict[str, Any], prefix: str, shorter_by: int = 0) -> str:
    rest = islice(cycle(SAMPLES[kind["alphabet"]]), kind["length"] - shorter_by)
    return f"{prefix}{''.join(rest)}"


@pytest.mark.parametrize(("kind", "prefix"), KINDS, ids=[prefix for _, prefix in KINDS])
def test_a_token_of_each_vendor_is_redacted(kind: dict[str, Any], prefix: str) -> None:
    token = _token(kind, prefix)
    for surrounding in ("{}", "failed for {}: 401", '{{"x": "{}"}}', "run_{}", "call('{}')", "a\\n{}"):
        text = clean(surrounding.format(token))
        assert token not in text
        assert REDACTED in text
        assert clean(text) == text


@pytest.mark.parametrize(("kind", "prefix"), KINDS, ids=[prefix for _, prefix in KINDS])
def test_a_beginning_alone_is_no_secret(kind: dict[str, Any], prefix: str) -> None:
    assert kind["vendor"]
    assert not holds_secret(f"see {prefix} below")


BY_HAND = {
    "Adobe": ("p8e", "-", "0a1b2c3d" * 4),
    "Adyen": ("AQ", "Eyhmfx.", "aB3-_=" * 10),
    "Alibaba Cloud": ("LT", "AI", "5tBcDeFgHiJkLmNoPqRs"),
    "Atlassian": ("ATA", "TT3", "aB3-_=" * 31),
    "Authress": ("sc", "_a1b2c3d4.e5f6.acc-", "g7h8i9j0k1." + "lM2+/_=" * 6),
    "Azure": ("abc8", "Q~", "defGhi-JklMno.PqrStu_VwxYz0123456"),
    "Brevo": ("xkeysib", "-", "0123456789abcdef" * 4 + "-AbCdEfGhIjKlMnOp"),
    "Cloudflare": ("v1.0", "-", "0a" * 12 + "-" + "1b" * 73),
    "Facebook": ("1234567890", "12345|", "aB3-_" * 6),
    "GitLab": ("gl", "rtr-", "aB3-_" * 4),
    "Grafana": ("gl", "c_", "aB3+/" * 8),
    "Infracost": ("ico", "-", "AbCd0123" * 4),
    "Mapbox": ("pk.", "ey", "JabC1" * 13 + "." + "dEf2g" * 5),
    "MaxMind": ("aB3dE5_", "aB3dE5aB3dE5aB3dE5aB3dE5aB3dE", "_mmk"),
    "OpenShift": ("sha256", "~", "aB3-_" * 9),
    "PlanetScale": ("psc", "ale_pw_", "aB.3-_=" * 6),
    "Prefect": ("pnu", "_", "aB3dE5" * 6),
    "Pulumi": ("pul", "-", "0a1b2" * 8),
    "SendGrid": ("S", "G.", "aB3-=_aB3-=_aB3-=_aB3-." + "dE4_" * 11),
    "Shippo": ("shippo_", "live_", "0a1b2" * 8),
    "Twitter": ("A" * 11, "A" * 11, "aB3%2" * 18),
    "Vault": ("s", ".", "aB3dE5fG7hI9jK1lM3nO5pQ7"),
    "Yandex": ("t", "1.", "aB3-_" * 4 + "." + "aB3-_" * 17 + "d"),
}
"""As vendors write them today, in pieces."""


@pytest.mark.parametrize("pieces", BY_HAND.values(), ids=list(BY_HAND))
def test_a_token_as_its_vendor_writes_it_is_redacted(pieces: tuple[str, ...]) -> None:
    assert clean(f"login with {''.join(pieces)} failed") == f"login with {REDACTED} failed"


@pytest.mark.parametrize(
    "text",
    [
        "aten::convolution_backward",
        "models/pat.encoder.layers.0.self_attn.out_proj.weight",
        "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "API-REFERENCE and sl.config and ico-48.png",
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
        "--pul-request 4",
        "layers.attention.projections.weight",
        "s.convolution2dforwardkernel",
        "model.s.encoderlayernormalization",
        "tests/test_batches.py::test_a_batch_is_read_once",
        "live_loss=0.25 and test_accuracy",
    ],
)
def test_names_that_begin_alike_stay(text: str) -> None:
    assert clean(text) == text
