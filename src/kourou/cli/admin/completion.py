"""`mqadmin completion`: shell scripts that complete commands, options, and names of a cluster.

Commands and options are part of the script, so that they appear at once. Names of topics, groups, brokers and
clusters come from the hidden command `mqadmin __complete KIND -- WORDS`, which takes the name server from the
words and gives up after 300 ms, to keep the shell responsive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from kourou.admin.groups import group_names
from kourou.admin.session import Admin
from kourou.admin.topics import topic_names, user_topic_names
from kourou.cli.admin.command import AdminCommand, Call, MissingCommand
from kourou.cli.admin.connecting import client_options
from kourou.cli.admin.options import Option, ParsedArgs
from kourou.cli.admin.registry import all_commands, find
from kourou.cli.admin.run import COMMON, COMPLETE
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.errors import KourouError

PROGRAM: Final = "mqadmin"
NAMES_TIMEOUT_MS: Final = 300
_KINDS: Final = {
    **dict.fromkeys(("topic", "topicName", "routeTopic", "traceTopic", "lmqParentTopic"), "topics"),
    **dict.fromkeys(("group", "groupName", "consumerGroup", "consumer", "srcGroup", "destGroup"), "groups"),
    **dict.fromkeys(("cluster", "clusterName"), "clusters"),
    # Names, not addresses: bash splits words at colons, and commands accept both.
    **dict.fromkeys(("broker", "brokerAddr", "brokerName"), "brokers"),
    **dict.fromkeys(("config", "acl", "tls-config", "filename", "filePath", "body-path"), "files"),
}
"""The kind of an option's value, by the long name of the option."""


# -- names -------------------------------------------------------------------------------------------


def print_names(words: Sequence[str]) -> None:
    """Print the names of a kind, one per line; nothing if the cluster does not respond in time."""
    kind, *line = words or [""]
    for name in _names_now(kind, line):
        print(name)


def _connecting(line: Sequence[str]) -> ParsedArgs:
    """The connection options of an unfinished command line."""
    by_word = {
        f"{dashes}{word}": option for option in COMMON for word in option.spellings for dashes in ("-", "--")
    }
    values: dict[str, str] = {}
    line = rejoined(line)
    for index, word in enumerate(line):
        name, equals, text = word.partition("=")
        option = by_word.get(name)
        if option is None:
            continue
        if not option.takes_value or equals:
            values[option.name] = text
        elif index + 1 < len(line):
            values[option.name] = line[index + 1].strip("'\"")
    return ParsedArgs(values, COMMON)


def rejoined(line: Sequence[str]) -> list[str]:
    """The words as typed: bash splits them at every colon and equals sign."""
    words: list[str] = []
    is_open = False
    for word in line:
        if words and (is_open or word in (":", "=")):
            words[-1] += word
        else:
            words.append(word)
        is_open = word in (":", "=")
    return words


async def cluster_names(kind: str, args: ParsedArgs, *, default_namesrv: str | None = None) -> list[str]:
    """The names of a kind in the cluster that the options select. TimeoutError if it does not respond in
    time."""
    options = client_options(args, default_namesrv=default_namesrv)
    options["request_timeout_ms"] = options["connect_timeout_ms"] = NAMES_TIMEOUT_MS
    async with asyncio.timeout(NAMES_TIMEOUT_MS / 1000), Admin(**options) as admin:
        if kind == "topics":
            return await topic_names(admin)
        if kind == "user topics":
            return await user_topic_names(admin)
        if kind == "groups":
            return await group_names(admin)
        if kind == "clusters":
            return sorted((await admin.cluster_info()).cluster_addr_table)
        return sorted((await admin.cluster_info()).broker_addr_table) if kind == "brokers" else []


def next_words(words: Sequence[str]) -> tuple[str, list[str]]:
    """What may follow the words of a line that begins with a command: the kind of a value (`files`, or
    `value` if it cannot be completed), or an empty kind and the words themselves."""
    if not words or (len(words) == 1 and words[0] == "help"):
        return "", [*(command.name for command in _commands()), *([] if words else ["help"])]
    command = find(words[0])
    if not isinstance(command, AdminCommand):
        return "", []
    for kind, spellings in _by_kind(command).items():
        if len(words) > 1 and words[-1] in spellings:
            if kind in ("files", "value"):
                return kind, []
            return "", _names_now(kind, words[1:])
    return "", _choices(command)


def _names_now(kind: str, line: Sequence[str]) -> list[str]:
    try:
        return asyncio.run(cluster_names(kind, _connecting(line)))
    except (KourouError, TimeoutError, OSError):
        return []


# -- scripts -----------------------------------------------------------------------------------------


def bash_script() -> str:
    """For bash 3.2 and later."""
    return f"""\
# Completion of {PROGRAM} for bash: source <({PROGRAM} completion bash)
{_table()}
_{PROGRAM}() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" choices kind
    COMPREPLY=()
    _{PROGRAM}_table "${{COMP_WORDS[1]}}" "$previous"
    if [ "$COMP_CWORD" -le 1 ] || {{ [ "${{COMP_WORDS[1]}}" = help ] && [ "$COMP_CWORD" -eq 2 ]; }}; then
        choices="$_{PROGRAM}_commands help"
    elif [ "$kind" = files ]; then
        COMPREPLY=($(compgen -f -- "$current"))
        return
    elif [ "$kind" = value ]; then
        return
    elif [ -n "$kind" ]; then
        choices="$({PROGRAM} {COMPLETE} "$kind" -- "${{COMP_WORDS[@]:1}}" 2>/dev/null)"
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$current"))
}}
complete -F _{PROGRAM} {PROGRAM}
"""


def zsh_script() -> str:
    """For zsh 5 and later."""
    return f"""\
#compdef {PROGRAM}
# Completion of {PROGRAM} for zsh: source <({PROGRAM} completion zsh)
{_table()}
_{PROGRAM}() {{
    local choices kind
    _{PROGRAM}_table "${{words[2]}}" "${{words[CURRENT-1]}}"
    if (( CURRENT <= 2 )) || {{ [[ "${{words[2]}}" == help ]] && (( CURRENT == 3 )); }}; then
        choices="$_{PROGRAM}_commands help"
    elif [[ "$kind" == files ]]; then
        _files
        return
    elif [[ "$kind" == value ]]; then
        return
    elif [[ -n "$kind" ]]; then
        choices="$({PROGRAM} {COMPLETE} "$kind" -- "${{words[@]:1}}" 2>/dev/null)"
    fi
    compadd -- ${{=choices}}
}}
compdef _{PROGRAM} {PROGRAM}
"""


def _table() -> str:
    """A function for both shells: sets `choices` for the next word of a command, and `kind`, the kind of
    value that the previous word takes (empty if none)."""
    commands = sorted((command.name for command in _commands()), key=str.lower)
    lines = [f"_{PROGRAM}_commands='{' '.join(commands)}'", f"_{PROGRAM}_table() {{"]
    lines += ["    choices='' kind=''", '    case "$1" in']
    for command in _commands():
        # Commands accept any case; the shell completes the spelling of the list.
        lines.append(f"    {'|'.join((command.name, *command.aliases))})")
        lines.append(f"        choices='{' '.join(_choices(command))}'")
        lines.append('        case "$2" in')
        for kind, spellings in _by_kind(command).items():
            lines.append(f"        {'|'.join(spellings)}) kind={kind} ;;")
        lines += ["        esac", "        ;;"]
    return "\n".join([*lines, "    esac", "}"])


def _commands() -> Iterator[AdminCommand]:
    return (command for command in all_commands() if not isinstance(command, MissingCommand))


def _options(command: AdminCommand) -> Iterator[Option]:
    # Apache's option names with a space are mistakes and cannot be typed.
    return (option for option in (*command.options, *COMMON) if " " not in option.name)


def _dashed(option: Option) -> list[str]:
    return [f"-{option.letter}"] * bool(option.letter) + [f"--{option.name}"]


def _choices(command: AdminCommand) -> list[str]:
    shells = list(_SCRIPTS) if command.name == COMPLETION.name else []
    return [*shells, *(word for option in _options(command) for word in _dashed(option))]


def _by_kind(command: AdminCommand) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for option in _options(command):
        if option.takes_value:
            kinds.setdefault(_KINDS.get(option.name, "value"), []).extend(_dashed(option))
    return kinds


def fish_script() -> str:
    """For fish 3 and later."""
    head = f"complete -c {PROGRAM}"
    lines = [f"# Completion of {PROGRAM} for fish: {PROGRAM} completion fish | source", f"{head} -f"]
    for command in _commands():
        lines.append(f"{head} -n __fish_use_subcommand -a {command.name} -d {_quoted(command.about)}")
        seen = f"{head} -n '__fish_seen_subcommand_from {command.name}'"
        if command.name == COMPLETION.name:
            lines.append(f"{seen} -a '{' '.join(_SCRIPTS)}'")
        lines += [f"{seen} {_fish_option(option)}" for option in _options(command)]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    words = [f"{'-s' if len(option.letter) == 1 else '-o'} {option.letter}"] * bool(option.letter)
    words.append(f"-l {option.name}")
    if option.takes_value:
        kind = _KINDS.get(option.name, "value")
        if kind == "files":
            words.append("-r -F")
        elif kind == "value":
            words.append("-x")
        else:
            words.append(f"-x -a '({PROGRAM} {COMPLETE} {kind} -- (commandline -opc) 2>/dev/null)'")
    return " ".join([*words, f"-d {_quoted(option.about)}"])


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS: Final = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


async def _script(call: Call) -> str:
    shell = call.args.words[0] if call.args.words else ""
    if shell not in _SCRIPTS:
        raise UsageError(f"{shell or 'no shell'}: give one of {', '.join(_SCRIPTS)}")
    return _SCRIPTS[shell]()


def _show(script: str, screen: Screen) -> None:
    screen.write(script)


COMPLETION: Final = AdminCommand(
    name="completion",
    about="Print the completion script for bash, zsh or fish: commands, options and names",
    example="completion bash",
    ask=_script,
    show=_show,
    needs_cluster=False,
    is_only_kourou=True,
)
