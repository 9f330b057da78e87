"""Every metric of the program. Labels are bounded: nothing here grows with users or files, only with batches, hosts and bricks."""

from migrator.domain.metrics import MetricKind, MetricSpec

_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM


def _spec(name: str, kind: MetricKind, labels: str, text: str) -> MetricSpec:
    return MetricSpec(name=f"migrator_{name}", kind=kind, labels=tuple(labels.split()), help=text)


_LEDGER = (
    _spec("build_info", _G, "version", "Always 1; the label has the version of the program"),
    _spec(
        "site_info", _G, "site plan", "Always 1; the labels have the site and the plan that everything is counted by"
    ),
    _spec("ledger_read_timestamp_seconds", _G, "", "When the ledger was read for these values"),
    _spec("ledger_read_duration_seconds", _G, "", "How long that took"),
)

_RUNS = (
    _spec("run_last_heartbeat_timestamp_seconds", _G, "verb", "Last sign of life of the newest run of a verb"),
    _spec("run_start_timestamp_seconds", _G, "verb", "When the newest run of a verb began"),
    _spec(
        "run_state",
        _G,
        "verb state",
        "1 for what the newest run of a verb is: at-work, silent (neither ended nor a sign of life), killed, ended",
    ),
    _spec("runs_total", _C, "verb exit_code", "Runs of a verb that have ended, by their exit code"),
    _spec("blocked_subjects", _G, "", "What cannot go on and waits for somebody; status names it"),
    _spec("events_total", _C, "kind severity", "Warnings and errors, by kind"),
    _spec("hook_calls_total", _C, "stage outcome", "Calls of hooks that have ended"),
)

_PROGRESS = (
    _spec("planned_bytes", _G, "batch", "Bytes of a batch that are to be copied"),
    _spec("copied_bytes", _G, "batch", "Those of them that were copied once"),
    _spec("planned_files", _G, "batch", "Files of a batch that are to be copied"),
    _spec("copied_files", _G, "batch", "Those of them that were copied once"),
    _spec("batch_state", _G, "batch state", "1 for the state that a batch is in"),
    _spec("trees", _G, "state", "User trees of the plan, by how far they are"),
    _spec("verified_bytes", _G, "", "Bytes of user trees that were verified whole"),
    _spec("verified_content_bytes", _G, "", "Those of them whose content was compared"),
    _spec("chunks", _G, "batch state", "Chunks of the newest pass over a batch"),
    _spec("attention_files", _G, "batch", "Files that could not be copied and need attention"),
    _spec("vanished_files", _G, "batch", "Listed files that their users removed before their turn came"),
    _spec(
        "copy_left_seconds",
        _G,
        "",
        "How long copying still takes by the first of the estimates of status; 0 when all is copied",
    ),
    _spec(
        "batch_predicted_freeze_seconds", _G, "batch", "How long users of a batch would be frozen, as predicted last"
    ),
    _spec("batch_churn_bytes_per_second", _G, "batch", "What users of a batch change"),
)

_STREAMS = (
    _spec("streams", _G, "host from", "Streams at work now, by host and by what they read: brick or mount"),
    _spec("stream_bytes_total", _C, "pass", "Bytes that streams have written, by the kind of their pass"),
    _spec("stream_files_total", _C, "pass", "Files that streams have written, by the kind of their pass"),
    _spec("stream_seconds_total", _C, "pass", "How long streams were at work, each counted by itself"),
    _spec("passes_total", _C, "pass", "Passes that were begun"),
    _spec("attempts_total", _C, "host engine state", "Attempts at chunks that have ended"),
    _spec("attempt_bytes_total", _C, "host engine", "Bytes that these attempts have written"),
    _spec("attempt_files_total", _C, "host engine", "Files that these attempts have written"),
    _spec("allowed_streams", _G, "", "Streams that the governor allows the run that is at work"),
    _spec("allowed_streams_limit", _G, "", "Streams that its limits would let it have"),
    _spec("host_allowed_streams", _G, "host", "Those of them that each host may have"),
    _spec("governor_bound", _G, "bound", "1 for what keeps the number of streams where it is"),
    _spec("bandwidth_limit_bytes_per_second", _G, "", "What all streams together may move; left out without a limit"),
    _spec(
        "host_load", _G, "host", "Load average of one minute of each host that has streams, when the run looked last"
    ),
    _spec("host_load_limit", _G, "", "Load beyond which streams are taken away; left out without a limit"),
    _spec("paused", _G, "", "1 while the migration is paused by hand"),
    _spec("window_holds", _G, "window", "1 while a window of [transfer] holds, otherwise 0"),
    _spec("window_change_timestamp_seconds", _G, "window", "When a window ends that holds, or begins next"),
)

_SIDES = (
    _spec(
        "probe_latency_seconds", _G, "side", "What users wait for: slowest operation on metadata of the newest probe"
    ),
    _spec(
        "probe_latency_limit_seconds",
        _G,
        "",
        "Latency beyond which streams are taken away from the run that is at work; left out without a limit",
    ),
    _spec("probe_operation_seconds", _G, "side operation", "Each operation of the newest probe"),
    _spec("probe_timestamp_seconds", _G, "side", "When the newest probe was begun"),
    _spec("probe_success", _G, "side", "1 where the newest probe had an answer"),
    _spec("filesystem_size_bytes", _G, "side", "Size of a file system, when a run looked last"),
    _spec("filesystem_free_bytes", _G, "side", "What was free of it"),
    _spec("filesystem_inodes", _G, "side", "Inodes of a file system, where it tells"),
    _spec("filesystem_free_inodes", _G, "side", "What was free of them"),
    _spec("filesystem_timestamp_seconds", _G, "side", "When a run looked last"),
    _spec("scan_whole", _G, "", "1 where the newest scan that has ended saw everything"),
    _spec("scan_problems", _G, "", "What the newest scan could not read"),
    _spec("scan_finished_timestamp_seconds", _G, "", "When it ended"),
)

_CUTOVERS = (
    _spec("cutovers", _G, "state", "User trees by the state of their newest attempt to be cut over"),
    _spec("frozen_users", _G, "", "Users who cannot work now, because they are being moved"),
    _spec("freeze_oldest_start_timestamp_seconds", _G, "", "Since when the first of them cannot work"),
    _spec("freeze_seconds", _H, "", "How long users were frozen"),
    _spec("purged_bytes_total", _C, "", "Bytes of users that were freed on the source"),
    _spec("purged_inodes_total", _C, "", "Inodes of users that were freed on the source"),
    _spec("verifications_total", _C, "whole", "Verifications that have ended, by whether they saw everything"),
    _spec("verification_read_bytes_total", _C, "", "Bytes whose content verifications have compared"),
    _spec("verification_read_files_total", _C, "", "Files whose content verifications have compared"),
    _spec("verification_differences", _G, "batch", "Differences in the newest verification of a whole batch"),
)

_BRICKS = (
    _spec(
        "drain_state",
        _G,
        "brick state",
        "1 for the state of the newest drain of a brick (bricks of a set: joined by commas)",
    ),
    _spec("drain_moved_bytes", _G, "brick", "Bytes that it has moved"),
    _spec("drain_moved_files", _G, "brick", "Files that it has moved"),
    _spec("drain_left_bytes", _G, "brick", "Bytes that it has left to move"),
    _spec("drain_left_files", _G, "brick", "Files that it has left to move"),
    _spec("drain_left_seconds", _G, "brick", "How long it still takes by the pace of the last half hour"),
    _spec("drain_failures", _G, "brick", "Failures in its last task"),
    _spec("drain_skipped_files", _G, "brick", "Files that its last task has skipped"),
    _spec("drain_last_look_timestamp_seconds", _G, "brick", "When Gluster was asked last"),
    _spec("addition_state", _G, "brick side state", "1 for the state of the newest addition of a brick"),
    _spec("addition_moved_bytes", _G, "brick side", "Bytes that its rebalances have moved"),
    _spec("addition_left_seconds", _G, "brick side", "How long it still takes by the pace of the last half hour"),
    _spec("addition_failures", _G, "brick side", "Failures in its last task"),
    _spec("addition_last_look_timestamp_seconds", _G, "brick side", "When Gluster was asked last"),
    _spec("gluster_moved_bytes_total", _C, "task host", "Bytes that a host has moved for drains or additions"),
    _spec("gluster_moved_files_total", _C, "task host", "Files that a host has moved for drains or additions"),
    _spec("gluster_move_failures_total", _C, "task host", "Files that a host could not move"),
    _spec("retirement_state", _G, "state", "1 for the state of the newest attempt to retire the source volume"),
)

CATALOGUE = (*_LEDGER, *_RUNS, *_PROGRESS, *_STREAMS, *_SIDES, *_CUTOVERS, *_BRICKS)
"""Every metric, in the order in which they are exposed."""

FREEZE_BUCKETS_S = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0)
"""Upper bounds of the histogram of freezes."""
