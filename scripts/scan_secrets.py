"""Looks for secrets in what is under version control: keys, tokens, passwords, long random words.

    python scripts/scan_secrets.py            what was found, a line each; the status is 1 then
    from scan_secrets import findings         the same for tests

Detectors are those of detect-secrets. Rules: what is found is mended, or named in ``HARMLESS`` with the
reason; a name there that is no longer needed is a finding, too. Tests and documentation are full of passwords
that are examples, so that the two detectors which look for words like "password" are used for the rest only.
No value is printed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import transient_settings

ROOT: Final = Path(__file__).resolve().parent.parent

#: Of services that somebody who works on this may have a key of; each costs time for every line.
_DETECTORS: Final = (
    "AWSKeyDetector",
    "AzureStorageKeyDetector",
    "Base64HighEntropyString",
    "BasicAuthDetector",
    "GitHubTokenDetector",
    "GitLabTokenDetector",
    "HexHighEntropyString",
    "JwtTokenDetector",
    "KeywordDetector",
    "NpmDetector",
    "OpenAIDetector",
    "PrivateKeyDetector",
    "PypiTokenDetector",
    "SlackDetector",
    "StripeDetector",
)
_GUESSES: Final = ("Secret Keyword", "Basic Auth Credentials")
_EXAMPLES: Final = ("tests/", "docs/", "README.md")

#: What looks like a secret -> why it is none.
HARMLESS: Final = {
    ("src/penstock/client/targets.py", "Basic Auth Credentials"): "the form of an address",
    ("src/penstock/engine/datatypes/geohash.py", "Base64 High Entropy String"): "an alphabet",
    ("tests/channels/test_receipts.py", "Base64 High Entropy String"): "an alphabet",
    ("tests/conformance/test_scripting.py", "Hex High Entropy String"): "SHA-1 of known texts",
    ("tests/conformance/test_server.py", "Hex High Entropy String"): "SHA-256 of a known text",
    ("tests/unit/gateway/auth/test_jwt.py", "Base64 High Entropy String"): "an alphabet",
    ("tests/unit/gateway/config/test_loading.py", "Hex High Entropy String"): "SHA-256 of a known text",
    ("tests/unit/gateway/observing/test_tracing.py", "Hex High Entropy String"): "ids of W3C's examples",
}


def tracked() -> list[str]:
    """Names of all files that would be committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


def findings(names: Sequence[str], root: Path = ROOT) -> list[str]:
    """A sentence for each."""
    found = _scan(names, root)
    open_ones = [
        f"{name}:{line}: {kind}: take it out, and if it was ever real, revoke it"
        for (name, kind), line in found.items()
        if (name, kind) not in HARMLESS
    ]
    idle = [
        f"{name}: no {kind} is there any more: take it out of HARMLESS in scripts/scan_secrets.py"
        for name, kind in HARMLESS
        if root == ROOT and (name, kind) not in found
    ]
    return sorted(open_ones) + idle


def _scan(names: Sequence[str], root: Path) -> dict[tuple[str, str], int]:
    """File and kind -> line; on all cores."""
    secrets = SecretsCollection(root=str(root))
    with transient_settings({"plugins_used": [{"name": name} for name in _DETECTORS]}):
        secrets.scan_files(*names)
    return {
        (name, secret.type): secret.line_number
        for name, secret in secrets
        if not (name.startswith(_EXAMPLES) and secret.type in _GUESSES)
    }


def main() -> int:
    try:
        names = tracked()
    except (OSError, subprocess.CalledProcessError):
        sys.stdout.write("Secrets: not a git checkout, nothing was looked at.\n")
        return 0
    found = findings(names)
    sys.stdout.write("".join(f"{line}\n" for line in found) or f"Secrets: none in {len(names):,} files.\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
