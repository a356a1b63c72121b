"""What only changes the speed: values of a `Runtime`, and the variables of the environment."""

import pytest

from aces.errors import InputError
from aces.runtime import Runtime, from_environment


def test_the_environment_describes_a_runtime(monkeypatch, tmp_path):
    for name in ("ACES_ENGINE", "ACES_WORKERS", "ACES_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    assert from_environment() == Runtime()
    monkeypatch.setenv("ACES_ENGINE", "ray")
    monkeypatch.setenv("ACES_WORKERS", "3")
    monkeypatch.setenv("ACES_DEVICE", "cuda:1")
    assert from_environment(scratch=tmp_path) == Runtime("cuda:1", 3, "ray", tmp_path)


@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("ACES_ENGINE", "spark", "ACES_ENGINE='spark': expected one of local, ray"),
        ("ACES_WORKERS", "two", "ACES_WORKERS='two': expected a whole number above 0"),
        ("ACES_WORKERS", "0", "ACES_WORKERS='0': expected a whole number above 0"),
        ("ACES_WORKERS", "-1", "ACES_WORKERS='-1': expected a whole number above 0"),
        ("ACES_WORKERS", "", "ACES_WORKERS='': expected a whole number above 0"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(monkeypatch, name, value, expected):
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=expected):
        from_environment()


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"])
def test_wrong_workers_are_refused(workers):
    with pytest.raises(InputError, match="expected a whole number above 0"):
        Runtime(workers=workers)
