"""All commands together: what they teach, what they cost, and that the reference has them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.completion_tree import Command, read_tree
from penstock.cli.main import GROUPS, main, whole_parser
from tests.cli.conftest import Penstock

ROOT = Path(__file__).parents[2]
PARSER = whole_parser()
TREE = read_tree(PARSER, ("penstock",))
COMMANDS = list(TREE.walk())


def name_of(command: Command) -> str:
    return " ".join(command.words[1:]) or "penstock"


def test_help_has_a_sentence_and_an_example() -> None:
    for command in COMMANDS:
        sentence = " ".join(command.description.split())
        assert re.fullmatch(r"[A-Z].*[.]", sentence), f"{name_of(command)} has no sentence: {sentence!r}"
        _, _, examples = re.sub("example:", "examples:", command.epilog).partition("examples:\n")
        assert f"{' '.join(command.words)} " in f"{examples} ".replace("\n", " "), (
            f"{name_of(command)} has no example in {command.epilog!r}"
        )


def test_every_command_can_answer_in_json() -> None:
    without = {
        name_of(command)
        for command in COMMANDS
        if not command.commands and all("--json" not in option.names for option in command.options)
    }
    assert without == {"completion"}, "which prints a script"


def test_every_example_is_understood() -> None:
    """Without what follows two spaces, which explains it, and what other programs do with the answer."""
    lines = {line.strip() for command in COMMANDS for line in command.epilog.splitlines()}
    examples = [line for line in lines if line.startswith("penstock ")]
    assert len(examples) > 80
    for line in examples:
        words = shlex.split(re.split(r"\s{2,}(?![-'\"])|\s[|<>]", line)[0])
        try:
            assert callable(PARSER.parse_args(words[1:]).run)
        except SystemExit:
            pytest.fail(f"not understood: {line}")


def test_summaries_are_those_of_the_modules() -> None:
    known = {command.words[1]: command.summary for command in TREE.commands}
    assert known == {group.name: group.summary for members in GROUPS.values() for group in members}


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom penstock.cli.main import main\n"
        "for words in ['--version'], ['--help'], *([name, '--help'] for name in ('shell', 'top', 'demo')):\n"
        "    try: main(words)\n"
        "    except SystemExit: pass\n"
        "heavy = {'pyspark', 'pyarrow', 'deltalake', 'rich', 'prompt_toolkit', 'uvicorn', 'httpx'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_commands_are_shown_by_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    places = [text.index(f"\n{purpose}:\n") for purpose in GROUPS]
    assert places == sorted(places)
    assert text.index("  serve ") < text.index("\nlook:\n") < text.index("  top ")


def test_the_reference_is_up_to_date() -> None:
    script = ROOT / "scripts" / "make_cli_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_configuration_of_a_gateway_in_json(run: Penstock) -> None:
    done = run("gateway", "--port", "9000", "--dump-config", "--json")
    assert json.loads(done.out)["http"]["port"] == 9_000, done


def test_a_worker_tells_its_start_and_its_end_in_json(tmp_path: Path) -> None:
    words = ["worker", "tests.transactions.cli_places:app", "--store", str(tmp_path / "shop.pen"), "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", *words],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        begun = json.loads(process.stdout.readline())
        process.terminate()
        ended = json.loads(process.communicate(timeout=30)[0])
    assert (begun["state"], begun["node_groups"], begun["pipelines"]) == ("working", ["shop"], 5)
    assert ended == {"worker": begun["worker"], "state": "stopped", "taken": 0, "ended": 0}
