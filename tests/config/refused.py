# SPDX-License-Identifier: Apache-2.0
"""Refused files, and the exact errors.

Each entry: the text of the file, and the problems without the path, ``LINE: key: words``. An entry
that ends with "is not YAML" leaves the rest to PyYAML.
"""

from __future__ import annotations

# ruff: noqa: E501

REFUSED: list[tuple[str, list[str]]] = [
    ("relay:\n  windw: 5\n", ["2: relay.windw: unknown key; did you mean window?"]),
    ("lifetime: 5d\n", ["1: lifetime: unknown key here; it belongs under relay or reports"]),
    ("state_directory: /x\n", ["1: state_directory: unknown key; did you mean state-directory?"]),
    (
        "frobnicate: 1\n",
        [
            "1: frobnicate: unknown key; known here are include, container-id, domains, state-directory, strict-hostname, qualify-dynamic, alias-to, unsupported-filter, tolerate-missing-body, remote-services, auto-create, tls, listen, users, access, realms, nodes, aliases, bindings, policies, virtual-hosts, resolver, routes, peers, contracts, relay, distributed-transactions, reports, store, staging, limits, journal, tracing, status, management, plugins, log, shutdown-timeout"
        ],
    ),
    (
        "domains: alpha.example\n",
        ["1: domains: has to be a list, not the text 'alpha.example'; write [alpha.example]"],
    ),
    (
        "domains: [alpha_x.example]\n",
        ["1: domains[0]: 'alpha_x.example' is not a domain name: it contains '_'"],
    ),
    (
        "domains:\n  - a.example\n  - 5\n",
        ["3: domains[1]: has to be text, not the number 5; put it in quotes"],
    ),
    ("relay: 5\n", ["1: relay: has to be a map of keys and values, not the number 5"]),
    ("relay: [lifetime]\n", ["1: relay: has to be a map of keys and values, not a list"]),
    ("nodes: {orders: queue}\n", ["1: nodes: has to be a list, not a map"]),
    ("nodes:\n  - {type: queue}\n", ["2: nodes[0].name: is missing; it has no default"]),
    (
        "nodes:\n  - orders\n",
        ["2: nodes[0]: has to be a map of keys and values, not the text 'orders'"],
    ),
    (
        "nodes:\n  - {name: prices, type: topic, dead-letter: prices, max-deliveries: 3}\n",
        [
            "2: nodes[0].dead-letter: is the node itself; its dead letters would never leave",
            "2: nodes[0].max-deliveries: means something for a queue only",
            "2: nodes[0].dead-letter: means something for a queue only",
        ],
    ),
    (
        "nodes:\n  - name: orders\n    last-value: 1\n    unroutable: reject\n",
        [
            "3: nodes[0].last-value: means something for a topic only",
            "4: nodes[0].unroutable: means something for a topic only",
        ],
    ),
    (
        "nodes:\n  - name: q\n    durable-on-transient: reject\n    excess-destructive-link-policy: wait\n    maximum-destructive-links: 0\n    default-outcomes: [released, released]\n",
        [
            "3: nodes[0].durable-on-transient: needs message-durability-mode: force-transient beside it",
            "4: nodes[0].excess-destructive-link-policy: needs maximum-destructive-links beside it, 1 or more",
            "6: nodes[0].default-outcomes: names an outcome twice",
        ],
    ),
    (
        "nodes:\n  - {name: t, type: topic, duplicate-policy: all}\n  - {name: q, duplicate-policy: some}\n",
        [
            "3: nodes[1].duplicate-policy: 'some' is not one of global-ids, all, off",
        ],
    ),
    (
        "nodes:\n  - {name: t, type: topic, visibility: inbound}\n",
        ["2: nodes[0].visibility: means something for a queue only"],
    ),
    (
        "nodes:\n  - {name: t, type: topic, last-value-key: symbol}\n",
        ["2: nodes[0].last-value-key: needs last-value beside it, as in last-value: 1"],
    ),
    (
        "nodes: [{name: t, type: topic}, {name: q}]\nbindings:\n  - {source: t, target: q, mode: move}\n  - {source: q, target: z@b.example, mode: copy}\n  - {source: u, target: r}\n",
        [
            "3: bindings[0].mode: t is a topic; write copy",
            "4: bindings[1].mode: q is a queue; write move",
            "5: bindings[2].source: there is no node 'u'; add it under nodes",
            "5: bindings[2].target: there is no node 'r'; add it under nodes",
        ],
    ),
    (
        "nodes: [{name: a}, {name: b}]\naliases: {c: a}\nbindings:\n  - {source: a, target: b}\n  - {source: b, target: c}\n  - {source: a, target: b}\n",
        [
            "4: bindings[0].target: messages would come back to the source for ever",
            "5: bindings[1].target: messages would come back to the source for ever",
            "6: bindings[2]: is the same as bindings[0]",
            "6: bindings[2].target: messages would come back to the source for ever",
        ],
    ),
    (
        "nodes: [{name: a}]\nbindings: [{source: a, target: '@b.example'}]\n",
        [
            "2: bindings[0].target: '@b.example' is not the address of a node; write NODE or NODE@DOMAIN"
        ],
    ),
    (
        "nodes:\n  - {name: prices, type: queu}\n",
        ["2: nodes[0].type: 'queu' is not one of queue, topic; did you mean queue?"],
    ),
    (
        "nodes:\n  - {name: 2024}\n",
        ["2: nodes[0].name: has to be text, not the number 2024; put it in quotes"],
    ),
    (
        "nodes:\n  - {name: amqp$mine}\n",
        [
            "2: nodes[0].name: node name 'amqp$mine' is reserved: names that start with amqp$, $management or /management belong to services"
        ],
    ),
    (
        "nodes:\n  - {name: a@b}\n",
        [
            "2: nodes[0].name: node name 'a@b' contains an at sign; node@domain is an address in another domain, never a node's own name"
        ],
    ),
    (
        "nodes:\n  - {name: orders}\n  - {name: orders}\n",
        ["3: nodes[1].name: 'orders' is already nodes[0]"],
    ),
    (
        "nodes:\n  - {name: orders, dead-letter: ordres}\n",
        ["2: nodes[0].dead-letter: there is no node 'ordres'; did you mean orders?"],
    ),
    (
        "nodes:\n  - {name: orders, dead-letter: orders}\n",
        ["2: nodes[0].dead-letter: is the node itself; its dead letters would never leave"],
    ),
    (
        "nodes:\n  - {name: orders, capacity: 0}\n",
        ["2: nodes[0].capacity: 0 is out of range; it has to be at least 1"],
    ),
    (
        "nodes:\n  - {name: orders, capacity: many}\n",
        ["2: nodes[0].capacity: has to be a whole number, not the text 'many'"],
    ),
    (
        "nodes:\n  - {name: orders, ttl: 0s}\n",
        ["2: nodes[0].ttl: 0s is out of range; it has to be more than 0"],
    ),
    (
        "nodes: [{name: orders}]\naliases: {sales: order}\n",
        ["2: aliases.sales: there is no node 'order'; did you mean orders?"],
    ),
    (
        "nodes: [{name: orders}]\naliases: {orders: orders}\n",
        ["2: aliases.orders: is already the name of a node; a name means one node only"],
    ),
    (
        "nodes: [{name: o}]\naliases:\n  a: o\n  b: a\n",
        ["4: aliases.b: 'a' is an alias itself; name its node instead"],
    ),
    (
        "aliases: {'@x': o}\n",
        [
            "1: aliases.\"@x\": node name '@x' starts with '@'; the first character has to be a letter a-z or A-Z, a digit or an underscore"
        ],
    ),
    (
        "listen:\n  - endpoint: tcp:99999\n",
        ["2: listen[0].endpoint: 'tcp:99999': port '99999' is not a number between 0 and 65535"],
    ),
    ("listen:\n  - tls: none\n", ["2: listen[0].endpoint: is missing; it has no default"]),
    (
        "listen:\n  - {endpoint: 'tcp:1', tls: implicit}\n",
        [
            "2: listen[0].tls: implicit needs a certificate; give tls.certificate and tls.private-key"
        ],
    ),
    (
        "listen:\n  - {endpoint: 'tcp:1', tls: yes}\n",
        ["2: listen[0].tls: 'yes' is not one of none, upgrade, implicit"],
    ),
    (
        "listen:\n  - {endpoint: 'tcp:1', mechanisms: []}\n",
        ["2: listen[0].mechanisms: is empty; give at least one"],
    ),
    (
        "listen:\n  - {endpoint: 'tcp:1', mechanisms: [SCRAM-SHA256]}\n",
        [
            "2: listen[0].mechanisms[0]: 'SCRAM-SHA256' is not one of EXTERNAL, SCRAM-SHA-256, OAUTHBEARER, XOAUTH2, PLAIN, ANONYMOUS; did you mean SCRAM-SHA-256?"
        ],
    ),
    (
        "listen:\n  - {endpoint: 'tcp:1', mechanisms: PLAIN}\n",
        ["2: listen[0].mechanisms: has to be a list, not the text 'PLAIN'; write [PLAIN]"],
    ),
    (
        "listen:\n  - {endpoint: 'tcp:1', mechanisms: [EXTERNAL]}\n",
        [
            "2: listen[0].mechanisms: EXTERNAL needs a unix socket, or TLS with client-certificate: optional or required"
        ],
    ),
    (
        "listen:\n  - {endpoint: 'tcp:1', mechanisms: [PLAIN, PLAIN]}\n",
        ["2: listen[0].mechanisms: names a mechanism twice"],
    ),
    (
        "listen:\n  - {endpoint: 'tcp:1', client-certificate: required}\n",
        ["2: listen[0].client-certificate: needs TLS; write tls: implicit or tls: upgrade"],
    ),
    (
        "listen:\n  - {endpoint: 'unix:/a', tls: upgrade}\n",
        ["2: listen[0].tls: a unix socket carries no TLS; write none"],
    ),
    (
        "listen:\n  - {endpoint: 'tcp:1'}\n  - {endpoint: 'tcp:1'}\n",
        ["3: listen[1].endpoint: is the same as listen[0].endpoint"],
    ),
    ("tls: {certificate: /a}\n", ["1: tls.certificate: needs tls.private-key beside it"]),
    ("tls: {trust: 5}\n", ["1: tls.trust: 5 is not the path of a file; put it in quotes"]),
    ("tls: {trust: [a]}\n", ["1: tls.trust: ['a'] is not the path of a file"]),
    ("access:\n  - {allow: [publish]}\n", ["2: access[0].who: is missing; it has no default"]),
    (
        "access:\n  - {allow: [pubish], who: 'user:*'}\n",
        [
            "2: access[0].allow[0]: 'pubish' is not one of publish, consume, create, transfer, browse, manage, impersonate; did you mean publish?"
        ],
    ),
    (
        "access:\n  - {allow: [publish], who: 'user'}\n",
        [
            "2: access[0].who: 'user' is not a principal; write user:NAME, user:*, group:NAME, peer:DOMAIN, peer:*, uid:NUMBER, uid:*, anonymous, or * for everybody"
        ],
    ),
    (
        "users: {ldap: {servers: ['ldaps://a.example']}}\n",
        ["1: users.ldap: needs either user-dn or search-base"],
    ),
    (
        "users: {ldap: {servers: ['ldap://a.example'], user-dn: 'uid={name}'}}\n",
        [
            "1: users.ldap: ldap://a.example: passwords would cross the network unencrypted; write ldaps://, or start-tls: true"
        ],
    ),
    (
        "users: {ldap: {servers: ['http://a.example'], user-dn: 'uid={name}'}}\n",
        [
            "1: users.ldap.servers[0]: 'http://a.example' is no server; write it as in ldaps://ldap.example:636"
        ],
    ),
    (
        "users: {ldap: {servers: ['ldaps://a'], user-dn: 'uid=name'}}\n",
        ["1: users.ldap: user-dn has no {name}; write it as in uid={name},ou=people,dc=example"],
    ),
    (
        "users: {ldap: {servers: ['ldaps://a'], search-base: 'dc=a', search-filter: '(uid=a)'}}\n",
        ["1: users.ldap: search-filter has no {name}; write it as in (uid={name})"],
    ),
    (
        "users: {ldap: {servers: ['ldaps://a'], search-base: 'dc=a', bind-dn: 'cn=a'}}\n",
        ["1: users.ldap: bind-dn and bind-password-file need each other"],
    ),
    (
        "users: {issuers: {a: {issuer: 'http://a.example', audience: [a]}}}\n",
        [
            "1: users.issuers.a.issuer: 'http://a.example' is no issuer; write it as in https://login.example/realm"
        ],
    ),
    (
        "users: {issuers: {a: {issuer: 'https://a.example', audience: [a], algorithms: [HS256]}}}\n",
        [
            "1: users.issuers.a.algorithms[0]: 'HS256' is not one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, Ed25519; did you mean RS256?"
        ],
    ),
    (
        "users: {issuers: {a: {issuer: 'https://a.example'}}}\n",
        ["1: users.issuers.a.audience: is missing; it has no default"],
    ),
    (
        "users: {issuers: {a: {issuer: 'https://a.example', audience: [a]}, b: {issuer: 'https://a.example', audience: [a]}}}\n",
        ["1: users.issuers.b.issuer: is that of 'a' already"],
    ),
    (
        "users: {realms: {LDAP: {kind: a}, ldap: {kind: a}, b: {}, c: {kind: a, users: 'a?'}}}\n",
        [
            "1: users.realms.LDAP: 'LDAP' is not the name of a realm; write up to 32 small letters, digits and hyphens",
            "1: users.realms.ldap: the name 'ldap' is that of a realm of the broker itself; take another",
            "1: users.realms.b.kind: is missing; it has no default",
            "1: users.realms.c.users: 'a?' is not a pattern of names of users, as in svc-*",
        ],
    ),
    (
        "users: {realms: {a: {kind: b, settings: {x: '%d/../y'}}}}\n",
        [
            "1: users.realms.a.settings: '%d/../y' is not a credential; write %d/NAME, with the NAME in the unit's LoadCredential="
        ],
    ),
    (
        "users: {token-passwords: true}\n",
        ["1: users.token-passwords: needs an issuer of tokens under users.issuers"],
    ),
    (
        "listen:\n  - {endpoint: 'tcp:1', mechanisms: [OAUTHBEARER]}\n",
        ["2: listen[0].mechanisms[0]: OAUTHBEARER needs an issuer of tokens under users.issuers"],
    ),
    (
        "access:\n  - {allow: [publish], who: 'uid:me'}\n",
        ["2: access[0].who: 'uid:me': a user id is a number, as in uid:1000, or uid:*"],
    ),
    (
        "access:\n  - {allow: [publish], who: 'peer:a_b'}\n",
        ["2: access[0].who: 'a_b' is not a domain name: it contains '_'"],
    ),
    (
        "access:\n  - {who: anonymous}\n",
        ["2: access[0]: has no rights; write allow or deny with a list of rights"],
    ),
    (
        "access:\n  - {allow: publish, who: anonymous}\n",
        ["2: access[0].allow: has to be a list, not the text 'publish'; write [publish]"],
    ),
    (
        "access:\n  - {allow: [publish], deny: [publish], who: anonymous}\n",
        ["2: access[0]: publish is both allowed and denied"],
    ),
    (
        "resolver: {nameservers: [dns.example]}\n",
        [
            "1: resolver.nameservers[0]: 'dns.example' is not a name server; write an IP address, with a port as in 127.0.0.1:53 or [::1]:53"
        ],
    ),
    ("resolver: {dnssec: no}\n", ["1: resolver.dnssec: 'no' is not one of use, require, off"]),
    (
        "resolver: {deny-targets: [10.0.0.1/8]}\n",
        [
            "1: resolver.deny-targets[0]: '10.0.0.1/8' is not a network as in 10.0.0.0/8: 10.0.0.1/8 has host bits set"
        ],
    ),
    (
        "listen: [{endpoint: 'tcp:1', mute-shares: {10.0.0.1: 5, '::ffff:10.0.0.1/128': 7}}]\n",
        [
            "1: listen[0].mute-shares: '::ffff:10.0.0.1/128' and '10.0.0.1' are the same network; keep one"
        ],
    ),
    (
        "resolver: {timeout: 5x}\n",
        [
            "1: resolver.timeout: '5x' is not a duration; write a number with ms, s, m, h, d or w, as in 30s, 1h30m or 5d"
        ],
    ),
    (
        "resolver: {timeout: 5h}\n",
        ["1: resolver.timeout: 5h is out of range; it has to be at most 2m"],
    ),
    (
        "routes:\n  - {domain: a.example, via: 'http://x'}\n",
        [
            "2: routes[0].via: 'http://x' is not a next hop; write amqps://HOST:PORT or amqp://HOST:PORT"
        ],
    ),
    (
        "routes:\n  - {domain: a.example, via: 'amqps://u:p@x'}\n",
        [
            "2: routes[0].via: a user or a password has no place here; peers prove who they are by certificate"
        ],
    ),
    (
        "routes:\n  - {domain: a.example, via: 'amqps://x/y'}\n",
        ["2: routes[0].via: 'amqps://x/y': the URL of a next hop has only a host and a port"],
    ),
    (
        "routes:\n  - {domain: a.example, via: 'amqps://x:99999'}\n",
        ["2: routes[0].via: this is not a URL: Port out of range 0-65535"],
    ),
    (
        "routes:\n  - {domain: 'a.*.example'}\n",
        [
            "2: routes[0].domain: 'a.*.example': a star stands alone or as the first label, as in *.example"
        ],
    ),
    (
        "routes:\n  - {domain: a.example, target: '/queues/x'}\n",
        [
            "2: routes[0].target: '/queues/x' would put the messages for every node into one; write {node} where the name of the node belongs, as in /queues/{node}"
        ],
    ),
    (
        "routes:\n  - {domain: a.example, target: '/queues/{name}'}\n",
        [
            "2: routes[0].target: '/queues/{name}' is not a target; write amqp$transfer, anonymous, or a template with {node} and {domain} in it, as in /queues/{node}"
        ],
    ),
    (
        "{peers: {beta.example: {level: dane}}, resolver: {dnssec: 'off'}}\n",
        ['1: peers."beta.example".level: dane needs resolver.dnssec: use or require'],
    ),
    (
        "peers: {beta.example: {level: pin}}\n",
        ['1: peers."beta.example".level: pin needs a list of pins; give pin: [sha256:...]'],
    ),
    (
        "peers: {'*.example': {container-id: broker}}\n",
        ['1: peers."*.example".container-id: is the name of one broker; write its domain, no star'],
    ),
    (
        f"peers: {{'*': {{level: pin, pin: ['sha256:{'a' * 64}']}}}}\n",
        ['1: peers."*".level: pin is for one domain; write its name, no star'],
    ),
    (
        f"peers: {{beta.example: {{pin: ['sha256:{'a' * 64}']}}}}\n",
        ['1: peers."beta.example".pin: has no meaning with level dane-or-pkix; write pin'],
    ),
    (
        "peers: {beta.example: {level: pin, pin: ['sha1:ab']}}\n",
        [
            "1: peers.\"beta.example\".pin[0]: 'sha1:ab' is not a pin; write sha256: (the certificate) or key-sha256: (its key) and the 64 hexadecimal digits that `amqproute certs show` prints"
        ],
    ),
    (
        "peers: {beta.example: {level: pkxi}}\n",
        [
            "1: peers.\"beta.example\".level: 'pkxi' is not one of none, tls, pkix, dane, dane-or-pkix, pin; did you mean pkix?"
        ],
    ),
    (
        "peers: {beta.example: pkix}\n",
        ["1: peers.\"beta.example\": has to be a map of keys and values, not the text 'pkix'"],
    ),
    (
        "peers: {'be ta': {}}\n",
        ["1: peers.\"be ta\": 'be ta' is not a domain name: it contains ' '"],
    ),
    (
        "peers: {Beta.example: {}, beta.example: {}}\n",
        ["1: peers: 'beta.example' and 'Beta.example' are the same domain; keep one"],
    ),
    (
        "peers: {beta.example: {relay-for: gamma.example}}\n",
        [
            "1: peers.\"beta.example\".relay-for: has to be a list, not the text 'gamma.example'; write [gamma.example]"
        ],
    ),
    (
        "peers:\n  beta.example:\n    levle: pkix\n",
        ['3: peers."beta.example".levle: unknown key; did you mean level?'],
    ),
    (
        "relay: {lifetime: true}\n",
        ["1: relay.lifetime: True is not a duration; write it as in 30s, 1h30m or 5d"],
    ),
    ("relay: {window: 1.5}\n", ["1: relay.window: has to be a whole number, not the number 1.5"]),
    ("relay: {max-hops: 0}\n", ["1: relay.max-hops: 0 is out of range; it has to be at least 1"]),
    (
        "relay: {first-retry: 10m}\n",
        ["1: relay.first-retry: relay.first-retry may not be longer than relay.last-retry"],
    ),
    (
        "journal: {segment-bytes: 64M}\n",
        [
            "1: journal.segment-bytes: '64M' is not a size; write a number with B, KiB, MiB, GiB or TiB (or kB, MB, GB, TB for powers of 1000), as in 64MiB"
        ],
    ),
    (
        "management: {http: 9672}\n",
        ["1: management.http: has to be text, not the number 9672; put it in quotes"],
    ),
    (
        "management: {http: 'tcp:9672'}\n",
        [
            "1: management.http: passwords would cross the network unencrypted; write management.tls: implicit, or an address of this machine, as in tcp:9672:interface=127.0.0.1"
        ],
    ),
    (
        "management: {http: 'tcp:9672', tls: implicit}\n",
        ["1: management.tls: needs tls.certificate and tls.private-key"],
    ),
    (
        "management: {http: 'unix:/run/x.sock', tls: implicit, client-certificate: optional}\n",
        ["1: management.tls: has no meaning on a unix socket; write none"],
    ),
    (
        "management: {http: 'unix:/run/x.sock', client-certificate: optional}\n",
        [
            "1: management.client-certificate: needs management.tls: implicit beside it",
        ],
    ),
    (
        "management: {http: 'unix:/run/x.sock', proxy-protocol: [10.0.0.5]}\n",
        ["1: management.proxy-protocol: has no meaning for a unix socket"],
    ),
    (
        "listen: [{endpoint: 'unix:/run/x.sock'}]\nmanagement: {http: 'unix:/run/x.sock'}\n",
        ["2: management.http: is an endpoint under listen as well; name another one"],
    ),
    (
        "management: {http: 'http://x'}\n",
        [
            "1: management.http: 'http://x' is not an endpoint to listen at; write tcp:PORT, tcp6:PORT, unix:PATH or systemd:domain=INET:index=N"
        ],
    ),
    (
        "journal: {enabled: false}\ntracing: {enabled: true}\n",
        ["2: tracing.enabled: needs journal.enabled: spans are made from it"],
    ),
    (
        "tracing: {endpoint: 'http://collector.example:4318/v1/traces', headers-file: h}\n",
        [
            "1: tracing.headers-file: would cross the network unencrypted; write an endpoint with https"
        ],
    ),
    (
        "tracing: {headers-file: h, private-key: k, trust: t}\n",
        [
            "1: tracing.private-key: needs tracing.certificate beside it",
            "1: tracing.trust: has no meaning without https in tracing.endpoint",
        ],
    ),
    (
        "tracing: {endpoint: 'collector:4318'}\n",
        [
            "1: tracing.endpoint: 'collector:4318' is not a URL such as https://collector.example:4318/v1/traces"
        ],
    ),
    (
        "tracing: {endpoint: 'https://a:b@collector.example/'}\n",
        ["1: tracing.endpoint: a URL without user, password and fragment is wanted"],
    ),
    (
        "peers: {beta.example: {trace-context: yes}}\n",
        ["1: peers.\"beta.example\".trace-context: 'yes' is not one of keep, drop"],
    ),
    (
        "limits: {max-frame-size: 100}\n",
        ["1: limits.max-frame-size: 100 is out of range; it has to be at least 512"],
    ),
    (
        "log: {level: warning}\n",
        ["1: log.level: 'warning' is not one of debug, info, warn, error; did you mean warn?"],
    ),
    ("log: {format: yes}\n", ["1: log.format: 'yes' is not one of auto, text, json"]),
    (
        "shutdown-timeout: soon\n",
        [
            "1: shutdown-timeout: 'soon' is not a duration; write a number with ms, s, m, h, d or w, as in 30s, 1h30m or 5d"
        ],
    ),
    (
        "container-id: 'a b'\n",
        [
            "1: container-id: 'a b' is not a container id; it is 1 to 255 visible ASCII characters, best the host's full name"
        ],
    ),
    (
        "relay:\n  window: 5\n  window: 6\n",
        ["3: relay.window: is given twice; the first is on line 2"],
    ),
    ("relay:\n\twindow: 5\n", ["2: is not YAML"]),
    ("relay: {window: 5\n", ["2: is not YAML"]),
    ("domains: [a.example\nrelay: 5\n", ["2: is not YAML"]),
    ("- a\n", ["1: has to be a map of keys and values, as in domains: [a.example]"]),
    ("just text\n", ["1: has to be a map of keys and values, as in domains: [a.example]"]),
    ("a: b: c\n", ["1: is not YAML"]),
    ("domains: *x\n", ["1: is not YAML"]),
    (
        "domains: &x [*x]\n",
        ["1: domains: is nested too deeply", "1: domains[0]: has to be text, not a list"],
    ),
    (
        "domains: !!python/object:os.system [x]\n",
        ["1: domains: the YAML tag tag:yaml.org,2002:python/object:os.system has no meaning here"],
    ),
    ("domains: [!foo a.example]\n", ["1: domains[0]: the YAML tag !foo has no meaning here"]),
    ("? [a, b]\n: c\n", ["1: a key has to be text, not a list or a map"]),
    ("a: \x07\n", ["1: is not YAML"]),
    ("---\na: 1\n---\nb: 2\n", ["3: is not YAML"]),
    (
        "source: {}\n",
        ["1: source: unknown key here; it belongs under bindings"],
    ),
    (
        "<<: {domains: [a]}\n",
        [
            '1: "<<": unknown key; known here are include, container-id, domains, state-directory, strict-hostname, qualify-dynamic, alias-to, unsupported-filter, tolerate-missing-body, remote-services, auto-create, tls, listen, users, access, realms, nodes, aliases, bindings, policies, virtual-hosts, resolver, routes, peers, contracts, relay, distributed-transactions, reports, store, staging, limits, journal, tracing, status, management, plugins, log, shutdown-timeout'
        ],
    ),
    ("users: {file: ''}\n", ["1: users.file: '' is not the path of a file"]),
    ("users: {file:\n", ["2: is not YAML"]),
    (
        "relay:\n  window: x\nlog:\n  level: y\n",
        [
            "2: relay.window: has to be a whole number, not the text 'x'",
            "4: log.level: 'y' is not one of debug, info, warn, error",
        ],
    ),
]
