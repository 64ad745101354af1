# SPDX-License-Identifier: Apache-2.0
"""``certs``: a test authority, test certificates, and the contents of certificates."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import click
from cryptography import x509

from amqproute.cli import render
from amqproute.cli.commands.common_options import json_option
from amqproute.cli.program_commands import ProgramGroup
from amqproute.errors import TlsError
from amqproute.net import authority
from amqproute.net.tls import CertificateFacts, describe

__all__ = ["certs"]

_directory = click.argument(
    "directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False)
)


@click.group(cls=ProgramGroup)
def certs() -> None:
    """A certificate authority and certificates for tests."""


@certs.command("authority")
@_directory
@click.option("--name", default="amqproute authority", show_default=True, help="Its common name.")
@click.option(
    "--days", default=3650, show_default=True, type=click.IntRange(1, 36500), help="Valid for."
)
def authority_command(directory: Path, name: str, days: int) -> None:
    """Make a certificate authority in DIR: ca.pem, to be trusted by peers, and ca-key.pem.

    Nothing is ever overwritten.
    """
    certificate = authority.make_authority(directory, name=name, days=days)
    click.echo(certificate)
    click.echo(f"next: amqproute certs issue {directory} NAME...", err=True)


@certs.command("issue")
@_directory
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--days", default=825, show_default=True, type=click.IntRange(1, 36500), help="Valid for."
)
@click.option(
    "--address",
    "addresses",
    metavar="IP",
    multiple=True,
    help="An IP address to name as well; may be repeated.",
)
@click.option(
    "--host",
    "hosts",
    metavar="HOST",
    multiple=True,
    help="A host name to name as well, for clients, which check the host they connect to; may be "
    "repeated.",
)
def issue_command(
    directory: Path,
    names: tuple[str, ...],
    days: int,
    addresses: tuple[str, ...],
    hosts: tuple[str, ...],
) -> None:
    """Issue a certificate for each domain NAME with the authority in DIR.

    Writes DIR/NAME/chain.pem and DIR/NAME/key.pem. The certificate proves the domain itself and
    its SRV names, to clients and to servers. Nothing is ever overwritten.
    """
    if hosts and len(names) > 1:
        raise click.UsageError("--host goes with one NAME: each domain has hosts of its own")
    dns_names = (*names, *hosts) if hosts else None
    for issued in authority.issue(
        directory, names, days=days, addresses=addresses, dns_names=dns_names
    ):
        click.echo(f"{issued.chain}\t{issued.private_key}")


@certs.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def show_command(file: Path, as_json: bool) -> None:
    """Show what the certificates in a PEM FILE say: names, dates, fingerprints."""
    try:
        certificates = x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        raise TlsError("tls.file", f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise TlsError("tls.file", f"{file} holds no PEM certificate: {error}") from error
    facts = [describe(certificate) for certificate in certificates]
    if as_json:
        render.json_text({"file": str(file), "certificates": [_plain(each) for each in facts]})
        return
    for number, each in enumerate(facts):
        if number:
            click.echo()
        for key, value in _plain(each).items():
            text = ", ".join(value) if isinstance(value, list) else str(value)
            click.echo(f"{key + ':':14} {render.printable(text) or '-'}")


def _plain(facts: CertificateFacts) -> dict[str, Any]:
    left = facts.not_after - datetime.datetime.now(datetime.UTC)
    return {
        "subject": facts.subject,
        "issuer": facts.issuer,
        "names": [*facts.names.dns, *facts.names.srv, *facts.names.addresses],
        "serial": facts.serial,
        "not-before": facts.not_before.isoformat(),
        "not-after": facts.not_after.isoformat(),
        "days-left": left.days,
        "sha-256": facts.fingerprint,
        "key-sha-256": facts.key_fingerprint,
    }
