# SPDX-License-Identifier: Apache-2.0
"""The configuration: one schema, one file, and errors that name the line.

Theory of operation
-------------------
Every setting is a field of a pydantic model, with name, type, unit, default and a paragraph of
text: `schema` has the whole, `access_settings`, `node_settings`, `routing_settings` and
`operations_settings` the groups; `schema_base` is what these have in common, and `field_types`
holds the types with their checks. `yaml_document` turns YAML into plain data while it keeps the
line of each key, and turns the schema into the commented file `etc/amqproute.yaml`. `load` puts the
two together: it validates the data, checks the settings against one another, and reports all
problems in one go, each with file, line, key, cause and what to write instead. `units` and
`endpoint` read durations, sizes and endpoint descriptions.

A `Config` is frozen. A reload makes a new one and compares: equal settings compare equal even if
they stand on other lines of the file.

Why so
------
The schema is the only description; a second one in the documentation, the shipped file or the
command line would drift from it. A test compares the checked-in file with the generated text.

Defaults of lists are replaced, never extended: who writes ``access:`` gets exactly those rules.

Secrets stand in files named here, never in the configuration: no passwords in URLs, no
passphrases. The file can then be shown to a colleague as it is.

Limits
------
One file, no includes. Environment variables are not substituted. The settings of
`management` are accepted and reserved.
"""

from amqproute.config.loader import ConfigProblem, advise, check_files, find, load, loads
from amqproute.config.schema import Config

__all__ = ["Config", "ConfigProblem", "advise", "check_files", "find", "load", "loads"]
