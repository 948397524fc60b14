"""What goes in and out, as JSON: the same classes check requests and describe them in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from xmcascade.serve.limits import Limits

__all__ = [
    "ErrorAnswer", "Health", "LabelsAnswer", "ModelAnswer", "PredictAnswer", "SessionRequest", "TreeAnswer",
    "predict_request",
]  # fmt: skip


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Fault(BaseModel):
    """What went wrong."""

    code: str = Field(examples=["too_large"])
    message: str
    remedy: str = ""
    request_id: str


class ErrorAnswer(BaseModel):
    """Every error has this shape."""

    error: Fault


class Found(BaseModel):
    """A label of a text."""

    label: str
    score: float = Field(description="Only ranks.")
    probability: float = Field(ge=0, le=1)


class Timings(BaseModel):
    """Milliseconds."""

    queue_ms: float
    work_ms: float
    total_ms: float
    batch_texts: int = Field(description="Texts that were answered together.")


class PredictAnswer(BaseModel):
    """The labels of each text, best first."""

    model: str
    predictions: list[list[Found]]
    explanations: list[dict[str, Any]] | None = Field(
        default=None, description="Of each text, when asked for: why it got its labels."
    )
    timings: Timings


class LabelFound(BaseModel):
    """A label of the model."""

    label: str
    documents: int = Field(description="Training documents that have it.")
    path: list[int] = Field(description="Its nodes in the tree, from the coarsest level; empty without one.")


class LabelsAnswer(BaseModel):
    """Labels whose names contain what was asked for."""

    model: str
    labels: list[LabelFound]


class Node(BaseModel):
    """A cluster or label of the tree."""

    node: int
    name: str
    labels: int = Field(description="Labels below it; 1 for a label.")
    documents: int = Field(description="How often these are used in training documents.")


class TreeAnswer(BaseModel):
    """The children of a node of the label tree."""

    model: str
    levels: list[int] = Field(description="Nodes of each level, coarsest first; the last are the labels.")
    level: int = Field(description="Of the children.")
    total: int = Field(description="Children in all.")
    offset: int
    children: list[Node]


class ModelAnswer(BaseModel):
    """What answers here."""

    model: str
    models: list[str]
    kind: str
    labels: int
    documents: int = Field(description="It learnt from.")
    levels: list[int]
    opinions: list[str] = Field(description="What its answers are made of.")
    runtime: str | None
    threshold: float | None = Field(description="Used where threshold is 'auto'.")
    loaded: str
    version: str
    limits: dict[str, float]


class Health(BaseModel):
    """Whether the server lives, or is ready."""

    status: Literal["alive", "ready"]


class SessionRequest(_Strict):
    """Logs a browser in."""

    key: str = Field(max_length=1000)


def _whole(value: Any) -> Any:
    """JSON does not tell 3.0 from 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def predict_request(limits: Limits) -> type[BaseModel]:
    """The body of a prediction, within these limits.

    >>> predict_request(Limits()).model_validate_json('{"texts": ["an apple"], "k": 3}').k
    3
    """
    text = Annotated[str, Field(max_length=limits.text_characters)]
    told: dict[str, tuple[Any, Any]] = {
        "texts": (list[text], Field(min_length=1, max_length=limits.texts, examples=[["Red apples"]])),
        "k": (
            Annotated[int, Field(ge=1, le=limits.labels), BeforeValidator(_whole)] | None,
            Field(None, description="Labels of a text, at most [5]."),
        ),
        "threshold": (
            Annotated[float, Field(ge=0, le=1)] | Literal["auto"] | None,
            Field(None, description="Only labels of at least this probability."),
        ),
        "allowed_labels": (
            list[str] | None,
            Field(
                None, min_length=1, max_length=limits.allowed_labels, description="Only these are considered."
            ),
        ),
        "explain": (bool, Field(False, description=f"Say why, of {limits.explained_texts} texts at most.")),
        "model": (str | None, Field(None, max_length=100, description="By name [the first].")),
    }
    most = {"anyOf": [{"type": "integer", "maximum": limits.explained_labels}, {"type": "null"}]}
    few: Any = {"properties": {"texts": {"maxItems": limits.explained_texts}, "k": most}}
    asked: Any = {"properties": {"explain": {"const": True}}, "required": ["explain"]}

    class Base(_Strict):
        model_config = ConfigDict(json_schema_extra={"if": asked, "then": few})

    made: type[BaseModel] = create_model("PredictRequest", __base__=Base, __doc__="Texts to tag.", **told)  # type: ignore[call-overload]
    return made
