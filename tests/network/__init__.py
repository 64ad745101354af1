# SPDX-License-Identifier: Apache-2.0
"""Organizations on separate hosts, and faults between them.

Two parts:

* `lab` makes hosts: Linux network namespaces with a wire between them, a signed zone on a real
  name server, a validating resolver on each host. Where namespaces are not to be had the hosts are
  addresses of loopback, and the tests say so. `test_hosts` lets daemons of different organizations
  talk there.
* The fault campaign: each `campaign.Scenario` is a small class with parameters, which does harm
  while messages pass and then counts. `test_faults` runs a short form of each;
  ``python -m benchmarks.faults`` runs the long forms and writes ``benchmarks/faults.md``.

What they share: a `line.Line` is a TCP connection's way that can be cut, slowed down and counted;
`course` is a publisher that does not give up, with a count that tells its own repetitions from
anybody else's.

Everything is bounded in time, and what was made is removed: processes by their ids (and by the
kernel, if this one dies), namespaces by their names, which have this process's id in them.
"""
