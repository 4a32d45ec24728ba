"""Every table and column of a store, from its schema."""

from __future__ import annotations

from cbe.spec.metrics import METRICS, SUMMARIZED
from cbe.spec.search import KEYS
from cbe.store.schema import TABLES, TYPES, Table
from docs.reference.markdown import code, sentence, table

_NAMES = {kind: name for name, kind in TYPES.items()}
ABOUT = {
    "trials": "One row a trial.",
    "metrics": "One row an evaluation of a trial.",
    "confusions": "Confusion matrices of a trial's evaluations.",
    "events": "What happened to the study and its trials.",
    "scaling": "Machines of a cluster that grows, without its head, and the trials that have or want one.",
}
_SUMMARIES = {
    f"{which}_{name}": f"{METRICS[name].title} {when}"
    for which, when in (
        ("last", "of the last evaluation"),
        ("median", "as the median of the last 20 evaluations"),
        ("best", "at the step with the best validation error"),
    )
    for name in SUMMARIZED
}
MEANINGS = {
    "study": "name of the study",
    "trial": "name of the trial: t0001 of the search, c0001 of the confirmation",
    "epoch": "number of the driver under which the row was written",
    "revision": "a row with a higher revision replaces older rows of the same key",
    "role": "`search` or `confirm`",
    "preset": "`paper`, `base` or null: the two configs that every study runs",
    "state": "`running`, `completed`, `pruned`, `interrupted`, `failed` or `infeasible`",
    "config_id": "the same for all trials of one config, on whatever seed and split",
    "params": "JSON: the values that the sampler chose",
    "config": "JSON: the whole config",
    "seed": "training seed",
    "label_split": "seed of the label split",
    "split": "digest of the label split",
    "objective": "value of the first objective",
    "values": "values of all objectives",
    "step": "steps done",
    "steps": "steps that the config asks for",
    **_SUMMARIES,
    **{name: metric.meaning for name, metric in METRICS.items()},
    "best_step": "step with the best validation error",
    "started": "when the trial began (UTC)",
    "updated": "when the row was written (UTC)",
    "gpu_s": "`wall_s` times the GPUs in use",
    "cost_usd": "price of that time",
    "node": "machine of the last start",
    "device": "cpu or the card's name",
    "workers": "processes of the trial",
    "retries": "how often it was started again",
    "versions": "JSON: versions of cbe, torch and Ray",
    "git_commit": "commit of the checkout that ran it",
    "error_class": "class of the error that ended it",
    "error_text": "its message",
    "checkpoint": "where its last checkpoint is",
    "reused_from": "STUDY/TRIAL whose run was taken over instead of training; null for a run of its own",
    "sampler": "JSON of what the sampler has noted of the trial",
    "thresholds": "threshold of each class, mean over heads",
    "time": "when it happened (UTC)",
    "matrix": "counts; rows are true classes, columns predicted ones",
    "id": "unique name of the row",
    "details": "JSON: what there is to say",
    "running": "trials that run",
    "pending": "trials that wait for a machine",
    "starting": "machines that were asked for and are not there yet",
    "nodes": "machines",
    "groups": "JSON: machines by group",
    "idle_s": "seconds of paid places without a trial, since the row before",
}
# The same name means something else in these tables.
OWN = {
    ("trials", "epoch"): "number of the driver under which the trial began",
    ("confusions", "kind"): "`validation` or `pseudo`",
    ("events", "kind"): "what happened, as `started`, `pruned` or `node came`",
    ("metrics", "step"): "step of the evaluation",
    ("confusions", "step"): "step of the evaluation",
}
_OF_CONFIG = {key.replace(".", "_"): key for key in KEYS}


def generate() -> str:
    """A section for each table."""
    return "\n\n".join(_section(each) for each in TABLES.values())


def meaning(table_name: str, column: str) -> str:
    """What a column holds; columns of the config point to their key in the study file."""
    if (table_name, column) in OWN:
        return OWN[table_name, column]
    if column in MEANINGS:
        return MEANINGS[column]
    return f"value of [{_OF_CONFIG[column]}](study-file.md), null where it does not apply"


def _section(each: Table) -> str:
    rows = [
        [code(field.name), _NAMES[field.type], sentence(meaning(each.name, field.name))]
        for field in each.schema
    ]
    keys = ", ".join(code(name) for name in each.key)
    about = f"{ABOUT[each.name]} Key: {keys}. Schema version {each.version}."
    return f"### {each.name}\n\n{about}\n\n{table(['column', 'type', 'meaning'], rows)}"
