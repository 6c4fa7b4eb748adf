"""Append to the page `reference/command_line` what each command takes, read from the commands themselves."""

import inspect
from enum import Enum
from typing import Annotated, Any, get_args, get_origin

import typer
from sphinx.application import Sphinx

PAGE = "reference/command_line"
OWN = "Options"


def commands_text() -> str:
    """All commands in Markdown, in the order of `biro --help`."""
    from biro.cli.app import COMMANDS, app

    group: Any = typer.main.get_command(app)
    parts = [parameters_text(group.params, {})]
    for function in COMMANDS:
        command = group.commands[function.__name__]
        kinds = {name: item.annotation for name, item in inspect.signature(function).parameters.items()}
        parts.append(f"## biro {command.name}\n\n{inspect.cleandoc(command.help)}")
        parts.append(f"```text\n{usage(command)}\n```")
        parts.append(parameters_text(command.params, kinds))
    return "\n\n".join(parts)


def usage(command: Any) -> str:
    """One line: the arguments in their order."""
    words = ["biro", command.name]
    for parameter in command.params:
        if is_argument(parameter):
            name = parameter.metavar or parameter.name.upper()
            several = "..." if parameter.nargs == -1 and not name.endswith("...") else ""
            words.append(f"{name}{several}" if parameter.required else f"[{name}{several}]")
        elif parameter.required:
            words.append(f"{parameter.opts[0]} {parameter.metavar or parameter.name.upper()}")
    return " ".join([*words, "[OPTIONS]"])


def is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def parameters_text(parameters: list[Any], kinds: dict[str, object]) -> str:
    """Arguments, options and the options of each group, as tables."""
    groups: dict[str, list[Any]] = {}
    for parameter in parameters:
        if not getattr(parameter, "hidden", False):
            group = "Arguments" if is_argument(parameter) else parameter.rich_help_panel or OWN
            groups.setdefault(group, []).append(parameter)
    return "\n\n".join(
        "\n".join([f"| {group} | |", "| --- | --- |", *(row(each, kinds.get(each.name)) for each in found)])
        for group, found in groups.items()
    )


def row(parameter: Any, annotation: object) -> str:
    """One line of a table: how it is written; what it means, its choices and its default."""
    choices = choices_of(annotation)
    if is_argument(parameter):
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        value = "" if is_flag(parameter, annotation) else f" {parameter.metavar or value_word(annotation)}"
        written = sorted(parameter.opts, key=len, reverse=True)
        names = ", ".join(f"`{option}{value}`" for option in [*written, *parameter.secondary_opts])
    text = parameter.help or "Show the options and end."
    if choices:
        text += " One of " + ", ".join(f"`{choice}`" for choice in choices) + "."
    default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    if parameter.required:
        text += " Must be given."
    elif default not in (None, False, True, [], ()) and "Default" not in text and not callable(default):
        text += f" Default: `{default}`."
    return f"| {names} | {escaped(text)} |"


def escaped(text: str) -> str:
    """Text of a cell of a table: Markdown leaves dots and stars in it alone."""
    return text.replace("|", r"\|").replace("*", r"\*")


def bare(annotation: object) -> object:
    """The type that is meant: without typer's notes and without "or None"."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if type(None) in get_args(annotation) and len(kinds) == 1:
        return kinds[0]
    return annotation


def choices_of(annotation: object) -> list[str]:
    kind = bare(annotation)
    return [str(each.value) for each in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


def is_flag(parameter: Any, annotation: object) -> bool:
    return bare(annotation) is bool or isinstance(parameter.default, bool)


def value_word(annotation: object) -> str:
    """What stands for the value of an option."""
    words = {"int": "N", "float": "X", "Path": "PATH", "str": "TEXT"}
    kind = bare(annotation)
    if get_origin(kind) is list:
        return "LIST"
    return words.get(getattr(kind, "__name__", ""), "CHOICE")


def append(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname == PAGE:
        source[0] += "\n\n" + commands_text() + "\n"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", append)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
