# SPDX-License-Identifier: Apache-2.0
"""``user``: users that log in with a password."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from amqproute.auth.users import UserFile, add_user, check_user_name, remove_user
from amqproute.cli import render
from amqproute.cli.command_error import NEGATIVE, USAGE, CommandError
from amqproute.cli.commands.common_options import config_option, json_option
from amqproute.cli.program_commands import ProgramGroup
from amqproute.config.loader import find, load

__all__ = ["user"]

RELOAD = "next: systemctl reload amqproute, or send the daemon SIGHUP"


@click.group(cls=ProgramGroup)
def user() -> None:
    """Users that log in with a password: salted keys in the file of `users.file`."""


@user.command("add")
@click.argument("name")
@config_option
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Read the password from the first line of FILE, - for standard input. "
    "[default: ask for it, twice]",
)
def add(name: str, config: Path | None, password_file: Path | None) -> None:
    """Add user NAME, or change the user's password.

    The daemon sees it after a reload, which ends connections and sessions by another password.
    """
    path = load(find(config)).users.file
    try:
        check_user_name(name)
        is_new = add_user(path, name, _password(password_file))
    except ValueError as error:
        raise CommandError(USAGE, "usage.user", str(error), "choose another") from None
    except OSError as error:
        raise _unwritable(path, error) from None
    click.echo(f"{name} {'added to' if is_new else 'has a new password in'} {path}")
    click.echo(RELOAD, err=True)


@user.command("remove")
@click.argument("name")
@config_option
def remove(name: str, config: Path | None) -> None:
    """Remove user NAME. Exits with 1 if there is none.

    The daemon sees it after a reload, which ends the connections and sessions of the user.
    """
    path = load(find(config)).users.file
    if not path.exists():
        raise _no_such_user(name, path)
    try:
        was_there = remove_user(path, name)
    except OSError as error:
        raise _unwritable(path, error) from None
    if not was_there:
        raise _no_such_user(name, path)
    click.echo(f"{name} removed from {path}")
    click.echo(RELOAD, err=True)


@user.command("ls")
@config_option
@json_option
def ls(config: Path | None, as_json: bool) -> None:
    """List the users."""
    path = load(find(config)).users.file
    names = UserFile.load(path).names if path.exists() else ()
    if as_json:
        render.json_text({"file": str(path), "users": list(names)})
        return
    for name in names:
        click.echo(name)
    if not names:
        click.echo(f"no users in {path}", err=True)


def _password(path: Path | None) -> str:
    if path is None:
        asked: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    try:
        if str(path) == "-":
            line = sys.stdin.readline()
        else:
            with path.open(encoding="utf-8") as stream:
                line = stream.readline()
    except OSError as error:
        raise CommandError(
            USAGE, "usage.file", f"cannot read {path}: {error.strerror}", "check the path"
        ) from None
    except UnicodeDecodeError:
        raise CommandError(
            USAGE, "usage.file", f"{path} is not UTF-8", "write the password as UTF-8"
        ) from None
    password = line.rstrip("\r\n")
    if not password:
        raise CommandError(
            USAGE, "usage.password", "the password is empty", "write it on the first line"
        )
    return password


def _no_such_user(name: str, path: Path) -> CommandError:
    return CommandError(
        NEGATIVE, "user.unknown", f"there is no user {name!r} in {path}", "amqproute user ls"
    )


def _unwritable(path: Path, error: OSError) -> CommandError:
    return CommandError(
        USAGE,
        "users.file",
        f"cannot write {path}: {error.strerror}",
        "check that its directory exists, and run this as root or as the directory's owner",
    )
