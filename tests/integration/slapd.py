# SPDX-License-Identifier: Apache-2.0
"""Debian's slapd as a process of its own, with a few users and groups, on loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ldap3 import Connection, Server

from amqproute.net.authority import Issued
from amqproute.tools.daemon_pair import free_ports
from tests.integration.support import certificates, die_with_parent, new_directory
from tests.support.patience import until

SLAPD: Final = Path("/usr/sbin/slapd")

MISSING: Final = "" if SLAPD.exists() else "slapd is not installed"

READER: Final = "cn=reader,dc=test"
READERS_PASSWORD: Final = "of the reader"

ROOT: Final = "cn=root,dc=test"
ROOTS_PASSWORD: Final = "of the root"

CONFIGURATION: Final = """\
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {directory}/pid
TLSCACertificateFile {trust}
TLSCertificateFile {certificate}
TLSCertificateKeyFile {key}
database mdb
suffix "dc=test"
rootdn "{root}"
rootpw "{root_password}"
directory {directory}/data
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{reader}" read by self read by * none
"""

ENTRIES: Final = """\
dn: dc=test
objectClass: dcObject
objectClass: organization
dc: test
o: test

dn: cn=reader,dc=test
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: of the reader

dn: ou=people,dc=test
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=test
objectClass: organizationalUnit
ou: groups

dn: uid=carl,ou=people,dc=test
objectClass: inetOrgPerson
uid: carl
cn: Carl
sn: Carlson
mail: carl@corp.test
seeAlso: cn=drivers,ou=groups,dc=test
userPassword: carls secret

dn: uid=Dora,ou=people,dc=test
objectClass: inetOrgPerson
uid: Dora
cn: Dora
sn: Dorason
mail: both@corp.test
userPassword: doras secret

dn: uid=erna,ou=people,dc=test
objectClass: inetOrgPerson
uid: erna
cn: Erna
sn: Ernason
mail: both@corp.test
userPassword: ernas secret

dn: uid=anna,ou=people,dc=test
objectClass: inetOrgPerson
uid: anna
cn: Another Anna
sn: Annason
userPassword: of another anna

dn: cn=ops,ou=groups,dc=test
objectClass: groupOfNames
cn: ops
member: uid=carl,ou=people,dc=test
member: uid=Dora,ou=people,dc=test

dn: cn=readers,ou=groups,dc=test
objectClass: groupOfNames
cn: readers
member: uid=carl,ou=people,dc=test
"""


class Slapd:
    """A directory server.

    Attributes:
        directory: of its files.
        ldap, ldaps, ldapi: its URLs.
        trust: the file with the authority of its certificate.
    """

    def __init__(self) -> None:
        self.directory = new_directory("slapd")
        self.trust = certificates().trust
        # OpenLDAP's library takes localhost for the name of the machine.
        names = dict.fromkeys(("localhost", socket.gethostname(), socket.getfqdn()))
        issued: Issued = certificates().issue("localhost", dns_names=list(names))
        (self.directory / "data").mkdir()
        self._configuration = self.directory / "slapd.conf"
        self._configuration.write_text(
            CONFIGURATION.format(
                directory=self.directory,
                trust=self.trust,
                certificate=issued.chain,
                key=issued.private_key,
                reader=READER,
                root=ROOT,
                root_password=ROOTS_PASSWORD,
            )
        )
        subprocess.run(
            ["/usr/sbin/slapadd", "-q", "-f", str(self._configuration)],
            input=ENTRIES.encode(),
            check=True,
            capture_output=True,
        )
        self._ports = free_ports(2)
        self.ldap = f"ldap://localhost:{self._ports[0]}"
        self.ldaps = f"ldaps://localhost:{self._ports[1]}"
        self.ldapi = f"ldapi://{str(self.directory / 'socket').replace('/', '%2F')}"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def urls(self) -> Sequence[str]:
        """All its URLs."""
        return self.ldap, self.ldaps, self.ldapi

    def start(self) -> Slapd:
        """Start, and wait until it listens."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(SLAPD), "-f", str(self._configuration), "-h", " ".join(self.urls), "-d", "0"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )
        until(self._listens, "slapd listens")
        return self

    def change(self, change: Callable[[Connection], object]) -> None:
        """Change entries as the directory's administrator."""
        with Connection(Server(self.ldap), ROOT, ROOTS_PASSWORD, raise_exceptions=True) as root:
            change(root)

    def hold(self) -> None:
        """Let it hang: connections are accepted, and never answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Go on after `hold`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def _listens(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError((self.directory / "log").read_text())
        for port in self._ports:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)):
                    return False
        return True
