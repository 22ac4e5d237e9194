"""Service tokens: given out, listed, revoked."""

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.access_bodies import IssuedBody, MintBody, TokensBody, issued_body, token_body
from scalable.api.authentication import actor_of
from scalable.api.doors import Door
from scalable.api.node_bodies import PageQuery
from scalable.api.serializers import Query
from scalable.api.views.base import DoorView, body_of
from scalable.domain.access import Right
from scalable.domain.errors import AccessFull, TokenNotFound
from scalable.services import tokens

NEVER_STORED = {"Cache-Control": "no-store"}


class TokensView(DoorView):
    """All tokens."""

    tag = "Access"
    doors = {
        "POST": Door(
            summary="Mint a token for a role; it is shown this once",
            right=Right.SUPERUSER,
            body=MintBody,
            keeps_answer=False,
            answers={200: IssuedBody},
            errors=(AccessFull,),
        ),
        "GET": Door(
            summary="List the tokens that were minted, without the tokens themselves",
            right=Right.SUPERUSER,
            query=PageQuery,
            answers={200: TokensBody},
        ),
    }

    def post(self, request: Request) -> Response:
        asked = body_of(request, MintBody)
        issued = tokens.issue_token(role=asked.role, ttl_seconds=asked.ttl_seconds, actor=actor_of(request))
        return Response(issued_body(issued), headers=NEVER_STORED)

    def get(self, request: Request) -> Response:
        query = self.query(PageQuery)
        page, total = tokens.list_tokens(limit=query.limit, offset=query.offset)
        return Response({"tokens": [token_body(each) for each in page], "total": total})


class RevokeQuery(Query):
    """The role of a token that was not minted here, which its id alone does not find."""

    role: str = ""


class TokenView(DoorView):
    """One token."""

    tag = "Access"
    doors = {
        "DELETE": Door(
            summary="Revoke a token for ever; sockets that it opened are closed",
            right=Right.SUPERUSER,
            query=RevokeQuery,
            answers={204: None},
            errors=(TokenNotFound,),
        ),
    }

    def delete(self, request: Request, **path: str) -> Response:
        role = self.query(RevokeQuery).role
        tokens.revoke_token(token_id=path["token_id"], role=role, actor=actor_of(request))
        return Response(status=204)
