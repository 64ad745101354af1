# SPDX-License-Identifier: Apache-2.0
"""The configuration: one schema, its files, and errors that name the line.

Theory of operation
-------------------
Every setting is a field of a pydantic model, with name, type, unit, default and description:
`schema` holds the whole; `access_settings`, `node_settings`, `routing_settings` and
`operations_settings` hold the groups; `schema_base` holds what they share, and `field_types` the
types with their checks. `yaml_document` turns YAML into plain data, keeping the line of each key,
and turns the schema into the commented file `etc/amqproute.yaml`. `config_files` reads the main
file and those that it includes into one document, and `value_references` resolves ``${NAME}`` and
``%d/NAME`` in values. `loader` combines them: it validates the data, checks settings against one
another, and reports all problems at once, each with file, line, key, cause and correction.
`config_source` keeps where each value comes from. `units` and `endpoint` parse durations, sizes and
endpoint descriptions.

A `Config` is frozen. A reload makes a new one and compares the two: equal settings are equal even
if they are on other lines of the file.

Why so
------
The schema is the only description; a second one in the documentation, the shipped file or the
command line would drift from it. A test compares the checked-in file with the generated text.

A list replaces its default and never extends it: ``access:`` gives exactly the rules written there.
Lists of several files are one list, since files are added for a partner or an application, each
with its nodes, routes and rules; the order of the rules under ``access`` is that of the files.

Secrets are in files named by the configuration, or in the environment; never in it: no passwords in
URLs, no passphrases. The file can be shown to a colleague unchanged. What comes out of the
environment is shown as it is written, ``${NAME}``, in errors, too.

Limits
------
Included files include no others. Environment variables have no default values.
"""

from amqproute.config.loader import ConfigProblem, advise, check_files, find, load, loads
from amqproute.config.schema import Config

__all__ = ["Config", "ConfigProblem", "advise", "check_files", "find", "load", "loads"]
