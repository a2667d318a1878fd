"""``penstock pipeline …``: definitions of pipelines and their versions, from a shell.

Rules: a version never changes; saving makes a draft, committing a version of it, activating lets transactions
start with it. A version may be named by its first digits, if no other begins so. Definitions go to stdout as
JSON that ``save`` and ``import`` take.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.cli import showing
from penstock.cli.asking import Actions, Bench, add_action, read_word, who
from penstock.errors import DefinitionError, UnknownPipelineError, UsageError
from penstock.transactions import Query
from penstock.transactions.pipelines import PipelineInfo, dump, parse
from penstock.transactions.pipelines.registry import DRAFT

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_EPILOG: Final = """\
examples:
  export PENSTOCK_STORE=./shop.pen                or --store with every command
  penstock pipeline save checkout.json            the draft
  penstock pipeline diff checkout                 what it changes
  penstock pipeline commit checkout -m 'ship by air'
  penstock pipeline activate checkout 3f9a        transactions start with it from now on
  penstock pipeline export checkout | penstock pipeline import - --store redis://localhost

Workers deploy the pipelines of their code when they start; these commands are for all others.
"""
_SHORTEST: Final = 4


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "pipeline",
        help="look after definitions of pipelines and their versions",
        description="Look after definitions of pipelines and their versions.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions: _SubParsersAction[Actions] = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Actions
    )
    _add_looking(actions)
    _add_changing(actions)
    _add_moving(actions)


def _add_looking(actions: _SubParsersAction[Actions]) -> None:
    add_action(actions, "list", _list, "show all pipelines", "pipeline list")
    show = add_action(
        actions,
        "show",
        _show,
        "show a pipeline, its versions and its steps",
        "pipeline show checkout",
        "pipeline show checkout --version draft --json",
    )
    _of_name(show).add_argument(
        "--version", metavar="V", help="steps of this version, or draft (default: active)"
    )
    diff = add_action(
        actions, "diff", _diff, "show what changed from one version to another", "pipeline diff checkout"
    )
    _of_name(diff).add_argument("old", metavar="OLD", nargs="?", help="a version, or draft (default: active)")
    diff.add_argument("new", metavar="NEW", nargs="?", help="a version, or draft (default)")


def _add_changing(actions: _SubParsersAction[Actions]) -> None:
    save = add_action(
        actions,
        "save",
        _save,
        "save a definition as a draft",
        "pipeline save checkout.json",
        may_create=True,
    )
    save.add_argument("file", metavar="FILE", help="JSON, or - for stdin")
    commit = add_action(
        actions,
        "commit",
        _commit,
        "make the draft a version; answers its name",
        "pipeline commit checkout -m 'ship by air' --activate",
    )
    _of_name(commit).add_argument("-m", "--message", metavar="TEXT", default="", help="what it is about")
    commit.add_argument("--activate", action="store_true", help="and activate it")
    activate = add_action(
        actions,
        "activate",
        _activate,
        "start this version from now on",
        "pipeline activate checkout 3f9a",
    )
    _of_name(activate).add_argument("version", metavar="VERSION", help="which; its first digits do")
    deactivate = add_action(
        actions,
        "deactivate",
        _deactivate,
        "start it no more; what runs goes on",
        "pipeline deactivate checkout",
    )
    _of_name(deactivate)
    delete = add_action(
        actions,
        "delete",
        _delete,
        "delete a version nobody uses, or the draft",
        "pipeline delete checkout draft",
    )
    _of_name(delete).add_argument("version", metavar="VERSION", help="which, or draft")


def _add_moving(actions: _SubParsersAction[Actions]) -> None:
    export = add_action(
        actions,
        "export",
        _export,
        "write a version for another store",
        "pipeline export checkout -o checkout.export",
    )
    _of_name(export).add_argument("version", metavar="VERSION", nargs="?", help="which (default: active)")
    export.add_argument("-o", "--output", metavar="FILE", help="where to (default: stdout)")
    import_ = add_action(
        actions,
        "import",
        _import,
        "take an exported version",
        "pipeline import checkout.export --store redis://localhost",
        may_create=True,
    )
    import_.add_argument("file", metavar="FILE", help="what export has written, or - for stdin")


def _of_name(parser: Actions) -> Actions:
    parser.add_argument("name", metavar="NAME", help="name of the pipeline")
    return parser


# -------------------------------------------------------------------------------------- looking


def _list(bench: Bench) -> None:
    registry = bench.transactions.registry
    found = [info for name in bench.run(registry.names()) if (info := bench.run(registry.get(name)))]
    if bench.arguments.json:
        for info in found:
            bench.show(_facts(info), "")
        return
    rows = ((info.name, info.active, len(info.versions), _yes(info.draft is not None)) for info in found)
    print(showing.table(("name", "active", "versions", "draft"), rows))


def _show(bench: Bench) -> None:
    info = _info(bench)
    word = bench.arguments.version or info.active or (DRAFT if info.draft else None)
    version = _resolved(info, word) if word else None
    definition = bench.run(_definition(bench, info, version)) if version else None
    if bench.arguments.json:
        bench.show({**_facts(info), "version": version, "definition": definition}, "")
        return
    rows = (
        (
            each.version,
            _yes(each.is_active),
            showing.moment(each.committed_ms),
            each.by,
            each.comment,
        )
        for each in info.versions
    )
    head = (("name", info.name), ("active", info.active), ("draft", _yes(info.draft is not None)))
    print(showing.facts(head))
    print("\n" + showing.table(("version", "active", "committed", "by", "comment"), rows))
    if definition is not None:
        print(f"\n{version}\n" + msgspec.json.format(msgspec.json.encode(definition), indent=2).decode())


async def _definition(bench: Bench, info: PipelineInfo, version: str) -> Any:
    if version == DRAFT:
        assert info.draft is not None
        return msgspec.json.decode(dump(info.draft))
    return msgspec.json.decode(dump(await bench.transactions.registry.load(info.name, version)))


def _diff(bench: Bench) -> None:
    arguments, info = bench.arguments, _info(bench)
    old = _resolved(info, arguments.old) if arguments.old else _active(info)
    new = _resolved(info, arguments.new or DRAFT)
    text = bench.run(bench.transactions.registry.diff(info.name, old, new))
    bench.show({"name": info.name, "old": old, "new": new, "diff": text}, text)


# ------------------------------------------------------------------------------------- changing


def _save(bench: Bench) -> None:
    try:
        pipeline = parse(read_word(bench.arguments.file))
    except DefinitionError as error:
        for problem in error.problems[:-1] if len(error.problems) > 1 else ():
            print(f"penstock: {problem}", file=sys.stderr)
        raise UsageError(error.problems[-1]) from None
    bench.run(bench.transactions.registry.save_draft(pipeline))
    bench.show({"name": pipeline.name, "draft": True}, f"draft of {pipeline.name} saved")


def _commit(bench: Bench) -> None:
    arguments, registry = bench.arguments, bench.transactions.registry
    version = bench.run(registry.commit(arguments.name, arguments.message, who()))
    if arguments.activate:
        bench.run(registry.activate(arguments.name, version))
    bench.show({"name": arguments.name, "version": version, "is_active": arguments.activate}, version)


def _activate(bench: Bench) -> None:
    info = _info(bench)
    version = _resolved(info, bench.arguments.version)
    if version == DRAFT:
        raise UsageError("a draft cannot be activated: commit it first")
    bench.run(bench.transactions.registry.activate(info.name, version))
    bench.show({"name": info.name, "version": version}, f"{version} is active")


def _deactivate(bench: Bench) -> None:
    info = _info(bench)
    bench.run(bench.transactions.registry.deactivate(info.name))
    bench.show({"name": info.name, "version": None}, "none is active")


def _export(bench: Bench) -> None:
    arguments, info = bench.arguments, _info(bench)
    version = _resolved(info, arguments.version) if arguments.version else _active(info)
    if version == DRAFT:
        raise UsageError("a draft cannot be exported: commit it first")
    data = bench.run(bench.transactions.registry.export(info.name, version))
    if arguments.json:
        data = msgspec.json.format(data, indent=-1) + b"\n"
    if arguments.output:
        try:
            Path(arguments.output).write_bytes(data)
        except OSError as error:
            raise UsageError(f"cannot write {arguments.output}: {error.strerror or error}") from None
    else:
        sys.stdout.write(data.decode())


def _import(bench: Bench) -> None:
    version = bench.run(bench.transactions.registry.import_(read_word(bench.arguments.file)))
    bench.show({"version": version}, version)


def _delete(bench: Bench) -> None:
    info, registry = _info(bench), bench.transactions.registry
    version = _resolved(info, bench.arguments.version)
    if version == DRAFT:
        bench.run(registry.discard_draft(info.name))
    else:
        bench.run(registry.delete_version(info.name, version, is_in_use=lambda *of: _is_in_use(bench, *of)))
    bench.show({"name": info.name, "version": version}, f"{version} is deleted")


async def _is_in_use(bench: Bench, name: str, version: str) -> bool:
    """Whether a transaction that goes on is pinned to it. Looks at all that go on."""
    query, cursor = Query(pipeline=name, status="running"), None
    while True:
        page = await bench.transactions.list(query, limit=1_000, cursor=cursor)
        if any(item.version == version for item in page.items):
            return True
        cursor = page.cursor
        if cursor is None:
            return False


# --------------------------------------------------------------------------------------- naming


def _info(bench: Bench) -> PipelineInfo:
    info = bench.run(bench.transactions.registry.get(bench.arguments.name))
    if info is None:
        raise UnknownPipelineError(f"there is no pipeline {bench.arguments.name!r}")
    return info


def _active(info: PipelineInfo) -> str:
    if info.active is None:
        raise UsageError(f"pipeline {info.name!r} has no active version: name one")
    return info.active


def _resolved(info: PipelineInfo, word: str) -> str:
    """A whole version of its first digits."""
    if word == DRAFT:
        if info.draft is None:
            raise UsageError(f"pipeline {info.name!r} has no draft: save one first")
        return DRAFT
    found = [each.version for each in info.versions if each.version.startswith(word)]
    if len(found) == 1 and len(word) >= _SHORTEST:
        return found[0]
    if found and len(word) >= _SHORTEST:
        raise UsageError(f"several versions of {info.name!r} begin with {word!r}: give more digits")
    raise UnknownPipelineError(f"pipeline {info.name!r} has no version {word!r}: `pipeline show` lists them")


def _yes(is_so: bool) -> str | None:
    return "yes" if is_so else None


def _facts(info: PipelineInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "active": info.active,
        "has_draft": info.draft is not None,
        "versions": [
            {
                "version": each.version,
                "is_active": each.is_active,
                "committed_ms": each.committed_ms,
                "by": each.by,
                "comment": each.comment,
            }
            for each in info.versions
        ],
    }
