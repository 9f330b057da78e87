"""Every metric of the program. Labels are bounded: nothing here grows with users or files, only with batches, hosts and bricks."""

from migrator.domain.metrics import MetricKind, MetricSpec

_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM


def _spec(name: str, kind: MetricKind, labels: str, text: str) -> MetricSpec:
    return MetricSpec(name=f"migrator_{name}", kind=kind, labels=tuple(labels.split()), help=text)


_LEDGER = (
    _spec("build_info", _G, "version", "Always 1; version of the program"),
    _spec("site_info", _G, "site plan", "Always 1; site, and the plan that progress is counted by"),
    _spec("ledger_read_timestamp_seconds", _G, "", "Time of reading the ledger"),
    _spec("ledger_read_duration_seconds", _G, "", "Duration of reading it"),
)

_RUNS = (
    _spec("run_last_heartbeat_timestamp_seconds", _G, "verb", "Last heartbeat of the newest run of a verb"),
    _spec("run_start_timestamp_seconds", _G, "verb", "Start of the newest run of a verb"),
    _spec(
        "run_state",
        _G,
        "verb state",
        "1 for the state of the newest run of a verb: at-work, silent (no heartbeat), killed, ended",
    ),
    _spec("runs_total", _C, "verb exit_code", "Ended runs of a verb by exit code"),
    _spec("blocked_subjects", _G, "", "Blocked subjects that need an operator; see status"),
    _spec("events_total", _C, "kind severity", "Warnings and errors by kind"),
    _spec("hook_calls_total", _C, "stage outcome", "Ended calls of hooks"),
)

_PROGRESS = (
    _spec("planned_bytes", _G, "batch", "Planned bytes of a batch"),
    _spec("copied_bytes", _G, "batch", "Those copied at least once"),
    _spec("planned_files", _G, "batch", "Planned files of a batch"),
    _spec("copied_files", _G, "batch", "Those copied at least once"),
    _spec("batch_state", _G, "batch state", "1 for the state of a batch"),
    _spec("trees", _G, "state", "User trees of the plan by state"),
    _spec("verified_bytes", _G, "", "Bytes of completely verified user trees"),
    _spec("verified_content_bytes", _G, "", "Those with compared content"),
    _spec("chunks", _G, "batch state", "Chunks of the newest pass over a batch"),
    _spec("attention_files", _G, "batch", "Files that need attention"),
    _spec("vanished_files", _G, "batch", "Listed files that users removed before they were copied"),
    _spec(
        "copy_left_seconds",
        _G,
        "",
        "Time left for copying, first estimate of status; 0 when done",
    ),
    _spec("batch_predicted_freeze_seconds", _G, "batch", "Predicted freeze of a user of a batch"),
    _spec("batch_churn_bytes_per_second", _G, "batch", "Changes by users of a batch"),
)

_STREAMS = (
    _spec("streams", _G, "host from", "Running streams by host and source (brick or mount)"),
    _spec("stream_bytes_total", _C, "pass", "Bytes written by streams"),
    _spec("stream_files_total", _C, "pass", "Files written by streams"),
    _spec("stream_seconds_total", _C, "pass", "Stream seconds"),
    _spec("passes_total", _C, "pass", "Started passes"),
    _spec("attempts_total", _C, "host engine state", "Ended attempts at chunks"),
    _spec("attempt_bytes_total", _C, "host engine", "Bytes written by these attempts"),
    _spec("attempt_files_total", _C, "host engine", "Files written by these attempts"),
    _spec("allowed_streams", _G, "", "Streams allowed by the governor"),
    _spec("allowed_streams_limit", _G, "", "Streams allowed by the limits"),
    _spec("host_allowed_streams", _G, "host", "Streams allowed per host"),
    _spec("governor_bound", _G, "bound", "1 for what bounds the number of streams"),
    _spec("bandwidth_limit_bytes_per_second", _G, "", "Limit for all streams together, if any"),
    _spec("host_load", _G, "host", "Load average (1 minute) of each host with streams"),
    _spec("host_load_limit", _G, "", "Load limit, if any"),
    _spec("paused", _G, "", "1 while paused"),
    _spec("window_holds", _G, "window", "1 inside a window of [transfer], otherwise 0"),
    _spec("window_change_timestamp_seconds", _G, "window", "Next begin or end of a window"),
)

_SIDES = (
    _spec("probe_latency_seconds", _G, "side", "Slowest metadata operation of the newest probe"),
    _spec(
        "probe_latency_limit_seconds",
        _G,
        "",
        "Latency limit, if any",
    ),
    _spec("probe_operation_seconds", _G, "side operation", "Each operation of the newest probe"),
    _spec("probe_timestamp_seconds", _G, "side", "Start of the newest probe"),
    _spec("probe_success", _G, "side", "1 if the newest probe was answered"),
    _spec("filesystem_size_bytes", _G, "side", "Size of the file system at the last check by a run"),
    _spec("filesystem_free_bytes", _G, "side", "Free bytes of it"),
    _spec("filesystem_inodes", _G, "side", "Inodes of the file system, if reported"),
    _spec("filesystem_free_inodes", _G, "side", "Free inodes of it"),
    _spec("filesystem_timestamp_seconds", _G, "side", "Time of that check"),
    _spec("scan_whole", _G, "", "1 if the newest ended scan is whole"),
    _spec("scan_problems", _G, "", "Paths that the newest scan could not read"),
    _spec("scan_finished_timestamp_seconds", _G, "", "End of the newest scan"),
)

_CUTOVERS = (
    _spec("cutovers", _G, "state", "User trees by state of their newest cutover"),
    _spec("frozen_users", _G, "", "Frozen users"),
    _spec("freeze_oldest_start_timestamp_seconds", _G, "", "Start of the longest freeze"),
    _spec("freeze_seconds", _H, "", "Duration of freezes"),
    _spec("purged_bytes_total", _C, "", "Bytes freed on the source"),
    _spec("purged_inodes_total", _C, "", "Inodes freed on the source"),
    _spec("verifications_total", _C, "whole", "Ended verifications"),
    _spec("verification_read_bytes_total", _C, "", "Bytes compared by verifications"),
    _spec("verification_read_files_total", _C, "", "Files compared by verifications"),
    _spec("verification_differences", _G, "batch", "Differences in the newest verification of a batch"),
)

_BRICKS = (
    _spec(
        "drain_state",
        _G,
        "brick state",
        "1 for the state of the newest drain of a brick (set: joined by commas)",
    ),
    _spec("drain_moved_bytes", _G, "brick", "Bytes moved"),
    _spec("drain_moved_files", _G, "brick", "Files moved"),
    _spec("drain_left_bytes", _G, "brick", "Bytes left"),
    _spec("drain_left_files", _G, "brick", "Files left"),
    _spec("drain_left_seconds", _G, "brick", "Time left at the pace of the last half hour"),
    _spec("drain_failures", _G, "brick", "Failures in its last task"),
    _spec("drain_skipped_files", _G, "brick", "Files skipped by its last task"),
    _spec("drain_last_look_timestamp_seconds", _G, "brick", "Last poll of Gluster"),
    _spec("addition_state", _G, "brick side state", "1 for the state of the newest addition of a brick"),
    _spec("addition_moved_bytes", _G, "brick side", "Bytes moved by its rebalances"),
    _spec("addition_left_seconds", _G, "brick side", "Time left at the pace of the last half hour"),
    _spec("addition_failures", _G, "brick side", "Failures in its last task"),
    _spec("addition_last_look_timestamp_seconds", _G, "brick side", "Last poll of Gluster"),
    _spec("gluster_moved_bytes_total", _C, "task host", "Bytes moved by a host for drains or additions"),
    _spec("gluster_moved_files_total", _C, "task host", "Files moved by a host for drains or additions"),
    _spec("gluster_move_failures_total", _C, "task host", "Files that a host failed to move"),
    _spec("retirement_state", _G, "state", "1 for the state of the newest retirement of the volume"),
)

CATALOGUE = (*_LEDGER, *_RUNS, *_PROGRESS, *_STREAMS, *_SIDES, *_CUTOVERS, *_BRICKS)
"""Every metric, in the order in which they are exposed."""

FREEZE_BUCKETS_S = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0)
"""Upper bounds of the histogram of freezes."""
