"""The OpenAPI description of the REST doors, made from the doors themselves."""

from collections.abc import Iterable
from typing import Any, cast

import msgspec
import uritemplate
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from rest_framework.exceptions import UnsupportedMediaType

from scalable.api.doors import BODY_ERRORS, COMMON_ERRORS, KEY_ERRORS, Door
from scalable.api.errors import ANSWERS
from scalable.api.serializers import ErrorBody
from scalable.domain.errors import ScalableError, UnreadableBody

JSON_TYPE = "application/json"
OCTETS_TYPE = "application/octet-stream"
TEXT_TYPE = "text/plain"
REF_TEMPLATE = "#/components/schemas/{name}"
SECURITY: list[dict[str, list[str]]] = [{"bearerToken": []}, {"dashboardSession": []}]
SECURITY_SCHEMES: dict[str, dict[str, str]] = {
    "bearerToken": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "dashboardSession": {"type": "apiKey", "in": "cookie", "name": "scalable_session"},
}
PATH_PARAMETERS = {
    "tenant": "The tenant of the namespace.",
    "namespace": "The namespace of the topic.",
    "topic": "The topic's own name.",
    "segment_id": "The id of a segment of the topic.",
    "other_segment_id": "The id of the neighbour.",
    "operation_id": "The id of an operation of the topic.",
    "node_id": "The id of a web node.",
    "role": "The subject of a token, or `user:` and the name of a user of the dashboard.",
    "token_id": "The id of a token, its claim `jti`.",
    "job_id": "The id of a batch job.",
    "file": "The name of a file of the job's result.",
    "subscription": "The name of a subscription of the topic.",
    "descriptor": "Range and id of a segment, as in `0000-7fff-1`.",
}

_Schema = dict[str, Any]


class DoorSchema(AutoSchema):
    """Describes each method of a `DoorView` from its door."""

    @property
    def door(self) -> Door:
        """The door that is described now."""
        return cast("Door", self.view.doors[self.method])  # type: ignore[attr-defined]

    def get_summary(self) -> str:
        return self.door.summary

    def get_description(self) -> str:  # type: ignore[override]
        wants = f"Wants the right `{self.door.right}`."
        headers = "".join(f" Header `{name}`: {text}" for name, text in self.door.headers.items())
        return wants + headers

    def get_tags(self) -> list[str]:
        return [str(self.view.tag)]  # type: ignore[attr-defined]

    def get_operation_id(self) -> str:
        name = type(self.view).__name__.removesuffix("View")
        return f"{str(self.method).lower()}{name}"

    def get_auth(self) -> list[_Schema]:
        for name, scheme in SECURITY_SCHEMES.items():
            self._register(name, scheme, ResolvedComponent.SECURITY_SCHEMA)
        return [dict(requirement) for requirement in SECURITY]

    def _get_parameters(self) -> list[_Schema]:
        return [*self._path_parameters(), *self._query_parameters(), *self._header_parameters()]

    def _header_parameters(self) -> Iterable[_Schema]:
        if self.door.takes_keys(str(self.method)):
            schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}
            yield {
                "in": "header",
                "name": "Idempotency-Key",
                "required": False,
                "schema": schema,
                "description": "Sent again, the same request gets the same answer and is not done again.",
            }

    def _path_parameters(self) -> Iterable[_Schema]:
        for name in uritemplate.variables(self.path):
            schema = {"type": "integer", "minimum": 0} if "segment" in name else {"type": "string"}
            description = PATH_PARAMETERS[name]
            yield {"in": "path", "name": name, "required": True, "schema": schema, "description": description}

    def _query_parameters(self) -> Iterable[_Schema]:
        schema = msgspec.json.schema(self.door.query, ref_template=REF_TEMPLATE)
        (described,) = schema["$defs"].values() if "$defs" in schema else ({"properties": {}},)
        for name, of_parameter in described["properties"].items():
            yield {"in": "query", "name": name, "required": False, "schema": _without_null(of_parameter)}

    def _get_request_body(self, direction: Any = "request") -> _Schema | None:
        if self.door.body is None:
            return None
        return {
            "content": {JSON_TYPE: {"schema": self._schema_of(self.door.body)}},
            "required": self.door.body_required,
        }

    def _get_response_bodies(self, direction: Any = "response") -> _Schema:
        bodies = {str(status): self._success(shape) for status, shape in self.door.answers.items()}
        refusals = BODY_ERRORS if self.door.body is not None else ()
        refusals += KEY_ERRORS if self.door.takes_keys(str(self.method)) else ()
        for status, errors in _by_status((*COMMON_ERRORS, *refusals, *self.door.errors)).items():
            bodies.setdefault(str(status), self._refusal(errors))
        if self.door.body is not None:
            bodies[str(UnsupportedMediaType.status_code)] = self._refusal([UnreadableBody])
        return bodies

    def _success(self, shape: Any) -> _Schema:
        described: _Schema = {"description": "Done." if shape is None else "The answer."}
        if self.door.headers:
            described["headers"] = {
                name: {"description": text, "schema": {"type": "string"}}
                for name, text in self.door.headers.items()
            }
        if shape is bytes:
            described["content"] = {OCTETS_TYPE: {"schema": {"type": "string", "format": "binary"}}}
        elif shape is str:
            described["content"] = {TEXT_TYPE: {"schema": {"type": "string"}}}
        elif shape is not None:
            described["content"] = {JSON_TYPE: {"schema": self._schema_of(shape)}}
        return described

    def _refusal(self, errors: list[type[ScalableError]]) -> _Schema:
        codes = "\n".join(f"* `{error.code}`: {_sentence(error)}" for error in errors)
        return {"description": codes, "content": {JSON_TYPE: {"schema": self._schema_of(ErrorBody)}}}

    def _schema_of(self, shape: Any) -> _Schema:
        (schema,), components = msgspec.json.schema_components([shape], ref_template=REF_TEMPLATE)
        for name, component in components.items():
            self._register(name, component, ResolvedComponent.SCHEMA)
        return schema

    def _register(self, name: str, schema: _Schema, kind: str) -> None:
        component = ResolvedComponent(name, kind, schema, name)  # type: ignore[no-untyped-call]
        self.registry.register_on_missing(component)


def _without_null(schema: _Schema) -> _Schema:
    """A parameter is left out or has a value: no text stands for null."""
    plain = {key: value for key, value in schema.items() if (key, value) != ("default", None)}
    choices = [choice for choice in plain.pop("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        return {**plain, **choices[0]}
    return {**plain, "anyOf": choices} if choices else plain


def _by_status(errors: Iterable[type[ScalableError]]) -> dict[int, list[type[ScalableError]]]:
    grouped: dict[int, list[type[ScalableError]]] = {}
    for error in sorted(set(errors), key=lambda each: (ANSWERS[each.code].status, each.code)):
        grouped.setdefault(ANSWERS[error.code].status, []).append(error)
    return grouped


def _sentence(error: type[ScalableError]) -> str:
    return (error.__doc__ or "").splitlines()[0]
