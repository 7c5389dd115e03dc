"""What holds for all tests."""

from hypothesis import HealthCheck, settings

from sandbox.proxies import bypass_proxies

# Servers that tests start are on this machine, whatever proxy the way to a package index takes.
bypass_proxies()

# How long an example takes says how busy the machine is, and nothing about what is tested.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
