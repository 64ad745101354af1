# SPDX-License-Identifier: Apache-2.0
"""The contents of the package, and exclusions."""

from __future__ import annotations

import configparser
import importlib
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from packaging.version import Version
from twisted.application.service import IServiceMaker
from twisted.plugin import IPlugin
from twisted.trial.unittest import SkipTest, SynchronousTestCase
from zope.interface.verify import verifyObject

import amqproute
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parent.parent
PLUGIN = ROOT / "plugins" / "twisted" / "plugins" / "amqproute_plugin.py"


def metadata() -> configparser.ConfigParser:
    """Read setup.cfg."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


class MetadataTests(SynchronousTestCase):
    def test_version(self) -> None:
        """The version is a public version of PEP 440, said in one place."""
        version = Version(amqproute.__version__)
        self.assertIsNone(version.local)
        self.assertEqual(metadata()["metadata"]["version"], "attr: amqproute.__version__")

    def test_readme(self) -> None:
        """The long description is there and begins with a heading."""
        name = metadata()["metadata"]["long_description"].removeprefix("file:").strip()
        readme = ROOT / name
        self.assertTrue(readme.is_file(), f"{name} is missing")
        self.assertTrue(readme.read_text().lstrip().startswith("# "), f"{name}: no heading")

    def test_commands(self) -> None:
        """Each command names a callable that can be imported."""
        scripts = metadata()["options.entry_points"]["console_scripts"].split("\n")
        commands = dict(line.split(" = ") for line in scripts if line)
        self.assertIn("amqproute", commands)
        for command, target in commands.items():
            module, _, name = target.partition(":")
            self.assertTrue(callable(getattr(importlib.import_module(module), name)), command)

    def test_python(self) -> None:
        """setup.cfg, ruff and mypy speak of the same oldest Python."""
        tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
        oldest = metadata()["options"]["python_requires"].removeprefix(">=")
        self.assertEqual(tools["mypy"]["python_version"], oldest)
        self.assertEqual(tools["ruff"]["target-version"], "py" + oldest.replace(".", ""))

    def test_nothing_else_is_imported(self) -> None:
        """Every package that is imported is declared, in setup.cfg, under its own name; those of
        extras are imported only by what is loaded when it is asked for."""

        def names(lines: str) -> set[str]:
            return {
                re.split(r"[\[ ><=~!;]", line)[0].lower().replace("-", "_")
                for line in lines.split("\n")
                if line
            }

        declared = names(metadata()["options"]["install_requires"])
        extras = metadata()["options.extras_require"]
        extra = names(extras["pipeline"])
        of_extras = {
            "auth/ldap_client.py": names(extras["ldap"]),
            "auth/issuer_keys.py": names(extras["oauth"]),
            "auth/issuer_realm.py": names(extras["oauth"]),
            "tracing/otlp_exporter.py": names(extras["tracing"]) | {"opentelemetry"},
        }
        modules = {
            "google": "protobuf",
            "openssl": "pyopenssl",
            "yaml": "pyyaml",
            "dns": "dnspython",
            "zope": "zope.interface",
            "pydantic_core": "pydantic",  # pinned by it, and part of its documented face
        }
        missing = set()
        for path in (ROOT / "amqproute").rglob("*.py"):
            # What `amqproute pipeline` loads when it is asked for is in both places.
            spark = (
                "cli/pipeline_analysis.py",
                "cli/pipeline_partners.py",
                "cli/pipeline_session.py",
            )
            with_spark = "pipeline" in path.parts or any(map(path.match, spark))
            here = declared | extra if with_spark else declared
            for place, own in of_extras.items():
                if path.match(place):
                    here = declared | own
            found = re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
            for name in found:
                known = name in sys.stdlib_module_names or name == "amqproute"
                installed = not known and importlib.util.find_spec(name) is not None
                if installed and modules.get(name.lower(), name.lower()) not in here:
                    missing.add(f"{path.relative_to(ROOT)}: {name}")
        self.assertEqual(missing, set())


class PluginTests(SynchronousTestCase):
    def test_plugin(self) -> None:
        """The plugin names the daemon and imports nothing of it."""
        spec = importlib.util.spec_from_file_location("amqproute_plugin", PLUGIN)
        assert spec is not None
        assert spec.loader is not None
        plugin = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plugin)
        maker = plugin.amqproute
        self.assertTrue(verifyObject(IServiceMaker, maker))
        self.assertTrue(verifyObject(IPlugin, maker))
        self.assertEqual((maker.tapname, maker.module), ("amqproute", "amqproute.daemon.service"))
        self.assertNotIn("import amqproute", PLUGIN.read_text())

    def test_no_package_of_twisted_is_made(self) -> None:
        """An __init__.py on the way to the plugin would shut out everybody else's plugins."""
        self.assertEqual(list((ROOT / "plugins").rglob("__init__.py")), [])


class WheelTests(SynchronousTestCase):
    """The wheel itself, built from a copy of the sources."""

    def build(self) -> zipfile.ZipFile:
        if Version(importlib.metadata.version("setuptools")) < Version("75"):
            raise SkipTest("setuptools 75 or later is not installed: pip install 'amqproute[test]'")
        if importlib.util.find_spec("build") is None:
            raise SkipTest("build is not installed: pip install 'amqproute[test]'")
        tree = Path(self.mktemp())
        tree.mkdir(parents=True)
        unwanted = shutil.ignore_patterns("__pycache__", "dropin.cache")
        for name in ("amqproute", "plugins"):
            shutil.copytree(ROOT / name, tree / name, ignore=unwanted)
        for name in ("setup.cfg", "pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, tree / name)
        done = subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--no-isolation", "."],
            cwd=tree, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (wheel,) = (tree / "dist").glob("amqproute-*.whl")
        archive = zipfile.ZipFile(wheel)
        self.addCleanup(archive.close)
        return archive

    def test_contents(self) -> None:
        """It holds the plugin, every module, the typing mark, and nothing of anybody else's."""
        names = {name for name in self.build().namelist() if ".dist-info/" not in name}
        self.assertEqual(
            {name for name in names if not name.startswith("amqproute/")},
            {"twisted/plugins/amqproute_plugin.py"},
        )
        self.assertIn("amqproute/py.typed", names)
        sources = {str(path.relative_to(ROOT)) for path in (ROOT / "amqproute").rglob("*.py")}
        self.assertEqual(sources - names, set(), "in the sources, not in the wheel")
        pages = (ROOT / "amqproute/dashboard").glob("*/*.*")
        shown = {str(path.relative_to(ROOT)) for path in pages if path.suffix != ".pyc"}
        self.assertEqual(shown - names, set(), "pages, styles and scripts not in the wheel")
