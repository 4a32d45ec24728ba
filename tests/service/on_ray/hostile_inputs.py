"""Names, files, JSON and SQL that are made to break a service."""

from __future__ import annotations

import json

from tests.made import HOSTILE

Text = str | bytes
FORGED = "\n2026-01-01 00:00:00,000 ERROR forged"
NAMES = [
    *(
        "../x",
        "..",
        ".",
        "../../etc/passwd",
        "..\\x",
        "a/../../x",
        "/etc/passwd",
        "a..b",
        ".hidden",
        "_service",
    ),
    *(
        "-x",
        "A",
        "a" * 65,
        "a" * 5000,
        "",
        " ",
        "a b",
        "ä",
        "名",
        "a\0b",
        "\0",
        "a\r\nX: 1",
        "a%2fb",
        "%2e%2e",
    ),
    *("a?b", "a#b", "$(id)", "{x}", "a\u2028b", "\u202ea", f"a{FORGED}", HOSTILE),
]
_LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(b)}: &{chr(b)} [{', '.join(['*' + chr(b - 1)] * 9)}]\n" for b in range(ord("b"), ord("j"))
)
TEXTS: dict[str, Text] = {
    "laughs": f"name: x\n{_LAUGHS}",
    "alias": "name: x\ntraining: &a {steps: 4}\nloss: *a\n",
    "a circle": "name: x\nsearch: &a {a: *a}\n",
    "merge": "name: x\nbase: &b {trials: 3}\nbudget:\n  <<: [*b, *b]\n",
    "python": "name: x\nquestion: !!python/object/apply:os.system ['touch hit']\n",
    "python name": "name: x\nquestion: !!python/name:os.system\n",
    "unknown tag": "name: x\nquestion: !evil {a: 1}\n",
    "binary": "name: x\nquestion: !!binary /////w==\n",
    "set": "name: x\nsearch: !!set {a, b}\n",
    "brackets": f"name: x\nsearch: {'[' * 100_000}",
    "fewer brackets": f"name: x\nsearch: {'[' * 5000}",
    "closed brackets": f"name: x\nsearch: {'[' * 900}{']' * 900}\n",
    "braces": "{a: " * 3000 + "}" * 3000,
    "no date": "name: x\nquestion: 2026-99-99\n",
    "no time": "name: x\nquestion: 2026-01-01 99:99:99\n",
    "huge integer": f"name: x\nbudget: {{trials: {'9' * 10_000}}}\n",
    "integer": f"name: x\nbudget: {{trials: {'9' * 4000}}}\n",
    "sexagesimal": f"name: x\nbudget: {{trials: 1{':59' * 5000}}}\n",
    "no number": "name: x\ntraining: {lr: .nan}\nbudget: {usd: 1.0e+999}\n",
    "surrogate": 'name: x\nquestion: "\\ud800"\n',
    "surrogate key": 'name: x\n"\\udfff": 1\n',
    "twice": "name: x\nname: y\n",
    "twice below": "name: x\nbudget: {trials: 3, trials: 4}\n",
    "no key": "name: x\n? [a, b]\n: 1\n",
    "number key": "name: x\n1: 2\n2.5: 3\nnull: 4\ntrue: 5\n",
    "several": "name: x\n---\nname: y\n",
    "nothing": "",
    "a list": "- name: x\n",
    "nul": "name: x\0y\n",
    "control": "name: x\nquestion: \x1b[31m\x07\n",
    "latin": "name: x\nquestion: ä\n".encode("latin-1"),
    "half a letter": "name: x\nquestion: 名".encode()[:-1],
    "utf-16": "name: x\n".encode("utf-16"),
    "random": bytes(range(256)) * 8,
    "unknown": "".join(f"key{n}: 1\n" for n in range(500)),
    "a long value": f"name: {'n' * 90_000}\n",
    "an endless grid": "name: x\nsampler: grid\nsearch: {training.steps: {int: [1, 999999999999]}}\n",
    "a large grid": "name: x\nsampler: grid\nsearch: {training.batch_size: {int: [1, 3000000]}}\n",
    "a large file": f"name: x\ndata: {{labels: 40000, label_indices: {list(range(40_000))}}}\n",
    "a long comment": "name: x\n" + "# hello\n" * 100_000,
}
JSONS: dict[str, Text] = {
    "brackets": "[" * 100_000,
    "braces": '{"a":' * 100_000,
    "closed brackets": '{"set": {"budget": ' + "[" * 900 + "]" * 900 + "}}",
    "objects": '{"set": {"budget.trials": ' + '{"a":' * 400 + "1" + "}" * 400 + "}}",
    "no number": '{"priority": NaN}',
    "a grid": '{"set": {"sampler": "grid", "search": {"training.steps": {"int": [1, 300000000]}}}}',
    "infinite": '{"set": {"budget.usd": Infinity, "budget.trials": -Infinity}}',
    "beyond": '{"set": {"budget.usd": 1e999}, "priority": 1e999}',
    "huge integer": f'{{"priority": {"9" * 10_000}}}',
    "integer": f'{{"set": {{"budget.trials": {"9" * 4000}}}}}',
    "surrogate": '{"set": {"question": "\\ud800"}}',
    "surrogate below": '{"set": {"search": {"training.lr": ["\\udfff"], "\\udfff": 1}}}',
    "surrogate key": '{"\\ud800": 1}',
    "surrogate in the set": '{"set": {"\\ud800": 1}}',
    "invalid": b'{"set": {"question": "\xff"}}',
    "half": '{"set": ',
    "two": "{} {}",
    "many keys": json.dumps({f"key{n}": n for n in range(20_000)}),
    "many settings": json.dumps({"set": {f"budget.k{n}": n for n in range(101)}}),
    "a long setting": json.dumps({"set": {"question": "q" * 900_000}}),
    "a long list": json.dumps({"set": {"search": {"training.lr": list(range(100_000))}}}),
    "yaml": "set:\n  budget.trials: 5\n",
}
ELSEWHERE = {"storage.optuna": "sqlite:///hit.db", "storage.store": "hit", "data.root": "hit"}
CLOSED_SQL = [
    "select * from read_csv('/etc/passwd')",
    "select * from '/etc/passwd'",
    "select * from read_text('/proc/self/environ')",
    "select * from glob('/*')",
    "copy (select 1) to 'hit.csv'",
    "export database 'hit'",
    "attach 'hit.db' as hit",
    "create table hit (x int)",
    "delete from trials",
    "install httpfs",
    "set enable_external_access = true",
    "select 1; drop table trials",
    "select getenv('HOME')",
    "\0",
    f"select error('hit{FORGED}')",
    "select " + "(" * 5000 + "1" + ")" * 5000,
    "select repeat('x', 1000000) from range(100)",  # an answer of 100 MB
    "select list(range) from range(3000000000)",
    "select [date '290000-01-01']",  # Python has no such date
]
ODD_SQL = [
    "select 'nan'::float, 'inf'::double, [1.0, 'nan'::float], {'a': 'nan'::float}, null, [], [null]",
    "select 1 as a, 2 as a, map {'a': 1}, map {[1]: 'x'}, row(1, 2), union_value(k := 1)",
    "select 170141183460469231731687303715884105727::hugeint, 1.5::decimal(38, 2), '\\xAA'::blob, '101'::bit",
    "select date '2026-01-01', time '12:00', timestamptz '2026-01-01', interval 1 month, interval 1 second",
    "select timestamp 'infinity', date '-infinity', timestamp '290000-01-01'",
    "select * from trials, metrics limit 5",
    "select * from duckdb_settings()",
    "describe trials",
]
