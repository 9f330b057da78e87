"""Documents that `--json` prints, checked against the schemas in docs/schemas."""

from functools import cache

import jsonschema

from tools.json_schemas import DOCUMENTS, schema


def verb_of(words: list[str]) -> str:
    """The verb of a call, such as `brick list`."""
    starts = (" ".join(words[at : at + length]) for at in range(len(words)) for length in (2, 1))
    return next(one for one in starts if one in DOCUMENTS)


@cache
def _validator(verb: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(verb))


def require_valid(verb: str, document: object) -> None:
    """Raise ValidationError if the document has not the form that the schema of the verb promises."""
    _validator(verb).validate(document)
