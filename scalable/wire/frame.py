"""What every control frame is: one JSON text message with a `type`.

A server refuses fields that it does not know, for what it passed over might have mattered to the client. A
client passes them over, so that a server may tell more than before.
"""

from typing import Annotated

import msgspec

from scalable.domain.errors import FrameInvalid, FrameUnknownType

MAX_BIGINT = 2**63 - 1

Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_BIGINT)]


class Frame(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", frozen=True, kw_only=True):
    """Base of all control frames; as it is, of those of a client."""


class ServerSent(Frame, forbid_unknown_fields=False, frozen=True):
    """Base of the control frames of a server."""


_encoder = msgspec.json.Encoder()


def encode(frame: Frame) -> str:
    """The JSON text of a control frame."""
    return _encoder.encode(frame).decode()


def decoder(union: object) -> "msgspec.json.Decoder[Frame]":
    """A strict decoder for one direction of one socket, for `decode`."""
    return msgspec.json.Decoder(union)


def decode(using: "msgspec.json.Decoder[Frame]", text: str | bytes) -> Frame:
    """Parse a control frame; raises FrameUnknownType, FrameInvalid."""
    try:
        return using.decode(text)
    except msgspec.ValidationError as error:
        if "Invalid value" in str(error) and "$.type" in str(error):
            raise FrameUnknownType(problem=str(error)) from error
        raise FrameInvalid(problem=str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameInvalid(problem=str(error)) from error
