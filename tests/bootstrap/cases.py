"""The user data that is kept in `golden/`: each family, with and without the user's own."""

from collections.abc import Callable, Mapping

from leeway.bootstrap.user_data import UserData

from tests.bootstrap.nodes import FULL, IPV6, rendered, users


def _windows_lines(text: str) -> str:
    return text.replace("\n", "\r\n")


_TAGGED = f"<powershell>\n{users('script.ps1')}</powershell>\n<persist>true</persist>\n"

CASES: Mapping[str, Callable[[], UserData]] = {
    "al2023.mime": lambda: rendered("AL2023"),
    "al2023-full.mime": lambda: rendered("AL2023", **FULL),
    "al2023-ipv6.mime": lambda: rendered("AL2023", cluster=IPV6),
    "al2023-without-type.mime": lambda: rendered("AL2023", instance_type=None),
    "al2023-script.mime": lambda: rendered("AL2023", users("script.sh")),
    "al2023-script-crlf.mime": lambda: rendered("AL2023", _windows_lines(users("script.sh"))),
    "al2023-cloud-config.mime": lambda: rendered("AL2023", users("cloud-config.yaml")),
    "al2023-nodeconfig.mime": lambda: rendered("AL2023", users("nodeconfig.yaml"), **FULL),
    "al2023-nodeconfig-crlf.mime": lambda: rendered(
        "AL2023", _windows_lines(users("nodeconfig.yaml")), **FULL
    ),
    "al2023-injected.mime": lambda: rendered("AL2023", users("al2023-injected-userdata.txt")),
    "al2023-mime.mime": lambda: rendered("AL2023", users("content-type-later.mime")),
    "al2023-mime-crlf.mime": lambda: rendered(
        "AL2023", _windows_lines(users("content-type-later.mime"))
    ),
    "al2.mime": lambda: rendered("AL2"),
    "al2-full.mime": lambda: rendered("AL2", **FULL),
    "al2-ipv6.mime": lambda: rendered("AL2", cluster=IPV6),
    "al2-script.mime": lambda: rendered("AL2", users("script.sh")),
    "al2-script-crlf.mime": lambda: rendered("AL2", _windows_lines(users("script.sh"))),
    "al2-mime.mime": lambda: rendered("AL2", users("content-type-later.mime")),
    "bottlerocket.toml": lambda: rendered("Bottlerocket"),
    "bottlerocket-full.toml": lambda: rendered("Bottlerocket", **FULL),
    "bottlerocket-settings.toml": lambda: rendered(
        "Bottlerocket", users("bottlerocket-settings.toml")
    ),
    "bottlerocket-merged.toml": lambda: rendered("Bottlerocket", users("settings.toml"), **FULL),
    "bottlerocket-merged-crlf.toml": lambda: rendered(
        "Bottlerocket", _windows_lines(users("settings.toml"))
    ),
    "windows2019.ps1": lambda: rendered("Windows2019"),
    "windows2022.ps1": lambda: rendered("Windows2022"),
    "windows2025-full.ps1": lambda: rendered("Windows2025", **FULL),
    "windows2022-script.ps1": lambda: rendered("Windows2022", users("script.ps1")),
    "windows2022-tagged.ps1": lambda: rendered("Windows2022", _TAGGED),
    "windows2022-tagged-crlf.ps1": lambda: rendered("Windows2022", _windows_lines(_TAGGED)),
    "custom.txt": lambda: rendered("Custom", users("script.sh"), **FULL),
    "custom-crlf.txt": lambda: rendered("Custom", _windows_lines(users("script.sh"))),
    "custom-without.txt": lambda: rendered("Custom"),
}
"""The function that renders each file."""
