"""Features on delivery of EpochQueue (E31 to E43) and GoQueue (G21 to G45, G59 to G101)."""

from __future__ import annotations

from tests.support.features import Row, otherwise, outside, there

SCHEDULED = (
    there(
        "E31",
        "what waits is ordered by its time",
        "put(delay=) put(deliver_at=)",
        """fifoq/shelf::records_come_out_in_the_order_of_their_times
        fifoq/delay::records_come_in_the_order_of_their_times""",
    ),
    there(
        "E32",
        "one timer until the next is due, no polling",
        "put(delay=)",
        "fifoq/delay::one_timer_serves_every_delay_and_nobody_polls",
    ),
    there(
        "E33, E35",
        "at its time or after it, within 10 ms",
        "put(delay=) put(deliver_at=)",
        """fifoq/delay::a_record_comes_at_its_time_or_after_it_and_never_before
        fifoq/delay::on_a_clock_that_counts_milliseconds_no_record_is_early""",
    ),
    outside("E34", "the same in a cluster", "Distributed: a queue is in one process."),
    there(
        "E36-E39",
        "states: scheduled, ready, in flight, done",
        "QueueStats.delayed QueueStats.ready QueueStats.leased Delivery.state",
        "fifoq/lease::a_record_is_delayed_then_ready_then_leased_then_gone",
    ),
    there(
        "E40",
        "a nack makes it ready again",
        "Delivery.nack QueueOptions.retry_backoff",
        """fifoq/lease::a_nacked_record_is_back_at_its_place
        fifoq/retry::a_nacked_record_waits_and_others_pass""",
        "At its place and after a wait, not at the tail.",
    ),
    there(
        "E41",
        "so does a lease that ends",
        "QueueOptions.lease_seconds",
        "fifoq/lease::a_lease_ends_in_time",
    ),
    there(
        "E42",
        "the last attempt ends in the dead letters",
        "QueueOptions.max_retries",
        """fifoq/burying::a_record_is_leased_once_and_retried_so_often
        fifoq/burying::a_lease_that_ends_counts""",
    ),
    there(
        "E43",
        "what is done stays on disk until its segment goes",
        "Store.compact QueueStats.pins",
        """store/upkeep::a_segment_goes_at_once_with_its_last_record
        fifoq/compact::stats_name_the_record_that_keeps_a_segment""",
    ),
)

POSITIONS = (
    there(
        "G21, G25",
        "positions of readers, kept",
        "Queue.cursor Queue.cursors Cursor.committed",
        """fifoq/cursor::what_was_committed_is_where_the_cursor_is_after_a_crash
        fifoq/cursor_kill::no_committed_position_is_lost_by_a_kill""",
        "In the log, not in a file for each.",
    ),
    otherwise(
        "G22, G23, G79",
        "positions are committed by hand or by an interval",
        "Cursor.commit Queue.cursor",
        """fifoq/cursor::auto_commit_is_once_an_interval_and_at_the_end
        fifoq/cursor::without_auto_commit_nothing_is_committed_by_itself""",
        "By hand unless `auto_commit=` gives the seconds; 5 s are not the default.",
    ),
    there(
        "G24",
        "start at the earliest or the latest",
        "Queue.cursor",
        "fifoq/cursor::where_a_new_cursor_starts",
    ),
    there(
        "G26",
        "how far a reader is behind",
        "Cursor.lag Lag.records Lag.seconds",
        "fifoq/cursor::lag_in_records_and_seconds",
    ),
)

RELIABILITY = (
    there("G27", "ack of one record", "Delivery.ack", "fifoq/lease::an_acked_record_is_gone"),
    there(
        "G28, G32",
        "nack, and another attempt after a growing wait",
        "Delivery.nack QueueOptions.retry_backoff QueueOptions.retry_backoff_max",
        """fifoq/retry::a_nacked_record_waits_and_others_pass
        fifoq/retry::each_wait_is_about_twice_as_long_up_to_a_limit
        fifoq/retry::a_nack_may_say_how_long""",
    ),
    there(
        "G29",
        "ack of many in one commit",
        "Queue.ack_many",
        """fifoq/lease_many::many_are_leased_and_acked_in_one_commit_each
        fifoq/lease_many::a_stale_one_among_them_changes_nothing""",
    ),
    there(
        "G30",
        "what is handed out is known",
        "QueueStats.leased Delivery.state",
        """fifoq/lease::a_record_is_delayed_then_ready_then_leased_then_gone
        fifoq/burying::counts_agree_while_a_record_is_moved""",
    ),
    there(
        "G31",
        "a lease ends in time",
        "QueueOptions.lease_seconds",
        "fifoq/lease::a_lease_ends_in_time",
    ),
    there(
        "G33, G35",
        "dead letters after the last attempt, also of what kills its consumer",
        "QueueOptions.max_retries QueueStats.dead_lettered",
        """fifoq/burying::a_record_is_leased_once_and_retried_so_often
        fifoq/burying::a_record_that_kills_its_consumer_ends_there""",
    ),
    there(
        "G34",
        "dead letters of what expired",
        "QueueOptions.on_expire",
        """fifoq/expiry::what_expired_may_go_to_the_dead_letters
        fifoq/expiry::what_expired_on_disk_goes_to_the_dead_letters_too""",
    ),
    there(
        "G36",
        "the queue of dead letters is made by itself",
        "Store.dead_letters",
        "fifoq/burying::the_queue_of_dead_letters_is_made_by_the_first_of_them",
    ),
)

ADVANCED = (
    otherwise(
        "G37, G38",
        "a timer wheel with a constant cost",
        "put(delay=)",
        """fifoq/shelf::records_come_out_in_the_order_of_their_times
        fifoq/shelf::a_record_that_waits_needs_few_bytes
        fifoq/delay::many_delayed_records_need_little_memory""",
        "A heap and one timer of the loop: exact, with no ticks. An insert costs the logarithm of "
        "how many wait.",
    ),
    there(
        "G39",
        "delays survive a restart",
        "put(delay=)",
        "fifoq/delay::a_delay_survives_a_reopen",
    ),
    there(
        "G40",
        "lanes by priority",
        "put(priority=) QueueOptions.priorities",
        "fifoq/lanes::urgent_records_come_first_and_each_lane_is_in_order",
    ),
    there(
        "G41",
        "lanes take turns by weights",
        "QueueOptions.priority_weights",
        """fifoq/lanes::weights_share_the_turns
        fifoq/lanes::turns_follow_the_weights_of_those_who_wait""",
    ),
    there(
        "G42",
        "nobody starves",
        "QueueOptions.priority_aging",
        "fifoq/lanes::who_waits_long_moves_up",
    ),
    otherwise(
        "G43",
        "a trace id for each record",
        "Key put(headers=)",
        """fifoq/explain::every_hand_out_is_told_and_how_it_ended
        fifoq/put::headers_are_kept_when_a_taken_record_returns""",
        "The key is what a record is traced by; an id from elsewhere is a header of the caller's.",
    ),
    there(
        "G44, G45",
        "what became of a record, on request",
        "Store.explain Explanation Event",
        """fifoq/explain::every_hand_out_is_told_and_how_it_ended
        fifoq/explain::dead_letters_are_followed
        fifoq/explain::what_is_reclaimed_is_said_to_be_so""",
        "From the log alone, as long as it is not reclaimed; nothing is kept beside it.",
    ),
)

PRODUCERS = (
    otherwise(
        "G59-G62, G91",
        "puts are gathered: by number, bytes and time",
        "QueueOptions.buffer_size QueueOptions.buffer_bytes QueueOptions.flush_interval",
        """fifoq/life::the_buffer_is_written_by_size_bytes_or_time
        fifoq/life::queues_of_one_store_share_it""",
        "At `memory`: 100 records, 64 KiB or 0.1 s. At the stronger levels all who wait share a "
        "commit, and nobody waits by a clock for others. There is no retry of a put: it crosses "
        "no network.",
    ),
    there(
        "G63",
        "flush",
        "Queue.flush",
        "examples::a_stronger_put_and_a_flush_make_what_came_before_durable",
    ),
    there(
        "G64",
        "a key's partition by murmur3",
        "Topic.put Topic.partition_of",
        """fifoq/topic::the_hash_is_the_published_one
        fifoq/topic::a_key_has_its_partition_and_its_records_their_order""",
    ),
    there(
        "G65",
        "without a key partitions take turns",
        "Topic.put",
        "fifoq/topic::without_a_key_partitions_take_turns",
    ),
    there(
        "G66",
        "a partition that is named",
        "Topic.put",
        "fifoq/topic::a_partition_may_be_named",
    ),
    there(
        "G67, G68",
        "put without waiting for the disk, or with",
        "put(durability=) Queue.put_nowait Queue.submit",
        """fifoq/put::a_put_returns_when_its_level_is_reached
        fifoq/life::a_receipt_tells_every_outcome""",
    ),
    outside("G69", "puts that wait for replicas", "Distributed: there are none."),
)

CONSUMERS = (
    otherwise(
        "G70-G72, G84",
        "members, heartbeats, generations, rebalancing",
        "Cursor.lease Leasing",
        """fifoq/cursor_members::each_record_goes_to_one_member_and_all_are_done
        fifoq/cursor_members::a_member_whose_task_ends_hands_its_records_over_at_once
        fifoq/cursor_members::a_member_that_ends_hands_its_keys_over
        fifoq/lease::async_with_acks_extends_and_gives_back""",
        "Members are tasks that share a cursor by leases. A task that ends is seen at once, so no "
        "heartbeat, generation or pause for the others is needed.",
    ),
    there(
        "G73",
        "wait for a record for so long",
        "Queue.take Cursor.take",
        """fifoq/take::a_take_waits_for_a_record
        fifoq/take::a_take_that_times_out_changes_nothing
        fifoq/cursor::a_timeout_and_a_cancelled_take_take_nothing""",
        "Without an end unless `timeout=` is given.",
    ),
    otherwise(
        "G74",
        "reading the partitions that one was assigned",
        "Topic.partition",
        "fifoq/topic::a_key_has_its_partition_and_its_records_their_order",
        "A partition is a queue: whoever reads it opens it. Nobody assigns them.",
    ),
    there(
        "G75",
        "many at once",
        "Queue.lease_many Queue.take_many Cursor.take_many",
        """fifoq/lease_many::no_more_than_was_asked_for_and_at_least_one
        fifoq/cursor::take_many_is_bounded_by_count_and_bytes""",
    ),
    there(
        "G76",
        "ack, nack, reject",
        "Delivery.ack Delivery.nack Delivery.reject",
        """fifoq/lease::an_acked_record_is_gone
        fifoq/retry::a_nacked_record_waits_and_others_pass
        fifoq/burying::a_rejected_record_is_in_the_dead_letters""",
    ),
    there(
        "G77",
        "a lease of 30 seconds",
        "QueueOptions.lease_seconds",
        "fifoq/lease::a_lease_lasts_thirty_seconds_unless_it_says_otherwise",
    ),
    there(
        "G78, G83",
        "a lease that ends counts, goes to another consumer, and at last to the dead letters",
        "QueueOptions.lease_seconds QueueOptions.max_retries Delivery.attempt",
        """fifoq/lease::a_lease_ends_in_time
        fifoq/burying::a_lease_that_ends_counts""",
    ),
    there(
        "G80",
        "the position is what is acked without a gap",
        "QueueStats.ack_floor Cursor.position",
        """fifoq/lease::the_ack_floor_is_below_the_first_record_that_is_not_acked
        fifoq/cursor_members::the_position_is_the_ack_floor_and_what_is_done_above_it_is_kept""",
    ),
    there(
        "G81",
        "a put returns partition and number",
        "Topic.put Topic.put_many",
        """fifoq/topic::a_key_has_its_partition_and_its_records_their_order
        fifoq/topic::many_records_are_one_commit_over_partitions""",
    ),
    there(
        "G82",
        "read on from the committed position, work, commit",
        "Cursor.take Cursor.commit",
        """fifoq/cursor::what_was_committed_is_where_the_cursor_is_after_a_crash
        fifoq/cursor::what_was_taken_last_counts_once_somebody_takes_again""",
        "Without joining a group.",
    ),
)

FORMATS = (
    otherwise(
        "G85, G86",
        "layout of messages and of their index",
        "docs/reference/format.md",
        """store/format_docs::a_frame_lies_as_the_page_says
        store/format_docs::an_index_lies_as_the_page_says
        store/checksum::published_values_come_out""",
        "A format of our own; CRC-32C as there.",
    ),
    otherwise(
        "G87",
        "what is kept of a record in flight",
        "Delivery.key Delivery.attempt Delivery.deadline Delivery.state",
        """fifoq/lease::leases_come_back_by_reopening_and_count_on
        fifoq/explain::every_hand_out_is_told_and_how_it_ended""",
        "Attempts and their times are in the log. Who leased it is not: consumers are tasks "
        "without names, and leases end with their process.",
    ),
    otherwise(
        "G88",
        "a tree of directories",
        "open_store",
        "store/format_docs::file_names_are_those_of_the_code",
        "One directory holds the log of all queues, so that one commit may span them.",
    ),
    outside(
        "G89", "address and port of a broker", "There is no broker: a queue is in the process."
    ),
    otherwise(
        "G90",
        "settings of storage",
        "StoreOptions.segment_bytes StoreOptions.sync_interval QueueOptions.retention",
        """fifoq/reference::every_option_is_on_the_page_with_its_default
        fifoq/holding::a_retention_by_age_lets_go_what_is_older""",
        "64 MiB and 4 KiB as there; syncs before a put returns, or every 0.1 s for the weaker "
        "levels; nothing is retained by default.",
    ),
    otherwise(
        "G92",
        "settings of consumers",
        "QueueOptions.lease_seconds QueueOptions.max_retries QueueOptions.retry_backoff",
        """fifoq/lease::a_lease_lasts_thirty_seconds_unless_it_says_otherwise
        fifoq/burying::three_retries_are_the_default_and_none_is_no_limit
        fifoq/retry::each_wait_is_about_twice_as_long_up_to_a_limit""",
        "30 s, three retries and doubling as there; no session, heartbeat or commit by itself. How "
        "many come at once is said with each call.",
    ),
    otherwise(
        "G93",
        "settings of dead letters",
        "QueueOptions.max_retries",
        """fifoq/burying::a_rejected_record_is_in_the_dead_letters
        fifoq/dead_letters::they_are_purged""",
        "On, and with the suffix `.dlq`. Not there: an age at which dead letters go; they "
        "stay until somebody replays or purges them.",
    ),
    outside("G94", "settings of a cluster", "Distributed: there is none."),
)

DETAILS = (
    otherwise(
        "G95",
        "which part may use which",
        "docs/explanation/queue.md",
        "store/architecture::imports_point_down",
        "A rule about imports in place of their table.",
    ),
    there(
        "G96",
        "each hand-out has a receipt of its own",
        "Delivery StaleLease",
        "fifoq/lease::each_hand_out_is_a_delivery_of_its_own_and_earlier_ones_are_stale",
    ),
    there(
        "G97",
        "states from waiting to acked, to another try, to the dead letters",
        "Delivery.state QueueStats.delayed",
        """fifoq/lease::a_record_is_delayed_then_ready_then_leased_then_gone
        fifoq/burying::a_record_is_leased_once_and_retried_so_often
        fifoq/delivery_model::any_life_of_a_queue_is_the_one_of_the_model""",
    ),
    there(
        "G98",
        "ends of leases in order, and leases that are made longer",
        "Delivery.extend Delivery.deadline Leasing",
        """fifoq/lease::a_lease_ends_in_time
        fifoq/lease::async_with_acks_extends_and_gives_back
        fifoq/lease::extension_ends_with_its_limit""",
        "No ticks.",
    ),
    there(
        "G99",
        "dead letters by reject, by the last attempt, by expiry if asked for",
        "Delivery.reject QueueOptions.max_retries QueueOptions.on_expire",
        """fifoq/burying::a_rejected_record_is_in_the_dead_letters
        fifoq/burying::a_record_is_leased_once_and_retried_so_often
        fifoq/expiry::what_expired_may_go_to_the_dead_letters""",
    ),
    there(
        "G100",
        "a dead letter tells its origin, key, attempts, error, time and cause",
        "DeadLetter DeadLetter.original_key DeadLetter.cause DeadLetter.traceback",
        """fifoq/burying::a_dead_letter_says_where_it_came_from_when_and_why
        fifoq/dead_letters::they_are_listed_with_what_is_known""",
        "The partition is part of the queue's name.",
    ),
    otherwise(
        "G101",
        "dead letters of a topic, with as many partitions and a longer life",
        "Store.dead_letters Topic.partition",
        "fifoq/burying::each_partition_of_a_topic_has_its_own_dead_letters",
        "Each partition has its own. Not there: an age at which they go.",
    ),
)

DELIVERY: tuple[Row, ...] = (
    *SCHEDULED,
    *POSITIONS,
    *RELIABILITY,
    *ADVANCED,
    *PRODUCERS,
    *CONSUMERS,
    *FORMATS,
    *DETAILS,
)
