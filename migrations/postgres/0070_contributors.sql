-- The role contributor.
alter table brand_members drop constraint brand_members_role_check,
    add constraint brand_members_role_check check (role in ('owner', 'admin', 'editor', 'contributor'));
