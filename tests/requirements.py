# SPDX-License-Identifier: Apache-2.0
"""The tests that prove each requirement.

The ids are those of the project's list of requirements for AMQP 1.0: T the transfer service,
A addresses, L containers, sessions and links, M messages, O outcomes, F credit, P publishing,
D durability and lifetime, E errors, N nodes, G management, S subscribing and consuming, Q queues,
W the worked examples, X transactions, C distributed transactions, K conflicts between sources. A
row has a clause that says what its tests show, and their dotted names; or the reason why there is
nothing to prove.
The rows for 0-9 and 0-9-1 stand in `tests.requirements_amqp09`, those of the classes that only 0-9
has in `tests.requirements_file_message` and `tests.requirements_amqp09_classes`.
`tests.test_requirements` holds this file to the tests that exist.
"""

from __future__ import annotations

from typing import Final

from tests.proofs import Proof, Unproved
from tests.requirements_amqp09 import PROVED_09
from tests.requirements_amqp09_classes import PROVED_CLASSES
from tests.requirements_file_message import PROVED_FILE_MESSAGE

PROVED: Final[dict[str, Proof | Unproved]] = {
    "T-01": Proof(
        "`amqp$transfer` and a null target can be attached to unprepared, and ANONYMOUS-RELAY "
        "stands",
        "tests.conformance.test_addresses.ServiceTests.test_anonymous_terminus",
        "tests.conformance.test_addresses.ServiceTests.test_attach",
        "tests.conformance.test_connection.OpenTests.test_capabilities",
    ),
    "T-02": Proof(
        "brokers that were told nothing of each other meet on a plain sender link; Proton's too",
        "tests.conformance.test_addresses.ServiceTests.test_attach",
        "tests.conformance.test_relaying.WireTests.test_ordinary_link",
        "tests.integration.test_federation.FederationTests.test_transfer",
        "tests.integration.test_other_brokers.ProtonBrokerTests.test_accepted",
    ),
    "T-03": Proof(
        "any body type, content-type, durability and property is taken; another format is refused",
        "tests.conformance.test_addresses.ServiceTests.test_any_message",
        "tests.conformance.test_addresses.ServiceTests.test_message_format",
        "tests.conformance.test_messages.BareMessageTests.test_body_of_data",
        "tests.conformance.test_messages.BareMessageTests.test_body_of_sequences",
        "tests.conformance.test_messages.FormatTests.test_refused_by_what_routes",
        "tests.frontends.test_receiver_link.RefusalTests.test_formats",
    ),
    "T-04": Proof(
        "of two nodes the one named in `to` gets the message, whatever else names the other",
        "tests.conformance.test_addresses.ServiceTests.test_local",
    ),
    "T-05": Proof(
        "an address is split at its last at sign; bad ones are refused with their cause",
        "tests.conformance.test_addresses.ResolutionTests.test_last_at_sign",
        "tests.test_address.ParseTests.test_accepted",
        "tests.test_address.ParseTests.test_refused",
    ),
    "T-06": Proof(
        "a `to` without a domain puts the message on the local node of that name",
        "tests.conformance.test_addresses.ServiceTests.test_local",
        "tests.routing.test_table.RouterTests.test_local",
        "tests.services.test_transfer.RoutingTests.test_local",
    ),
    "T-07": Proof(
        "a `to` with our domain, in any case, or our container-id leads to the local node",
        "tests.conformance.test_addresses.ResolutionTests.test_local_domain",
        "tests.conformance.test_addresses.ServiceTests.test_local",
        "tests.routing.test_table.RouterTests.test_local",
        "tests.services.test_transfer.RoutingTests.test_local",
    ),
    "T-08": Proof(
        "a static route is taken before the DNS, else the DNS's way; on daemons, by a gateway",
        "tests.conformance.test_addresses.RelayTests.test_static_route",
        "tests.integration.test_federation.FederationTests.test_static_route",
        "tests.routing.test_table.RouterTests.test_dns",
        "tests.services.test_transfer.RoutingTests.test_relayed",
    ),
    "T-09": Proof(
        "on the wire: an attach to `amqp$transfer` and the bare message, `to` as it came",
        "tests.conformance.test_addresses.RelayTests.test_arrives",
        "tests.services.test_transfer.RoutingTests.test_relayed",
        "tests.conformance.test_relaying.WireTests.test_ordinary_link",
    ),
    "T-10": Proof(
        "each next hop has a queue that outlives a kill; no client attaches to one",
        "tests.conformance.test_addresses.RelayTests.test_peer_is_down",
        "tests.conformance.test_addresses.ResolutionTests.test_relay_queue_is_internal",
        "tests.conformance.test_relaying.QueueTests.test_one_for_each_hop",
        "tests.integration.test_federation.FederationTests.test_restart",
    ),
    "T-11": Proof(
        "a hop that does not have the domain relays on by the same `to`",
        "tests.conformance.test_addresses.RelayTests.test_static_route",
        "tests.conformance.test_addresses.RelayTests.test_three_hops",
    ),
    "T-12": Proof(
        "x@y attaches undeclared, after the DNS has been asked",
        "tests.conformance.test_addresses.AliasTests.test_attach",
        "tests.conformance.test_addresses.SlowDnsTests.test_attach_waits",
        "tests.conformance.test_relaying.WireTests.test_as_if_local",
    ),
    "T-13": Proof(
        "x@y is echoed on the wire, gets credit, and what is published on it arrives at x",
        "tests.conformance.test_addresses.AliasTests.test_attach",
        "tests.conformance.test_relaying.WireTests.test_as_if_local",
    ),
    "T-14": Proof(
        "an equal `to` passes, an absent one is supplied unless signed or `require`, others fail",
        "tests.conformance.test_addresses.AliasTests.test_equal_to",
        "tests.conformance.test_addresses.AliasTests.test_missing_to",
        "tests.conformance.test_addresses.AliasTests.test_other_to",
        "tests.conformance.test_addresses.AliasTests.test_require",
        "tests.conformance.test_addresses.AliasTests.test_signed",
        "tests.integration.test_federation.FederationTests.test_supplied_to",
        "tests.services.test_transfer.AliasTests.test_agrees",
        "tests.services.test_transfer.AliasTests.test_differs",
    ),
    "T-15": Proof(
        "`@y` takes any node of y, bare `to` too, and no third domain in any spelling",
        "tests.conformance.test_addresses.AccessTests.test_only_an_alias",
        "tests.conformance.test_addresses.AliasTests.test_domain_alias",
        "tests.conformance.test_addresses.AliasTests.test_domain_alias_bare_to",
        "tests.services.test_transfer.AliasTests.test_any_node_of_a_domain",
    ),
    "T-16": Proof(
        "the service can be denied and an alias granted; on the service each `to` is judged",
        "tests.conformance.test_addresses.AccessTests.test_only_an_alias",
        "tests.conformance.test_addresses.AccessTests.test_per_message",
        "tests.frontends.test_receiver_link.AttachTests.test_rights",
    ),
    "T-17": Proof(
        "names of services are nothing to receive from: not-allowed",
        "tests.conformance.test_addresses.ResolutionTests.test_reserved",
    ),
    "T-18": Proof(
        "brokers do TLS with proof of both; plain text and impostors end before a word of AMQP",
        "tests.net.test_tls.HandshakeTests.test_mutual",
        "tests.net.test_tls.HandshakeTests.test_plain_text",
        "tests.integration.test_next_hop.NextHopTests.test_open",
        "tests.integration.test_federation.FederationTests.test_wrong_certificate",
        "tests.net.test_peer_trust.DemandTests.test_no_downgrade",
    ),
    "T-19": Proof(
        "daemons show certificates, choose EXTERNAL, never ANONYMOUS; without proof no entry",
        "tests.conformance.test_connection.SaslTests.test_external_needs_a_certificate",
        "tests.conformance.test_connection.SaslTests.test_external_proves_the_peer",
        "tests.net.test_tls.HandshakeTests.test_mutual",
        "tests.net.test_tls.HandshakeTests.test_no_client_certificate",
        "tests.net.test_inbound_trust.InboundTests.test_five_states",
        "tests.integration.test_dane.DaneTests.test_delivered_and_rolled_over",
        "tests.integration.test_dane.DaneTests.test_impostor_does_not_get_in",
        "tests.integration.test_next_hop.NextHopTests.test_open",
        "tests.integration.test_next_hop.NextHopTests.test_anonymous",
        "tests.integration.test_federation.FederationTests.test_wrong_certificate",
    ),
    "T-20": Proof(
        "accepted follows the commit, also while the peer is down; a killed store keeps it",
        "tests.conformance.test_addresses.RelayTests.test_peer_is_down",
        "tests.conformance.test_transfer.SettlementTests.test_accepted_after_the_commit",
        "tests.conformance.test_transfer.SettlementTests.test_store_fails",
        "tests.broker.test_queue.OrderTests.test_nothing_before_the_commit",
        "tests.store.test_crash.KillTests.test_kill",
    ),
    "T-21": Proof(
        "on the wire: snd-settle-mode unsettled, and no transfer to the next hop is settled",
        "tests.conformance.test_relaying.WireTests.test_ordinary_link",
    ),
    "T-22": Proof(
        "what was under way when connection or process died is sent again, none lost or twice",
        "tests.conformance.test_addresses.RelayTests.test_connection_lost",
        "tests.relay.test_destination.FailureTests.test_lost_in_flight",
        "tests.integration.test_crash.CrashTests.test_short",
    ),
    "T-23": Proof(
        "released and failed are tried again, rejected and undeliverable-here are dead letters",
        "tests.conformance.test_addresses.RelayTests.test_forbidden_there",
        "tests.conformance.test_addresses.RelayTests.test_full_there",
        "tests.conformance.test_addresses.RelayTests.test_rejected_there",
        "tests.relay.test_destination.OutcomeTests.test_released_waits_alone",
        "tests.relay.test_destination.OutcomeTests.test_count",
        "tests.relay.test_destination.OutcomeTests.test_rejected",
        "tests.relay.test_destination.OutcomeTests.test_undeliverable_here",
        "tests.integration.test_other_brokers.ProtonBrokerTests.test_released",
        "tests.integration.test_other_brokers.ProtonBrokerTests.test_rejected",
    ),
    "T-24": Proof(
        "order per next hop and priority holds behind DNS questions and over any course of events",
        "tests.conformance.test_addresses.AliasTests.test_order_while_asking",
        "tests.conformance.test_addresses.RelayTests.test_order",
        "tests.conformance.test_addresses.SlowDnsTests.test_order_behind_a_question",
        "tests.relay.test_machine.DestinationTests.test_machine",
        "tests.relay.test_scheduler.FairnessTests.test_priority",
    ),
    "T-25": Proof(
        "each failure has its condition, or a detach with the tag where rejected cannot be said",
        "tests.conformance.test_addresses.AliasTests.test_no_answer",
        "tests.conformance.test_addresses.AliasTests.test_no_service",
        "tests.conformance.test_addresses.AliasTests.test_unknown_domain",
        "tests.conformance.test_addresses.ServiceTests.test_no_such_node",
        "tests.conformance.test_addresses.ServiceTests.test_rejected_not_allowed",
        "tests.conformance.test_addresses.ServiceTests.test_settled_failure",
        "tests.conformance.test_addresses.ServiceTests.test_without_to",
        "tests.conformance.test_addresses.SlowDnsTests.test_no_answer_at_all",
    ),
    "T-26": Proof(
        "a lasting failure comes back to x-opt-return-to with its reason, never a second time",
        "tests.services.test_sender_reports.CodeTests.test_rejected",
        "tests.services.test_sender_reports.ExactlyOnceTests.test_any_course",
        "tests.services.test_sender_reports.KindTests.test_failure",
        "tests.services.test_sender_reports.KindTests.test_usual",
        "tests.services.test_sender_reports.SafetyTests.test_no_report_about_a_report",
        "tests.conformance.test_addresses.RelayTests.test_forbidden_there",
        "tests.conformance.test_addresses.RelayTests.test_rejected_there",
        "tests.conformance.test_addresses.RelayTests.test_reply_to_is_not_return_to",
        "tests.broker.test_queue.OutcomeTests.test_return_to",
        "tests.frontends.test_receiver_link.RefusalTests.test_return_address",
        "tests.integration.test_federation.FederationTests.test_rejected_over_there",
        "tests.integration.test_federation.FederationTests.test_returned_across",
    ),
    "T-27": Proof(
        "the trace grows by each hop; a loop and a seventeenth hop are refused with words",
        "tests.conformance.test_addresses.RelayTests.test_three_hops",
        "tests.conformance.test_addresses.ServiceTests.test_hops",
        "tests.conformance.test_addresses.ServiceTests.test_loop",
        "tests.conformance.test_messages.ToleranceTests.test_bad_annotations",
        "tests.integration.test_federation.FederationTests.test_loop",
    ),
    "T-28": Proof(
        "pauses double to five minutes, no attempt counts; given up after five days, not before",
        "tests.relay.test_destination.FailureTests.test_expired_here",
        "tests.relay.test_scheduler.DeathTests.test_dies_and_comes_back",
        "tests.relay.test_scheduler.NoteTests.test_death_survives",
        "tests.relay.test_scheduler.WakeTests.test_restart_is_no_storm",
        "tests.conformance.test_relaying.TimeTests.test_back_off",
        "tests.conformance.test_relaying.TimeTests.test_age",
        "tests.relay.test_destination.OutcomeTests.test_count",
    ),
    "T-29": Proof(
        "a relay stays within credit and its window; a closed gate revokes senders' credit",
        "tests.conformance.test_addresses.RelayTests.test_credit",
        "tests.frontends.test_publish_gate.BrakeTests.test_peers_and_newcomers",
        "tests.relay.test_destination.OpenTests.test_window",
        "tests.relay.test_scheduler.FairnessTests.test_window_of_octets",
        "tests.relay.test_scheduler.RateTests.test_messages",
    ),
    "T-30": Proof(
        "read on arrival: ttl less the time here, the date unchanged; what is overdue never left",
        "tests.integration.test_federation.FederationTests.test_lifetime",
        "tests.relay.test_destination.FailureTests.test_expired_here",
        "tests.relay.test_destination.OpenTests.test_trace_and_header",
        "tests.test_message.MessageTests.test_ttl_never_grows",
        "tests.conformance.test_relaying.TimeTests.test_lifetime",
        "tests.conformance.test_relaying.TimeTests.test_date",
    ),
    "T-31": Proof(
        "a peer reaches nodes it may transfer to and `relay-for` domains only; forgeries fail",
        "tests.services.test_provenance.ForgeryTests.test_nothing_forged_arrives",
        "tests.services.test_provenance.PeerTests.test_forged",
        "tests.conformance.test_addresses.AccessTests.test_no_open_relay",
        "tests.conformance.test_addresses.AccessTests.test_peer_to_local",
        "tests.conformance.test_addresses.AccessTests.test_relay_for",
    ),
    "T-32": Proof(
        "a service named in `remote-services` acts for who may manage it, across daemons",
        "tests.conformance.test_addresses.AliasTests.test_services",
        "tests.conformance.test_addresses.ServiceTests.test_services_are_no_destinations",
        "tests.services.test_transfer.RoutingTests.test_services_are_not_for_transfer",
        "tests.services.test_transfer.RemoteServiceTests.test_acts",
        "tests.services.test_transfer.RemoteServiceTests.test_right",
        "tests.services.test_transfer.RemoteServiceTests.test_never_the_transfer_service",
        "tests.services.test_transfer.RemoteServiceTests.test_elsewhere",
        "tests.services.test_transfer.RemoteServiceTests.test_once",
        "tests.services.test_transfer.RemoteServiceTests.test_rehearsed",
        "tests.services.test_transfer.RemoteServiceTests.test_too_large",
        "tests.services.test_management_node.ManagementTests.test_reply_to_with_a_domain",
        "tests.integration.test_remote_services.RemoteServiceTests.test_answered",
        "tests.integration.test_remote_services.RemoteServiceTests.test_closed_by_a_reload",
    ),
    "T-33": Proof(
        "a transactional publish to x@y is in the relay queue by the commit, and not after "
        "rollback",
        "tests.frontends.test_transactions.AbroadTests.test_alias",
        "tests.frontends.test_transactions.AbroadTests.test_peer_is_down",
        "tests.frontends.test_transactions.AbroadTests.test_rolled_back",
        "tests.frontends.test_transactions.CoordinatorTests.test_peers",
    ),
    "T-34": Proof(
        "`target` of a route is used: null, template or the fallback; Proton and RabbitMQ take it",
        "tests.conformance.test_addresses.RelayTests.test_anonymous_target",
        "tests.integration.test_other_brokers.ProtonBrokerTests.test_accepted",
        "tests.integration.test_other_brokers.RabbitTests.test_all",
        "tests.relay.test_destination.OpenTests.test_fallback",
        "tests.relay.test_destination.OpenTests.test_route_target",
        "tests.routing.test_table.RouterTests.test_node_template",
        "tests.services.test_transfer.RoutingTests.test_template",
    ),
    "T-35": Proof(
        "one connection on demand, closed when idle; SNI, hostname and beats heard by a partner",
        "tests.conformance.test_addresses.RelayTests.test_idle_connection_closes",
        "tests.conformance.test_addresses.RelayTests.test_next_candidate",
        "tests.conformance.test_addresses.RelayTests.test_one_connection",
        "tests.relay.test_scheduler.MoveTests.test_other_host",
        "tests.relay.test_scheduler.StuckTests.test_made_again",
        "tests.integration.test_next_hop.NextHopTests.test_open",
        "tests.conformance.test_relaying.WireTests.test_hostname",
        "tests.relay.test_destination.FailureTests.test_silent_peer",
    ),
    "T-36": Proof(
        "a stream's entry is taken once over connections and restarts; else the message-id tells",
        "tests.broker.test_receipts.MessageIdTests.test_repetition",
        "tests.broker.test_receipts.OwnerTests.test_gains_a_name",
        "tests.conformance.test_addresses.RelayTests.test_connection_lost",
        "tests.conformance.test_addresses.RelayTests.test_duplicates",
        "tests.integration.test_other_brokers.ProtonBrokerTests.test_cut",
        "tests.relay.test_destination.FailureTests.test_lost_in_flight",
        "tests.relay.test_machine.DestinationTests.test_machine",
        "tests.relay.test_scheduler.ResumeTests.test_outcome_that_was_not_heard",
        "tests.relay.test_scheduler.ResumeTests.test_refused",
    ),
    "T-37": Proof(
        "QUERY shows depth, age, next attempt and last error; hold, release, retry, purge on a "
        "daemon",
        "tests.integration.test_operator.VerbTests.test_holds",
        "tests.integration.test_operator.VerbTests.test_why",
        "tests.relay.test_scheduler.WakeTests.test_at_once",
        "tests.services.test_management_node.ManagementTests.test_relay_queues_show_their_destination",
        "tests.services.test_relay_commands.RelayOperationTests.test_hold",
        "tests.services.test_relay_commands.RelayOperationTests.test_purge",
        "tests.services.test_relay_commands.RelayOperationTests.test_retry_now",
        "tests.integration.test_operator.VerbTests.test_peers",
        "tests.integration.test_operator.VerbTests.test_delete_and_expire",
        "tests.integration.test_next_hop.RelayQueueTests.test_query",
    ),
    "T-38": Proof(
        "properties, application-properties, body and footer arrive octet for octet",
        "tests.conformance.test_addresses.RelayTests.test_arrives",
        "tests.conformance.test_relaying.WireTests.test_ordinary_link",
        "tests.integration.test_federation.FederationTests.test_transfer",
    ),
    "T-39": Proof(
        "a peer's container-id is kept; another one is logged with both names; loops name it",
        "tests.conformance.test_addresses.RelayTests.test_identity",
        "tests.conformance.test_connection.SaslTests.test_external_proves_the_peer",
        "tests.conformance.test_relaying.IdentityTests.test_another_container",
        "tests.conformance.test_addresses.RelayTests.test_three_hops",
    ),
    "A-01": Proof(
        "one address is one node as source, target, `to`, reply-to and in management's reply-to",
        "tests.conformance.test_addresses.ResolutionTests.test_local_domain",
        "tests.conformance.test_addresses.ResolutionTests.test_one_namespace",
        "tests.conformance.test_addresses.ResolutionTests.test_reply_to",
        "tests.services.test_management_node.ManagementTests.test_reply_to_with_a_domain",
    ),
    "A-02": Proof(
        "replies to a returned dynamic address arrive, plain and qualified, over two brokers too",
        "tests.integration.test_replies.ReplyTests.test_two_hops",
        "tests.services.test_reply_paths.AliasTests.test_dynamic",
        "tests.services.test_reply_paths.AliasTests.test_two_hops",
        "tests.conformance.test_addresses.ResolutionTests.test_reply_to",
        "tests.conformance.test_examples.ExampleTests.test_w08_rpc_across_brokers",
        "tests.conformance.test_link.DynamicTests.test_qualified",
        "tests.conformance.test_link.DynamicTests.test_source",
    ),
    "A-03": Proof(
        "target, `to` and source of one name lead to one node",
        "tests.conformance.test_addresses.ResolutionTests.test_one_namespace",
    ),
    "A-04": Proof(
        "an alias leads to its node as target, source and `to`, and is echoed itself",
        "tests.conformance.test_addresses.ResolutionTests.test_alias",
    ),
    "A-05": Proof(
        "a moved alias counts for new links only; a destroyed one detaches its links, no others",
        "tests.conformance.test_addresses.ResolutionTests.test_moved_alias",
        "tests.conformance.test_relaying.AliasLifeTests.test_destroyed",
        "tests.integration.test_signals.ReloadTests.test_alias_goes",
    ),
    "A-06": Proof(
        "of 1000 names of a daemon none repeats, and no digit stands still or follows the last",
        "tests.conformance.test_link.DynamicTests.test_names",
        "tests.integration.test_lifetimes.DynamicTests.test_names",
    ),
    "A-07": Proof(
        "reserved names are refused as sources, and to whoever would make a node of them",
        "tests.conformance.test_addresses.ResolutionTests.test_reserved",
        "tests.services.test_node_changes.CommandTests.test_create_refused",
        "tests.test_address.NameTests.test_reserved",
    ),
    "A-08": Proof(
        "an alias is no second node, and one name cannot be given twice",
        "tests.conformance.test_addresses.ResolutionTests.test_alias",
        "tests.services.test_node_changes.CommandTests.test_create_refused",
    ),
    "A-09": Proof(
        "each row of the table of lookups has its candidates, addresses without SRV among them",
        "tests.resolver.test_srv.TableTests.test_rows",
    ),
    "A-10": Proof(
        "a domain that is no host is resolved by the DNS before any connect, or refused",
        "tests.resolver.test_srv.TableTests.test_rows",
        "tests.conformance.test_addresses.AliasTests.test_unknown_domain",
    ),
    "A-11": Proof(
        "host and port come from the SRV record; the next candidate is tried",
        "tests.conformance.test_addresses.RelayTests.test_next_candidate",
        "tests.resolver.test_srv.TableTests.test_whole_resolution",
    ),
    "A-12": Proof(
        "order, weights, '.', NXDOMAIN and SERVFAIL each as in the table; upgrade on daemons",
        "tests.conformance.test_addresses.AliasTests.test_no_answer",
        "tests.conformance.test_addresses.AliasTests.test_no_service",
        "tests.integration.test_federation.FederationTests.test_upgrade",
        "tests.resolver.test_srv.TableTests.test_rows",
        "tests.resolver.test_srv.TableTests.test_weights",
        "tests.cli.test_verdicts.VerdictTests.test_fixtures",
        "tests.resolver.test_tlsa.BogusTests.test_no_way_around",
    ),
    "A-13": Proof(
        "domains compare by A-labels without case and dot, nodes with case; `name@` is invalid",
        "tests.conformance.test_addresses.ResolutionTests.test_case_and_dot",
        "tests.conformance.test_addresses.ResolutionTests.test_idna",
        "tests.conformance.test_addresses.ResolutionTests.test_invalid",
        "tests.conformance.test_addresses.ResolutionTests.test_last_at_sign",
        "tests.routing.test_table.RouterTests.test_bad_addresses",
        "tests.test_address.ParseTests.test_accepted",
        "tests.test_address.ParseTests.test_refused",
    ),
    "A-14": Proof(
        "an impostor hears nothing from a daemon; DNS-ID, SRV-ID, SNI and levels, row by row",
        "tests.integration.test_federation.FederationTests.test_wrong_certificate",
        "tests.net.test_tls.HandshakeTests.test_wrong_name",
        "tests.net.test_tls.HandshakeTests.test_srv_id_only",
        "tests.net.test_certificate_identity.IdentityTests.test_dns_id",
        "tests.net.test_peer_trust.DemandTests.test_rows",
        "tests.net.test_peer_trust.DemandTests.test_no_downgrade",
        "tests.net.test_peer_trust.JudgeTests.test_pkix",
        "tests.cli.test_verdicts.VerdictTests.test_fixtures",
        "tests.integration.test_next_hop.NextHopTests.test_open",
    ),
    "A-15": Proof(
        "a daemon makes an id once, has it after a kill, and another daemon has another",
        "tests.conformance.test_connection.OpenTests.test_open",
        "tests.integration.test_next_hop.ContainerTests.test_generated",
    ),
    "A-16": Proof(
        "a daemon serves unknown host names, and refuses them with `strict-hostname`",
        "tests.conformance.test_connection.OpenTests.test_hostname",
        "tests.integration.test_next_hop.ContainerTests.test_strict_hostname",
    ),
    "A-17": Proof(
        "an address at a peer's configured container-id has the route of its domain",
        "tests.routing.test_table.RouterTests.test_container",
    ),
    "A-18": Proof(
        "a message sent to a reply-to arrives where that address leads",
        "tests.conformance.test_addresses.ResolutionTests.test_reply_to",
    ),
    "A-19": Proof(
        "the broker resolves targets of incoming and sources of outgoing links",
        "tests.conformance.test_addresses.ResolutionTests.test_one_namespace",
        "tests.conformance.test_link.RefusalTests.test_source_without_address",
    ),
    "A-20": Proof(
        "x@ours is the local node as source, to Proton too; x@theirs is not-allowed",
        "tests.conformance.test_addresses.ResolutionTests.test_remote_source",
        "tests.integration.test_proton.LinkTests.test_own_domain",
    ),
    "A-21": Proof(
        "the last at sign alone divides an address; nothing else has a meaning in it",
        "tests.conformance.test_addresses.ResolutionTests.test_last_at_sign",
        "tests.conformance.test_addresses.ResolutionTests.test_nothing_else_divides",
    ),
    "A-22": Proof(
        "`/queues/NAME` and `/topics/NAME`, percent-encoded, are the plain node, echoed as given",
        "tests.conformance.test_addresses.ResolutionTests.test_compatibility",
        "tests.test_address.CompatibilityTests.test_accepted",
        "tests.conformance.test_addresses.ResolutionTests.test_uri",
        "tests.test_address.CompatibilityTests.test_uri",
    ),
    "L-01": Proof(
        "an attach by name is answered by the opposite role, and messages go one way on it",
        "tests.conformance.test_link.AttachTests.test_sender",
    ),
    "L-02": Proof(
        "a selector in an attach is echoed, and only matching messages travel; unknown ones refuse",
        "tests.conformance.test_link.RefusalTests.test_selector",
        "tests.conformance.test_link.RefusalTests.test_unknown_filter",
    ),
    "L-03": Proof(
        "a deleted node, dynamic or by management, detaches its links with resource-deleted",
        "tests.conformance.test_link.DetachTests.test_deleted_node",
        "tests.conformance.test_management.DeleteTests.test_links_are_told",
    ),
    "L-04": Proof(
        "four sessions on a connection carry links; a handle above handle-max closes it",
        "tests.conformance.test_session.SessionTests.test_handle_max",
        "tests.conformance.test_session.SessionTests.test_several",
    ),
    "L-05": Proof(
        "a binding moves or copies what its filter selects between two nodes of one broker",
        "tests.broker.test_binding.QueueTests.test_moves",
        "tests.broker.test_binding.QueueTests.test_restart",
        "tests.broker.test_binding.TopicTests.test_filter",
        "tests.broker.test_binding.TopicTests.test_topic_to_topic",
    ),
    "L-06": Proof(
        "frames of a session over mixed links are executed in their order, also behind the DNS",
        "tests.conformance.test_addresses.AliasTests.test_order_while_asking",
        "tests.conformance.test_session.SessionTests.test_order",
    ),
    "L-07": Proof(
        "begin, attach, transfer and flow written before any answer are all carried out",
        "tests.conformance.test_addresses.SlowDnsTests.test_pipelined_behind_the_attach",
        "tests.conformance.test_session.SessionTests.test_pipelined",
    ),
    "L-08": Proof(
        "what follows a detach, end or refusal of ours on its handle or channel does nothing",
        "tests.conformance.test_link.DetachTests.test_frames_behind_our_detach",
        "tests.conformance.test_link.RefusalTests.test_pipelined_transfers_to_a_refused_link",
        "tests.conformance.test_session.SessionTests.test_discarding",
    ),
    "L-09": Proof(
        "a second attach of a name by its container gets the link, the old one link:stolen",
        "tests.conformance.test_link.AttachTests.test_same_name_both_ways",
        "tests.conformance.test_link.AnonymousNameTests.test_no_stealing_across_addresses",
        "tests.conformance.test_link.AnonymousNameTests.test_users_keep_their_names",
        "tests.conformance.test_link.StolenTests.test_on_another_connection",
        "tests.conformance.test_link.StolenTests.test_on_the_same_session",
        "tests.conformance.test_link.StolenTests.test_other_container",
        "tests.frontends.test_receiver_link.AttachTests.test_stolen",
        "tests.integration.test_proton.OutcomeTests.test_reattach_by_name",
        "tests.wire.amqp10.test_link.Attaching.test_stolen",
    ),
    "L-10": Proof(
        "our relay link's name is the container-id of the peer, which is no domain, and the route",
        "tests.conformance.test_addresses.RelayTests.test_identity",
    ),
    "L-11": Proof(
        "a terminus says durable none until session-end on the wire, and what it left goes then",
        "tests.conformance.test_link.AttachTests.test_momentary",
        "tests.conformance.test_resume.ParkedTests.test_session_end",
        "tests.conformance.test_link.AttachTests.test_terminus_defaults_on_the_wire",
    ),
    "L-12": Proof(
        "a re-attach with another mode or without durability is refused; what was kept stays",
        "tests.conformance.test_resume.ResumeTests.test_another_mode",
        "tests.frontends.test_topics.DurableTests.test_not_durable_any_more",
    ),
    "L-13": Proof(
        "distribution-mode move takes a message from the queue, copy leaves it there",
        "tests.frontends.test_queues.ExampleTests.test_w12_browsing",
    ),
    "L-14": Proof(
        "from the date on messages are sent, older ones are not, on queues and topics",
        "tests.broker.test_topic.NewcomerTests.test_date",
        "tests.frontends.test_queues.OptionTests.test_first_message_date",
        "tests.frontends.test_topics.AttachTests.test_dates",
    ),
    "L-15": Proof(
        "a date in the future is lowered to now in the answer; the minimum gives what is kept",
        "tests.frontends.test_queues.OptionTests.test_first_message_date",
        "tests.frontends.test_topics.AttachTests.test_dates",
    ),
    "L-16": Proof(
        "another date at a re-attach is refused; 'only new' again means the first date",
        "tests.broker.test_topic.DurableTests.test_other_date",
        "tests.frontends.test_topics.DurableTests.test_only_new_again",
    ),
    "L-17": Proof(
        "selectors are known by both descriptors of each kind; an empty text selects everything",
        "tests.conformance.test_link.RefusalTests.test_selector",
        "tests.filters.test_registry.FilterSetTests.test_descriptors",
        "tests.filters.test_selector.SelectorTests.test_empty_selects_everything",
    ),
    "L-18": Proof(
        "a selector in error refuses with its place and words under any filter name",
        "tests.filters.test_grammar.RefusalTests.test_syntax",
        "tests.filters.test_registry.FilterSetTests.test_bad_values",
        "tests.filters.test_selector.SelectorTests.test_empty_selects_everything",
    ),
    "L-19": Proof(
        "with unknown link properties an answer is what it is without them, and messages go",
        "tests.conformance.test_link.AttachTests.test_unknown_properties",
    ),
    "L-20": Proof(
        "an unknown filter refuses the link; with `drop` the answer leaves it out",
        "tests.conformance.test_link.RefusalTests.test_selector",
        "tests.conformance.test_link.RefusalTests.test_unknown_filter",
        "tests.filters.test_registry.FilterSetTests.test_unknown_kinds",
        "tests.frontends.test_queues.OptionTests.test_unsupported_filter",
    ),
    "L-21": Proof(
        "while a message is with one consumer no other gets it",
        "tests.conformance.test_outcomes.OutcomeTests.test_acquired",
    ),
    "L-22": Proof(
        "first-acquirer is true on the first attempt only; acquired ones go to nobody else",
        "tests.conformance.test_messages.SectionsTests.test_first_acquirer",
        "tests.conformance.test_outcomes.OutcomeTests.test_acquired",
    ),
    "L-23": Proof(
        "whatever links come and go, a browser changes neither entries nor what others get",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.frontends.test_queues.ExampleTests.test_w12_browsing",
    ),
    "L-24": Proof(
        "what a durable browser has accepted or rejected stays with it over a restart; the "
        "rest comes",
        "tests.frontends.test_queues.ExampleTests.test_w12_browsing",
        "tests.frontends.test_topics.DurableTests.test_record",
    ),
    "L-25": Proof(
        "a browser is shown what is available; what is taken, when it is back",
        "tests.frontends.test_queues.ExampleTests.test_browser_without_credit",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.frontends.test_queues.ExampleTests.test_w12_browsing",
    ),
    "L-26": Proof(
        "what a browser was shown does not come again, and another browser still gets it",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.frontends.test_queues.ExampleTests.test_w12_browsing",
    ),
    "L-27": Proof(
        "an entry goes when the last browser that wants it has accepted or rejected it",
        "tests.broker.test_node_options.LifeTests.test_each_has_seen_it",
    ),
    "L-28": Proof(
        "released by a browser while a consumer has it, an entry comes again when it is back",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.frontends.test_queues.ExampleTests.test_w12_browsing",
    ),
    "L-29": Proof(
        "browsers and consumers share one queue, and consumers do not notice",
        "tests.frontends.test_queues.ExampleTests.test_w12_browsing",
    ),
    "L-30": Proof(
        "an attach with a terminus opens a link, and credit follows",
        "tests.conformance.test_link.AttachTests.test_sender",
    ),
    "L-31": Proof(
        "a closing detach gets one answer, before an attach is answered as well, and leaves "
        "nothing",
        "tests.conformance.test_addresses.SlowDnsTests.test_detached_while_waiting",
        "tests.conformance.test_addresses.SlowDnsTests.test_gone_while_waiting",
        "tests.conformance.test_link.DetachTests.test_close",
    ),
    "L-32": Proof(
        "a close is answered by a close, and a link that comes back without a map starts anew",
        "tests.conformance.test_link.AttachTests.test_unsettled_map_is_not_kept",
        "tests.conformance.test_link.DetachTests.test_close",
        "tests.conformance.test_resume.PublisherTests.test_closed",
        "tests.conformance.test_resume.ResumeTests.test_no_map",
    ),
    "L-33": Proof(
        "an attach without terminus finds the one that was kept, or is not-found",
        "tests.conformance.test_link.AttachTests.test_sender",
        "tests.conformance.test_link.RefusalTests.test_null_source",
        "tests.conformance.test_resume.PublisherTests.test_null_target",
        "tests.conformance.test_resume.ResumeTests.test_no_outcome",
        "tests.conformance.test_resume.ResumeTests.test_null_source",
    ),
    "L-34": Proof(
        "a refusal has a null terminus of ours, then a closing detach; pipelined transfers vanish",
        "tests.conformance.test_addresses.SlowDnsTests.test_refused_in_the_end",
        "tests.conformance.test_link.RefusalTests.test_pipelined_transfers_to_a_refused_link",
        "tests.wire.amqp10.test_link.Attaching.test_refuse",
    ),
    "L-35": Proof(
        "unknown properties and desired capabilities are ignored; offered are only ours",
        "tests.conformance.test_link.AttachTests.test_unknown_properties",
    ),
    "L-36": Proof(
        "name repeated, role opposite, handles each side's own; one in use ends the session",
        "tests.conformance.test_link.AttachTests.test_handles_are_ours",
        "tests.conformance.test_link.AttachTests.test_sender",
        "tests.conformance.test_session.SessionTests.test_handle_in_use",
    ),
    "L-37": Proof(
        "windows of begin and flow are counted, opened at half, and reported by links' flows",
        "tests.wire.amqp10.test_session.Windows.test_window_opens_in_time",
        "tests.wire.amqp10.test_session.Windows.test_link_flow_that_opens_the_window",
    ),
    "L-38": Proof(
        "our attach as sender has its delivery-count; a sender's without one is refused",
        "tests.conformance.test_errors.TableTests.test_no_delivery_count_in_attach",
        "tests.conformance.test_link.AttachTests.test_receiver",
    ),
    "L-39": Proof(
        "an attach gives no credit; nothing is sent before the first flow",
        "tests.conformance.test_flow.ReceiverTests.test_no_credit_no_traffic",
    ),
    "L-40": Proof(
        "a sender's source without outcomes is answered with all four; no source at all is taken",
        "tests.conformance.test_link.AttachTests.test_source_without_outcomes",
    ),
    "L-41": Proof(
        "a receiver without a target gets its messages",
        "tests.conformance.test_link.AttachTests.test_null_target_of_a_receiver",
    ),
    "L-42": Proof(
        "an attach whose node is unknown is refused as target and as source",
        "tests.conformance.test_link.RefusalTests.test_unknown_node",
    ),
    "L-43": Proof(
        "answers repeat source and target with what is in force",
        "tests.conformance.test_link.AttachTests.test_receiver",
        "tests.conformance.test_link.AttachTests.test_source_of_a_sender_is_echoed",
        "tests.wire.amqp10.test_link.Attaching.test_accept_echoes",
    ),
    "L-44": Proof(
        "durable, expiry-policy, timeout stand in the octets of each answer; a plain decoder reads",
        "tests.conformance.test_resume.ParkedTests.test_answer",
        "tests.conformance.test_resume.ParkedTests.test_longest",
        "tests.conformance.test_link.AttachTests.test_terminus_defaults_on_the_wire",
    ),
    "L-45": Proof(
        "maps of unsettled deliveries, whole or cut, resume what was kept; unknown tags do no harm",
        "tests.conformance.test_link.AttachTests.test_unsettled_map_is_not_kept",
        "tests.conformance.test_resume.PublisherTests.test_learns",
        "tests.conformance.test_resume.ResumeTests.test_incomplete",
        "tests.conformance.test_resume.ResumeTests.test_no_outcome",
        "tests.conformance.test_resume.ResumeTests.test_only_the_receiver",
        "tests.conformance.test_resume.ResumeTests.test_our_map_does_not_fit",
        "tests.conformance.test_resume.ResumeTests.test_outcome",
        "tests.conformance.test_resume_model.ConsumerTests.test_strange_maps",
    ),
    "L-46": Proof(
        "error-mode stands in each answer, detach unless asked, and end ends the session",
        "tests.conformance.test_errors.ScopeTests.test_error_mode_detach",
        "tests.conformance.test_errors.ScopeTests.test_error_mode_end_transfer",
        "tests.conformance.test_errors.ScopeTests.test_link",
    ),
    "L-47": Proof(
        "max-message-size stands in the attach and binds both ways, in pieces as well",
        "tests.conformance.test_link.AttachTests.test_max_message_size",
        "tests.conformance.test_transfer.SizeTests.test_just_fits",
        "tests.conformance.test_transfer.SizeTests.test_too_large",
        "tests.conformance.test_transfer.SizeTests.test_too_large_for_the_receiver",
        "tests.conformance.test_transfer.SizeTests.test_too_large_in_pieces",
    ),
    "L-48": Proof(
        "the same link with another filter gets that one, for what waits too",
        "tests.broker.test_topic.DurableTests.test_other_filter",
        "tests.frontends.test_queues.OptionTests.test_filter_changed",
        "tests.frontends.test_topics.DurableTests.test_other_filter",
    ),
    "L-49": Proof(
        "the end of a node detaches its links; a relay whose link is detached attaches again",
        "tests.conformance.test_link.DetachTests.test_deleted_node",
        "tests.conformance.test_relaying.DetachedTests.test_comes_back",
    ),
    "L-50": Proof(
        "many frames, credit and its end, outcomes, parked deliveries and transactions: each "
        "at work",
        "tests.conformance.test_transfer.FramesTests.test_several_frames",
        "tests.conformance.test_flow.ReceiverTests.test_revoked",
        "tests.conformance.test_flow.ReceiverTests.test_drain",
        "tests.conformance.test_outcomes.OutcomeTests.test_acquired",
        "tests.conformance.test_resume.ParkedTests.test_detached",
        "tests.conformance.test_transactions.ExampleTests.test_w02_publish",
    ),
    "L-51": Proof(
        "without SASL a client is shown its header and closed; ANONYMOUS only where it is listed",
        "tests.conformance.test_connection.SaslTests.test_sasl_is_demanded",
        "tests.conformance.test_connection.SaslTests.test_anonymous",
        "tests.conformance.test_connection.SaslTests.test_unknown_mechanism",
    ),
    "L-52": Proof(
        "any container-id of a client is taken as it is; another's link of that name is "
        "another one",
        "tests.conformance.test_connection.OpenTests.test_container_id",
        "tests.conformance.test_link.StolenTests.test_other_container",
        "tests.frontends.test_topics.DurableTests.test_of_a_container",
    ),
    "M-01": Proof(
        "bare messages with every property, and every AMQP type by Proton, arrive octet for octet",
        "tests.conformance.test_messages.BareMessageTests.test_properties",
        "tests.integration.test_proton.MessageTests.test_every_type",
    ),
    "M-02": Proof(
        "properties and body are octet for octet the same behind one and two brokers, wide "
        "encodings too",
        "tests.conformance.test_addresses.RelayTests.test_arrives",
        "tests.conformance.test_messages.BareMessageTests.test_properties",
        "tests.conformance.test_messages.BareMessageTests.test_wide_encodings",
        "tests.conformance.test_addresses.RelayTests.test_three_hops",
    ),
    "M-03": Proof(
        "delivery-annotations end at the broker; message-annotations and footer arrive as they "
        "were sent",
        "tests.conformance.test_messages.BareMessageTests.test_footer",
        "tests.conformance.test_messages.SectionsTests.test_delivery_annotations",
        "tests.conformance.test_messages.SectionsTests.test_message_annotations",
    ),
    "M-04": Proof(
        "ttl, delivery-count and first-acquirer change and no other octet, in queues of each "
        "durability; independent decoder",
        "tests.conformance.test_messages.SectionsTests.test_delivery_count_of_the_sender",
        "tests.conformance.test_messages.SectionsTests.test_header_is_kept",
        "tests.conformance.test_messages.SectionsTests.test_what_the_broker_changes",
    ),
    "M-05": Proof(
        "large bodies go through two brokers in parts, in bounded memory, never decoded; small "
        "messages pass them",
        "tests.conformance.test_messages.BareMessageTests.test_body_of_data",
        "tests.frontends.test_large.Through.test_through",
        "tests.integration.test_large.LargeTests.test_two_hops",
        "tests.relay.test_large_message_link.LargeRelayTests.test_small_ones_pass",
        "tests.wire.amqp10.test_partial_transfer.Incoming.test_window_is_the_brake",
    ),
    "M-06": Proof(
        "every type of message-id arrives as sent; a message without properties arrives without",
        "tests.conformance.test_messages.BareMessageTests.test_message_ids",
        "tests.conformance.test_messages.BareMessageTests.test_empty_body",
    ),
    "M-07": Proof(
        "an id that is held, by type and value, is accepted and counted, not kept; per policy; "
        "peers' ids in a window",
        "tests.broker.test_node_options.DuplicateTests.test_encodings",
        "tests.broker.test_node_options.DuplicateTests.test_policies",
        "tests.conformance.test_messages.BareMessageTests.test_same_message_id",
        "tests.broker.test_node_options.DuplicateTests.test_held_only",
        "tests.broker.test_receipts.MessageIdTests.test_generations",
        "tests.broker.test_receipts.MessageIdTests.test_repetition",
    ),
    "M-08": Proof(
        "messages of many frames, and of many MiB by file, come back as sent; a limit stands in "
        "the attach",
        "tests.conformance.test_link.AttachTests.test_max_message_size",
        "tests.conformance.test_transfer.FramesTests.test_large",
        "tests.integration.test_large.LargeTests.test_commands",
        "tests.store.test_body_files.BodyTests.test_there_and_back",
        "tests.wire.amqp10.test_partial_transfer.Incoming.test_any_split",
    ),
    "M-09": Proof(
        "a queue keeps and forwards octets and number of any other format, restarts included; "
        "what routes by `to` refuses it",
        "tests.conformance.test_messages.FormatTests.test_refused_by_what_routes",
        "tests.conformance.test_messages.FormatTests.test_again",
        "tests.conformance.test_messages.FormatTests.test_in_order",
        "tests.conformance.test_messages.FormatTests.test_no_forgery",
        "tests.conformance.test_messages.FormatTests.test_no_properties",
        "tests.conformance.test_messages.FormatTests.test_not_moved_to_another_domain",
        "tests.conformance.test_messages.FormatTests.test_through_a_queue",
        "tests.frontends.test_large.Foreign.test_through",
        "tests.integration.test_formats.FormatTests.test_restart",
    ),
    "M-10": Proof(
        "all properties arrive; selectors reach standard, extension and application properties "
        "by name",
        "tests.conformance.test_messages.BareMessageTests.test_properties",
        "tests.filters.test_selector.NameTests.test_inference",
    ),
    "M-11": Proof(
        "data, value and sequence sections that are empty or null are taken and delivered as sent",
        "tests.conformance.test_messages.BareMessageTests.test_empty_body",
    ),
    "M-12": Proof(
        "selectors read the fields as amqp.NAME, properties., header. and by JMS names, hyphen "
        "or underscore",
        "tests.filters.test_selector.NameTests.test_jms_names",
        "tests.filters.test_selector.NameTests.test_standard_fields",
    ),
    "M-13": Proof(
        "an application property called amqp.* is rejected with invalid-field from clients, and "
        "taken from peers",
        "tests.services.test_provenance.ClientTests.test_reserved_names",
    ),
    "M-14": Proof(
        "selectors read the annotations x-opt-* as amqpx.*; an unknown one is null",
        "tests.filters.test_selector.NameTests.test_extensions",
    ),
    "M-15": Proof(
        "application.NAME, a.NAME and quoted names read the bare key of an application property",
        "tests.filters.test_selector.NameTests.test_delimited_names",
        "tests.filters.test_selector.NameTests.test_inference",
    ),
    "M-16": Proof(
        "an unqualified name is a standard property, then an extension, then the application's; "
        "unknown is null",
        "tests.filters.test_selector.NameTests.test_inference",
    ),
    "M-17": Proof(
        "a client's user-id is its own or granted, else unauthorized-access; a peer's is taken "
        "unchecked",
        "tests.services.test_provenance.ClientTests.test_user_id",
        "tests.services.test_provenance.PeerTests.test_user_id",
    ),
    "M-18": Proof(
        "reply-to is unchecked, and untouched here; a bare one becomes an alias when it leaves "
        "for another domain",
        "tests.services.test_reply_paths.AliasTests.test_left_alone",
        "tests.services.test_reply_paths.AliasTests.test_named",
        "tests.conformance.test_messages.BareMessageTests.test_properties",
        "tests.conformance.test_messages.BareMessageTests.test_reply_to_is_not_checked",
    ),
    "M-19": Proof(
        "correlation-ids of every type and the content fields arrive octet for octet, with "
        "Proton as well",
        "tests.conformance.test_messages.BareMessageTests.test_message_ids",
        "tests.conformance.test_messages.BareMessageTests.test_properties",
        "tests.integration.test_proton.MessageTests.test_every_type",
    ),
    "M-20": Proof(
        "priority orders by level, what was committed outlives kill -9, absolute expiry ends a "
        "life; the defaults hold",
        "tests.broker.test_consumer_cursor.PriorityTests.test_levels",
        "tests.conformance.test_messages.LifetimeTests.test_absolute",
        "tests.conformance.test_messages.SectionsTests.test_header_is_kept",
        "tests.conformance.test_messages.SectionsTests.test_no_header",
        "tests.store.test_crash.KillTests.test_kill",
    ),
    "M-21": Proof(
        "a flagged message is stored, settled and delivered at once, whatever becomes of its "
        "transaction",
        "tests.broker.test_node_options.TransactionalTests.test_all",
        "tests.frontends.test_transactions.AbroadTests.test_flagged_waits_for_the_dns",
        "tests.frontends.test_transactions.PostingTests.test_false_flag",
        "tests.frontends.test_transactions.PostingTests.test_flagged",
        "tests.frontends.test_transactions.PostingTests.test_flagged_and_refused",
    ),
    "M-22": Proof(
        "no header is a default one; no body is rejected, and taken with tolerate-missing-"
        "body; no octets are rejected",
        "tests.conformance.test_messages.SectionsTests.test_no_header",
        "tests.conformance.test_messages.ToleranceTests.test_empty_message",
        "tests.conformance.test_messages.ToleranceTests.test_missing_body",
        "tests.conformance.test_messages.ToleranceTests.test_missing_body_tolerated",
        "tests.integration.test_hostile.SessionTests.test_missing_body",
        "tests.integration.test_proton.SuspendedTests.test_malformed",
    ),
    "M-23": Proof(
        "sections leave in their order; a tolerated absent body is absent for the consumer, "
        "octet for octet",
        "tests.conformance.test_messages.SectionsTests.test_order_downstream",
        "tests.conformance.test_messages.ToleranceTests.test_missing_body_tolerated",
        "tests.test_message.MessageTests.test_absent_body_stays_absent",
        "tests.integration.test_azure.ServiceBusTests.test_missing_body",
    ),
    "M-24": Proof(
        "each kind of misrepresentation is rejected with decode-error and the link goes on; a "
        "lost frame boundary closes",
        "tests.conformance.test_messages.ToleranceTests.test_bad_annotations",
        "tests.conformance.test_messages.ToleranceTests.test_bad_header",
        "tests.conformance.test_messages.ToleranceTests.test_bad_properties",
        "tests.conformance.test_messages.ToleranceTests.test_bad_properties_elsewhere",
        "tests.conformance.test_messages.ToleranceTests.test_format_code",
        "tests.conformance.test_messages.ToleranceTests.test_frame_boundary_lost",
        "tests.conformance.test_messages.ToleranceTests.test_header_twice",
        "tests.conformance.test_messages.ToleranceTests.test_mixed_bodies",
        "tests.conformance.test_messages.ToleranceTests.test_not_described",
        "tests.conformance.test_messages.ToleranceTests.test_order",
        "tests.conformance.test_messages.ToleranceTests.test_settled",
        "tests.conformance.test_messages.ToleranceTests.test_truncated",
        "tests.integration.test_hostile.SessionTests.test_malformed_sections",
        "tests.integration.test_proton.SuspendedTests.test_malformed",
    ),
    "M-25": Proof(
        "a footer is copied and stops the insertion of `to`; unknown x-opt- annotations arrive",
        "tests.conformance.test_addresses.AliasTests.test_signed",
        "tests.conformance.test_messages.BareMessageTests.test_footer",
        "tests.conformance.test_messages.SectionsTests.test_message_annotations",
    ),
    "M-26": Proof(
        "each hop adds its container to the trace; the journal tells who sent a message, when, "
        "and its outcome",
        "tests.conformance.test_addresses.RelayTests.test_three_hops",
        "tests.relay.test_destination.OpenTests.test_trace_and_header",
        "tests.journal.test_commands.CommandTests.test_find",
    ),
    "M-27": Proof(
        "a value of each type arrives octet for octet; each round-trips and has the octets of "
        "the standard",
        "tests.conformance.test_messages.BareMessageTests.test_values",
        "tests.wire.amqp10.test_codec.PropertyTests.test_round_trip",
        "tests.wire.amqp10.test_codec.VectorTests.test_smallest_encodings",
        "tests.integration.test_proton.MessageTests.test_every_type",
    ),
    "M-28": Proof(
        "whatever Hypothesis makes of the types decodes to the same types, and encodes to the "
        "same octets again",
        "tests.wire.amqp10.test_codec.PropertyTests.test_round_trip",
        "tests.wire.amqp10.test_types.TypesTests.test_the_type_shows",
    ),
    "M-29": Proof(
        "ten subscriptions share one stored body, gone with the last; a failure counts in the "
        "header of one only",
        "tests.broker.test_topic.DurableTests.test_one_body",
        "tests.broker.test_topic.DurableTests.test_own_header",
    ),
    "M-30": Proof(
        "a message is its octets: properties and body arrive as they were sent, by one hop "
        "and by three",
        "tests.conformance.test_messages.BareMessageTests.test_properties",
        "tests.conformance.test_addresses.RelayTests.test_three_hops",
    ),
    "O-01": Proof(
        "an accepted delivery leaves the queue, and nothing goes to its dead letters",
        "tests.conformance.test_outcomes.OutcomeTests.test_accepted",
    ),
    "O-02": Proof(
        "a released delivery comes again at its old place with its delivery-count unchanged",
        "tests.conformance.test_outcomes.OutcomeTests.test_released",
    ),
    "O-03": Proof(
        "rejections by the broker have words; the receiver's go with the message to the "
        "dead-letter node",
        "tests.conformance.test_errors.ScopeTests.test_words",
        "tests.conformance.test_outcomes.OutcomeTests.test_rejected",
    ),
    "O-04": Proof(
        "an unsettled delivery stays with its link at will, until lock-timeout takes it back, "
        "settled, as a failed attempt",
        "tests.conformance.test_outcomes.OutcomeTests.test_parked",
        "tests.conformance.test_resume.ParkedTests.test_detached",
        "tests.integration.test_proton.SuspendedTests.test_detached",
        "tests.conformance.test_outcomes.LockTimeoutTests.test_dead_letter",
        "tests.conformance.test_outcomes.LockTimeoutTests.test_each_by_itself",
        "tests.conformance.test_outcomes.LockTimeoutTests.test_received_is_no_outcome",
        "tests.conformance.test_outcomes.LockTimeoutTests.test_taken_back",
        "tests.conformance.test_outcomes.LockTimeoutTests.test_too_late",
        "tests.integration.test_formats.LockTests.test_reload",
        "tests.frontends.test_large.Locked.test_on_its_way",
        "tests.frontends.test_topics.DurableTests.test_lock_timeout",
    ),
    "O-05": Proof(
        "single dispositions in any order, and ranges over settled and unknown deliveries, are "
        "taken",
        "tests.conformance.test_outcomes.DispositionTests.test_any_order",
        "tests.conformance.test_outcomes.DispositionTests.test_wide_range",
    ),
    "O-06": Proof(
        "what a link held is available again when it closes, its session ends or its connection "
        "breaks",
        "tests.conformance.test_errors.ScopeTests.test_other_links_of_an_ended_session",
        "tests.conformance.test_link.DetachTests.test_releases",
        "tests.conformance.test_resume.ParkedTests.test_closed",
        "tests.conformance.test_resume.ParkedTests.test_detached",
        "tests.conformance.test_resume.ResumeTests.test_closed_before_credit",
        "tests.conformance.test_session.SessionTests.test_end_releases",
        "tests.conformance.test_session.SessionTests.test_fault_gives_back",
        "tests.frontends.test_sender_link.LinkTests.test_detached",
        "tests.integration.test_proton.OutcomeTests.test_lost_connection",
    ),
    "O-07": Proof(
        "after a rollback deliveries are still their link's, also one that was detached meanwhile",
        "tests.conformance.test_resume.ResumeTests.test_rolled_back_meanwhile",
        "tests.frontends.test_transactions.RetirementTests.test_roll_back",
    ),
    "O-08": Proof(
        "the broker settles both ways; a receiver's unsettled outcome is answered settled, on "
        "the wire",
        "tests.conformance.test_outcomes.DispositionTests.test_settled_outcome_needs_no_answer",
        "tests.conformance.test_outcomes.DispositionTests.test_unsettled_outcome",
        "tests.conformance.test_transfer.SettlementTests.test_unsettled",
        "tests.conformance.test_outcomes.WireTests.test_answer_to_an_outcome",
    ),
    "O-09": Proof(
        "ten deliveries in one segment are settled by at most two dispositions that cover them all",
        "tests.conformance.test_transfer.SettlementTests.test_bulk",
    ),
    "O-10": Proof(
        "an accepted delivery is gone from the queue, and not dead-lettered",
        "tests.conformance.test_outcomes.OutcomeTests.test_accepted",
    ),
    "O-11": Proof(
        "released deliveries come again in their old places before later ones, delivery-count "
        "unchanged",
        "tests.conformance.test_messages.OrderTests.test_old_place",
        "tests.conformance.test_outcomes.OutcomeTests.test_released",
        "tests.broker.test_queue.OrderTests.test_released_goes_back_to_its_place",
    ),
    "O-12": Proof(
        "a rejected delivery is on the dead-letter node with reason, source and the receiver's "
        "words",
        "tests.conformance.test_outcomes.OutcomeTests.test_rejected",
    ),
    "O-13": Proof(
        "delivery-failed counts, undeliverable-here bars that link only, annotations are merged "
        "and stored",
        "tests.conformance.test_outcomes.OutcomeTests.test_modified_annotations",
        "tests.conformance.test_outcomes.OutcomeTests.test_modified_failed",
        "tests.conformance.test_outcomes.OutcomeTests.test_modified_not_failed",
        "tests.conformance.test_outcomes.OutcomeTests.test_undeliverable_here",
        "tests.broker.test_queue.OutcomeTests.test_modified",
        "tests.broker.test_queue.SharesTests.test_barred_entries_let_others_pass",
        "tests.integration.test_proton.OutcomeTests.test_undeliverable_here",
    ),
    "O-14": Proof(
        "a disposition settled without a state has the default-outcome: released, or rejected "
        "where asked for",
        "tests.conformance.test_outcomes.DefaultTests.test_settled_without_state",
        "tests.conformance.test_outcomes.DispositionTests.test_settled_without_state",
        "tests.frontends.test_sender_link.OutcomeTests.test_settled_without_outcome",
    ),
    "O-15": Proof(
        "a second, other outcome detaches with illegal-state and the first counts; the same "
        "again changes nothing",
        "tests.conformance.test_outcomes.AgreedTests.test_range",
        "tests.conformance.test_outcomes.DispositionTests.test_after_settlement",
        "tests.conformance.test_outcomes.DispositionTests.test_contradiction",
        "tests.conformance.test_outcomes.DispositionTests.test_outcome_then_settlement",
        "tests.conformance.test_outcomes.DispositionTests.test_settled_contradiction",
        "tests.frontends.test_sender_link.OutcomeTests.test_contradiction",
    ),
    "O-16": Proof(
        "a provisional outcome changes within its transaction; outside of it another one is "
        "illegal-state",
        "tests.frontends.test_transactions.RetirementTests.test_changed",
        "tests.frontends.test_transactions.RetirementTests.test_contradicted",
    ),
    "O-17": Proof(
        "the default-outcome is applied when the terminus expires or ends, not when a "
        "connection breaks before",
        "tests.conformance.test_link.DetachTests.test_default_outcome_of_an_orphan",
        "tests.conformance.test_link.DetachTests.test_lost_connection_releases",
        "tests.conformance.test_link.DetachTests.test_releases",
        "tests.conformance.test_outcomes.DefaultTests.test_orphan",
        "tests.conformance.test_resume.ParkedTests.test_default_outcome",
        "tests.conformance.test_resume.ParkedTests.test_expired",
        "tests.conformance.test_resume.ParkedTests.test_lost_connection",
        "tests.integration.test_proton.SuspendedTests.test_lost",
        "tests.integration.test_proton.SuspendedTests.test_usual",
    ),
    "O-18": Proof(
        "default-outcome released: the message is available again when its link goes",
        "tests.frontends.test_queues.OptionTests.test_each_default_outcome",
    ),
    "O-19": Proof(
        "default-outcome rejected: the message is a dead letter when its link goes",
        "tests.frontends.test_queues.OptionTests.test_each_default_outcome",
    ),
    "O-20": Proof(
        "a rejected message with x-opt-return-to goes there, once, and not to the dead letters",
        "tests.broker.test_queue.OutcomeTests.test_return_to",
        "tests.services.test_sender_reports.KindTests.test_rejected_by_a_consumer",
    ),
    "O-21": Proof(
        "default-outcome accepted: the message is gone when its link goes",
        "tests.frontends.test_queues.OptionTests.test_each_default_outcome",
    ),
    "O-22": Proof(
        "null is answered with released, what is asked for with itself, on the wire, by an "
        "independent decoder",
        "tests.conformance.test_link.AttachTests.test_receiver",
        "tests.conformance.test_outcomes.DefaultTests.test_echo",
        "tests.conformance.test_outcomes.WireTests.test_answer_to_an_attach",
    ),
    "O-23": Proof(
        "a default-outcome that the node does not admit is refused with precondition-failed; "
        "null gets one that is",
        "tests.frontends.test_queues.OptionTests.test_default_outcomes",
    ),
    "O-24": Proof(
        "rejected, expired and too often tried messages are dead letters with reason and "
        "source; none goes round",
        "tests.broker.test_queue.OutcomeTests.test_dead_letters_of_the_dead",
        "tests.conformance.test_messages.LifetimeTests.test_dead_letter",
        "tests.frontends.test_queues.OptionTests.test_each_default_outcome",
        "tests.conformance.test_outcomes.AttemptTests.test_limit",
    ),
    "O-25": Proof(
        "a message goes to its x-opt-return-to, and where that leads nowhere to the dead letters",
        "tests.broker.test_queue.OutcomeTests.test_return_to",
        "tests.broker.test_queue.OutcomeTests.test_return_to_nowhere",
        "tests.services.test_sender_reports.KindTests.test_rejected_by_a_consumer",
    ),
    "O-26": Proof(
        "each default-outcome is acted on when its link goes; a node's policy overrides it",
        "tests.frontends.test_queues.OptionTests.test_each_default_outcome",
        "tests.frontends.test_queues.OptionTests.test_default_outcomes",
    ),
    "O-27": Proof(
        "after all kinds of outcomes both ways no session or link has anything unsettled left",
        "tests.conformance.test_transfer.SettlementTests.test_nothing_leaks",
        "tests.conformance.test_transfer.SettlementTests.test_nothing_leaks_in_the_end",
    ),
    "O-28": Proof(
        "the attach reply names all four outcomes, on the wire, by an independent decoder",
        "tests.conformance.test_link.AttachTests.test_receiver",
        "tests.conformance.test_outcomes.WireTests.test_answer_to_an_attach",
    ),
    "O-29": Proof(
        "two outcomes asked for are echoed, and both have their effect",
        "tests.conformance.test_outcomes.AgreedTests.test_echo",
        "tests.conformance.test_outcomes.AgreedTests.test_inside",
    ),
    "O-30": Proof(
        "an outcome that is not supported refuses the link with not-implemented; a subset comes "
        "back in its order",
        "tests.conformance.test_link.RefusalTests.test_outcomes_not_supported",
        "tests.conformance.test_outcomes.AgreedTests.test_echo",
    ),
    "O-31": Proof(
        "an outcome outside of the agreed ones detaches with not-allowed, and what was held is "
        "available again",
        "tests.conformance.test_outcomes.AgreedTests.test_outside",
    ),
    "O-32": Proof(
        "the modes in force stand in the attach reply; deliveries are settled where mode "
        "settled was asked for",
        "tests.conformance.test_link.AttachTests.test_settle_modes",
        "tests.conformance.test_outcomes.PresettledTests.test_settled",
        "tests.conformance.test_outcomes.WireTests.test_settled_only_if_asked",
    ),
    "O-33": Proof(
        "links that come back learn the outcome of each delivery, or go on with it; models lose "
        "and double nothing",
        "tests.conformance.test_outcomes.OutcomeTests.test_parked",
        "tests.conformance.test_resume.PublisherTests.test_first",
        "tests.conformance.test_resume.PublisherTests.test_learns",
        "tests.conformance.test_resume.PublisherTests.test_lost_before_the_commit",
        "tests.conformance.test_resume.ResumeTests.test_settled_meanwhile",
        "tests.conformance.test_resume_model.ConsumerTests.test_model",
        "tests.wire.amqp10.test_resume.Sending.test_whole_story",
    ),
    "F-01": Proof(
        "no credit, no transfer; a sender beyond its credit is detached with its condition",
        "tests.conformance.test_errors.TableTests.test_credit_exceeded",
        "tests.conformance.test_flow.ReceiverTests.test_credit",
        "tests.conformance.test_flow.ReceiverTests.test_later_messages",
        "tests.conformance.test_flow.ReceiverTests.test_links_have_their_own_credit",
        "tests.conformance.test_flow.ReceiverTests.test_no_credit_no_traffic",
        "tests.conformance.test_flow.SenderTests.test_without_credit",
    ),
    "F-02": Proof(
        "credit to a node's links never adds up to more than is free; none where disk is full",
        "tests.conformance.test_flow.SenderTests.test_credit_reflects_space",
        "tests.conformance.test_flow.SenderTests.test_full",
        "tests.conformance.test_link.CapacityTests.test_space",
        "tests.conformance.test_resume.PublisherTests.test_credit",
        "tests.frontends.test_publish_gate.BrakeTests.test_closes_and_opens",
        "tests.frontends.test_publish_gate.BrakeTests.test_memory",
        "tests.integration.test_full_disk.FullDiskTests.test_floor",
        "tests.services.test_watermarks.WatermarkTests.test_hysteresis",
        "tests.broker.test_publisher_credit.PublishersTests.test_never_too_much",
        "tests.integration.test_credit.CreditTests.test_no_more_than_fits",
    ),
    "F-03": Proof(
        "a link gets `link-prefetch` or its part of the free space; a daemon refills it at half",
        "tests.conformance.test_flow.SenderTests.test_ample",
        "tests.frontends.test_receiver_link.CreditTests.test_shared_room",
        "tests.integration.test_credit.CreditTests.test_link_prefetch",
        "tests.integration.test_credit.CreditTests.test_no_more_than_fits",
        "tests.broker.test_publisher_credit.PublishersTests.test_nobody_is_left_out",
    ),
    "F-04": Proof(
        "credit taken back unused brings nothing; what set out before is taken if it fits",
        "tests.conformance.test_flow.ReceiverTests.test_revoked",
        "tests.wire.amqp10.test_link.Credit.test_revoked",
        "tests.conformance.test_flow.ReceiverTests.test_revoked_behind_a_closed_window",
        "tests.conformance.test_flow.SenderTests.test_withdrawn_by_the_broker",
        "tests.frontends.test_receiver_link.CreditTests.test_overfull",
    ),
    "F-05": Proof(
        "neither credit nor the client's incoming-window is exceeded; Proton counts too",
        "tests.conformance.test_flow.ReceiverTests.test_credit",
        "tests.conformance.test_session.WindowTests.test_remote_window",
        "tests.conformance.test_session.WindowTests.test_window_of_none",
        "tests.integration.test_proton.LinkTests.test_credit",
    ),
    "F-06": Proof(
        "a new link may use up its grace beside its credit, and not one delivery more",
        "tests.conformance.test_flow.SenderTests.test_grace_is_for_new_links",
    ),
    "F-07": Proof(
        "no flow leaves delivery-count or credit out; unlimited is ample credit, half a "
        "prefetch at least",
        "tests.conformance.test_flow.SenderTests.test_never_unlimited",
    ),
    "F-08": Proof(
        "twenty times a session's window of unsettled transfers goes through without a stall",
        "tests.conformance.test_session.WindowTests.test_never_stalls",
        "tests.wire.amqp10.test_session.Windows.test_never_stalls",
    ),
    "F-09": Proof(
        "a rollback leaves link-credit and delivery-count as its transfers left them",
        "tests.frontends.test_transactions.PostingTests.test_flow_is_not_transactional",
    ),
    "F-10": Proof(
        "drain sends what there is and gives the rest back by a flow, to Proton too",
        "tests.conformance.test_flow.ReceiverTests.test_drain",
        "tests.conformance.test_flow.ReceiverTests.test_drain_of_nothing",
        "tests.conformance.test_flow.ReceiverTests.test_echo",
        "tests.broker.test_queue.SharesTests.test_barred_entries_exhaust",
        "tests.integration.test_proton.LinkTests.test_drain",
        "tests.wire.amqp10.test_link.Credit.test_drain",
    ),
    "F-11": Proof(
        "capacity bounds the credit, and links share what is free",
        "tests.frontends.test_receiver_link.CreditTests.test_shared_room",
    ),
    "F-12": Proof(
        "credit and attaches within a transaction's time outlive its rollback",
        "tests.frontends.test_transactions.PostingTests.test_flow_is_not_transactional",
    ),
    "F-13": Proof(
        "rates, spools and memory of each contract bound its credit; others have theirs",
        "tests.conformance.test_flow.SenderTests.test_credit_reflects_space",
        "tests.frontends.test_receiver_link.CreditTests.test_shared_room",
        "tests.frontends.test_receiver_link.CreditTests.test_bytes_of_the_greediest",
        "tests.conformance.test_contract.PressureTests.test_rate",
        "tests.conformance.test_contract.PressureTests.test_more_links_are_not_more",
        "tests.conformance.test_contract.PressureTests.test_spool",
        "tests.conformance.test_contract.FloodTests.test_order_of_grants",
    ),
    "P-01": Proof(
        "a client's attach as sender is answered as receiver on the node it names, with credit",
        "tests.conformance.test_link.AttachTests.test_sender",
    ),
    "P-02": Proof(
        "a publisher gets credit through 100 messages; another sends all, attach to close, in "
        "one segment",
        "tests.conformance.test_transfer.OneOffTests.test_continuous",
        "tests.conformance.test_transfer.OneOffTests.test_everything_at_once",
    ),
    "P-03": Proof(
        "header to close in one segment: the message is stored and all is answered, behind SASL "
        "or DNS too",
        "tests.conformance.test_addresses.SlowDnsTests.test_pipelined_behind_the_attach",
        "tests.conformance.test_addresses.SlowDnsTests.test_settled_and_gone",
        "tests.conformance.test_addresses.SlowDnsTests.test_settled_and_gone_by_an_alias",
        "tests.conformance.test_connection.SaslTests.test_all_in_one_segment",
        "tests.conformance.test_transfer.OneOffTests.test_everything_at_once",
        "tests.wire.amqp10.test_connection.Opening.test_one_segment",
    ),
    "P-04": Proof(
        "a new link may send ten deliveries ahead of its credit; more detach it with "
        "transfer-limit-exceeded",
        "tests.conformance.test_flow.SenderTests.test_grace_is_for_new_links",
        "tests.conformance.test_transfer.OneOffTests.test_grace",
        "tests.conformance.test_transfer.OneOffTests.test_grace_ends",
        "tests.wire.amqp10.test_link.Credit.test_grace",
    ),
    "P-05": Proof(
        "an unsettled transfer is answered by a disposition, settled and accepted",
        "tests.conformance.test_transfer.SettlementTests.test_unsettled",
    ),
    "P-06": Proof(
        "ten batchable transfers in one segment get at most two dispositions",
        "tests.conformance.test_transfer.SettlementTests.test_bulk",
    ),
    "P-07": Proof(
        "each transfer that is not batchable is settled before the next one comes",
        "tests.conformance.test_transfer.SettlementTests.test_at_once",
    ),
    "P-08": Proof(
        "200 transfers in a window of ten find it open each time",
        "tests.conformance.test_session.WindowTests.test_never_stalls",
    ),
    "P-09": Proof(
        "outcomes named at attach: accepted or rejected come as such; without rejected it is a "
        "detach with the error",
        "tests.conformance.test_transfer.SettlementTests.test_explicit_outcome",
    ),
    "P-10": Proof(
        "transfers sent settled are stored, waiting for the DNS too, and get no disposition",
        "tests.conformance.test_addresses.SlowDnsTests.test_settled_and_gone",
        "tests.conformance.test_transfer.SettlementTests.test_settled",
        "tests.conformance.test_transfer.SettlementTests.test_settled_mode",
    ),
    "P-11": Proof(
        "with accepted the only outcome each transfer is answered accepted all the same",
        "tests.conformance.test_transfer.SettlementTests.test_only_accepted",
    ),
    "P-12": Proof(
        "an attach with a delivery-mode that is not offered is refused with not-implemented, "
        "else the mode is echoed",
        "tests.frontends.test_queues.OptionTests.test_delivery_modes",
    ),
    "P-13": Proof(
        "a wish that can be met is met, else the mode in force stands under delivery-mode",
        "tests.frontends.test_queues.OptionTests.test_delivery_modes",
    ),
    "P-14": Proof(
        "the modes in force for each value; second only for peers and for who desires the "
        "capability, else first",
        "tests.conformance.test_transfer.SettlementTests.test_capability_alone",
        "tests.conformance.test_transfer.SettlementTests.test_receiver_first",
        "tests.conformance.test_transfer.SettlementTests.test_receiver_first_ahead",
        "tests.conformance.test_transfer.SettlementTests.test_receiver_second_by_target",
        "tests.conformance.test_transfer.SettlementTests.test_receiver_second_for_peers",
        "tests.conformance.test_resume.ExactlyOnceTests.test_answer",
        "tests.conformance.test_resume.ExactlyOnceTests.test_capability",
        "tests.frontends.test_queues.OptionTests.test_delivery_modes",
        "tests.integration.test_azure.ServiceBusTests.test_send_and_receive",
        "tests.integration.test_azure.UamqpTests.test_send_and_receive",
        "tests.integration.test_proton.SuspendedTests.test_second_alone",
    ),
    "P-15": Proof(
        "at-least-once, exactly-once and, trivially, at-most-once are answered to a publisher; "
        "another mode is refused",
        "tests.frontends.test_queues.OptionTests.test_delivery_modes",
    ),
    "P-16": Proof(
        "an outcome stays unsettled until the sender settles; resent under resumption, kills "
        "included, it is there once",
        "tests.conformance.test_resume.ExactlyOnceTests.test_once",
        "tests.conformance.test_resume.PublisherTests.test_confirmed",
        "tests.conformance.test_resume.PublisherTests.test_learns",
        "tests.conformance.test_resume.PublisherTests.test_sent_again",
        "tests.conformance.test_resume_model.PublisherTests.test_model",
        "tests.frontends.test_suspended_links.RestartTests.test_confirmed",
        "tests.frontends.test_suspended_links.RestartTests.test_restart",
        "tests.integration.test_exactly_once.ExactlyOnceTests.test_kill",
    ),
    "P-17": Proof(
        "at-least-once is echoed to a sender; its transfer gets one settled disposition",
        "tests.frontends.test_queues.OptionTests.test_delivery_modes",
        "tests.conformance.test_transfer.SettlementTests.test_receiver_first",
    ),
    "P-18": Proof(
        "the reply has name, source, target, role and handle of a sender; a flow with credit "
        "follows",
        "tests.conformance.test_flow.SenderTests.test_ample",
        "tests.conformance.test_link.AttachTests.test_sender",
        "tests.conformance.test_link.AttachTests.test_source_of_a_sender_is_echoed",
    ),
    "P-19": Proof(
        "five messages sent to a queue's address are received from it, three accepted, the "
        "other two again later",
        "tests.conformance.test_examples.ExampleTests.test_w01_point_to_point",
    ),
    "P-20": Proof(
        "a message that is not durable is accepted and delivered, never in the store, whose log "
        "does not grow",
        "tests.conformance.test_transfer.SettlementTests.test_non_durable",
        "tests.conformance.test_transfer.SettlementTests.test_not_stored",
        "tests.store.test_sqlite.WorkTests.test_empty_writes_nothing",
    ),
    "P-21": Proof(
        "deliveries that set out before the broker's first flow are taken, ten beyond the "
        "credit at most",
        "tests.conformance.test_flow.SenderTests.test_grace_is_for_new_links",
    ),
    "D-01": Proof(
        "after kill -9 accepted durable messages are there, received by Proton, and the others "
        "are not",
        "tests.integration.test_proton.ConnectionTests.test_restart",
        "tests.store.test_crash.KillTests.test_kill",
        "tests.integration.test_crash.CrashTests.test_short",
    ),
    "D-02": Proof(
        "while the store is held back a durable message has no outcome; then it is accepted",
        "tests.conformance.test_transfer.SettlementTests.test_accepted_after_the_commit",
    ),
    "D-03": Proof(
        "accepted messages in memory outlive lost consumers, reloads, paging and a failing "
        "disk, all in order",
        "tests.conformance.test_messages.OrderTests.test_memory_is_kept",
        "tests.conformance.test_lifetimes.MemoryOnlyTests.test_consumers_come_to_grief",
        "tests.conformance.test_lifetimes.MemoryOnlyTests.test_disk_fails",
        "tests.conformance.test_lifetimes.MemoryOnlyTests.test_more_than_memory_holds",
        "tests.conformance.test_lifetimes.MemoryOnlyTests.test_other_bounds",
        "tests.integration.test_lifetimes.MemoryOnlyTests.test_reload",
    ),
    "D-04": Proof(
        "no header, or durable=false: accepted, delivered and never in the store",
        "tests.conformance.test_messages.SectionsTests.test_no_header",
        "tests.conformance.test_transfer.SettlementTests.test_non_durable",
        "tests.conformance.test_transfer.SettlementTests.test_not_stored",
    ),
    "D-05": Proof(
        "two messages of priority 8 overtake one of priority 1 that came before",
        "tests.frontends.test_queues.ExampleTests.test_w19_priority_and_lifetime",
    ),
    "D-06": Proof(
        "within a priority the order stays; n levels join the outermost priorities as the "
        "standard says",
        "tests.broker.test_consumer_cursor.PriorityTests.test_levels",
        "tests.broker.test_consumer_cursor.PriorityTests.test_one_level",
        "tests.frontends.test_queues.ExampleTests.test_w19_priority_and_lifetime",
        "tests.integration.test_proton_examples.ExampleTests.test_w19_priority_and_lifetime",
    ),
    "D-07": Proof(
        "after ttl or absolute expiry, the earlier, nothing is transferred; before, ttl is what "
        "is left of it",
        "tests.conformance.test_messages.LifetimeTests.test_absolute",
        "tests.conformance.test_messages.LifetimeTests.test_alive",
        "tests.conformance.test_messages.LifetimeTests.test_earlier_wins",
        "tests.conformance.test_messages.LifetimeTests.test_expired",
        "tests.conformance.test_messages.LifetimeTests.test_the_others_live",
        "tests.integration.test_proton.MessageTests.test_time_to_live",
        "tests.test_message.MessageTests.test_life",
    ),
    "D-08": Proof(
        "an expired message is not delivered, and gone from the queue",
        "tests.conformance.test_messages.LifetimeTests.test_expired",
    ),
    "D-09": Proof(
        "an acquired message outlives its expiry and can be accepted; released, it is not "
        "offered again",
        "tests.conformance.test_messages.LifetimeTests.test_acquired_stands",
        "tests.conformance.test_messages.LifetimeTests.test_released_after_expiry",
    ),
    "D-10": Proof(
        "ttl runs from arrival, through a restart too; a clock set ahead ends it sooner, one "
        "set back later",
        "tests.conformance.test_messages.LifetimeTests.test_on_arrival",
        "tests.broker.test_queue.LifeTests.test_after_a_restart",
        "tests.broker.test_clock.JumpTests.test_ahead",
        "tests.broker.test_clock.JumpTests.test_back",
    ),
    "D-11": Proof(
        "expired ones become dead letters with the reason, ttl 0 needs a ready consumer, a "
        "relay's wait counts",
        "tests.broker.test_node_options.LifeTests.test_ttl_zero",
        "tests.conformance.test_addresses.RelayTests.test_lifetime",
        "tests.conformance.test_messages.LifetimeTests.test_acquired_stands",
        "tests.conformance.test_messages.LifetimeTests.test_alive",
        "tests.conformance.test_messages.LifetimeTests.test_dead_letter",
        "tests.conformance.test_messages.LifetimeTests.test_expired",
        "tests.conformance.test_messages.LifetimeTests.test_ttl_zero",
    ),
    "D-12": Proof(
        "a producer's messages keep their order, durable or not, and behind a slow DNS answer",
        "tests.conformance.test_addresses.SlowDnsTests.test_order_behind_a_question",
        "tests.conformance.test_messages.OrderTests.test_durability_does_not_part_them",
        "tests.conformance.test_messages.OrderTests.test_in_order",
        "tests.conformance.test_transfer.FramesTests.test_cut_off",
    ),
    "D-13": Proof(
        "whatever links a state machine makes, entries go out in one order; the option is taken",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.frontends.test_queues.DynamicTests.test_options",
    ),
    "D-14": Proof(
        "fifty messages leave a queue in order, and released ones return to their places before "
        "later ones",
        "tests.conformance.test_messages.OrderTests.test_in_order",
        "tests.conformance.test_messages.OrderTests.test_old_place",
    ),
    "D-15": Proof(
        "what the store cannot write is rolled back as a whole; after kill -9 a transaction is "
        "there whole or not",
        "tests.frontends.test_transactions.PostingTests.test_store_fails",
        "tests.integration.test_transaction_crash.TransactionCrashTests.test_kill",
    ),
    "D-16": Proof(
        "queues, topics, aliases, links and durable subscriptions are there after a restart, "
        "with their options",
        "tests.services.test_node_changes.LifeTests.test_restart",
        "tests.broker.test_topic.DurableTests.test_restart",
        "tests.frontends.test_topics.DurableTests.test_restart",
    ),
    "D-17": Proof(
        "a shared body is stored once, and its row or file segment goes with its last entry",
        "tests.broker.test_topic.DurableTests.test_one_body",
        "tests.store.test_body_files.BodyTests.test_shared",
        "tests.store.test_shared.FiledTests.test_file_goes_with_the_last",
        "tests.store.test_shared.SqliteTests.test_one_body",
    ),
    "E-01": Proof(
        "what answers declare is in force: capabilities, error-mode, durability, sizes, termini",
        "tests.conformance.test_addresses.SlowDnsTests.test_settled_and_gone_by_an_alias",
        "tests.conformance.test_connection.OpenTests.test_capabilities",
        "tests.conformance.test_errors.ScopeTests.test_error_mode_detach",
        "tests.conformance.test_link.AttachTests.test_does_not_lie_about_durability",
        "tests.conformance.test_transfer.SizeTests.test_too_large_for_the_receiver",
        "tests.conformance.test_link.AttachTests.test_terminus_defaults_on_the_wire",
    ),
    "E-02": Proof(
        "what cannot be is refused at attach: domains, modes, node properties, exactly-once",
        "tests.conformance.test_addresses.SlowDnsTests.test_attach_waits",
        "tests.conformance.test_errors.TableTests.test_transactional_outcome",
        "tests.conformance.test_errors.TableTests.test_transactional_transfer",
        "tests.conformance.test_link.RefusalTests.test_distribution_mode",
        "tests.conformance.test_link.RefusalTests.test_unknown_node_properties",
        "tests.conformance.test_resume.ExactlyOnceTests.test_refused",
        "tests.conformance.test_resume.SizeTests.test_annotations",
    ),
    "E-03": Proof(
        "a fault ends its delivery, link, session or connection, and the others go on",
        "tests.conformance.test_errors.ScopeTests.test_delivery",
        "tests.conformance.test_errors.ScopeTests.test_detached_links_are_forgotten",
        "tests.conformance.test_errors.ScopeTests.test_others_do_not_notice",
        "tests.conformance.test_errors.ScopeTests.test_session",
        "tests.conformance.test_flow.SenderTests.test_beyond_capacity_settled",
        "tests.conformance.test_link.RefusalTests.test_bad_fields",
        "tests.conformance.test_session.SessionTests.test_sessions_are_independent",
        "tests.wire.amqp10.test_protocol_faults.Table.test_bad_attach",
    ),
    "E-04": Proof(
        "with error-mode end each kind of link error ends the session, else the link",
        "tests.conformance.test_errors.ScopeTests.test_error_mode_end_attach",
        "tests.conformance.test_errors.ScopeTests.test_error_mode_end_disposition",
        "tests.conformance.test_errors.ScopeTests.test_error_mode_end_flow",
        "tests.conformance.test_errors.ScopeTests.test_error_mode_end_transfer",
        "tests.conformance.test_errors.ScopeTests.test_link",
        "tests.conformance.test_errors.TableTests.test_handle_in_use",
    ),
    "E-05": Proof(
        "unknown node, right, limit, store and operator have their conditions and words",
        "tests.conformance.test_addresses.AccessTests.test_dynamic",
        "tests.conformance.test_connection.OpenTests.test_forced",
        "tests.conformance.test_errors.ScopeTests.test_words",
        "tests.conformance.test_link.RefusalTests.test_too_many_links",
        "tests.conformance.test_link.RefusalTests.test_unknown_node",
        "tests.conformance.test_transfer.SettlementTests.test_store_fails",
    ),
    "E-06": Proof(
        "a malformed frame is answered by a close; a silent peer is cut after a bounded wait",
        "tests.conformance.test_connection.FaultTests.test_silent_peer",
        "tests.wire.amqp10.test_connection.Time.test_close_is_bounded",
        "tests.conformance.test_errors.ScopeTests.test_others_do_not_notice",
    ),
    "E-07": Proof(
        "a bad begin is ended with its condition; a channel too high closes with framing-error",
        "tests.conformance.test_connection.FaultTests.test_channel_max",
        "tests.conformance.test_connection.FaultTests.test_answer_to_no_question",
        "tests.conformance.test_session.SessionTests.test_bad_begin",
        "tests.conformance.test_session.SessionTests.test_begin_without_windows",
        "tests.wire.amqp10.test_protocol_faults.Table.test_bad_begin",
    ),
    "E-08": Proof(
        "a message that cannot be read is rejected with decode-error, as Proton reads it",
        "tests.conformance.test_messages.ToleranceTests.test_format_code",
        "tests.conformance.test_messages.ToleranceTests.test_settled",
        "tests.conformance.test_messages.ToleranceTests.test_frame_boundary_lost",
        "tests.integration.test_proton.SuspendedTests.test_malformed",
    ),
    "E-09": Proof(
        "accepted, then rejected, of one delivery is illegal-state",
        "tests.conformance.test_outcomes.DispositionTests.test_contradiction",
    ),
    "E-10": Proof(
        "an outcome outside of those agreed detaches with not-allowed, and nothing is lost",
        "tests.conformance.test_outcomes.AgreedTests.test_outside",
    ),
    "E-11": Proof(
        "after a fault nothing of the stream is executed; what stood before it is",
        "tests.conformance.test_connection.FaultTests.test_before_the_fault",
        "tests.conformance.test_connection.FaultTests.test_nothing_after_the_fault",
        "tests.conformance.test_link.DetachTests.test_frames_behind_our_detach",
        "tests.conformance.test_session.SessionTests.test_discarding",
        "tests.wire.amqp10.test_session.Life.test_we_end",
    ),
    "E-12": Proof(
        "one destructive link too many is refused: locked for one, limit-exceeded for more",
        "tests.broker.test_node_options.ConsumerTests.test_fail",
        "tests.frontends.test_queues.ExampleTests.test_w20_link_limits",
    ),
    "E-13": Proof(
        "a bad management request is accepted and answered with status and words",
        "tests.services.test_management_node.ManagementTests.test_failures_are_answered",
    ),
    "E-14": Proof(
        "what is accepted outlives a kill, work is one transaction, a name routes, a topic "
        "distributes",
        "tests.integration.test_federation.FederationTests.test_restart",
        "tests.frontends.test_transactions.PostingTests.test_mixed",
        "tests.services.test_transfer.RoutingTests.test_local",
        "tests.conformance.test_topic_examples.ExampleTests.test_w05_transient_publish_subscribe",
    ),
    "E-15": Proof(
        "Proton, rhea and both of Azure's clients publish, consume and settle with a daemon",
        "tests.integration.test_proton.LinkTests.test_credit",
        "tests.integration.test_rhea.RheaTests.test_publish_and_consume",
        "tests.integration.test_rhea.RheaTests.test_outcomes",
        "tests.integration.test_azure.UamqpTests.test_send_and_receive",
        "tests.integration.test_azure.ServiceBusTests.test_send_and_receive",
    ),
    "E-16": Proof(
        "both services that may be offered are: daemons authenticate each other, and relay "
        "by domain",
        "tests.integration.test_next_hop.NextHopTests.test_open",
        "tests.integration.test_federation.FederationTests.test_transfer",
    ),
    "E-17": Proof(
        "a message goes from a client over two brokers into a queue, at once or when the "
        "second is back",
        "tests.test_journey.JourneyTests.test_there",
        "tests.test_journey.JourneyTests.test_accepted_while_beta_is_down",
    ),
    "W-01": Proof(
        "frames and Proton: five in order, three accepted, the connection lost, a new "
        "consumer gets the other two, depth 0",
        "tests.conformance.test_examples.ExampleTests.test_w01_point_to_point",
        "tests.integration.test_proton_examples.ExampleTests.test_w01_point_to_point",
    ),
    "W-02": Proof(
        "frames and Proton: nothing before the commit, the discharge settled first, "
        "nothing after fail or a lost coordinator",
        "tests.conformance.test_transactions.ExampleTests.test_w02_publish",
        "tests.integration.test_proton_examples.ExampleTests.test_w02_transactional_publish",
    ),
    "W-03": Proof(
        "frames and Proton: acquired until the commit; after a rollback still this "
        "link's, and a plain accept works",
        "tests.conformance.test_transactions.ExampleTests.test_w03_accept",
        "tests.integration.test_proton_examples.ExampleTests.test_w03_transactional_accept",
    ),
    "W-04": Proof(
        "frames only: transfer with id and no outcome, drain answered on the empty queue, "
        "commit keeps, rollback frees",
        "tests.conformance.test_transactions.ExampleTests.test_w04_acquire",
    ),
    "W-05": Proof(
        "frames and Proton: both get three pre-settled, latecomers nothing, "
        "first-message-date 0 the history",
        "tests.conformance.test_topic_examples.ExampleTests.test_w05_transient_publish_subscribe",
        "tests.integration.test_proton_examples.ExampleTests.test_w05_transient_publish_subscribe",
    ),
    "W-06": Proof(
        "frames and Proton: 3 and 1, then 9 and 7; a bad selector invalid-field, an "
        "unknown filter not-implemented",
        "tests.frontends.test_queues.ExampleTests.test_w06_shared_queue_with_filters",
        "tests.integration.test_proton_examples.ExampleTests.test_w06_shared_queue_with_filters",
    ),
    "W-07": Proof(
        "at most two dispositions settle a batch of ten in full, and after 10000 sends "
        "the window is open",
        "tests.conformance.test_examples.ExampleTests.test_w07_settling_in_bulk",
        "tests.conformance.test_transfer.SettlementTests.test_bulk",
        "tests.integration.test_proton_examples.ExampleTests.test_w07_settling_in_bulk",
    ),
    "W-08": Proof(
        "frames and Proton, on one broker and over two daemons: request, reply, not-found "
        "after the detach",
        "tests.conformance.test_examples.ExampleTests.test_w08_rpc",
        "tests.conformance.test_examples.ExampleTests.test_w08_rpc_across_brokers",
        "tests.integration.test_proton_examples.ExampleTests.test_w08_rpc",
        "tests.integration.test_proton_federation.FederatedTests.test_w08_rpc_across_brokers",
    ),
    "W-09": Proof(
        "frames and Proton: filter, deletion of binding and queue, and five of ten each "
        "for a binding and a consumer",
        "tests.conformance.test_topic_examples.ExampleTests.test_w09_bindings",
        "tests.integration.test_proton_examples.ExampleTests.test_w09_bindings",
        "tests.integration.test_proton_topics.TopicTests.test_bindings",
    ),
    "W-10": Proof(
        "frames and Proton: ninety once each, the idle one none, each active one between 36 and 54",
        "tests.conformance.test_examples.ExampleTests.test_w10_backlog",
        "tests.conformance.test_examples.ExampleTests.test_w10_shared_work_queue",
        "tests.frontends.test_queues.ExampleTests.test_w10_shared_work_queue",
        "tests.integration.test_proton_examples.ExampleTests.test_w10_shared_work_queue",
    ),
    "W-11": Proof(
        "frames: echo, each outcome, not-allowed, illegal-state; Proton the same but for the last",
        "tests.conformance.test_examples.ExampleTests.test_w11_consuming",
        "tests.frontends.test_queues.ExampleTests.test_w11_consuming",
        "tests.integration.test_proton_examples.ExampleTests.test_w11_consuming",
    ),
    "W-12": Proof(
        "frames and Proton: a browser sees three and one again, the depth stays, a new "
        "browser sees what is not taken",
        "tests.frontends.test_queues.ExampleTests.test_w12_browsing",
        "tests.integration.test_proton_examples.ExampleTests.test_w12_browsing",
    ),
    "W-13": Proof(
        "daemons over TLS: accepted while beta is down, then in order, octets and to "
        "unchanged; a wrong certificate hears nothing",
        "tests.integration.test_federation.FederationTests.test_transfer",
        "tests.integration.test_federation.FederationTests.test_wrong_certificate",
        "tests.integration.test_proton_federation.FederatedTests.test_w13_federated_transfer",
        "tests.integration.test_proton_federation.FederatedTests.test_w13_wrong_certificate",
        "tests.network.test_hosts.HostsTests.test_three",
    ),
    "W-14": Proof(
        "daemons killed and wires cut in the middle lose nothing and repeat nothing; the "
        "second target is used; '.' refused",
        "tests.conformance.test_examples.ExampleTests.test_w14_connection_lost",
        "tests.conformance.test_examples.ExampleTests.test_w14_relay_failover",
        "tests.integration.test_crash.CrashTests.test_short",
        "tests.integration.test_federation.FederationTests.test_killed_in_the_middle",
        "tests.integration.test_federation.FederationTests.test_second_target",
        "tests.integration.test_proton_federation.FederatedTests.test_w14_relay_crash_and_failover",
        "tests.network.test_faults.FaultTests.test_kills_and_cuts",
    ),
    "W-15": Proof(
        "frames and daemons: only the alias's domain, each wrong to refused with its "
        "condition, a third domain rejected",
        "tests.conformance.test_examples.ExampleTests.test_w15_aliases_and_access",
        "tests.integration.test_federation.FederationTests.test_alias_and_access",
        "tests.integration.test_proton_federation.FederatedTests.test_w15_aliases_and_access",
    ),
    "W-16": Proof(
        "raw frames and Proton: failed batch 404/424 and nothing made, each command once, "
        "both links of deleted queues detached",
        "tests.conformance.test_examples.ExampleTests.test_w16_in_a_transaction",
        "tests.conformance.test_examples.ExampleTests.test_w16_management_batch",
        "tests.integration.test_management.ProtonTests.test_w16_management_batch",
        "tests.integration.test_proton_examples.ExampleTests.test_w16_in_a_transaction",
    ),
    "W-17": Proof(
        "frames with a restart of the broker, Proton with a killed daemon: two kept, "
        "after the close nothing is kept",
        "tests.conformance.test_topic_examples.ExampleTests.test_w17_durable_subscription",
        "tests.integration.test_proton_examples.SubscriptionTests.test_w17_durable_subscription",
        "tests.integration.test_proton_topics.TopicTests.test_durable",
    ),
    "W-18": Proof(
        "frames and Proton: a new subscriber gets v2 first, then v3",
        "tests.conformance.test_topic_examples.ExampleTests.test_w18_zero_order_hold",
        "tests.integration.test_proton_examples.ExampleTests.test_w18_zero_order_hold",
        "tests.integration.test_proton_topics.TopicTests.test_last_value",
    ),
    "W-19": Proof(
        "frames and Proton: B, C, A; expired is dead-lettered with the reason; a relayed "
        "ttl arrives smaller, daemons too",
        "tests.conformance.test_examples.ExampleTests.test_w19_relayed_lifetime",
        "tests.frontends.test_queues.ExampleTests.test_w19_priority_and_lifetime",
        "tests.integration.test_proton_examples.ExampleTests.test_w19_priority_and_lifetime",
        "tests.integration.test_proton_federation.FederatedTests.test_w19_relayed_lifetime",
    ),
    "W-20": Proof(
        "frames and Proton: refused with one, waiting and promoted, browsed only with zero",
        "tests.frontends.test_queues.ExampleTests.test_w20_link_limits",
        "tests.integration.test_proton_examples.ExampleTests.test_w20_link_limits",
    ),
    "W-21": Proof(
        "frames and Proton: five faults, rejected unsettled, detached with the "
        "delivery-tag settled; a loop of two daemons",
        "tests.conformance.test_examples.ExampleTests.test_w21_routing_faults",
        "tests.integration.test_federation.FederationTests.test_loop",
        "tests.integration.test_proton_examples.ExampleTests.test_w21_routing_faults",
        "tests.integration.test_proton_federation.FederatedTests.test_w21_loop",
    ),
    "W-22": Proof(
        "header to close in one segment, raw and at a daemon's port: stored, each end "
        "answered without an error",
        "tests.conformance.test_examples.ExampleTests.test_w22_one_off_publish",
        "tests.conformance.test_transfer.OneOffTests.test_everything_at_once",
        "tests.frontends.test_receiver_link.AcceptanceTests.test_one_off",
        "tests.integration.test_handshakes.HeaderTests.test_at_once",
    ),
    "W-23": Proof(
        "detach, end by error-mode, end on a bad begin, close on a garbage frame, then "
        "TCP closed; by frames",
        "tests.conformance.test_examples.ExampleTests.test_w23_error_scope",
        "tests.integration.test_proton_examples.ExampleTests.test_w23_error_scope",
    ),
    "W-24": Proof(
        "frames and Proton: null terminus, then a closing detach with the condition, for "
        "node, service and coordinator",
        "tests.conformance.test_examples.ExampleTests.test_w24_refusals",
        "tests.conformance.test_link.RefusalTests.test_coordinator",
        "tests.integration.test_proton_examples.ExampleTests.test_w24_refusals",
    ),
    "C-01": Proof(
        "not enabled: the node is not-found and the capability is not offered, to Proton as well",
        "tests.conformance.test_distributed.AccessTests.test_disabled",
        "tests.conformance.test_distributed.BridgeTests.test_capability",
        "tests.conformance.test_examples.ExampleTests.test_w24_refusals",
        "tests.frontends.test_transactions.CoordinatorTests.test_attach",
    ),
    "C-02": Proof(
        "whoever lacks `manage` on the node is refused with unauthorized-access",
        "tests.conformance.test_distributed.AccessTests.test_right",
    ),
    "C-03": Proof(
        "an xid is format, global id and qualifier within XA's bounds; each verb as in XA's table",
        "tests.broker.test_branch_states.TableTests.test_no_xid",
        "tests.broker.test_branch_states.TableTests.test_verbs",
    ),
    "C-04": Proof(
        "a manager's calls of XA, each against a daemon, over a kill between prepare and commit",
        "tests.integration.test_xa.XaResourceTests.test_two_phases",
        "tests.integration.test_xa.XaResourceTests.test_other_calls",
        "tests.integration.test_xa.XaResourceTests.test_not_offered",
    ),
    "C-05": Proof(
        "start gives the txn-id for work on another session; suspended and ended branches take "
        "none",
        "tests.broker.test_branch_states.TableTests.test_associations",
        "tests.conformance.test_distributed.CommandTests.test_ended",
    ),
    "C-06": Proof(
        "work and coordination on different connections, by one principal; recover finds it again",
        "tests.broker.test_xa_registry.OutcomeTests.test_not_working",
        "tests.conformance.test_distributed.AccessTests.test_others",
        "tests.conformance.test_distributed.CommandTests.test_manager_gone",
        "tests.conformance.test_distributed.CommandTests.test_two_phases",
    ),
    "C-07": Proof(
        "commands to the node are answered in order; nonsense gets XAER_INVAL, no reply-to a "
        "refusal",
        "tests.conformance.test_distributed.CommandTests.test_nonsense",
        "tests.conformance.test_distributed.CommandTests.test_order",
        "tests.conformance.test_distributed.CommandTests.test_replies",
    ),
    "C-08": Proof(
        "every command and state as in the table, over kills at any moment, by Proton and "
        "operators",
        "tests.broker.test_branch_states.TableTests.test_verbs",
        "tests.broker.test_branch_states.TableTests.test_verbs_after_restart",
        "tests.broker.test_xa_registry.FailureTests.test_commit_not_written",
        "tests.broker.test_xa_registry.HeuristicTests.test_committed",
        "tests.broker.test_xa_registry.RestartTests.test_commit",
        "tests.broker.test_xa_registry.RestartTests.test_roll_back",
        "tests.conformance.test_distributed.BridgeTests.test_declare",
        "tests.conformance.test_distributed.CommandTests.test_one_phase",
        "tests.conformance.test_distributed.CommandTests.test_time_out",
        "tests.conformance.test_distributed.OperatorTests.test_commit",
        "tests.conformance.test_distributed.OperatorTests.test_roll_back",
        "tests.integration.test_distributed_crash.DocumentTests.test_script",
        "tests.integration.test_distributed_crash.KillTests.test_kill",
        "tests.integration.test_distributed_crash.TwoPhaseTests.test_commit",
        "tests.integration.test_distributed_crash.TwoPhaseTests.test_operator",
        "tests.integration.test_distributed_crash.TwoPhaseTests.test_roll_back",
    ),
    "C-09": Proof(
        "a declare with an xid joins a branch; without right, offer or xid it has its condition",
        "tests.conformance.test_distributed.BridgeTests.test_capability",
        "tests.conformance.test_distributed.BridgeTests.test_refused",
        "tests.frontends.test_transactions.CoordinatorTests.test_global_id",
    ),
    "C-10": Proof(
        "distributed is offered to those who may, promotable never, as the answer says",
        "tests.conformance.test_distributed.BridgeTests.test_capability",
    ),
    "X-01": Proof(
        "beside an open transaction each plain transfer, in two frames too, is taken or "
        "refused alone, at once",
        "tests.frontends.test_transactions.PostingTests.test_none_and_local",
    ),
    "X-02": Proof(
        "one link of one session carries transactional and plain transfers, and two "
        "transactions at a time",
        "tests.frontends.test_transactions.PostingTests.test_mixed",
    ),
    "X-03": Proof(
        "the client declares, and the broker answers with an id of its own, three times "
        "another one",
        "tests.frontends.test_transactions.CoordinatorTests.test_declare",
    ),
    "X-04": Proof(
        "a rollback gives back no credit and undoes no attach; a request to management in "
        "a transaction is rejected",
        "tests.frontends.test_transactions.PostingTests.test_flow_is_not_transactional",
        "tests.frontends.test_transactions.PostingTests.test_management",
    ),
    "X-05": Proof(
        "one commit settles postings on three links of two sessions; on another "
        "connection the id is unknown",
        "tests.frontends.test_transactions.CoordinatorTests.test_other_connection",
        "tests.frontends.test_transactions.PostingTests.test_several_links",
    ),
    "X-06": Proof(
        "a waiting consumer and the depth see nothing before the commit, and the message "
        "once after it",
        "tests.frontends.test_transactions.PostingTests.test_invisible",
    ),
    "X-07": Proof(
        "accepted, rejected, released and modified in a transaction change nothing until "
        "the commit, then each its own way",
        "tests.frontends.test_transactions.RetirementTests.test_commit",
        "tests.frontends.test_transactions.RetirementTests.test_each_outcome",
    ),
    "X-08": Proof(
        "after fail=true, or the coordinator's detach, postings never arrive and "
        "acceptances are undone",
        "tests.frontends.test_transactions.EndTests.test_coordinator_detached",
        "tests.frontends.test_transactions.PostingTests.test_rolled_back",
        "tests.frontends.test_transactions.RetirementTests.test_roll_back",
    ),
    "X-09": Proof(
        "what carries the id is committed or rolled back with it, plain transfers between "
        "do not belong to it",
        "tests.frontends.test_transactions.PostingTests.test_mixed",
    ),
    "X-10": Proof(
        "the coordinator's capabilities are exactly local, multi-txns-per-ssn and "
        "multi-ssns-per-txn; two end apart",
        "tests.frontends.test_transactions.CoordinatorTests.test_attach",
        "tests.frontends.test_transactions.CoordinatorTests.test_many_transactions",
    ),
    "X-11": Proof(
        "a store that fails rolls all back, a lost connection stops no commit, and 'kill "
        "-9' leaves all or nothing",
        "tests.frontends.test_transactions.EndTests.test_connection_lost_in_the_commit",
        "tests.frontends.test_transactions.PostingTests.test_store_fails",
        "tests.integration.test_transaction_crash.TransactionCrashTests.test_kill",
    ),
    "X-12": Proof(
        "a coordinator target is answered as one; for kinds that are not offered null "
        "target and not-implemented",
        "tests.conformance.test_link.RefusalTests.test_coordinator",
        "tests.frontends.test_transactions.CoordinatorTests.test_attach",
    ),
    "X-13": Proof(
        "a null source is taken, the real capabilities are answered, and others that were "
        "asked for refuse the link",
        "tests.conformance.test_link.RefusalTests.test_coordinator",
        "tests.frontends.test_transactions.CoordinatorTests.test_attach",
    ),
    "X-14": Proof(
        "provisional outcomes are unsettled, and acquisition on a settled link is refused "
        "with not-implemented",
        "tests.frontends.test_transactions.AcquisitionTests.test_settled_link",
        "tests.frontends.test_transactions.PostingTests.test_provisional",
    ),
    "X-15": Proof(
        "three postings get one unsettled disposition with the id and accepted",
        "tests.frontends.test_transactions.PostingTests.test_provisional",
    ),
    "X-16": Proof(
        "what cannot be honoured at the discharge rejects it with rollback, and "
        "everything of it is released",
        "tests.frontends.test_transactions.PostingTests.test_full_at_the_discharge",
        "tests.frontends.test_transactions.PostingTests.test_refused",
        "tests.frontends.test_transactions.PostingTests.test_settled_after_commit",
    ),
    "X-17": Proof(
        "nothing is settled at the retirement; after the commit one disposition from the "
        "sender settles both",
        "tests.frontends.test_transactions.RetirementTests.test_commit",
    ),
    "X-18": Proof(
        "while the store waits no disposition comes; then the commit's, then settled accepted",
        "tests.frontends.test_transactions.PostingTests.test_settled_after_commit",
    ),
    "X-19": Proof(
        "after a rollback the deliveries are still the link's and can be accepted again, "
        "plainly or in another transaction",
        "tests.frontends.test_transactions.RetirementTests.test_link_gone_and_rolled_back",
        "tests.frontends.test_transactions.RetirementTests.test_roll_back",
    ),
    "X-20": Proof(
        "acquired messages carry the id and no outcome; after commit they are the link's, "
        "after rollback anybody's",
        "tests.frontends.test_transactions.AcquisitionTests.test_accepted_in_it",
        "tests.frontends.test_transactions.AcquisitionTests.test_commit",
        "tests.frontends.test_transactions.AcquisitionTests.test_roll_back",
    ),
    "X-21": Proof(
        "what was acquired in a transaction that is rolled back is delivered to another consumer",
        "tests.frontends.test_transactions.AcquisitionTests.test_roll_back",
    ),
    "X-22": Proof(
        "a posting that is rolled back is settled released by the broker, unasked; credit "
        "stays used",
        "tests.frontends.test_transactions.PostingTests.test_flow_is_not_transactional",
        "tests.frontends.test_transactions.PostingTests.test_rolled_back",
    ),
    "X-23": Proof(
        "an unsettled declare is answered settled with an id of 1 to 32 octets; a settled "
        "one detaches",
        "tests.frontends.test_transactions.CoordinatorTests.test_declare",
        "tests.frontends.test_transactions.CoordinatorTests.test_settled_declare",
    ),
    "X-24": Proof(
        "a null global id gets an id, another one not-implemented",
        "tests.frontends.test_transactions.CoordinatorTests.test_declare",
        "tests.frontends.test_transactions.CoordinatorTests.test_global_id",
    ),
    "X-25": Proof(
        "a transfer with the id as state and unsettled is invisible until the commit and "
        "then there once",
        "tests.frontends.test_transactions.PostingTests.test_invisible",
    ),
    "X-26": Proof(
        "success is accepted, failure rejected with rollback, or a detach where rejected "
        "is not allowed; Proton commits too",
        "tests.frontends.test_transactions.CoordinatorTests.test_rejected_is_not_allowed",
        "tests.frontends.test_transactions.PostingTests.test_full_at_the_discharge",
        "tests.frontends.test_transactions.PostingTests.test_store_fails",
        "tests.integration.test_proton_transactions.ProtonTransactionTests.test_commit",
    ),
    "X-27": Proof(
        "the disposition of the discharge comes before those of the deliveries it covers",
        "tests.frontends.test_transactions.PostingTests.test_settled_after_commit",
    ),
    "X-28": Proof(
        "a posting and a retirement of one commit are settled by two dispositions of "
        "different roles",
        "tests.frontends.test_transactions.RetirementTests.test_both_directions",
    ),
    "X-29": Proof(
        "credit with id and drain on the consumer's handle: transfers carry the id, the "
        "drain is answered, unknown ids detach",
        "tests.frontends.test_transactions.AcquisitionTests.test_commit",
        "tests.frontends.test_transactions.AcquisitionTests.test_drained",
        "tests.frontends.test_transactions.CoordinatorTests.test_unknown",
    ),
    "X-30": Proof(
        "after the commit postings and retirements are settled with plain accepted, without the id",
        "tests.frontends.test_transactions.PostingTests.test_settled_after_commit",
        "tests.frontends.test_transactions.RetirementTests.test_commit",
    ),
    "X-31": Proof(
        "unknown and finished ids, 120 s of idleness, a lost link, session or connection: "
        "condition and rollback of each",
        "tests.conformance.test_errors.TableTests.test_transactional_outcome",
        "tests.conformance.test_errors.TableTests.test_transactional_transfer",
        "tests.frontends.test_transactions.CoordinatorTests.test_unknown",
        "tests.frontends.test_transactions.EndTests.test_connection_lost",
        "tests.frontends.test_transactions.EndTests.test_coordinator_detached",
        "tests.frontends.test_transactions.EndTests.test_other_coordinator_detached",
        "tests.frontends.test_transactions.EndTests.test_session_ended",
        "tests.frontends.test_transactions.EndTests.test_time_out",
        "tests.frontends.test_transactions.EndTests.test_twice",
    ),
    "K-01": Proof(
        "no alias, own-domain spelling, or to through any of four senders comes to "
        "management; x@y goes to transfer",
        "tests.conformance.test_addresses.AliasTests.test_attach",
        "tests.conformance.test_addresses.AliasTests.test_services",
        "tests.conformance.test_management.NameTests.test_no_alias_of_management",
    ),
    "K-02": Proof(
        "an absent to is supplied, an equal one in any spelling passes octet for octet, "
        "another is rejected",
        "tests.conformance.test_addresses.AliasTests.test_equal_to",
        "tests.conformance.test_addresses.AliasTests.test_missing_to",
        "tests.conformance.test_addresses.AliasTests.test_other_to",
        "tests.services.test_transfer.AliasTests.test_agrees",
        "tests.services.test_transfer.AliasTests.test_differs",
    ),
    "K-03": Proof(
        "a route is used before the DNS is asked, with daemons too; without one the "
        "domain is its own next hop",
        "tests.conformance.test_addresses.RelayTests.test_static_route",
        "tests.integration.test_federation.FederationTests.test_static_route",
        "tests.routing.test_table.RouterTests.test_dns",
    ),
    "K-04": Proof(
        "selectors are in force and echoed, unknown filters refused or, by the option, "
        "left out of the answer",
        "tests.conformance.test_link.RefusalTests.test_selector",
        "tests.conformance.test_link.RefusalTests.test_unknown_filter",
        "tests.filters.test_registry.FilterSetTests.test_unknown_kinds",
        "tests.filters.test_selector.SelectorTests.test_empty_selects_everything",
        "tests.frontends.test_queues.OptionTests.test_unsupported_filter",
    ),
    "K-05": Proof(
        "a topic gives each subscriber each message, and an empty queue becomes a topic "
        "by configuration",
        "tests.broker.test_topic.DirectoryTests.test_became",
        "tests.broker.test_topic.SubscriberTests.test_everybody_gets_everything",
    ),
    "K-06": Proof(
        "global-ids, all and off with uuid, text, binary, ulong and no id: which "
        "repetitions are kept",
        "tests.broker.test_node_options.DuplicateTests.test_policies",
    ),
    "K-07": Proof(
        "a rejected message is off its queue and on the dead-letter node with reason, "
        "source and words; Proton too",
        "tests.conformance.test_outcomes.OutcomeTests.test_rejected",
        "tests.integration.test_proton.OutcomeTests.test_reject",
    ),
    "K-08": Proof(
        "each default-outcome decides what becomes of orphans; released is the default of "
        "a move link",
        "tests.conformance.test_link.AttachTests.test_receiver",
        "tests.conformance.test_link.DetachTests.test_default_outcome_of_an_orphan",
        "tests.frontends.test_queues.OptionTests.test_each_default_outcome",
    ),
    "K-09": Proof(
        "a sender may lack a source, a receiver a target; missing outcomes are filled in",
        "tests.conformance.test_link.AttachTests.test_null_target_of_a_receiver",
        "tests.conformance.test_link.AttachTests.test_source_without_outcomes",
    ),
    "K-10": Proof(
        "malformed sections are rejected with decode-error and the session stays, as the "
        "amended M-24 has it",
        "tests.conformance.test_messages.ToleranceTests.test_format_code",
        "tests.conformance.test_messages.ToleranceTests.test_header_twice",
        "tests.conformance.test_messages.ToleranceTests.test_mixed_bodies",
        "tests.conformance.test_messages.ToleranceTests.test_order",
    ),
    "K-11": Proof(
        "several transactions, links and sessions mix with plain transfers on one connection",
        "tests.frontends.test_transactions.CoordinatorTests.test_many_transactions",
        "tests.frontends.test_transactions.PostingTests.test_mixed",
        "tests.frontends.test_transactions.PostingTests.test_several_links",
    ),
    "K-12": Proof(
        "ttl and absolute-expiry-time both expire, the earlier wins; with archive-expired "
        "false neither ends an entry",
        "tests.broker.test_node_options.LifeTests.test_not_archived",
        "tests.conformance.test_messages.LifetimeTests.test_absolute",
        "tests.conformance.test_messages.LifetimeTests.test_earlier_wins",
    ),
    "K-13": Proof(
        "our relay link's name begins with the peer's container-id, which is on record; "
        "frames, no daemon",
        "tests.conformance.test_addresses.RelayTests.test_identity",
    ),
    "K-14": Proof(
        "arrived at the very date is sent, a millisecond before is not; a future date is "
        "answered as now",
        "tests.frontends.test_queues.OptionTests.test_first_message_date",
        "tests.frontends.test_queues.OptionTests.test_first_message_date_at",
    ),
    "K-15": Proof(
        "a dynamic queue takes a durable message without a row; durable-on-transient "
        "reject gives precondition-failed",
        "tests.broker.test_node_options.DurabilityTests.test_durable_on_transient",
        "tests.frontends.test_queues.DynamicTests.test_memory_only",
    ),
    "K-16": Proof(
        "settled with a transactional state is taken from either side; after a rollback "
        "the message is available, Proton's too",
        "tests.frontends.test_transactions.PostingTests.test_settled_by_the_sender",
        "tests.frontends.test_transactions.RetirementTests.test_settled_early",
        "tests.frontends.test_transactions.RetirementTests.test_settled_early_commit",
        "tests.frontends.test_transactions.RetirementTests.test_settled_plainly",
        "tests.integration.test_proton_transactions.ProtonTransactionTests.test_receive_and_abort",
    ),
    "K-17": Proof(
        "an accept rolled back stays acquired, an acquisition rolled back is free for all",
        "tests.frontends.test_transactions.AcquisitionTests.test_accepted_in_it_and_rolled_back",
        "tests.frontends.test_transactions.AcquisitionTests.test_roll_back",
        "tests.frontends.test_transactions.RetirementTests.test_roll_back",
    ),
    "K-18": Proof(
        "the answer names exactly the four final symbols; Proton reads what it asked for "
        "back, others are refused",
        "tests.conformance.test_link.AttachTests.test_receiver",
        "tests.integration.test_proton_examples.ExampleTests.test_w11_consuming",
        "tests.integration.test_proton_examples.ExampleTests.test_w24_refusals",
    ),
    "K-19": Proof(
        "default-outcome is read, answered and acted upon when a link goes; there is no "
        "orphan-outcome",
        "tests.frontends.test_queues.OptionTests.test_each_default_outcome",
    ),
    "K-20": Proof(
        "for subscribers accept, reject and undeliverable-here confirm, release and "
        "modified offer again to the same link",
        "tests.broker.test_topic.DurableTests.test_outcomes",
        "tests.broker.test_topic.SubscriberTests.test_outcomes",
        "tests.frontends.test_topics.DeliveryTests.test_released",
    ),
    "K-21": Proof(
        "on close, no links, no messages, neither, and the end of an exclusive session "
        "each delete the node when due",
        "tests.frontends.test_queues.DynamicTests.test_close",
        "tests.frontends.test_queues.DynamicTests.test_exclusive",
        "tests.frontends.test_queues.DynamicTests.test_no_links",
        "tests.frontends.test_queues.DynamicTests.test_no_links_or_messages",
        "tests.frontends.test_queues.DynamicTests.test_no_messages",
    ),
    "K-22": Proof(
        "what comes behind our detach, refusal or end is discarded, and the connection goes on",
        "tests.conformance.test_link.DetachTests.test_frames_behind_our_detach",
        "tests.conformance.test_link.RefusalTests.test_pipelined_transfers_to_a_refused_link",
        "tests.conformance.test_session.SessionTests.test_discarding",
    ),
    "K-23": Proof(
        "publishers get all three modes, exactly-once kept over lost links and restarts; "
        "consumers are refused exactly-once",
        "tests.conformance.test_resume.ExactlyOnceTests.test_answer",
        "tests.conformance.test_resume.ExactlyOnceTests.test_refused",
        "tests.conformance.test_resume_model.PublisherTests.test_model",
        "tests.frontends.test_queues.OptionTests.test_delivery_modes",
        "tests.frontends.test_suspended_links.RestartTests.test_restart",
    ),
    "K-24": Proof(
        "the flow's handle is the consuming link's; transfer, commit and later accept are "
        "of that link",
        "tests.frontends.test_transactions.AcquisitionTests.test_commit",
    ),
    "K-25": Proof(
        "no limit by default, one of the operator's is stated and enforced; large "
        "messages cross two daemons",
        "tests.conformance.test_link.AttachTests.test_max_message_size",
        "tests.integration.test_large.LargeTests.test_two_hops",
        "tests.wire.amqp10.test_partial_transfer.Incoming.test_too_large",
    ),
    "K-26": Proof(
        "accepted waits for the store's commit, and after 'kill -9' nothing that was "
        "reported is lost",
        "tests.conformance.test_transfer.SettlementTests.test_accepted_after_the_commit",
        "tests.store.test_crash.KillTests.test_kill",
    ),
    "K-27": Proof(
        "first attempts come in order of arrival and releases in their old places, in a "
        "model of any course",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.broker.test_queue.OrderTests.test_first_in_first_out",
        "tests.broker.test_queue.OrderTests.test_released_goes_back_to_its_place",
    ),
    "K-28": Proof(
        "rejected goes back to a return address that leads somewhere, else to the dead letters",
        "tests.broker.test_queue.OutcomeTests.test_return_to",
        "tests.broker.test_queue.OutcomeTests.test_return_to_nowhere",
        "tests.services.test_sender_reports.KindTests.test_rejected_by_a_consumer",
    ),
    "K-29": Proof(
        "an unflagged request outside a transaction is taken, in one only with the flag",
        "tests.conformance.test_examples.ExampleTests.test_w16_in_a_transaction",
        "tests.frontends.test_transactions.PostingTests.test_management",
        "tests.services.test_node_changes.CommandTests.test_create_queue",
    ),
    "K-30": Proof(
        "accepted while the peer is down, after the commit only; the relay's own "
        "deliveries ask for an outcome",
        "tests.conformance.test_addresses.RelayTests.test_peer_is_down",
        "tests.conformance.test_addresses.RelayTests.test_unsettled",
        "tests.conformance.test_transfer.SettlementTests.test_accepted_after_the_commit",
        "tests.integration.test_federation.FederationTests.test_transfer",
    ),
    "K-31": Proof(
        "create or assert makes what is absent, assert gives 404 and makes nothing",
        "tests.services.test_node_changes.CommandTests.test_assert",
        "tests.services.test_node_changes.CommandTests.test_assert_changes_nothing",
        "tests.services.test_node_changes.CommandTests.test_or_assert",
    ),
    "K-32": Proof(
        "daemons talk TLS at once or by header; a wrong certificate or plain text ends it "
        "before any message",
        "tests.integration.test_federation.FederationTests.test_upgrade",
        "tests.integration.test_federation.FederationTests.test_wrong_certificate",
        "tests.net.test_tls.HandshakeTests.test_mutual",
        "tests.net.test_tls.HandshakeTests.test_plain_text",
    ),
    "K-33": Proof(
        "outcomes of a browser confirm or offer again to it alone; the queue's depth and "
        "other links see nothing",
        "tests.frontends.test_queues.ExampleTests.test_w12_browsing",
        "tests.frontends.test_topics.RestOfHouseTests.test_browsing_a_queue",
    ),
    "K-34": Proof(
        "the first acquirer is marked, the message is acquired and not the link; one link "
        "has it at a time (model)",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.conformance.test_messages.SectionsTests.test_first_acquirer",
        "tests.conformance.test_outcomes.OutcomeTests.test_acquired",
    ),
    "G-01": Proof(
        "requests sent to amqp$admin, by raw frames and by Proton, are answered; the node "
        "is a target like a queue",
        "tests.conformance.test_examples.ExampleTests.test_w16_management_batch",
        "tests.integration.test_management.ProtonTests.test_w16_management_batch",
        "tests.services.test_management_node.ManagementTests.test_is_a_target",
    ),
    "G-02": Proof(
        "a text or list of 1 to 1000 commands is one batch, run line by line; none, or "
        "more, is refused",
        "tests.services.test_command_schema.GrammarTests.test_bounds",
        "tests.services.test_command_schema.GrammarTests.test_lines",
        "tests.services.test_node_changes.BatchTests.test_order",
    ),
    "G-03": Proof(
        "a batch that fails, in a command, at the reply or in the store, leaves nodes, "
        "links and notes as they were",
        "tests.services.test_node_changes.BatchTests.test_no_room_for_the_reply",
        "tests.services.test_node_changes.BatchTests.test_nothing_before_the_commit",
        "tests.services.test_node_changes.BatchTests.test_one_fails",
        "tests.services.test_node_changes.BatchTests.test_store_fails",
    ),
    "G-04": Proof(
        "a request in a transaction is rejected with not-allowed, and with "
        "x-opt-non-transacted done at once for good",
        "tests.conformance.test_examples.ExampleTests.test_w16_in_a_transaction",
        "tests.frontends.test_transactions.PostingTests.test_management",
    ),
    "G-05": Proof(
        "the parser reads query, assert, create, delete, update and rename of each kind; "
        "GET-OPERATIONS lists them",
        "tests.services.test_command_schema.GrammarTests.test_commands",
        "tests.services.test_node_changes.CommandTests.test_self_description",
    ),
    "G-06": Proof(
        "create gives 201, 409 or 400 with the reason; with or assert 201, 200, or 409 "
        "with the differences",
        "tests.services.test_node_changes.CommandTests.test_create_queue",
        "tests.services.test_node_changes.CommandTests.test_create_refused",
        "tests.services.test_node_changes.CommandTests.test_or_assert",
    ),
    "G-07": Proof(
        "the queue goes with messages and bindings, 204 then 404; both its links get "
        "resource-deleted; if-empty, if-unused 409",
        "tests.conformance.test_examples.ExampleTests.test_w16_management_batch",
        "tests.conformance.test_management.DeleteTests.test_links_are_told",
        "tests.integration.test_management.QueueCommandTests.test_life",
        "tests.services.test_node_changes.CommandTests.test_delete",
        "tests.services.test_node_changes.CommandTests.test_delete_and_crash",
        "tests.services.test_node_changes.CommandTests.test_delete_refused",
        "tests.services.test_node_changes.CommandTests.test_delete_topic",
        "tests.services.test_node_changes.CommandTests.test_delete_waits_for_consumers",
    ),
    "G-08": Proof(
        "assert gives 200, 404, or 409 with each difference, and notes, options and nodes "
        "are the same afterwards",
        "tests.services.test_node_changes.CommandTests.test_assert",
        "tests.services.test_node_changes.CommandTests.test_assert_changes_nothing",
    ),
    "G-09": Proof(
        "options change and go back to defaults at once; the type gives 409, a bad value "
        "400, a configured node 409",
        "tests.services.test_node_changes.CommandTests.test_update",
    ),
    "G-10": Proof(
        "the messages, a consumer and what names the queue stay with it, over a restart; "
        "the old name gives 404",
        "tests.conformance.test_examples.ExampleTests.test_w16_management_batch",
        "tests.services.test_node_changes.CommandTests.test_rename",
        "tests.services.test_node_changes.CommandTests.test_rename_refused",
    ),
    "G-11": Proof(
        "name, counts and options restrict the rows, none match gives 200 and no rows; "
        "rows carry options and counts",
        "tests.services.test_node_changes.CommandTests.test_query",
        "tests.services.test_node_changes.CommandTests.test_query_by_options",
        "tests.services.test_management_node.ManagementTests.test_query_can_be_restricted",
        "tests.services.test_management_node.ManagementTests.test_query_queues",
    ),
    "G-12": Proof(
        "links with filter, subject, mode and first-message-date work, one to node@domain "
        "into the other broker; bad ones 4xx",
        "tests.conformance.test_management.LinkTests.test_into_the_relay",
        "tests.services.test_node_changes.CommandTests.test_exchanges",
        "tests.services.test_node_changes.CommandTests.test_links",
        "tests.services.test_node_changes.CommandTests.test_links_first_message_date",
        "tests.services.test_node_changes.CommandTests.test_links_refused",
    ),
    "G-13": Proof(
        "a binding is gone with 204; a client's link of that name gets detach-forced on "
        "the wire, its message is free again",
        "tests.frontends.test_link_rows.OverviewTests.test_closed_by_an_operator",
        "tests.integration.test_management.QueueCommandTests.test_links",
        "tests.services.test_node_changes.CommandTests.test_links",
    ),
    "G-14": Proof(
        "assert gives 200, 404, or 409 with each difference of ends, filter and mode; "
        "notes and bindings stay as they were",
        "tests.services.test_node_changes.CommandTests.test_assert_of_a_link",
    ),
    "G-15": Proof(
        "filter and subject change; ends, mode, temporary, first-message-date give 409, "
        "and so does a client's link",
        "tests.frontends.test_link_rows.OverviewTests.test_only_bindings_change",
        "tests.services.test_node_changes.CommandTests.test_links",
        "tests.services.test_node_changes.CommandTests.test_links_fixed",
    ),
    "G-16": Proof(
        "a binding has its new name after a restart; a client's link gives 409 and keeps "
        "its name, an unknown one 404",
        "tests.frontends.test_link_rows.OverviewTests.test_only_bindings_change",
        "tests.services.test_node_changes.CommandTests.test_links",
    ),
    "G-17": Proof(
        "rows of bindings and attached links with credit, delivery-count and unsettled "
        "(parked ones among them), by name and option",
        "tests.frontends.test_link_rows.OverviewTests.test_query",
        "tests.frontends.test_link_rows.OverviewTests.test_query_of_both",
        "tests.frontends.test_link_rows.OverviewTests.test_rows",
        "tests.services.test_node_changes.CommandTests.test_query",
    ),
    "G-18": Proof(
        "the grammar with quotes, remarks and lists, any text (Hypothesis), maps and "
        "lists of maps, by Proton too",
        "tests.integration.test_management.ProtonTests.test_w16_management_batch",
        "tests.services.test_command_schema.GrammarTests.test_any_name",
        "tests.services.test_command_schema.GrammarTests.test_any_text",
        "tests.services.test_command_schema.GrammarTests.test_commands",
        "tests.services.test_command_schema.GrammarTests.test_quotes",
        "tests.services.test_command_schema.GrammarTests.test_refused",
        "tests.services.test_command_schema.MapTests.test_read",
        "tests.services.test_node_changes.CommandTests.test_create_maps",
        "tests.services.test_node_changes.CommandTests.test_create_structured",
    ),
    "G-19": Proof(
        "Proton reads correlation-id equal to each kind of message-id, type kept, to = "
        "reply-to; else the correlation-id",
        "tests.conformance.test_management.ReplyTests.test_correlation",
        "tests.conformance.test_management.ReplyTests.test_reply_to_with_our_domain",
        "tests.services.test_management_node.ManagementTests.test_reply_belongs_to_the_request",
        ""
        "tests.services.test_management_node.ManagementTests.test_without_message_id_the_correlation_id_is_copied",
    ),
    "G-20": Proof(
        "statusCode is an int, statusDescription says why; 400, 404, 424, 501 and 507 "
        "come where they are due",
        "tests.services.test_node_changes.BatchTests.test_bad_line",
        "tests.services.test_node_changes.CommandTests.test_most_nodes",
        "tests.services.test_management_node.ManagementTests.test_failures_are_answered",
    ),
    "G-21": Proof(
        "failures are answered and link and session stay; only a body that does not "
        "decode or no usable reply-to is rejected",
        "tests.conformance.test_examples.ExampleTests.test_w16_management_batch",
        "tests.services.test_management_node.ManagementTests.test_a_broken_request_is_rejected_alone",
        "tests.services.test_management_node.ManagementTests.test_failures_are_answered",
        "tests.services.test_management_node.ManagementTests.test_reply_to_has_to_be_usable",
    ),
    "G-22": Proof(
        "move, copy and purge with filter and limit, in a batch all or none; copies keep "
        "their message-id for the duplicate rule",
        "tests.integration.test_management.QueueCommandTests.test_life",
        "tests.integration.test_management.QueueCommandTests.test_move_and_copy",
        "tests.services.test_node_changes.CommandTests.test_purge",
        "tests.services.test_message_moves.BatchTests.test_all_or_nothing",
        "tests.services.test_message_moves.BatchTests.test_in_a_batch",
        "tests.services.test_message_moves.RequestTests.test_copy",
        "tests.services.test_message_moves.RequestTests.test_duplicates",
        "tests.services.test_message_moves.RequestTests.test_filter_and_limit",
        "tests.services.test_message_moves.RequestTests.test_move",
        "tests.services.test_message_moves.RequestTests.test_refused",
        "tests.services.test_message_moves.RequestTests.test_store_fails",
    ),
    "G-23": Proof(
        "QUERY and READ work, GET-TYPES, GET-OPERATIONS and GET-ATTRIBUTES list what "
        "there is; no /management over HTTP",
        "tests.services.test_node_changes.CommandTests.test_self_description",
        "tests.services.test_management_node.ManagementTests.test_read",
    ),
    "G-24": Proof(
        "a name, node@own-domain and /queues/node mean one node in commands and on links; "
        "after rename or delete on neither",
        "tests.conformance.test_management.NameTests.test_every_spelling",
        "tests.conformance.test_management.NameTests.test_links_and_commands",
        "tests.services.test_node_changes.CommandTests.test_rename",
    ),
    "G-25": Proof(
        "each of 18 changing commands without the right gives 403, a log line, and no "
        "effect; by node pattern over the wire",
        "tests.conformance.test_management.NameTests.test_rights_by_name",
        "tests.services.test_node_changes.CommandTests.test_rights",
        "tests.services.test_node_changes.CommandTests.test_rights_of_each_command",
    ),
    "G-26": Proof(
        "aliases and routes are made, compared, listed, kept over a restart and deleted; "
        "a daemon sends by a route made so",
        "tests.integration.test_routes.RouteTests.test_made_used_kept_deleted",
        "tests.integration.test_routes.RouteTests.test_order",
        "tests.services.test_node_changes.CommandTests.test_aliases",
        "tests.services.test_node_changes.CommandTests.test_routes",
        "tests.services.test_node_changes.CommandTests.test_routes_refused",
    ),
    "G-27": Proof(
        "fifty requests in one segment have effect in their order, and each has one "
        "reply, in order",
        "tests.conformance.test_management.ReplyTests.test_once_and_in_order",
        "tests.services.test_node_changes.BatchTests.test_order",
    ),
    "N-01": Proof(
        "each subscriber gets every message; the reply says copy and topic; Proton's two "
        "subscribers get all",
        "tests.broker.test_topic.SubscriberTests.test_everybody_gets_everything",
        "tests.frontends.test_topics.AttachTests.test_defaults",
        "tests.integration.test_proton_topics.TopicTests.test_subscribers",
    ),
    "N-02": Proof(
        "a queue's two takers share its messages; the reply says move and queue, and copy where "
        "asked",
        "tests.broker.test_binding.QueueTests.test_fair",
        "tests.frontends.test_queues.OptionTests.test_distribution_mode",
    ),
    "N-03": Proof(
        "an empty queue becomes a topic by the configuration; a queue for browsers only "
        "archives what all have seen",
        "tests.broker.test_topic.DirectoryTests.test_became",
        "tests.broker.test_node_options.LifeTests.test_each_has_seen_it",
    ),
    "N-04": Proof(
        "topics and queues are attached to as source and target, and say which they are",
        "tests.frontends.test_topics.AttachTests.test_defaults",
        "tests.frontends.test_topics.AttachTests.test_target",
        "tests.frontends.test_queues.OptionTests.test_distribution_mode",
    ),
    "N-05": Proof(
        "queues called q in two brokers are two nodes: each gets what is addressed to it there",
        "tests.conformance.test_addresses.RelayTests.test_names_are_their_container_s",
    ),
    "N-06": Proof(
        "a topic takes rejected as confirmation, without dead letters; a queue acts on it",
        "tests.broker.test_topic.DurableTests.test_outcomes",
        "tests.broker.test_topic.SubscriberTests.test_outcomes",
        "tests.frontends.test_queues.ExampleTests.test_w11_consuming",
    ),
    "N-07": Proof(
        "a topic with bindings by subject does what direct and topic exchanges do; wildcards "
        "match as a reference",
        "tests.filters.test_subject.SubjectTests.test_descriptors",
        "tests.filters.test_subject.SubjectTests.test_reference",
        "tests.services.test_node_changes.CommandTests.test_exchanges",
    ),
    "N-08": Proof(
        "a message that nobody wants is accepted and dropped, or refused where the topic says so",
        "tests.broker.test_topic.SubscriberTests.test_nobody",
        "tests.broker.test_topic.SubscriberTests.test_unroutable_reject",
    ),
    "N-09": Proof(
        "bindings are made, changed, renamed and ended by command and configuration, and end "
        "with either node",
        "tests.broker.test_binding.DirectoryTests.test_deleted_node",
        "tests.broker.test_binding.DirectoryTests.test_reload",
        "tests.conformance.test_topic_examples.ExampleTests.test_w09_bindings",
        "tests.services.test_node_changes.CommandTests.test_delete",
        "tests.services.test_node_changes.CommandTests.test_links",
    ),
    "N-10": Proof(
        "bindings move or copy what their selector selects; a mode that does not fit the source "
        "is refused",
        "tests.broker.test_binding.DirectoryTests.test_refused",
        "tests.broker.test_binding.QueueTests.test_filter",
        "tests.broker.test_binding.TopicTests.test_filter",
    ),
    "N-11": Proof(
        "a binding and a consumer get five of ten messages each",
        "tests.broker.test_binding.QueueTests.test_fair",
        "tests.conformance.test_topic_examples.ExampleTests.test_w09_bindings",
    ),
    "N-12": Proof(
        "moves happen in one commit or not at all; a full target stops the binding, other "
        "domains' queues too",
        "tests.conformance.test_bindings.AbroadTests.test_connection_lost",
        "tests.conformance.test_bindings.AbroadTests.test_full",
        "tests.broker.test_binding.QueueTests.test_full",
        "tests.broker.test_binding.QueueTests.test_moves",
        "tests.broker.test_binding.QueueTests.test_store_fails",
        "tests.broker.test_binding.TopicTests.test_full",
    ),
    "N-13": Proof(
        "inbound nodes refuse receivers, outbound ones senders and `to`; dead letters pass",
        "tests.frontends.test_queues.OptionTests.test_dead_letters_pass",
        "tests.frontends.test_queues.OptionTests.test_visibility",
    ),
    "N-14": Proof(
        "attaching against the visibility is refused with not-allowed",
        "tests.frontends.test_queues.OptionTests.test_visibility",
    ),
    "N-15": Proof(
        "a dynamic node, a durable message on it included, is not found after kill -9",
        "tests.integration.test_lifetimes.DynamicTests.test_restart",
    ),
    "N-16": Proof(
        "each lifetime policy ends its node when links, messages or both are gone, and not before",
        "tests.frontends.test_queues.DynamicTests.test_after_the_connection",
        "tests.frontends.test_queues.DynamicTests.test_no_links",
        "tests.frontends.test_queues.DynamicTests.test_no_links_or_messages",
        "tests.frontends.test_queues.DynamicTests.test_no_messages",
    ),
    "N-17": Proof(
        "other sessions' links to an exclusive node are refused with resource-locked; it ends "
        "with its session",
        "tests.frontends.test_queues.DynamicTests.test_exclusive",
    ),
    "N-18": Proof(
        "options under dynamic-node-properties are in force on the new node",
        "tests.frontends.test_queues.DynamicTests.test_options",
    ),
    "N-19": Proof(
        "dynamic sources and targets get an address that others can use; one with an address is "
        "invalid-field",
        "tests.conformance.test_examples.ExampleTests.test_w08_rpc",
        "tests.frontends.test_queues.DynamicTests.test_options",
        "tests.conformance.test_link.DynamicTests.test_target",
        "tests.conformance.test_link.RefusalTests.test_dynamic_with_address",
    ),
    "N-20": Proof(
        "a dynamic node is a queue that goes with its link, or a topic where the capability "
        "asks for it",
        "tests.frontends.test_queues.DynamicTests.test_close",
        "tests.frontends.test_topics.DynamicTests.test_source",
    ),
    "N-21": Proof(
        "without a policy, and with delete-on-close, the node lives as long as its link",
        "tests.frontends.test_queues.DynamicTests.test_close",
    ),
    "N-22": Proof(
        "when the answer to detach, end or close is written the node is gone; others get "
        "not-found right behind it",
        "tests.frontends.test_queues.DynamicTests.test_close",
        "tests.conformance.test_lifetimes.DynamicTests.test_gone_before_the_answer",
        "tests.integration.test_lifetimes.DynamicTests.test_gone_before_the_answer",
    ),
    "N-23": Proof(
        "a temporary node goes with its link, an exclusive one with its session",
        "tests.frontends.test_queues.DynamicTests.test_close",
        "tests.frontends.test_queues.DynamicTests.test_exclusive",
    ),
    "N-24": Proof(
        "1000 names that a daemon gave are version 4 UUIDs, all different, every digit varying",
        "tests.integration.test_lifetimes.DynamicTests.test_names",
    ),
    "N-25": Proof(
        "newcomers get the newest messages first, one for each key, after a restart too",
        "tests.broker.test_topic.KeptTests.test_restart",
        "tests.broker.test_topic.NewcomerTests.test_for_each_key",
        "tests.broker.test_topic.NewcomerTests.test_last_value",
        "tests.conformance.test_topic_examples.ExampleTests.test_w18_zero_order_hold",
        "tests.integration.test_proton_topics.TopicTests.test_last_value",
    ),
    "N-26": Proof(
        "the examples without text, filled in: bindings, publish and subscribe, request and reply",
        "tests.conformance.test_topic_examples.ExampleTests.test_w09_bindings",
        "tests.conformance.test_topic_examples.ExampleTests.test_w05_transient_publish_subscribe",
        "tests.conformance.test_examples.ExampleTests.test_w08_rpc",
    ),
    "N-27": Proof(
        "queues, amqp$transfer and amqp$admin are attached to by name as nodes",
        "tests.conformance.test_addresses.ServiceTests.test_attach",
        "tests.services.test_management_node.ManagementTests.test_is_a_target",
        "tests.integration.test_management.ProtonTests.test_w16_management_batch",
    ),
    "N-28": Proof(
        "what the two empty entries stand for: a session acts in order, a queue keeps its order",
        "tests.conformance.test_session.SessionTests.test_order",
        "tests.broker.test_queue.OrderTests.test_first_in_first_out",
    ),
    "Q-01": Proof(
        "what is put in several batches leaves the queue object in order of arrival, and "
        "nothing is left behind",
        "tests.broker.test_queue.OrderTests.test_first_in_first_out",
    ),
    "Q-02": Proof(
        "the open names the container, and a queue of the configuration is there for "
        "producer and consumer",
        "tests.conformance.test_connection.OpenTests.test_open",
        "tests.integration.test_proton_examples.ExampleTests.test_w01_point_to_point",
    ),
    "Q-03": Proof(
        "a model (Hypothesis) of links, credit and outcomes sees each link get entries of "
        "one priority in order",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.broker.test_queue.OrderTests.test_first_in_first_out",
    ),
    "Q-04": Proof(
        "of low A and high B, C that wait, one link gets B, C, A",
        "tests.broker.test_consumer_cursor.PriorityTests.test_overtaking",
    ),
    "Q-05": Proof(
        "released entries come again first, in their old places and marked attempted, to "
        "the same link and to others (model)",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.broker.test_queue.OrderTests.test_released_goes_back_to_its_place",
    ),
    "Q-06": Proof(
        "a filter's head goes ahead to 3 and 1 while 9 and 7 stay for another link; a "
        "model with many links agrees",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.frontends.test_queues.ExampleTests.test_w06_shared_queue_with_filters",
    ),
    "Q-07": Proof(
        "queues are made by a link, by auto-create, by command and by the file, each with "
        "the right that it needs",
        "tests.conformance.test_auto_create.AutoCreateTests.test_not_made",
        "tests.frontends.test_queues.DynamicTests.test_close",
        "tests.services.test_node_changes.CommandTests.test_create_queue",
        "tests.services.test_node_changes.CommandTests.test_rights_of_each_command",
    ),
    "Q-08": Proof(
        "memory is bounded and the rest pages; durable entries are there after a restart "
        "and after any cut of the log",
        "tests.broker.test_node_options.DurabilityTests.test_collects_with_nobody_there",
        "tests.broker.test_paging.PagingTests.test_memory_is_bounded",
        "tests.broker.test_paging.PagingTests.test_restart",
        "tests.store.test_crash.CutTests.test_cut",
    ),
    "Q-09": Proof(
        "of equal message-ids, acquired, paged, on their way in or kept over a restart, "
        "one entry is held",
        "tests.broker.test_node_options.DuplicateTests.test_failed_commit",
        "tests.broker.test_node_options.DuplicateTests.test_held_only",
        "tests.broker.test_node_options.DuplicateTests.test_on_the_way",
        "tests.broker.test_node_options.DuplicateTests.test_paged_and_restarted",
        "tests.broker.test_node_options.DuplicateTests.test_while_the_backlog_is_read",
    ),
    "Q-10": Proof(
        "options of a dynamic node have the file's names and are in force; unknown keys "
        "give not-implemented, bad values invalid-field",
        "tests.frontends.test_queues.DynamicTests.test_options",
        "tests.frontends.test_queues.DynamicTests.test_refused",
    ),
    "Q-11": Proof(
        "empty, first character, at sign, 1025 octets, reserved and duplicate names are "
        "refused, in the file and in commands",
        "tests.config.test_loader.LoadsTests.test_refused",
        "tests.services.test_node_changes.CommandTests.test_create_refused",
        "tests.test_address.NameTests.test_new_names",
        "tests.test_address.NameTests.test_refused_names",
    ),
    "Q-12": Proof(
        "a dynamic node is gone with its link, its session or its connection",
        "tests.frontends.test_queues.DynamicTests.test_close",
        "tests.frontends.test_queues.DynamicTests.test_ends_with_its_session",
    ),
    "Q-13": Proof(
        "a created queue is noted in the store before the answer, and there after a "
        "restart and a kill; it goes by delete only",
        "tests.broker.test_node_options.DurabilityTests.test_collects_with_nobody_there",
        "tests.integration.test_management.QueueCommandTests.test_life",
        "tests.services.test_node_changes.BatchTests.test_store_fails",
        "tests.services.test_node_changes.LifeTests.test_restart",
    ),
    "Q-14": Proof(
        "update gives 400 or 409, attaching with other properties precondition-failed; "
        "after a restart each is what it was",
        "tests.frontends.test_queues.DynamicTests.test_unchanged",
        "tests.services.test_node_changes.CommandTests.test_temporary",
    ),
    "Q-15": Proof(
        "a full queue gives no credit, acquired entries count, freed room is granted "
        "again; what comes beyond is rejected",
        "tests.broker.test_xa_registry.CapacityTests.test_freed_within",
        "tests.frontends.test_receiver_link.CreditTests.test_full",
        "tests.frontends.test_receiver_link.CreditTests.test_overfull",
        "tests.frontends.test_transactions.PostingTests.test_makes_its_own_room",
    ),
    "Q-16": Proof(
        "three links share the room of a queue and never have more credit in sum; what "
        "two give up the third gets",
        "tests.frontends.test_receiver_link.CreditTests.test_shared_room",
    ),
    "Q-17": Proof(
        "message, force-durable and force-transient: what stands in the store and what is "
        "there after a restart",
        "tests.broker.test_node_options.DurabilityTests.test_forced",
        "tests.broker.test_node_options.DurabilityTests.test_message",
        "tests.broker.test_node_options.DurabilityTests.test_transient",
    ),
    "Q-18": Proof(
        "a dynamic queue that asks for nothing accepts a durable message and writes no row",
        "tests.frontends.test_queues.DynamicTests.test_memory_only",
        "tests.frontends.test_queues.DynamicTests.test_transient_by_default",
    ),
    "Q-19": Proof(
        "all, unsupported and only, each with flagged, transactional and plain messages: "
        "which are refused",
        "tests.broker.test_node_options.TransactionalTests.test_all",
    ),
    "Q-20": Proof(
        "with 0 a move link is refused with not-allowed and a link without mode browses, "
        "by raw frames and Proton",
        "tests.broker.test_node_options.ConsumerTests.test_none",
        "tests.frontends.test_queues.ExampleTests.test_w20_link_limits",
        "tests.integration.test_proton_examples.ExampleTests.test_w20_link_limits",
    ),
    "Q-21": Proof(
        "fail gives resource-locked or resource-limit-exceeded; with wait the longest "
        "waiting is promoted, drains are answered",
        "tests.broker.test_node_options.ConsumerTests.test_fail",
        "tests.broker.test_node_options.ConsumerTests.test_raised",
        "tests.broker.test_node_options.ConsumerTests.test_wait",
        "tests.frontends.test_queues.ExampleTests.test_stolen_place",
        "tests.frontends.test_queues.ExampleTests.test_w20_link_limits",
        "tests.integration.test_proton_examples.ExampleTests.test_w20_link_limits",
    ),
    "Q-22": Proof(
        "past its ttl an entry goes to the dead letters; with archive-expired false it is "
        "delivered a minute later",
        "tests.broker.test_node_options.LifeTests.test_archived",
        "tests.broker.test_node_options.LifeTests.test_not_archived",
    ),
    "Q-23": Proof(
        "an entry goes when each link that wants it has accepted or rejected it or left; "
        "with no link at once; paged ones too",
        "tests.broker.test_node_options.LifeTests.test_a_link_goes",
        "tests.broker.test_node_options.LifeTests.test_each_has_seen_it",
        "tests.broker.test_node_options.LifeTests.test_nobody_there",
        "tests.broker.test_node_options.LifeTests.test_paged",
        "tests.broker.test_node_options.LifeTests.test_restarted",
    ),
    "Q-24": Proof(
        "a queue without consumers collects durable and other messages over restarts, and "
        "two consumers share them",
        "tests.broker.test_node_options.DurabilityTests.test_collects_with_nobody_there",
    ),
    "Q-25": Proof(
        "a reply comes to a dynamic node that keeps nothing on the disk; after its detach "
        "the address is not-found",
        "tests.conformance.test_examples.ExampleTests.test_w08_rpc",
        "tests.frontends.test_queues.DynamicTests.test_memory_only",
    ),
    "Q-26": Proof(
        "a model (Hypothesis) of available, acquired and archived agrees with the queue "
        "over any course of links and outcomes",
        "tests.broker.test_model.QueueModelTests.test_shared",
    ),
    "Q-27": Proof(
        "each link lists the entries it holds; after its detach they go back alone, those "
        "of the other stay acquired",
        "tests.broker.test_node_options.DurabilityTests.test_held_by_a_link",
    ),
    "Q-28": Proof(
        "a second arrival of an id that is held leaves depth and entry as they were and "
        "is counted as a duplicate",
        "tests.broker.test_node_options.DuplicateTests.test_held_only",
    ),
    "Q-29": Proof(
        "of 90 messages two consumers with credit get 36 to 54 each; of a backlog taken "
        "in steps they differ by 5 at most",
        "tests.conformance.test_examples.ExampleTests.test_w10_backlog",
        "tests.frontends.test_queues.ExampleTests.test_w10_shared_work_queue",
    ),
    "Q-30": Proof(
        "an idle consumer of three gets nothing and holds nothing up; the others have all "
        "90 at once",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.frontends.test_queues.ExampleTests.test_w10_shared_work_queue",
    ),
    "Q-31": Proof(
        "twenty filters read each row once and each gets its own in order; entries that "
        "do not match stay for others",
        "tests.broker.test_consumer_cursor.ScanTests.test_credit_for_one",
        "tests.broker.test_consumer_cursor.ScanTests.test_one_reading",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.frontends.test_queues.ExampleTests.test_w06_shared_queue_with_filters",
    ),
    "Q-32": Proof(
        "with competing links each entry is with one of them until its outcome, in a "
        "model of any course",
        "tests.broker.test_model.QueueModelTests.test_shared",
    ),
    "Q-33": Proof(
        "accepted entries are gone from queue and store",
        "tests.broker.test_queue.OutcomeTests.test_accepted",
    ),
    "Q-34": Proof(
        "a connection that breaks gives back what it held; each other default-outcome "
        "does what it says, Proton too",
        "tests.conformance.test_link.DetachTests.test_lost_connection_releases",
        "tests.frontends.test_queues.OptionTests.test_each_default_outcome",
        "tests.integration.test_proton_examples.ExampleTests.test_w01_point_to_point",
    ),
    "Q-35": Proof(
        "each message goes to one link, which has credit and a filter that matches, in a "
        "model of any course",
        "tests.broker.test_model.QueueModelTests.test_shared",
        "tests.frontends.test_queues.ExampleTests.test_w06_shared_queue_with_filters",
    ),
    "Q-36": Proof(
        "definition, filter and messages of a durable subscription are there after a "
        "restart, Proton's too",
        "tests.broker.test_topic.DurableTests.test_restart",
        "tests.frontends.test_topics.DurableTests.test_restart",
        "tests.integration.test_proton_topics.TopicTests.test_durable",
    ),
    "Q-37": Proof(
        "a binding moves what is there and what comes to another queue, here or at "
        "another domain, once each",
        "tests.broker.test_binding.QueueTests.test_moves",
        "tests.conformance.test_bindings.AbroadTests.test_queue",
    ),
    "Q-38": Proof(
        "an unknown address is refused with not-found on links of both directions; with "
        "auto-create and the right, a durable queue",
        "tests.conformance.test_auto_create.AutoCreateTests.test_answered_when_durable",
        "tests.conformance.test_auto_create.AutoCreateTests.test_bounded",
        "tests.conformance.test_auto_create.AutoCreateTests.test_not_made",
        "tests.conformance.test_auto_create.AutoCreateTests.test_off",
        "tests.conformance.test_auto_create.AutoCreateTests.test_producer_and_consumer_meet",
        "tests.conformance.test_link.RefusalTests.test_unknown_node",
        "tests.integration.test_auto_create.AutoCreateTests.test_reload_and_kill",
    ),
    "S-01": Proof(
        "an unknown distribution-mode, and move on a topic, are refused with not-implemented",
        "tests.frontends.test_queues.OptionTests.test_distribution_mode",
        "tests.frontends.test_topics.AttachTests.test_move",
    ),
    "S-02": Proof(
        "null is answered with move by a queue, on the wire, and with copy by a topic",
        "tests.frontends.test_topics.AttachTests.test_defaults",
        "tests.frontends.test_queues.OptionTests.test_distribution_mode",
        "tests.conformance.test_outcomes.WireTests.test_answer_to_an_attach",
    ),
    "S-03": Proof(
        "each subscriber of a topic gets every message; a queue's takers get five of ten each",
        "tests.broker.test_binding.QueueTests.test_fair",
        "tests.broker.test_topic.SubscriberTests.test_everybody_gets_everything",
    ),
    "S-04": Proof(
        "accepted, rejected and undeliverable-here confirm; released and failed come again on "
        "that link only",
        "tests.broker.test_topic.DurableTests.test_outcomes",
        "tests.broker.test_topic.SubscriberTests.test_outcomes",
        "tests.frontends.test_topics.DeliveryTests.test_released",
    ),
    "S-05": Proof(
        "single dispositions, settled by either side, and a range leave nothing unsettled",
        "tests.frontends.test_topics.DeliveryTests.test_acknowledged",
    ),
    "S-06": Proof(
        "with one outcome listed, transfers carry it as their state, unsettled",
        "tests.frontends.test_queues.ExampleTests.test_w11_consuming",
        "tests.frontends.test_topics.DeliveryTests.test_presumed",
    ),
    "S-07": Proof(
        "with accepted as default and only outcome transfers are unsettled, but in "
        "snd-settle-mode settled; on the wire",
        "tests.conformance.test_outcomes.WireTests.test_settled_only_if_asked",
        "tests.frontends.test_topics.DeliveryTests.test_presumed",
    ),
    "S-08": Proof(
        "the reply repeats distribution-mode, outcomes and filters, which then hold",
        "tests.conformance.test_topic_examples.ExampleTests.test_w05_transient_publish_subscribe",
        "tests.frontends.test_topics.AttachTests.test_filter",
    ),
    "S-09": Proof(
        "at-most-once and snd-settle-mode settled: transfers come settled; Proton's AtMostOnce "
        "gets them all",
        "tests.frontends.test_queues.OptionTests.test_delivery_modes",
        "tests.frontends.test_topics.DeliveryTests.test_at_most_once",
        "tests.integration.test_proton_topics.TopicTests.test_subscribers",
    ),
    "S-10": Proof(
        "what was not acknowledged comes again, resumed where the client still knows it",
        "tests.frontends.test_queues.OptionTests.test_delivery_modes",
        "tests.frontends.test_topics.DurableTests.test_detached_and_back",
        "tests.frontends.test_topics.DurableTests.test_resumed",
    ),
    "S-11": Proof(
        "an outcome left unsettled by the subscriber is settled by the broker",
        "tests.frontends.test_topics.DeliveryTests.test_acknowledged",
    ),
    "S-12": Proof(
        "accepted, rejected and failed are acted on; an outcome outside of the agreed ones "
        "detaches",
        "tests.frontends.test_queues.ExampleTests.test_w11_consuming",
    ),
    "S-13": Proof(
        "a browser sees all messages of a queue, a consumer still gets them, and nothing goes "
        "by the browser",
        "tests.frontends.test_queues.ExampleTests.test_w12_browsing",
    ),
    "S-14": Proof(
        "a browser's accepted and rejected change nothing, released shows the message to it again",
        "tests.frontends.test_queues.ExampleTests.test_w12_browsing",
        "tests.frontends.test_topics.RestOfHouseTests.test_browsing_a_queue",
    ),
    "S-15": Proof(
        "each subscriber gets all; with nobody there a message is accepted and dropped; late "
        "ones get nothing old",
        "tests.broker.test_topic.SubscriberTests.test_nobody",
        "tests.conformance.test_topic_examples.ExampleTests.test_w05_transient_publish_subscribe",
    ),
    "S-16": Proof(
        "subscribers begin with what arrived from a date on: nothing, all that is kept, or a part",
        "tests.broker.test_topic.NewcomerTests.test_date",
    ),
    "S-17": Proof(
        "a body goes with the last that needs it; unreachable ones are archived where asked; "
        "history has a bound",
        "tests.broker.test_topic.DurableTests.test_one_body",
        "tests.broker.test_topic.NewcomerTests.test_bounds",
        "tests.broker.test_node_options.LifeTests.test_each_has_seen_it",
    ),
    "S-18": Proof(
        "a subscriber gets what its filter selects, and only what arrives after its attach",
        "tests.broker.test_topic.SubscriberTests.test_filter",
        "tests.broker.test_topic.SubscriberTests.test_late",
        "tests.frontends.test_topics.AttachTests.test_filter",
    ),
    "S-19": Proof(
        "a topic routes a copy into a queue of each subscription; outcomes on one leave the "
        "others; no link gets at them",
        "tests.broker.test_topic.DurableTests.test_name",
        "tests.frontends.test_topics.DurableTests.test_a_queue_for_each",
    ),
    "S-20": Proof(
        "a durable subscription outlives link and daemon, by Proton too, until its link is closed",
        "tests.conformance.test_topic_examples.ExampleTests.test_w17_durable_subscription",
        "tests.frontends.test_topics.DurableTests.test_closed",
        "tests.frontends.test_topics.DurableTests.test_null_source",
        "tests.frontends.test_topics.DurableTests.test_restart",
        "tests.frontends.test_topics.DurableTests.test_shared",
        "tests.integration.test_proton_topics.TopicTests.test_durable",
    ),
    "S-21": Proof(
        "a full buffer drops its oldest, counted, or stops the publishers; a full durable queue "
        "stops them",
        "tests.broker.test_topic.DurableTests.test_capacity",
        "tests.broker.test_topic.SubscriberTests.test_buffer",
        "tests.broker.test_topic.SubscriberTests.test_holds_publishers",
    ),
    "S-22": Proof(
        "a consumer gets a queue's messages oldest first, and the next one what was not accepted",
        "tests.conformance.test_examples.ExampleTests.test_w01_point_to_point",
    ),
    "S-23": Proof(
        "transfers carry accepted, unsettled, and nothing is dequeued before the client settles",
        "tests.frontends.test_queues.ExampleTests.test_w11_consuming",
    ),
}

PROVED.update(PROVED_09)
PROVED.update(PROVED_FILE_MESSAGE)
PROVED.update(PROVED_CLASSES)


def table() -> str:
    """Return the list as the page ``tests/REQUIREMENTS.md``."""
    lines = [
        "# Requirements and their proofs",
        "",
        "Row by row of the project's list of requirements: what the tests show that would fail if",
        "the row broke, and their names; or why there is nothing to prove. Made by",
        "`python -m tests.requirements`; a test keeps it true.",
        "",
        "| row | shown | by |",
        "|---|---|---|",
    ]
    for row, proof in sorted(PROVED.items()):
        if isinstance(proof, Unproved):
            shown, tests = f"not proved: {proof.reason}", ""
        else:
            shown, tests = proof.shows, "<br>".join(f"`{name}`" for name in proof.tests)
        lines.append(f"| {row} | {shown.replace('|', chr(92) + '|')} | {tests} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
