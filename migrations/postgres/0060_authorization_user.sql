-- The user who asked for the URL; null: the operator, or a release before this one.
alter table authorizations add column user_id bigint;
