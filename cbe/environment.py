"""What Ray must find in the environment when it is first imported; imported before it wherever it is used."""

import os

_SETTINGS = {
    "RAY_AUTH_MODE": "token",  # an embedded cluster answers to nobody else on the machine
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",  # 2 s delays every report of several workers by up to 4 s
    "TUNE_FORCE_TRIAL_CLEANUP_S": "20",  # 600 s keep a stopped study waiting
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "60",  # a process that is slow to leave a trial is lost without a word
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # a failed trial reports its error, no metric
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Tune's snapshots are for a restore that is never done
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ:  # a driver on somebody's cluster, which may have no token
    del _SETTINGS["RAY_AUTH_MODE"]
for _name, _value in _SETTINGS.items():
    os.environ.setdefault(_name, _value)
