"""Django's admin for people who run an installation: users, groups, tenants, grants, tokens, and the audit.

For superusers alone, who log in where everybody does. What is changed of access goes through the services, so
that it is checked, audited and noticed like a change by REST.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import NotRelationField, get_fields_from_path
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import BadRequest, FieldDoesNotExist, PermissionDenied
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from scalable.access_models import ACTIONS, Grant, ServiceToken, Tenant
from scalable.admin_site import SuperuserSite, actor_of
from scalable.audit_models import AuditEvent
from scalable.domain.access import Scope, role_of_user
from scalable.domain.errors import ScalableError
from scalable.services import auditing, grants, roles, tenants, tokens
from scalable.store.audit import Sorted, values_of

if TYPE_CHECKING:  # Django's own classes take no type arguments
    ModelForm = forms.ModelForm[Model]
    ModelAdmin = admin.ModelAdmin[Any]
    Users = UserAdmin[User]
    Pages = Paginator[Any]
else:
    ModelForm, ModelAdmin, Users, Pages = forms.ModelForm, admin.ModelAdmin, UserAdmin, Paginator

_NUMBER = re.compile("[0-9]{1,18}")
MOST_ROWS = 10_000
MOST_VALUES = 200
PLAIN = frozenset({"exact", "isnull", "in", "gt", "gte", "lt", "lte"})


site = SuperuserSite()


class PlainLists(ModelAdmin):
    """Lists by the values of fields alone: not by patterns, which the database takes long for."""

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Refuse another comparison than those of the filters that are offered."""
        path, _, kind = lookup.rpartition("__")
        try:
            get_fields_from_path(self.model, path if kind in PLAIN else lookup)
        except NotRelationField:
            return False
        except FieldDoesNotExist:
            pass  # Django passes over it
        return super().lookup_allowed(lookup, value, request)  # type: ignore[arg-type]

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any], *more: Any) -> Any:
        """Do something with the rows that are chosen, each by its number."""
        if not all(_NUMBER.fullmatch(key) for key in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            raise BadRequest("A row has no such key")
        return super().response_action(request, queryset, *more)


class Audited(PlainLists):
    """Notes in the audit who made, changed or deleted a user or a group; passwords are not in it."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Delete and note it in one transaction, as the other views do."""
        with transaction.atomic():
            return super().changelist_view(request, extra_context)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._record(request, "create", obj)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._record(request, "change", obj, changed=_changed_fields(message))
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        for row in queryset:
            self._record(request, "delete", row)
        return super().log_deletions(request, queryset)

    def _record(self, request: HttpRequest, verb: str, row: Any, **more: Any) -> None:
        kind = row._meta.model_name
        state = {**_standing(row), **more}
        told = {"before": state} if verb == "delete" else {"after": state}
        auditing.record(f"{kind}.{verb}", f"{kind}s/{row}", actor=actor_of(request), **told)


def _standing(row: User | Group) -> dict[str, Any]:
    if isinstance(row, Group):
        return {}
    return {"active": row.is_active, "staff": row.is_staff, "superuser": row.is_superuser}


def _changed_fields(message: Any) -> list[str]:
    """The fields that a form has changed, as Django tells them; a sentence stands for itself."""
    if not isinstance(message, list):
        return [str(message)]
    return [str(field) for entry in message for field in entry.get("changed", {}).get("fields", ())]


@admin.register(User, site=site)
class AuditedUserAdmin(Audited, Users):
    """Users of the dashboard; what was granted to them goes with them, and follows a new name."""

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        former = _lock_roles(User.objects.filter(pk=obj.pk))
        super().save_model(request, obj, form, change)
        name = role_of_user(obj.get_username())
        for role in former:
            if role != name:
                roles.rename(role=role, to=name, actor=actor_of(request))

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        self.delete_queryset(request, User.objects.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        former = _lock_roles(queryset)
        super().delete_queryset(request, queryset)
        roles.forget(roles=former, actor=actor_of(request))


def _lock_roles(users: QuerySet[User]) -> list[str]:
    """The roles of users, who get no other names until the transaction ends."""
    rows = User.objects.select_for_update().filter(pk__in=users.values("pk")).order_by("pk")
    return [role_of_user(name) for name in rows.values_list("username", flat=True)]


@admin.register(Group, site=site)
class AuditedGroupAdmin(Audited, GroupAdmin):
    """Groups of users."""


def _try(call: Callable[[], None]) -> None:
    """Do it and take it back; raises ValidationError with what the service would refuse with."""
    try:
        with transaction.atomic():
            call()
            transaction.set_rollback(True)
    except ScalableError as error:
        raise forms.ValidationError(f"{error.reason} {error.hint}") from error


class GrantForm(ModelForm):
    """What a role may do in a tenant, a namespace of it, or a topic of that."""

    actions = forms.MultipleChoiceField(choices=[(action, action) for action in ACTIONS])

    class Meta:
        model = Grant
        fields = ("tenant", "namespace", "topic", "role", "actions")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors:
            row: Any = self.instance
            _try(lambda: give(row, cleaned, actor="a form"))
        return cleaned


def give(row: Grant, cleaned: dict[str, Any], *, actor: str) -> None:
    """Write the grant of a form; where it names another role or scope than its row, that one's goes."""
    scope = Scope(cleaned["tenant"], cleaned["namespace"], cleaned["topic"])
    before = Grant.objects.filter(pk=row.pk).first()
    role, actions = cleaned["role"], cleaned["actions"]
    if before is None or (_scope_of(before), before.role) == (scope, role):
        grants.grant(scope=scope, role=role, actions=actions, actor=actor)
    else:
        former = _scope_of(before)
        grants.move(
            scope=former, role=before.role, to_scope=scope, to_role=role, actions=actions, actor=actor
        )


def _scope_of(row: Grant) -> Scope:
    return Scope(row.tenant, row.namespace, row.topic)


@admin.register(Grant, site=site)
class GrantAdmin(PlainLists):
    """Grants."""

    form = GrantForm
    list_display = ("role", "tenant", "namespace", "topic", "actions")
    list_filter = ("tenant",)
    search_fields = ("role", "tenant", "namespace", "topic")

    def save_model(self, request: HttpRequest, obj: Grant, form: Any, change: bool) -> None:
        give(obj, form.cleaned_data, actor=actor_of(request))
        obj.pk = Grant.objects.get(
            tenant=obj.tenant, namespace=obj.namespace, topic=obj.topic, role=obj.role
        ).pk

    def delete_model(self, request: HttpRequest, obj: Grant) -> None:
        grants.revoke(scope=_scope_of(obj), role=obj.role, actor=actor_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Grant]) -> None:
        chosen = {(_scope_of(row), row.role) for row in queryset}
        grants.revoke_all(chosen=chosen, actor=actor_of(request))


class MadeElsewhere(PlainLists):
    """Rows that no form makes; who asks for one is told what does."""

    made_by: str

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> Any:
        """Refuse, and say where such rows come from."""
        raise PermissionDenied(self.made_by)


class TenantForm(ModelForm):
    """The admin roles of a tenant."""

    class Meta:
        model = Tenant
        fields = ("admin_roles",)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors:
            row: Any = self.instance
            chosen = cleaned["admin_roles"]
            _try(lambda: tenants.update_tenant(tenant=row.name, admin_roles=chosen, actor="a form"))
        return cleaned


@admin.register(Tenant, site=site)
class TenantAdmin(MadeElsewhere):
    """Tenants, which are made and deleted by REST."""

    made_by = "Tenants are made by `scalable-topics tenants create NAME`, or PUT /admin/v2/tenants/NAME."
    form = TenantForm
    list_display = ("name", "admin_roles", "created_at")
    search_fields = ("name",)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Tenant, form: Any, change: bool) -> None:
        chosen = form.cleaned_data["admin_roles"]
        tenants.update_tenant(tenant=obj.name, admin_roles=chosen, actor=actor_of(request))


class ReadOnlyAdmin(MadeElsewhere):
    """Rows that are looked at."""

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(ServiceToken, site=site)
class ServiceTokenAdmin(ReadOnlyAdmin):
    """Tokens, which are minted by REST, where they are shown once."""

    made_by = (
        "Tokens are made by `scalable-topics tokens issue ROLE`, or POST /admin/v2/tokens: a token is shown "
        "once, to whoever asked for it."
    )
    list_display = ("token_id", "role", "created_by", "created_at", "expires_at", "revoked_at")
    list_filter = ("role",)
    search_fields = ("token_id", "role", "created_by")
    actions = ("revoke",)

    @admin.action(description="Revoke for ever")
    def revoke(self, request: HttpRequest, queryset: QuerySet[ServiceToken]) -> None:
        """Revoke the chosen tokens."""
        for row in queryset:
            tokens.revoke_token(token_id=row.token_id, actor=actor_of(request))
        messages.success(request, "Revoked; what they opened is being closed.")


class CountsSome(Pages):
    """Counts no further than to `MOST_ROWS`: the audit may have millions, the newest of which come first."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows[:MOST_ROWS].count())


class ByValue(admin.SimpleListFilter):
    """Offers the values that there are, which are read from the column's index."""

    column: Sorted

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, value) for value in values_of(self.column, limit=MOST_VALUES)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset


class ByAction(ByValue):
    title = parameter_name = column = "action"


class ByOutcome(ByValue):
    title = parameter_name = column = "outcome"


@admin.register(AuditEvent, site=site)
class AuditEventAdmin(ReadOnlyAdmin):
    """The audit."""

    made_by = "The audit is written by the product itself; nobody adds to it."
    list_display = ("at", "actor", "action", "target", "outcome", "request_id")
    list_filter = (ByAction, ByOutcome)
    paginator = CountsSome
    ordering = ("-id",)
    search_fields = ("=actor", "=target", "=request_id")
    show_full_result_count = False
