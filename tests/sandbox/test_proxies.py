"""Clients reach the sandbox without a proxy of the environment."""

import pytest
from leeway_sandbox.startup import proxy_exceptions

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_this_machine_and_the_sandbox_are_reached_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    monkeypatch.setenv("NO_PROXY", ".example.com,localhost")
    expected = ".example.com,localhost,127.0.0.1,172.17.0.1"
    assert proxy_exceptions("172.17.0.1") == {"NO_PROXY": expected, "no_proxy": expected}


@pytest.mark.parametrize("environment", [{}, {"no_proxy": "*", "http_proxy": "http://proxy:3128"}])
def test_an_environment_without_a_proxy_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_exceptions("172.17.0.1") == {}
