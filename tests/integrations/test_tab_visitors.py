"""Which requests the tab answers: by the flags of TensorBoard, the host asked for, and the page that asks."""

from argparse import Namespace

import pytest
from werkzeug import Request

from traceadvisor.integrations.tensorboard.visitors import HOSTS, Visitors

LOCAL = Namespace(host=None, bind_all=False)
EVERYWHERE = Namespace(host=None, bind_all=True)


def allowed(flags: Namespace | None, **headers: str) -> bool:
    environ = {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    return Visitors(flags).refusal(Request(environ | {"SERVER_NAME": "localhost", "SERVER_PORT": "6006"})) is None


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:6006", "localhost.", "tab.localhost:6006", "127.0.0.1:8000", "127.1.2.3", "[::1]:6006"],
)
@pytest.mark.parametrize("flags", [None, LOCAL, EVERYWHERE])
def test_names_and_addresses_of_this_machine_are_always_allowed(host: str, flags: Namespace | None) -> None:
    assert allowed(flags, host=host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example:6006",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "evil.example/localhost",
        "localhost/evil.example",
        "127.0.0.1:6006#evil.example",
        "localhost, evil.example",
        "notlocalhost",
        "10.0.0.7:6006",
        "[::ffff:10.0.0.7]",
        "2130706433",
        "localhost:6006:1",
        "[localhost]",
        ".localhost:6006",
        "localhost..",
        "localhost..localhost",
    ],
)
def test_other_hosts_are_refused(host: str) -> None:
    assert not allowed(LOCAL, host=host)


def test_a_request_without_a_host_is_refused() -> None:
    assert not allowed(LOCAL)


def test_the_host_that_tensorboard_listens_on_is_allowed() -> None:
    assert allowed(Namespace(host="gpu7.example", bind_all=False), host="gpu7.example:6006")
    assert allowed(Namespace(host="10.0.0.7", bind_all=False), host="10.0.0.7:6006")
    assert not allowed(Namespace(host="10.0.0.7", bind_all=False), host="10.0.0.8:6006")
    assert not allowed(Namespace(host="gpu7.example", bind_all=False), host="evil.example")


@pytest.mark.parametrize("flags", [EVERYWHERE, Namespace(host="0.0.0.0"), Namespace(host="::")])  # noqa: S104
def test_on_all_interfaces_any_address_and_the_names_of_this_machine_are_allowed(
    flags: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Gpu7")
    monkeypatch.setattr("socket.getfqdn", lambda: "gpu7.cluster.example")
    for host in ("10.0.0.7:6006", "[fd00::7]:6006", "gpu7", "GPU7.cluster.example:6006", "gpu7.local"):
        assert allowed(flags, host=host)
    for host in ("evil.example", "gpu7.evil.example", "gpu7.cluster.example.evil.example"):
        assert not allowed(flags, host=host)


def test_names_in_the_environment_are_allowed_also_behind_a_proxy_that_changes_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(HOSTS, "hub.example, lab.example:8443")
    assert allowed(LOCAL, host="hub.example", origin="https://hub.example")
    assert allowed(LOCAL, host="lab.example")
    assert allowed(LOCAL, host="localhost:6006", referer="http://hub.example/user/me/proxy/6006/")
    assert not allowed(LOCAL, host="localhost:6006", referer="http://evil.example/")
    assert not allowed(LOCAL, host="evil.example", referer="http://hub.example/")


@pytest.mark.parametrize("header", ["origin", "referer"])
@pytest.mark.parametrize(
    "page",
    [
        "http://evil.example",
        "null",
        "",
        "http://localhost:1",
        "http://localhost.evil.example:6006",
        "http://localhost.:6006",
        "http://[",
        "data:x",
    ],
)
def test_pages_of_other_origins_are_refused(header: str, page: str) -> None:
    assert not allowed(LOCAL, host="localhost:6006", **{header: page})
    assert not allowed(LOCAL, host="localhost:6006", sec_fetch_site="none", **{header: page})


def test_pages_of_this_origin_are_allowed_and_the_browser_is_trusted_where_it_tells() -> None:
    assert allowed(LOCAL, host="localhost:6006", origin="http://localhost:6006", referer="http://localhost:6006/x?y")
    assert allowed(LOCAL, host="localhost", origin="https://localhost:443")
    assert allowed(LOCAL, host="localhost:6006", origin="https://hub.example", sec_fetch_site="same-origin")
    assert not allowed(LOCAL, host="localhost:6006", origin="http://localhost:6006", sec_fetch_site="cross-site")
    assert not allowed(LOCAL, host="evil.example", sec_fetch_site="same-origin")
