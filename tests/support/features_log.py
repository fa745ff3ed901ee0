"""Features of LedgerQ 1.2 and 1.4 (L1 to L125): format, calls, retries, compression, recovery."""

from __future__ import annotations

from tests.support.features import Row, missing, otherwise, outside, there

STORAGE = (
    there(
        "L1, L60",
        "a log of segments, each of bounded size",
        "store.open_log StoreOptions.segment_bytes",
        """store/log::take_crosses_commits_and_segments_in_order
        store/upkeep::a_segment_is_left_before_it_grows_over_its_size
        store/upkeep::a_frame_larger_than_a_segment_has_one_to_itself""",
    ),
    there(
        "L2",
        "append-only log files, each with an index file",
        "docs/reference/format.md",
        "store/upkeep::a_sealed_segment_is_cut_to_its_length_and_has_an_index",
    ),
    otherwise(
        "L3",
        "file names of twenty digits",
        "docs/reference/format.md",
        """store/lookup::names_hold_twenty_digits
        store/format_docs::file_names_are_those_of_the_code""",
        "The number is the segment's own: a segment holds records of many queues, so there is no "
        "base counter to name it by.",
    ),
    there(
        "L4",
        "a new segment by size, number of records or time",
        "StoreOptions.segment_bytes StoreOptions.segment_records StoreOptions.segment_seconds",
        """store/upkeep::a_segment_is_left_before_it_grows_over_its_size
        store/upkeep::a_segment_is_left_when_it_holds_enough_records
        store/upkeep::a_segment_is_left_when_it_is_old_enough""",
    ),
    otherwise(
        "L5-L7, L14",
        "layout of an entry: length, kind, payload",
        "docs/reference/format.md",
        """store/format_docs::a_frame_lies_as_the_page_says
        store/format_docs::a_block_header_lies_as_the_page_says
        store/format_docs::columns_of_records_lie_as_the_page_says
        store/blocks::records_come_back_whole_and_in_slices""",
        "A frame is a commit, a block holds its records column by column. Kinds of blocks are "
        "records, moved records, removals, leases and states.",
    ),
    otherwise(
        "L8, L9, L69",
        "optional fields, told by flags, at no cost where unused",
        "docs/reference/format.md",
        """store/blocks::equal_times_and_unused_columns_cost_nothing
        store/format_docs::the_optional_columns_are_all_there_are
        store/blocks::kinds_and_columns_of_a_newer_version_are_refused_as_such""",
        "Flags of a block, each for a column, with bits of our own.",
    ),
    there(
        "L10",
        "numbers that rise and are never used twice",
        "Key.counter",
        """store/log::put_gives_consecutive_counters_and_take_gives_the_oldest_first
        store/log::counters_end_and_never_wrap""",
    ),
    there(
        "L11",
        "put time in nanoseconds",
        "Key.timestamp",
        "store/log::put_times_never_go_back_when_the_wall_clock_does",
    ),
    there(
        "L12, L13",
        "end of life and headers kept with a record that has them",
        "put(ttl=) put(headers=)",
        """store/log::optional_columns_come_back_from_commit_reopen_and_compaction
        fifoq/expiry::what_expired_on_disk_is_never_handed_out
        fifoq/put::headers_are_checked_kept_and_read_back""",
    ),
    there(
        "L15",
        "checksums that find damage",
        "CorruptionError",
        """store/damage::a_flipped_bit_in_any_byte
        store/frames::any_flipped_bit_is_noticed_or_lies_in_the_padding
        store/checksum::published_values_come_out""",
        "Over every byte that is committed, not over payloads alone.",
    ),
    there(
        "L16, L17",
        "layout of an index",
        "docs/reference/format.md",
        """store/format_docs::an_index_lies_as_the_page_says
        store/index::an_index_comes_back_as_it_was""",
    ),
    there(
        "L18, L19",
        "an entry for each 4 KiB; a search, then a short scan",
        "store.Log.seek store.Log.get",
        """store/index::there_is_at_most_one_entry_for_each_4_kib
        store/index::a_look_up_by_counter_starts_at_or_before_its_block""",
    ),
    outside("L20", "figures of that index", "Figures of another program."),
    otherwise(
        "L21, L22",
        "a metadata file, replaced as a whole",
        "docs/reference/format.md",
        """store/genesis::the_readable_form_loses_nothing
        store/checkpoints::the_two_copies_are_written_in_turn
        store/recovery::the_newest_sound_checkpoint_counts""",
        "Metadata are a genesis entry in each commit; two checkpoint files, written in turn and "
        "with checksums, only make opening fast.",
    ),
)

CALLS = (
    there(
        "L23, L25",
        "put and take in order",
        "Queue.put Queue.take",
        """fifoq/put::what_was_put_is_taken_in_order
        fifoq/take::a_take_waits_for_a_record""",
    ),
    there(
        "L24, L107",
        "put many with one commit and one sync",
        "Queue.put_many",
        "fifoq/put::put_many_is_one_commit_and_returns_lazy_keys",
    ),
    there(
        "L26",
        "take many",
        "Queue.take_many",
        """fifoq/take::take_many_takes_one_to_that_many
        fifoq/lanes::take_many_honours_lanes""",
    ),
    there(
        "L27, L48, L68",
        "records that expire, looked at when somebody comes to them",
        "put(ttl=) QueueOptions.on_expire QueueStats.expired",
        """fifoq/expiry::what_is_too_old_is_passed_by_and_counted
        fifoq/expiry::a_record_in_time_is_handed_out
        fifoq/expiry::thousands_that_expired_in_a_row_go_in_one_step
        fifoq/expiry::what_expired_on_disk_is_never_handed_out""",
    ),
    there(
        "L28",
        "put with headers",
        "put(headers=)",
        """fifoq/put::headers_are_checked_kept_and_read_back
        fifoq/headers::headers_up_to_every_limit_are_kept""",
    ),
    otherwise(
        "L29, L30, L67",
        "go to a counter or a time, and stay there after a restart",
        "Cursor.seek Cursor.position",
        """fifoq/cursor::seeking_back_and_forth_and_by_time
        fifoq/cursor_retention::what_is_retained_can_be_read_again_by_time_after_a_crash
        fifoq/cursor::what_was_committed_is_where_the_cursor_is_after_a_crash
        fifoq/cursor::a_seek_among_what_was_reclaimed_leads_to_the_next_record
        fifoq/cursor::a_seek_beyond_the_ends_is_refused_and_changes_nothing""",
        "A cursor is moved, never the head of the queue: what was taken stays taken.",
    ),
    there(
        "L31",
        "a stream of records until somebody stops it",
        "Queue.__aiter__ Cursor.records",
        """fifoq/take::async_for_ends_at_shutdown_and_at_close
        fifoq/cursor::it_waits_for_new_records_without_polling""",
    ),
    there(
        "L32, L55-L57",
        "statistics in memory: counts and percentiles",
        "Queue.stats Queue.watch QueueStats",
        """fifoq/life::statistics_tell_times_delays_and_marks
        fifoq/life::percentiles_are_near
        fifoq/life::watch_ends_with_the_queue""",
        "One loop owns the counts, so nothing needs to be atomic.",
    ),
    there(
        "L58",
        "statistics as a snapshot",
        "Queue.stats",
        "fifoq/life::stats_are_a_snapshot_that_stays_as_it_was",
    ),
    there(
        "L33, L118",
        "compact by hand; it tells segments removed and bytes freed",
        "Store.compact Compacted.segments_removed Compacted.bytes_freed",
        "fifoq/compact::compact_gives_back_what_is_removed_and_says_how_much",
    ),
    there(
        "L34, L35",
        "open and close",
        "open open_store Store.close",
        """store/opening::a_new_store_has_one_segment_and_two_checkpoints_and_its_parents_are_made
        fifoq/life::closing_twice_is_fine_and_then_nothing_works
        fifoq/life::nobody_is_left_waiting_by_a_close""",
    ),
    there(
        "L36",
        "make everything so far durable",
        "Queue.flush Store.flush",
        """store/log::flush_makes_everything_so_far_durable
        examples::a_stronger_put_and_a_flush_make_what_came_before_durable
        fifoq/disk_trouble::flush_does_not_lie_on_a_full_disk""",
    ),
    there(
        "L37",
        "ack",
        "Queue.lease Delivery.ack",
        """fifoq/lease::an_acked_record_is_gone
        fifoq/lease::acks_may_come_in_any_order""",
    ),
    otherwise(
        "L38",
        "nack with a reason",
        "Delivery.nack Delivery.reject",
        """fifoq/lease::a_nacked_record_is_back_at_its_place
        fifoq/burying::the_last_error_goes_along_with_its_traceback""",
        "A nack has a delay, no reason; the reason of the last attempt is the error that left the "
        "block, or what `reject` is told.",
    ),
    there(
        "L39",
        "dead letters back into their queue",
        "DeadLetters.replay",
        "fifoq/dead_letters::one_some_and_all_are_replayed",
    ),
    otherwise(
        "L40, L95",
        "a put that comes again stores nothing and tells the first one's place",
        "put(dedup_id=) QueueStats.duplicates",
        """fifoq/dedup::a_put_that_comes_again_returns_the_first_key_and_stores_nothing
        fifoq/dedup::puts_of_one_id_at_the_same_time_are_one_put""",
        "The first key is returned without a flag that says so; `stats` counts. The window is an "
        "option of the queue, not of the call.",
    ),
    there(
        "L41, L70, L72",
        "priorities, where a queue is opened with them",
        "put(priority=) QueueOptions.priorities",
        "fifoq/lanes::urgent_records_come_first_and_each_lane_is_in_order",
    ),
    there(
        "L42",
        "options",
        "QueueOptions StoreOptions Queue.configure",
        """fifoq/life::wrong_options_are_named_all_at_once
        fifoq/life::options_are_kept_except_durability""",
    ),
    otherwise(
        "L43, L54",
        "adapters for logs and metrics",
        "Store.metrics Queue.stats Queue.watch",
        """store/log::every_write_is_traced_and_no_line_holds_a_payload
        fifoq/metrics::a_real_parser_reads_what_the_stats_say""",
        "Logs go to Python's `logging` (`fifoq`, `store`), with fields, and metrics come as text "
        "for Prometheus: both have adapters.",
    ),
    outside("L44", "conversion between its types", "Layout of another program's code."),
)

LAYERS = (
    otherwise(
        "L45, L51-L53",
        "layers: queue, segments, format; versions of the format",
        "store.Log store.Reader docs/reference/format.md",
        """store/architecture::imports_point_down
        store/architecture::the_format_knows_no_files_and_no_log
        store/golden::a_store_of_a_newer_format_is_refused_and_left_alone
        store/recovery::a_missing_segment_is_named""",
        "Layers of our own: format, files, queue, surfaces.",
    ),
    there(
        "L46, L74",
        "a small index of priorities",
        "QueueOptions.priorities",
        "fifoq/lanes::lanes_need_a_byte_for_each_record",
    ),
    otherwise(
        "L47, L77, L79, L82",
        "attempts are counted and kept, and forgotten with the ack",
        "Delivery.attempt",
        """fifoq/lease::leases_come_back_by_reopening_and_count_on
        store/log::attempts_survive_a_reopen_and_go_with_the_record
        fifoq/hard_cases::attempts_of_records_that_are_gone_are_forgotten""",
        "In the log, in the commit of the hand-out, and not in a file beside it.",
    ),
    there(
        "L49, L117",
        "compaction by itself",
        "Store.compact",
        """fifoq/compact::a_quiet_store_compacts_by_itself
        fifoq/compact::under_load_steps_have_a_tenth_of_the_time""",
        "When the store is quiet or too large, not by a clock.",
    ),
    there(
        "L50, L105",
        "syncs by interval for what need not be durable at once",
        "QueueOptions.durability StoreOptions.sync_interval StoreOptions.sync_every",
        "fifoq/life::sync_interval_and_sync_every_bound_what_power_can_take",
        "The default is the stronger one, L106.",
    ),
    there(
        "L59, L116",
        "whole segments are dropped",
        "Store.compact Retention",
        """store/upkeep::a_segment_goes_at_once_with_its_last_record
        store/upkeep::a_segment_in_the_middle_may_go_first
        store/upkeep::a_live_record_is_never_expired_by_retention""",
        "Sparse segments are compacted as well, so one old record does not keep the rest.",
    ),
    there(
        "L61",
        "opening reads the end of the log alone",
        "open_store",
        "store/recovery::opening_reads_only_what_is_behind_the_checkpoint",
    ),
    outside("L62", "hot segments in the system's cache", "Done by the system, not by a program."),
    there(
        "L63, L64",
        "what was taken is gone, also after a restart",
        "Queue.take",
        "fifoq/take::what_was_taken_does_not_come_back_after_a_crash",
    ),
    there(
        "L65",
        "each take is kept as durably as was asked for",
        "Queue.take QueueOptions.durability",
        "fifoq/take::a_take_returns_when_its_removal_has_its_level",
    ),
    there(
        "L66, L112",
        "recovery from metadata and from the log itself",
        "open_store",
        """store/state::recovery_finds_the_state_that_the_owner_had
        store/recovery::without_a_checkpoint_the_whole_log_is_read
        store/recovery::a_missing_segment_is_named""",
    ),
    otherwise(
        "L71",
        "three priorities, each in order",
        "put(priority=)",
        "fifoq/lanes::urgent_records_come_first_and_each_lane_is_in_order",
        "Ten lanes, 0 (first) to 9.",
    ),
    there(
        "L73",
        "who waits long is not starved",
        "QueueOptions.priority_aging",
        "fifoq/lanes::who_waits_long_moves_up",
    ),
    there(
        "L75",
        "priorities after a restart",
        "QueueOptions.priorities",
        "fifoq/lanes::lanes_survive_a_reopen",
    ),
    otherwise(
        "L76, L80",
        "dead letters as a queue of their own",
        "Store.dead_letters DeadLetters QueueOptions.max_retries",
        """fifoq/burying::a_rejected_record_is_in_the_dead_letters
        fifoq/burying::three_retries_are_the_default_and_none_is_no_limit
        fifoq/burying::the_power_cut_at_every_call_leaves_it_in_one_place""",
        "In the same store, so that the move is one commit, and on by default: `max_retries=None` "
        "turns it off.",
    ),
    there(
        "L78",
        "a record that failed too often is moved",
        "QueueOptions.max_retries Delivery.nack",
        """fifoq/burying::a_record_is_leased_once_and_retried_so_often
        fifoq/burying::a_record_that_kills_its_consumer_ends_there""",
    ),
    there(
        "L81",
        "no dead letters of dead letters",
        "Store.dead_letters",
        "fifoq/burying::there_are_no_dead_letters_of_dead_letters",
    ),
    there(
        "L83",
        "a dead letter tells its number, attempts, reason and time",
        "DeadLetter",
        """fifoq/burying::a_dead_letter_says_where_it_came_from_when_and_why
        fifoq/burying::the_last_error_goes_along_with_its_traceback""",
        "As headers that begin with `fifoq.dlq.`.",
    ),
)

COMPRESSION_AND_DEDUPLICATION = (
    otherwise(
        "L84, L85, L88, L91",
        "compression by choice, with levels, not seen by readers",
        "QueueOptions.compression QueueOptions.compression_level",
        """fifoq/compression::records_come_back_in_order_from_memory_and_from_disk
        store/compression::settings_that_are_right
        store/compression::wrong_settings_are_told_in_words
        store/format_docs::compressed_payloads_lie_as_the_page_says""",
        "Payloads of a block together, with zlib of the standard library, or zstd if installed.",
    ),
    there(
        "L86",
        "what is smaller than 1 KiB stays as it is",
        "QueueOptions.compression",
        "store/compression::small_payloads_are_stored_as_they_are",
    ),
    there(
        "L87",
        "kept only where it saves 5 %",
        "QueueOptions.compression",
        "store/compression::what_saves_less_than_five_percent_is_stored_as_it_is",
    ),
    outside("L89", "figures of that compression", "Figures of another program."),
    there(
        "L90",
        "a small input cannot ask for much memory",
        "CorruptionError",
        "store/compression::a_bomb_does_not_need_more_memory_than_its_block_may",
    ),
    otherwise(
        "L92, L93",
        "deduplication by an id, within a window",
        "put(dedup_id=) QueueOptions.dedup_window",
        """fifoq/dedup::the_default_window_is_five_minutes
        fifoq/dedup_many::put_many_takes_an_id_for_each_record
        fifoq/dedup::the_window_may_change_while_the_queue_runs_and_is_kept
        fifoq/dedup::after_the_window_the_id_is_new_again""",
        "A put with an id asks for it, no switch does. Ids are kept as digests of 16 bytes.",
    ),
    otherwise(
        "L94, L96, L97",
        "ids with their places and ends, kept across restarts",
        "put(dedup_id=)",
        """fifoq/dedup::ids_survive_a_close_and_a_crash_also_when_the_record_is_gone
        fifoq/dedup::power_cuts_at_every_disk_call_leave_record_and_id_or_none_of_them
        fifoq/dedup::pages_hold_what_a_window_holds""",
        "In the commit of the record and not in a file beside it; nothing cleans up by a clock. "
        "The log is not for people to read.",
    ),
    otherwise(
        "L98",
        "some 64 bytes of memory for each id",
        "put(dedup_id=)",
        "fifoq/dedup::ids_are_bounded_and_the_oldest_is_forgotten_first",
        "About 400 bytes in Python, for 100,000 ids at the most.",
    ),
    there(
        "L99",
        "at most 100,000 ids; beyond it the oldest goes, and the put succeeds",
        "put(dedup_id=)",
        "fifoq/dedup::ids_are_bounded_and_the_oldest_is_forgotten_first",
    ),
)

THE_REST = (
    there(
        "L100-L102",
        "many putters and takers at once",
        "Queue fifoq.sync.Queue",
        """fifoq/order::no_record_is_passed_by_a_later_one
        fifoq/sync::many_threads_put_and_take_and_nothing_is_lost_or_doubled
        rigs/queue_crashes::long_histories_of_concurrent_callers_have_no_anomaly""",
        "Tasks of one loop; threads through `fifoq.sync`.",
    ),
    outside(
        "L103", "which locks it takes", "Layout of another program's code; one loop owns a queue."
    ),
    there(
        "L104, L123",
        "independent readers, and groups that share one reading",
        "Queue.cursor Cursor.lease",
        """examples::fan_out_gives_every_record_to_every_cursor
        fifoq/cursor_members::each_record_goes_to_one_member_and_all_are_done""",
    ),
    there(
        "L106",
        "a sync for each write, shared by those who wait",
        "QueueOptions.durability put(durability=)",
        """fifoq/put::a_put_returns_when_its_level_is_reached
        rigs/power_cut::what_was_confirmed_outlives_a_power_cut_at_any_moment""",
    ),
    outside("L108-L111", "figures of its benchmarks", "Ours are told by `fifoq bench`."),
    otherwise(
        "L113",
        "damaged entries are skipped, with a warning",
        "open_store Quarantine",
        """store/check::quarantine_delivers_the_rest_and_lists_what_is_missing_exactly
        fifoq/disk_trouble::damage_stops_one_queue_and_every_taker_is_told
        store/opening::a_torn_tail_is_set_aside_and_counted""",
        'Damage is an error until `recover="quarantine"` asks to go on without it; nothing is '
        "skipped in silence.",
    ),
    there(
        "L114",
        "what each level may lose is told",
        "docs/reference/guarantees.md",
        """rigs/queue_crashes::queues_whose_process_is_killed_keep_what_they_confirmed
        rigs/queue_crashes::queues_whose_power_is_cut_keep_what_they_confirmed
        docs::every_clause_names_its_tests""",
    ),
    there(
        "L115",
        "retention by age, size and number of segments",
        "QueueOptions.retention Retention.max_age Retention.max_bytes Retention.max_segments "
        "Retention.min_segments",
        """store/upkeep::what_is_retained_goes_by_age_size_and_number
        fifoq/holding::removed_records_stay_as_long_as_the_retention_says""",
        "Nothing is retained by default.",
    ),
    outside("L119", "modules and their sizes", "Layout of another program's code."),
    otherwise(
        "L120",
        "sizes, free space and texts are checked",
        "QueueOptions.max_item_bytes ItemTooLarge DiskFull InvalidName",
        """fifoq/put::an_item_over_its_limit_is_refused
        store/full_disk::a_put_that_a_full_disk_refuses_is_certainly_not_there
        store/full_disk::nothing_is_added_that_a_full_disk_could_not_remove
        fifoq/burying::texts_that_go_along_are_short_and_harmless
        fifoq/life::a_wrong_name_makes_nothing""",
        "Free space is not guessed beforehand: a put that finds none is refused, and room for the "
        "removals is held in advance.",
    ),
    missing("L121", "encryption on disk", "Use an encrypted file system, or encrypt items."),
    outside("L122", "replication", "Distributed: a queue is in one process on one disk."),
    there(
        "L124",
        "transactions over several records and queues",
        "Store.transaction Transaction",
        """fifoq/transaction::a_record_moves_on_in_one_frame
        fifoq/transaction::an_exception_rolls_everything_back
        fifoq/transaction::the_power_cut_at_every_call_leaves_all_of_it_or_nothing""",
    ),
    there(
        "L125",
        "old records to Parquet",
        "fifoq.spark.pipelines.archive fifoq.spark.pipelines.replay",
        """spark/archive::each_record_is_archived_once_by_date_and_segment
        spark/archive::replay_puts_records_back_in_order_and_once_by_name""",
        "Through Spark.",
    ),
)

LOG: tuple[Row, ...] = (
    *STORAGE,
    *CALLS,
    *LAYERS,
    *COMPRESSION_AND_DEDUPLICATION,
    *THE_REST,
)
