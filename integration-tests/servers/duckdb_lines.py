"""Answers queries with DuckDB: a JSON line in, a JSON line out. Values are written as `programs/query_fuzz/answer.rs`
writes those of Arrow."""

import decimal
import json
import math
import sys

import duckdb


def text(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, decimal.Decimal):
        value = float(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        mantissa, exponent = f"{value:.9e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(text(item) for item in value) + "]"
    return "'" + str(value) + "'"


def main():
    connection = duckdb.connect(config={"threads": 1})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            for statement in request.get("setup", []):
                connection.execute(statement)
            rows = connection.execute(request["query"]).fetchall() if "query" in request else []
            answer = {"rows": [[text(value) for value in row] for row in rows]}
        except Exception as error:  # whatever DuckDB says is the answer
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


main()
